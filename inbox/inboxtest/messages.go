package inboxtest

import "github.com/reprise-go/reprise/core"

// The messages.
var (
	billedType = core.NewMessageType[[]byte]("billed")
	eventEvent = core.NewEvent[[]byte]("event")
	firstType  = core.NewMessageType[[]byte]("first")
	notedType  = core.NewMessageType[[]byte]("noted")
	secondType = core.NewMessageType[[]byte]("second")
)
