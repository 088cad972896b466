package asb_test

import "github.com/reprise-go/reprise/core"

// The messages of the tests.
var (
	jobType     = core.NewMessageType[[]byte]("job")
	placedEvent = core.NewEvent[string]("Shop.Placed")
	postType    = core.NewMessageType[int]("ledger.Post")
)
