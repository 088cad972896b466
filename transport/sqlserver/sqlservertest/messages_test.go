package sqlservertest_test

import "github.com/reprise-go/reprise/core"

// The messages of the tests.
var (
	placed  = core.NewMessageType[OrderPlaced]("orders.placed")
	written = core.NewEvent[OrderPlaced]("invoices.written")
)
