package main

import (
	"context"
	"fmt"
	"strconv"
)

// The message is the same for everyone: a body of 256 bytes, unless a scenario
// says otherwise, and four headers that the sender sets. The framework's own
// come on top of them. The last header is different for every message, and says
// which one it is.
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

// system is one messaging system, opened, with a handler that runs.
type system interface {
	// send hands over one message as its user would, built from scratch but
	// for the body.
	send(ctx context.Context, sequence string) error
	// close ends the system once all was handled. A message that is left, or
	// was moved aside, is an error.
	close(ctx context.Context) error
}

// contender is one way of doing a scenario's work.
type contender struct {
	name string
	// open starts the system. The handler calls handle with the header that
	// says which message it is, and fails as handle does.
	open func(ctx context.Context, handle func(sequence string) error) (system, error)
}

// sequences are the texts of 0..n-1, sliced from one string when they are needed:
// a list of so many pointers would keep the garbage collector busy, and that
// would be measured along.
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

// sequenceNumber is the opposite of at. It returns -1 for anything else.
func sequenceNumber(sequence string) int {
	n, err := strconv.Atoi(sequence)
	if err != nil {
		return -1
	}
	return n
}
