package logformat_test

import "github.com/reprise-go/reprise/core"

// The messages of the tests.
var (
	orderType  = core.NewMessageType[[]byte]("order")
	placedType = core.NewMessageType[[]byte]("orders.placed")
)
