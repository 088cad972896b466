// Package workload has the message that all contenders send and handle, its queues and its loggers, and the
// sequences that tell one message from another.
package workload

import (
	"io"
	"log/slog"
)

// The message is the same for all contenders: a body of 256 bytes, unless a scenario sets
// another size, and four headers of the sender, beside those of the framework. The last
// header identifies the message.
const (
	MessageType    = "orders.placed"
	BodySize       = 256
	SequenceHeader = "sequence"
)

// The queues of all contenders.
const (
	Queue        = "orders"   // of the messages
	HandlerQueue = "shipping" // of the messages that handlers send
)

// Headers are the headers of the sender, in order.
var Headers = [...]struct{ Key, Value string }{
	{"tenant", "northwind"},
	{"region", "eu-central"},
	{"schema", "orders/3"},
}

// DiscardingLogger formats lines at Info and above, and discards them.
func DiscardingLogger() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }
