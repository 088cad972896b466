package sqs_test

import (
	"github.com/reprise-go/reprise/core"
)

// The messages.
var (
	postType = core.NewMessageType[int]("ledger.Post")
)
