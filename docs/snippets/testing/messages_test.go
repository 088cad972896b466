package testing_test

import "github.com/reprise-go/reprise/core"

// The messages of the tests.
var (
	late     = core.NewMessageType[OrderPlaced]("orders.late")
	placed   = core.NewMessageType[OrderPlaced]("orders.placed")
	refused  = core.NewMessageType[OrderPlaced]("orders.refused")
	shipType = core.NewMessageType[Ship]("orders.ship")
)
