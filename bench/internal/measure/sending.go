package measure

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprise-go/reprise/bench/internal/workload"
)

// send sends messages 0..n-1 by some goroutines, batch of them in a call.
func send(ctx context.Context, s Store, n, goroutines, batch int) error {
	list := workload.NewSequences(n)
	var next atomic.Int64
	errs := make([]error, goroutines)
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			sequences := make([]string, 0, batch)
			for errs[g] == nil {
				from := int(next.Add(int64(batch))) - batch
				if from >= n {
					return
				}
				sequences = sequences[:0]
				for i := from; i < min(from+batch, n); i++ {
					sequences = append(sequences, list.At(i))
				}
				errs[g] = s.Send(ctx, sequences)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Sending is the work of sending without a receiver.
type Sending struct {
	Messages   int
	Goroutines int
	Batch      int // messages in a call
}

// Trial returns a trial of the contender with sending.
func (w Sending) Trial(c StoreContender) Trial {
	return Trial{c.Name, func(ctx context.Context) (s Sample, err error) {
		l := newLedger(0, 0)
		err = c.withStore(ctx, l, func(ctx context.Context, st Store) error {
			warm := max(w.Messages/warmUp, 1)
			if err := send(ctx, st, warm, w.Goroutines, w.Batch); err != nil {
				return fmt.Errorf("warm-up: %w", err)
			}
			if err := st.FinishSends(ctx); err != nil {
				return err
			}
			requestsBefore, err := requests(ctx, st)
			if err != nil {
				return err
			}
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			start := time.Now()
			err = send(ctx, st, w.Messages, w.Goroutines, w.Batch)
			s = Sample{messages: w.Messages, elapsed: time.Since(start)}
			runtime.ReadMemStats(&after)
			s.allocs, s.bytes = after.Mallocs-before.Mallocs, after.TotalAlloc-before.TotalAlloc
			if err != nil {
				return err
			}
			requestsAfter, err := requests(ctx, st)
			if err != nil {
				return err
			}
			s.requests = float64(requestsAfter - requestsBefore)
			n, err := st.Waiting(ctx)
			if err == nil && n != warm+w.Messages {
				err = fmt.Errorf("%d messages were sent, but %d are there", warm+w.Messages, n)
			}
			return err
		})
		return s, err
	}}
}
