package configuration_test

import "github.com/reprise-go/reprise/core"

// send is the message of the tests.
var send = core.NewMessageType[string]("mail.send")
