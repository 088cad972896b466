package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"
)

// backlog is the work of handling a backlog.
type backlog struct {
	messages int // waiting at the beginning
	failures int // failed attempts of each message
	drains   int // number of repetitions; 0 is one
}

// at returns a trial of the keeper with a backlog. The first tenth of the messages is not
// timed.
func (k keeper) at(w backlog) trial {
	return trial{k.name, func(ctx context.Context) (sample, error) {
		var sum sample
		for range max(w.drains, 1) {
			s, err := k.drain(ctx, w)
			if err != nil {
				return sample{}, err
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

// at returns a trial of each keeper with the same backlog.
func (w backlog) at(keepers ...keeper) []trial {
	trials := make([]trial, len(keepers))
	for i, k := range keepers {
		trials[i] = k.at(w)
	}
	return trials
}

func (k keeper) drain(ctx context.Context, w backlog) (sample, error) {
	warm := w.messages / warmUp
	l := newLedger(w.messages, w.failures, max(warm, 1), w.messages)
	l.expect(w.messages)
	var before, after runtime.MemStats
	var requestsBefore, requestsAfter int
	err := k.opened(ctx, l, func(ctx context.Context, s store) error {
		if err := send(ctx, s, w.messages, fillers, fillBatch); err != nil {
			return fmt.Errorf("send the backlog: %w", err)
		}
		if err := s.rest(ctx); err != nil {
			return err
		}
		var err error
		if requestsBefore, err = requests(ctx, s); err != nil {
			return err
		}
		runtime.GC()
		runtime.ReadMemStats(&before)
		if err := s.start(ctx, l.handle); err != nil {
			return err
		}
		err = l.wait()
		runtime.ReadMemStats(&after)
		if err = errors.Join(err, s.stop(ctx)); err != nil {
			return err
		}
		if requestsAfter, err = requests(ctx, s); err != nil {
			return err
		}
		return errors.Join(l.check(), nothingWaits(ctx, s))
	})
	if err != nil {
		return sample{}, err
	}
	timed := w.messages - max(warm, 1)
	share := float64(timed) / float64(w.messages) // allocations and requests were counted over all messages
	return sample{
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
