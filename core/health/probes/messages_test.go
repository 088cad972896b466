package probes_test

import "github.com/reprise-go/reprise/core"

// orderType is the message of the tests.
var orderType = core.NewMessageType[string]("order")
