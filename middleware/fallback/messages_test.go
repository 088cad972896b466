package fallback_test

import "github.com/reprise-go/reprise/core"

// The messages of the tests.
var (
	answerType      = core.NewMessageType[[]byte]("answer")
	halfType        = core.NewMessageType[[]byte]("half")
	orderStringType = core.NewMessageType[string]("order")
	orderType       = core.NewMessageType[[]byte]("order")
	thirdType       = core.NewMessageType[[]byte]("third")
)
