package otelreprise_test

import "github.com/reprise-go/reprise/core"

// The messages of the tests.
var (
	eventPlacedEvent  = core.NewEvent[string]("event-placed")
	eventShippedEvent = core.NewEvent[string]("event-shipped")
	noticeType        = core.NewMessageType[string]("notice")
	orderByteType     = core.NewMessageType[[]byte]("order")
	orderStructType   = core.NewMessageType[struct{}]("order")
	orderType         = core.NewMessageType[string]("order")
	seenType          = core.NewMessageType[string]("seen")
	shipByteType      = core.NewMessageType[[]byte]("ship")
	shipType          = core.NewMessageType[string]("ship")
)
