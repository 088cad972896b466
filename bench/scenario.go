package main

import (
	"context"
	"slices"
)

// scenario is one question, answered by tables.
type scenario struct {
	name  string // for -scenario
	title string
	about string // one line
	run   func(ctx context.Context, l load) ([]table, error)
	// plotted says that one of the tables has a picture.
	plotted bool
}

// scenarios are in the order in which they run and are printed.
var scenarios = slices.Concat(inMemoryScenarios, postgresScenarios, inboxScenarios, rabbitScenarios, sqsScenarios, asbScenarios)

// load is the amount of work of a sample, the number of samples, and their servers.
type load struct {
	messages    int
	repetitions int
	on          *servers
}

// atMost returns the load with at most this number of messages per sample.
func (l load) atMost(messages int) load {
	l.messages = min(l.messages, messages)
	return l
}
