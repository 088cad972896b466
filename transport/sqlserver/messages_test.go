package sqlserver_test

import "github.com/reprise-go/reprise/core"

// The messages of the tests.
var (
	countType            = core.NewMessageType[int]("Count")
	delayedToGoType      = core.NewMessageType[note]("Interop.DelayedToGo")
	failInGoType         = core.NewMessageType[note]("Interop.FailInGo")
	failInNetType        = core.NewMessageType[note]("Interop.FailInNet")
	failPlaceOrderType   = core.NewMessageType[placeOrder]("Fail")
	failType             = core.NewMessageType[string]("Fail")
	healthyType          = core.NewMessageType[placeOrder]("Healthy")
	netHappenedEvent     = core.NewEvent[note]("Interop.NetHappened")
	orderPlacedType      = core.NewMessageType[placeOrder]("Sales.OrderPlaced")
	pingGoType           = core.NewMessageType[note]("Interop.PingGo")
	pingNetType          = core.NewMessageType[note]("Interop.PingNet")
	placeOrderType       = core.NewMessageType[placeOrder]("Sales.PlaceOrder")
	placeType            = core.NewMessageType[[]byte]("orders.Place")
	placedByteType       = core.NewEvent[[]byte]("placed")
	placedEvent          = core.NewEvent[int]("placed")
	pongFromNetType      = core.NewMessageType[note]("Interop.PongFromNet")
	remindPlaceOrderType = core.NewMessageType[placeOrder]("Remind")
	remindType           = core.NewMessageType[placeOrder]("Sales.Remind")
	rowType              = core.NewMessageType[[]byte]("Row")
	sendStringType       = core.NewMessageType[string]("Send")
	sendType             = core.NewMessageType[[]byte]("invoices.Send")
	sentType             = core.NewMessageType[string]("Sent")
	shipType             = core.NewMessageType[placeOrder]("Ship")
	writeInvoice         = core.NewMessageType[WriteInvoice]("billing.WriteInvoice")
	writtenEvent         = core.NewEvent[int]("written")
	xType                = core.NewMessageType[int]("x")
)
