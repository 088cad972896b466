package rabbitmq_test

import "github.com/reprise-go/reprise/core"

// The messages of the tests.
var (
	answeredType     = core.NewMessageType[order]("orders.answered")
	askedType        = core.NewMessageType[order]("orders.asked")
	delayedToGoType  = core.NewMessageType[note]("Interop.DelayedToGo")
	failInGoType     = core.NewMessageType[note]("Interop.FailInGo")
	failInNetType    = core.NewMessageType[note]("Interop.FailInNet")
	invoicePaidEvent = core.NewEvent[[]byte]("Shop.Billing.InvoicePaid")
	netHappenedEvent = core.NewEvent[note]("Interop.NetHappened")
	orderType        = core.NewMessageType[string]("order")
	pingGoType       = core.NewMessageType[note]("Interop.PingGo")
	pingNetType      = core.NewMessageType[note]("Interop.PingNet")
	placedByteType   = core.NewMessageType[[]byte]("orders.placed")
	placedType       = core.NewMessageType[order]("orders.placed")
	pongFromNetType  = core.NewMessageType[note]("Interop.PongFromNet")
	refreshType      = core.NewMessageType[Refresh]("screens.Refresh")
	soakType         = core.NewMessageType[int]("soak")
	textType         = core.NewMessageType[[]byte]("text")
)
