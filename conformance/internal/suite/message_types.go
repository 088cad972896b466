package suite

import "github.com/reprise-go/reprise/core"

// The messages.
var (
	answerType      = core.NewMessageType[[]byte]("answer")
	anyType         = core.NewMessageType[[]byte]("any")
	doneType        = core.NewMessageType[[]byte]("done")
	jobType         = core.NewMessageType[[]byte]("job")
	numberType      = core.NewMessageType[int]("number")
	orderType       = core.NewMessageType[[]byte]("order")
	questionType    = core.NewMessageType[[]byte]("question")
	reminderType    = core.NewMessageType[[]byte]("reminder")
	reportType      = core.NewMessageType[[]byte]("report")
	sentType        = core.NewMessageType[[]byte]("sent")
	undecodableType = core.NewMessageType[map[string]int]("undecodable")
	workByteType    = core.NewMessageType[[]byte]("conformance.work")
)
