package configuration_test

import (
	"github.com/reprise-go/reprise/core"
)

// The messages.
var (
	send = core.NewMessageType[string]("mail.send")
)
