package sqs_test

import "github.com/reprise-go/reprise/core"

// postType is the message of the tests.
var postType = core.NewMessageType[int]("ledger.Post")
