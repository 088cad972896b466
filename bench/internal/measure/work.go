package measure

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/reprise-go/reprise/bench/internal/workload"
)

// Pace sets when a sender continues after a message.
type Pace int

const (
	FreeRunning Pace = iota // at once
	Blocking                // when the message has reached the end of its handler
)

// Work is the work of one sample.
type Work struct {
	Pace     Pace
	Messages int
	Failures int // failed attempts of each message
}

// measure opens the contender's system, does the work and closes the system. It
// returns an error unless each message was handled and none is left.
func (c Contender) measure(ctx context.Context, w Work) (s Sample, err error) {
	warm := max(w.Messages/warmUp, 1)
	l := newLedger(warm+w.Messages, w.Failures)
	list := workload.NewSequences(warm + w.Messages)
	err = c.withSystem(ctx, l, l.handle, func(ctx context.Context, sys System) error {
		if err := w.drive(ctx, sys, l, list, 0, warm); err != nil {
			return fmt.Errorf("warm-up: %w", err)
		}
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		start := time.Now()
		err := w.drive(ctx, sys, l, list, warm, warm+w.Messages)
		s.elapsed = time.Since(start)
		runtime.ReadMemStats(&after)
		s.messages = w.Messages
		s.allocs = after.Mallocs - before.Mallocs
		s.bytes = after.TotalAlloc - before.TotalAlloc
		return err
	})
	return s, err
}

// drive sends the messages from..to-1 and returns when they are handled. Earlier ones
// were handled before.
func (w Work) drive(ctx context.Context, sys System, l *ledger, list workload.Sequences, from, to int) error {
	if w.Pace == FreeRunning {
		l.expect(to)
	}
	for i := from; i < to; i++ {
		if w.Pace == Blocking {
			l.expect(i + 1)
		}
		if err := sys.Send(ctx, list.At(i)); err != nil {
			return err
		}
		if w.Pace == Blocking {
			if err := l.wait(); err != nil {
				return err
			}
		}
	}
	if w.Pace == FreeRunning {
		return l.wait()
	}
	return nil
}

// Trial returns a trial of the contender with some work.
func (c Contender) Trial(w Work) Trial {
	return Trial{c.Name, func(ctx context.Context) (Sample, error) { return c.measure(ctx, w) }}
}

// Trials returns a trial of each contender with the same work.
func (w Work) Trials(contenders ...Contender) []Trial {
	trials := make([]Trial, len(contenders))
	for i, c := range contenders {
		trials[i] = c.Trial(w)
	}
	return trials
}
