package core

// The messages of the tests.
var (
	aBType            = NewMessageType[string]("a;b")
	aByteType         = NewMessageType[[]byte]("a")
	aEvent            = NewEvent[string]("a")
	aIntType          = NewMessageType[int]("a")
	aStringType       = NewMessageType[*string]("a")
	aType             = NewMessageType[string]("a\xff")
	bEvent            = NewEvent[string]("a, b")
	bStringType       = NewEvent[string]("b")
	cType             = NewMessageType[[]byte]("c")
	eventEvent        = NewEvent[int]("z.event")
	eventIntType      = NewEvent[int]("b event")
	firstType         = NewMessageType[string]("first")
	messageStringType = NewMessageType[string]("")
	placeType         = NewMessageType[string]("orders.place")
	placedEvent       = NewEvent[string]("orders.placed")
	secondType        = NewMessageType[string]("second")
)
