package postgres_test

import "github.com/reprise-go/reprise/core"

// The messages of the tests.
var (
	billed    = core.NewMessageType[[]byte]("billed")
	orderType = core.NewMessageType[[]byte]("order")
)
