package main

import (
	"io"
	"log/slog"
)

// The message is the same for all contenders: a body of 256 bytes, unless a scenario sets
// another size, and four headers of the sender, beside those of the framework. The last
// header identifies the message.
const (
	messageType    = "orders.placed"
	bodySize       = 256
	sequenceHeader = "sequence"
)

const (
	ordersQueue  = "orders"   // of the messages
	handlerQueue = "shipping" // of the messages that handlers send
)

var fixedHeaders = [...]struct{ key, value string }{
	{"tenant", "northwind"},
	{"region", "eu-central"},
	{"schema", "orders/3"},
}

// discardingLogger formats lines at Info and above, and discards them.
func discardingLogger() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }
