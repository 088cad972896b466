package bridge_test

import "github.com/reprise-go/reprise/core"

// The messages of the tests.
var (
	doneType         = core.NewMessageType[[]byte]("billing.Done")
	orderPaidEvent   = core.NewEvent[[]byte]("shop.OrderPaid")
	orderPlacedEvent = core.NewEvent[[]byte]("shop.OrderPlaced")
	writeType        = core.NewMessageType[[]byte]("billing.Write")
	xType            = core.NewMessageType[[]byte]("x")
)
