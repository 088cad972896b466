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

// load is how much work a sample is, how many samples there are, and the servers
// on which they are taken.
type load struct {
	messages    int
	repetitions int
	on          *servers
}

// atMost returns the same load with fewer messages a sample.
func (l load) atMost(messages int) load {
	l.messages = min(l.messages, messages)
	return l
}
