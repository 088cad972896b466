package inmemory

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/reprise-go/reprise/bench/internal/compare"
	"github.com/reprise-go/reprise/bench/internal/measure"
	"github.com/reprise-go/reprise/bench/internal/reprise"
	"github.com/reprise-go/reprise/bench/internal/scenario"
	"github.com/reprise-go/reprise/bench/internal/stats"
	"github.com/reprise-go/reprise/bench/internal/table"
	"github.com/reprise-go/reprise/bench/internal/workload"
	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/logformat"
	"github.com/reprise-go/reprise/transport/inmemory"
)

var placed = core.NewMessageType[[]byte]("orders.placed")

// memoryRepetitions is the most samples of memory: each takes half a minute with a
// million messages.
const memoryRepetitions = 2

func memory(ctx context.Context, l scenario.Load) ([]table.Table, error) {
	total := 10 * l.Messages
	counts := failureCounts(total)
	rounds, err := compare.InTurn([]measure.Contender{failingContender("Reprise")}, min(l.Repetitions, memoryRepetitions), func(c measure.Contender) ([]measure.Footprint, error) {
		return c.Footprints(ctx, counts, failedAttempts)
	})
	if err != nil {
		return nil, err
	}
	resident := make([]float64, len(counts))
	live := make([]float64, len(counts))
	for i := range counts {
		resident[i] = stats.Median(stats.Values(rounds[0], func(f []measure.Footprint) float64 { return f[i].Resident }))
		live[i] = stats.Median(stats.Values(rounds[0], func(f []measure.Footprint) float64 { return f[i].Live }))
	}
	const held, inUse = "resident set", "live objects"
	t := table.Table{Title: "MiB by messages that failed", Head: []string{"messages", held, inUse, "× " + held + " at " + table.Thousands(int64(total/100))},
		Growth: &table.Growth{Quantity: "messages that failed", Figure: "MiB"}}
	base := slices.Index(counts, max(total/100, 1))
	for i, n := range counts {
		t.Rows = append(t.Rows, []string{table.Thousands(int64(n)), table.Number(resident[i]), table.Number(live[i]), table.Number(resident[i] / resident[base])})
		t.Growth.Add(held, float64(n), resident[i])
		t.Growth.Add(inUse, float64(n), live[i])
	}
	// One byte kept per message is 1 MiB for a million. The resident set also depends on
	// the memory that the garbage collector has returned recently: it varies by a tenth.
	last := len(counts) - 1
	after := fmt.Sprintf(" after %s, times those after %s", table.Thousands(int64(total)), table.Thousands(int64(total/100)))
	t.Aims = []table.Aim{
		{Figure: held + strings.Replace(after, "those", "that", 1), Want: 1.25, Got: resident[last] / resident[base], Ceiling: true},
		{Figure: inUse + after, Want: 1.05, Got: live[last] / live[base], Ceiling: true},
	}
	return []table.Table{t}, nil
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
func failingContender(name string) measure.Contender {
	return measure.Contender{Name: name, Open: func(ctx context.Context, handle func(string) error) (measure.System, error) {
		return startFailing(ctx, reprise.Setup{NoDelayedRetries: true}, handle)
	}}
}

// failingSystem is an endpoint whose handler fails, and one that receives from the error
// queue.
type failingSystem struct {
	*System
	succeeded atomic.Int64 // attempts that should have failed
	finished  chan error   // the result of the taker's Run
	stop      context.CancelFunc
}

// startFailing starts both. The handler returns handle's error; the taker calls handle
// once more.
func startFailing(ctx context.Context, setup reprise.Setup, handle func(string) error) (_ measure.System, err error) {
	t := inmemory.Open()
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Close(context.WithoutCancel(ctx)))
		}
	}()
	taker, err := core.New(reprise.ErrorQueue, t, core.Config{
		Transactions:   setup.Mode,
		Recoverability: core.Recoverability{ErrorQueue: reprise.ErrorQueue + ".error"},
		Logger:         slog.New(logformat.FoldRepeats(workload.DiscardingLogger().Handler(), 100)),
	})
	if err != nil {
		return nil, err
	}
	core.Handle(taker, placed, func(_ context.Context, m *core.Message, _ []byte) error {
		return handle(m.Headers.Get(workload.SequenceHeader))
	})
	s := &failingSystem{finished: make(chan error, 1)}
	sys, err := Start(ctx, setup, t, func(sequence string) error {
		err := handle(sequence)
		if err == nil {
			s.succeeded.Add(1)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	s.System = sys
	running, stop := context.WithCancel(ctx)
	s.stop = stop
	go func() { s.finished <- taker.Run(running) }()
	return s, nil
}

func (s *failingSystem) Close(ctx context.Context) error {
	s.stop()
	err := errors.Join(<-s.finished, s.System.Close(ctx))
	if n := s.succeeded.Load(); err == nil && n > 0 {
		err = fmt.Errorf("%d messages were handled instead of going to the error queue", n)
	}
	return err
}
