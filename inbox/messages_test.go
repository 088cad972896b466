package inbox_test

import "github.com/reprise-go/reprise/core"

// The messages of the tests.
var (
	billedType    = core.NewMessageType[[]byte]("billed")
	doneType      = core.NewMessageType[[]byte]("done")
	expiredType   = core.NewMessageType[[]byte]("expired")
	freshType     = core.NewMessageType[[]byte]("fresh")
	delayedType   = core.NewMessageType[[]byte]("late")
	notedType     = core.NewMessageType[[]byte]("noted")
	orderType     = core.NewMessageType[[]byte]("order")
	immediateType = core.NewMessageType[[]byte]("soon")
)
