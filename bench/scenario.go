package main

import "context"

// scenario is one question, answered by tables.
type scenario struct {
	name  string // for -scenario
	title string
	about string // one line
	run   func(ctx context.Context, l load) ([]table, error)
	// plotted says that one of the tables has a picture.
	plotted bool
}

// load is the amount of work of a sample, and the number of samples.
type load struct {
	messages    int
	repetitions int
}

// atMost returns the load with at most this number of messages per sample.
func (l load) atMost(messages int) load {
	l.messages = min(l.messages, messages)
	return l
}
