// Package scenario describes a scenario: one question that tables answer.
package scenario

import (
	"context"

	"github.com/reprise-go/reprise/bench/internal/table"
)

// Scenario is one question, answered by tables.
type Scenario struct {
	Name  string // for -scenario
	Title string
	About string // one line
	Run   func(ctx context.Context, l Load) ([]table.Table, error)
	// Plotted says that one of the tables has a picture.
	Plotted bool
}

// Load is the amount of work of a sample, and the number of samples.
type Load struct {
	Messages    int
	Repetitions int
}

// AtMost returns the load with at most this number of messages per sample.
func (l Load) AtMost(messages int) Load {
	l.Messages = min(l.Messages, messages)
	return l
}
