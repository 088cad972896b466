package recoverability_test

import (
	"github.com/reprise-go/reprise/core"
)

// The messages.
var (
	forward = core.NewMessageType[[]byte]("forward")
	place   = core.NewMessageType[string]("orders.place")
	placed  = core.NewMessageType[Order]("orders.placed")
	refused = core.NewMessageType[Refused]("orders.refused")
)
