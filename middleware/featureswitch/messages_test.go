package featureswitch_test

import (
	"github.com/reprise-go/reprise/core"
)

// The messages.
var (
	orderType = core.NewMessageType[string]("order")
)
