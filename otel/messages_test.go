package otelreprise_test

import "github.com/reprise-go/reprise/core"

// The messages of the tests.
var (
	chargeType  = core.NewMessageType[[]byte]("orders.charge")
	invoiceType = core.NewMessageType[[]byte]("invoice")
)
