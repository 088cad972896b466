package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// send sends messages 0..n-1 by some goroutines, batch of them in a call.
func send(ctx context.Context, s store, n, goroutines, batch int) error {
	list := newSequences(n)
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
					sequences = append(sequences, list.at(i))
				}
				errs[g] = s.send(ctx, sequences)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// sending is the work of sending without a receiver.
type sending struct {
	messages   int
	goroutines int
	batch      int // messages in a call
}

// at returns a trial of the keeper with sending.
func (w sending) at(k keeper) trial {
	return trial{k.name, func(ctx context.Context) (s sample, err error) {
		l := newLedger(0, 0)
		err = k.opened(ctx, l, func(ctx context.Context, st store) error {
			warm := max(w.messages/warmUp, 1)
			if err := send(ctx, st, warm, w.goroutines, w.batch); err != nil {
				return fmt.Errorf("warm-up: %w", err)
			}
			if err := st.rest(ctx); err != nil {
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
			err = send(ctx, st, w.messages, w.goroutines, w.batch)
			s = sample{messages: w.messages, elapsed: time.Since(start)}
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
			n, err := st.waiting(ctx)
			if err == nil && n != warm+w.messages {
				err = fmt.Errorf("%d messages were sent, but %d are there", warm+w.messages, n)
			}
			return err
		})
		return s, err
	}}
}
