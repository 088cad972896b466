package recoverability_test

import "github.com/reprise-go/reprise/core"

// The messages of the tests.
var (
	forward = core.NewMessageType[[]byte]("forward")
	place   = core.NewMessageType[string]("orders.place")
	placed  = core.NewMessageType[Order]("orders.placed")
	refused = core.NewMessageType[Refused]("orders.refused")
)
