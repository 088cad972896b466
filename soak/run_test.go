//go:build darwin || linux

package main

import (
	"context"
	"maps"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// measured is a system with depths that a test gives, one after the other; the last ones
// stay. Its other methods are not called.
type measured struct {
	system
	all   []map[string]int
	stale time.Duration
	asked int
}

func (m *measured) depths(context.Context) (map[string]int, error) {
	depths := maps.Clone(m.all[min(m.asked, len(m.all)-1)])
	m.asked++
	return depths, nil
}

func (m *measured) staleness() time.Duration { return m.stale }

func TestDrain_WaitsForQueuesAndTheErrorQueue(t *testing.T) {
	l := goodLedger(t)
	s := &measured{stale: 300 * time.Millisecond, all: []map[string]int{
		{"orders": 1, errorQueue: 0},
		{"orders": 0, errorQueue: 0}, // the failing order is on its way
		{"orders": 0, errorQueue: 1},
	}}
	r := &run{system: s, ledger: l, lastPatience: 5 * time.Minute}
	began := time.Now()
	if err := r.drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s.asked < len(s.all)+1 || time.Since(began) < s.stale {
		t.Errorf("drain returned after the depths were asked for %d times, and %v", s.asked, time.Since(began))
	}
	if found := broken(l, receiveOnly); len(found) > 0 {
		t.Error(&found[0])
	}
}

func TestDrain_EndsWithRemainingMessages(t *testing.T) {
	s := &measured{all: []map[string]int{{"orders": 2, errorQueue: 1}}}
	r := &run{system: s, ledger: goodLedger(t), lastPatience: 300 * time.Millisecond}
	if err := r.drain(t.Context()); err != nil || s.asked < 2 {
		t.Errorf("drain = %v after the depths were asked for %d times", err, s.asked)
	}
}

func TestReadErrorQueue_ReadsToTheEnd(t *testing.T) {
	s := &measured{all: []map[string]int{{errorQueue: 2}, {errorQueue: 2}, {errorQueue: 1}, {errorQueue: 0}}}
	reader, err := core.New(errorQueue, inmemory.Open(), core.Config{Recoverability: core.Recoverability{ErrorQueue: unreadQueue}})
	if err != nil {
		t.Fatal(err)
	}
	core.HandleDefault(reader, func(context.Context, *core.Message) error { return nil })
	if err := reader.Provision(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := (&run{system: s}).readErrorQueue(t.Context(), reader); err != nil || s.asked < len(s.all) {
		t.Errorf("readErrorQueue = %v after the depths were asked for %d times, want %d", err, s.asked, len(s.all))
	}
}
