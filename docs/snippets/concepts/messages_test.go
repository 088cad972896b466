package concepts_test

import "github.com/reprise-go/reprise/core"

// The messages of the tests.
var (
	attempted   = core.NewMessageType[PlaceOrder]("orders.attempted")
	invoicePaid = core.NewEvent[int]("Shop.Billing.InvoicePaid")
	orderFailed = core.NewMessageType[string]("OrderFailed")
	orderPlaced = core.NewEvent[Order]("OrderPlaced")
	orderType   = core.NewMessageType[string]("order")
	placeString = core.NewMessageType[string]("orders.place")
	placedType  = core.NewMessageType[OrderPlaced]("com.example.order.placed")
	shipByte    = core.NewMessageType[[]byte]("Ship")
	ship        = core.NewMessageType[PlaceOrder]("orders.ship")
)
