package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// memoryRepetitions is the most samples of memory: each takes half a minute with a
// million messages.
const memoryRepetitions = 2

func inMemoryMemory(ctx context.Context, l load) ([]table, error) {
	total := 10 * l.messages
	counts := failureCounts(total)
	rounds, err := inTurn([]contender{failingContender("Reprise")}, min(l.repetitions, memoryRepetitions), func(c contender) ([]footprint, error) {
		return c.footprints(ctx, counts, failedAttempts)
	})
	if err != nil {
		return nil, err
	}
	resident := make([]float64, len(counts))
	live := make([]float64, len(counts))
	for i := range counts {
		resident[i] = median(of(rounds[0], func(f []footprint) float64 { return f[i].resident }))
		live[i] = median(of(rounds[0], func(f []footprint) float64 { return f[i].live }))
	}
	const held, inUse = "resident set", "live objects"
	t := table{title: "MiB by messages that failed", head: []string{"messages", held, inUse, "× " + held + " at " + thousands(int64(total/100))},
		growth: &growth{quantity: "messages that failed", figure: "MiB"}}
	base := slices.Index(counts, max(total/100, 1))
	for i, n := range counts {
		t.rows = append(t.rows, []string{thousands(int64(n)), number(resident[i]), number(live[i]), number(resident[i] / resident[base])})
		t.growth.add(held, float64(n), resident[i])
		t.growth.add(inUse, float64(n), live[i])
	}
	// One byte kept per message is 1 MiB for a million. The resident set also depends on
	// the memory that the garbage collector has returned recently: it varies by a tenth.
	last := len(counts) - 1
	after := fmt.Sprintf(" after %s, times those after %s", thousands(int64(total)), thousands(int64(total/100)))
	t.aims = []aim{
		{what: held + strings.Replace(after, "those", "that", 1), want: 1.25, got: resident[last] / resident[base], ceiling: true},
		{what: inUse + after, want: 1.05, got: live[last] / live[base], ceiling: true},
	}
	return []table{t}, nil
}

// failureCounts are the numbers of failed messages at which memory is measured, up to
// total.
func failureCounts(total int) []int {
	var counts []int
	for _, part := range []int{1000, 300, 100, 30, 10, 3, 1} {
		counts = append(counts, max(total/part, 1))
	}
	return slices.Compact(counts)
}

// failedAttempts is the number of attempts of each message that fail: with the defaults, the first one and its
// immediate retries.
const failedAttempts = 1 + 5

// failingContender returns Reprise with handlers that fail until the immediate retries of a message are used up, with the
// defaults; then each message goes to the error queue, where an endpoint receives it.
func failingContender(name string) contender {
	return contender{name, func(ctx context.Context, handle func(string) error) (system, error) {
		return startFailing(ctx, repriseSetup{undelayed: true}, handle)
	}}
}

// failingSystem is an endpoint whose handler fails, and one that receives from the error
// queue.
type failingSystem struct {
	*inMemorySystem
	succeeded atomic.Int64 // attempts that should have failed
	finished  chan error   // the result of the taker's Run
	stop      context.CancelFunc
}

// startFailing starts both. The handler returns handle's error; the taker calls handle
// once more.
func startFailing(ctx context.Context, setup repriseSetup, handle func(string) error) (_ system, err error) {
	t := inmemory.Open()
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Close(context.WithoutCancel(ctx)))
		}
	}()
	taker, err := core.New(repriseErrorQueue, t, core.Config{
		Transactions:   setup.mode,
		Recoverability: core.Recoverability{ErrorQueue: repriseErrorQueue + ".error"},
		Logger:         discardingLogger(),
	})
	if err != nil {
		return nil, err
	}
	core.Handle(taker, messageType, func(_ context.Context, m *core.TypedMessage[[]byte]) error {
		return handle(m.Headers.Get(sequenceHeader))
	})
	s := &failingSystem{finished: make(chan error, 1)}
	sys, err := startInMemory(ctx, setup, t, func(sequence string) error {
		err := handle(sequence)
		if err == nil {
			s.succeeded.Add(1)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	s.inMemorySystem = sys
	running, stop := context.WithCancel(ctx)
	s.stop = stop
	go func() { s.finished <- taker.Run(running) }()
	return s, nil
}

func (s *failingSystem) close(ctx context.Context) error {
	s.stop()
	err := errors.Join(<-s.finished, s.inMemorySystem.close(ctx))
	if n := s.succeeded.Load(); err == nil && n > 0 {
		err = fmt.Errorf("%d messages were handled instead of going to the error queue", n)
	}
	return err
}
