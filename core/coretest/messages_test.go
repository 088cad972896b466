package coretest_test

import "github.com/reprise-go/reprise/core"

// The messages of the tests.
var (
	aEvent           = core.NewEvent[[]byte]("a")
	aFuncType        = core.NewMessageType[func()]("a")
	aType            = core.NewMessageType[string]("a")
	acceptedType     = core.NewMessageType[[]byte]("orders.accepted")
	bType            = core.NewMessageType[string]("b")
	cEvent           = core.NewEvent[string]("c")
	messageIntType   = core.NewMessageType[int]("")
	messageType      = core.NewMessageType[[]byte]("")
	placedType       = core.NewMessageType[OrderPlaced]("orders.placed")
	rawType          = core.NewMessageType[[]byte]("raw")
	remindType       = core.NewMessageType[OrderPlaced]("orders.remind")
	shipType         = core.NewMessageType[Ship]("orders.ship")
	shippedEvent     = core.NewEvent[Ship]("orders.shipped")
	tErrorType       = core.NewMessageType[error]("t")
	tFuncType        = core.NewMessageType[func()]("t")
	tIntType         = core.NewMessageType[int]("t")
	tOrderPlacedType = core.NewMessageType[OrderPlaced]("t")
	tStringType      = core.NewMessageType[string]("t")
	tType            = core.NewMessageType[[]byte]("t")
)
