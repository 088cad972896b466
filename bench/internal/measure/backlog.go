package measure

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"
)

// Backlog is the work of handling a backlog.
type Backlog struct {
	Messages int // waiting at the beginning
	Failures int // failed attempts of each message
	Drains   int // number of repetitions; 0 is one
}

// Trial returns a trial of the contender with a backlog. The first tenth of the messages is not
// timed.
func (c StoreContender) Trial(w Backlog) Trial {
	return Trial{c.Name, func(ctx context.Context) (Sample, error) {
		var sum Sample
		for range max(w.Drains, 1) {
			s, err := c.drain(ctx, w)
			if err != nil {
				return Sample{}, err
			}
			sum.messages += s.messages
			sum.elapsed += s.elapsed
			sum.allocs += s.allocs
			sum.bytes += s.bytes
			sum.requests += s.requests
		}
		return sum, nil
	}}
}

// Trials returns a trial of each contender with the same backlog.
func (w Backlog) Trials(contenders ...StoreContender) []Trial {
	trials := make([]Trial, len(contenders))
	for i, c := range contenders {
		trials[i] = c.Trial(w)
	}
	return trials
}

func (c StoreContender) drain(ctx context.Context, w Backlog) (Sample, error) {
	warm := w.Messages / warmUp
	l := newLedger(w.Messages, w.Failures, max(warm, 1), w.Messages)
	l.expect(w.Messages)
	var before, after runtime.MemStats
	var requestsBefore, requestsAfter int
	err := c.withStore(ctx, l, func(ctx context.Context, s Store) error {
		if err := send(ctx, s, w.Messages, fillers, fillBatch); err != nil {
			return fmt.Errorf("send the backlog: %w", err)
		}
		if err := s.FinishSends(ctx); err != nil {
			return err
		}
		var err error
		if requestsBefore, err = requests(ctx, s); err != nil {
			return err
		}
		runtime.GC()
		runtime.ReadMemStats(&before)
		if err := s.Start(ctx, l.handle); err != nil {
			return err
		}
		err = l.wait()
		runtime.ReadMemStats(&after)
		if err = errors.Join(err, s.Stop(ctx)); err != nil {
			return err
		}
		if requestsAfter, err = requests(ctx, s); err != nil {
			return err
		}
		return errors.Join(l.check(), nothingWaits(ctx, s))
	})
	if err != nil {
		return Sample{}, err
	}
	timed := w.Messages - max(warm, 1)
	share := float64(timed) / float64(w.Messages) // allocations and requests were counted over all messages
	return Sample{
		messages: timed,
		elapsed:  max(l.took(0, 1), time.Nanosecond),
		allocs:   uint64(share * float64(after.Mallocs-before.Mallocs)),
		bytes:    uint64(share * float64(after.TotalAlloc-before.TotalAlloc)),
		requests: share * float64(requestsAfter-requestsBefore),
	}, nil
}

// The senders that fill backlogs.
const (
	fillers   = 4
	fillBatch = 500
)
