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

// sequences returns the texts of 0..n-1, sliced from one string: making them
// and collecting them as garbage shall not be part of what is measured.
func sequences(n int) []string {
	const digits = 12
	all := make([]byte, 0, n*digits)
	for i := range n {
		all = fmt.Appendf(all, "%0*d", digits, i)
	}
	text := string(all)
	list := make([]string, n)
	for i := range list {
		list[i] = text[i*digits : (i+1)*digits]
	}
	return list
}

// sequenceNumber is the opposite of sequences. It returns -1 for anything else.
func sequenceNumber(sequence string) int {
	n, err := strconv.Atoi(sequence)
	if err != nil {
		return -1
	}
	return n
}
