package main

import (
	"context"
	"fmt"
	"strconv"
)

// The message is the same for all contenders: a body of 256 bytes, unless a scenario sets
// another size, and four headers of the sender, beside those of the framework. The last
// header identifies the message.
const (
	messageType    = "orders.placed"
	bodySize       = 256
	sequenceHeader = "sequence"
)

var fixedHeaders = [...]struct{ key, value string }{
	{"tenant", "northwind"},
	{"region", "eu-central"},
	{"schema", "orders/3"},
}

// system is an open messaging system with a running handler.
type system interface {
	// send sends one message as its user would, built from scratch except for the body.
	send(ctx context.Context, sequence string) error
	// close ends the system when all messages were handled. A message that is left, or
	// was moved to another queue, is an error.
	close(ctx context.Context) error
}

// contender is one way of doing a scenario's work.
type contender struct {
	name string
	// open starts the system. The handler calls handle with the header that identifies
	// the message, and returns handle's error.
	open func(ctx context.Context, handle func(sequence string) error) (system, error)
}

// sequences are the texts of 0..n-1, sliced from one string when they are needed: a list
// of n pointers would load the garbage collector, and distort the measurement.
type sequences struct{ text string }

const sequenceDigits = 12

func newSequences(n int) sequences {
	text := make([]byte, 0, n*sequenceDigits)
	for i := range n {
		text = fmt.Appendf(text, "%0*d", sequenceDigits, i)
	}
	return sequences{string(text)}
}

func (s sequences) at(i int) string { return s.text[i*sequenceDigits : (i+1)*sequenceDigits] }

// sequenceNumber is the inverse of at. It returns -1 for any other text.
func sequenceNumber(sequence string) int {
	n, err := strconv.Atoi(sequence)
	if err != nil {
		return -1
	}
	return n
}
