package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/pprof"
	"sync"
	"sync/atomic"
	"time"
)

// store is a messaging system that keeps messages while no handler runs.
type store interface {
	// send sends messages in one call, as its user would. It may be called concurrently.
	send(ctx context.Context, sequences []string) error
	// rest waits for the system's remaining work for the sent messages.
	rest(ctx context.Context) error
	// start begins to handle messages; stop ends it when all were handled, and returns an
	// error unless the messages that handlers send are there.
	start(ctx context.Context, handle func(sequence string) error) error
	stop(ctx context.Context) error
	// waiting counts the messages that were not handled, or moved to another queue.
	waiting(ctx context.Context) (int, error)
	// close removes the system.
	close(ctx context.Context) error
}

// requestCounter is implemented by stores whose user pays for each request.
type requestCounter interface {
	// requests returns the number of requests that the server has had so far.
	requests(ctx context.Context) (int, error)
}

// requests returns the number of requests to the server of a store, or 0 if the store
// does not count them.
func requests(ctx context.Context, s store) (int, error) {
	if p, ok := s.(pausingStore); ok {
		s = p.store
	}
	if c, ok := s.(requestCounter); ok {
		return c.requests(ctx)
	}
	return 0, nil
}

// keeper is one way of doing the work of a scenario with a store.
type keeper struct {
	name string
	open func(ctx context.Context) (store, error)
}

// patienceEach is added to patience for each message: a large backlog also takes time to
// send.
const patienceEach = 200 * time.Microsecond

// opened runs f while the keeper's store is open.
func (k keeper) opened(ctx context.Context, l *ledger, f func(ctx context.Context, s store) error) (err error) {
	limit := patience + time.Duration(len(l.attempts))*patienceEach
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it took longer than %v", limit))
	defer cancel()
	defer context.AfterFunc(ctx, l.giveUp)()
	pprof.Do(ctx, pprof.Labels("contender", k.name), func(ctx context.Context) {
		var s store
		if s, err = k.open(ctx); err != nil {
			return
		}
		if err = f(ctx, s); err != nil {
			err = errors.Join(err, context.Cause(ctx))
		}
		err = errors.Join(err, s.close(ctx))
	})
	if err != nil {
		return fmt.Errorf("%s: %w", k.name, err)
	}
	return nil
}

// contender is the keeper's store with a handler that runs from the start.
func (k keeper) contender() contender {
	return contender{k.name, func(ctx context.Context, handle func(string) error) (system, error) {
		s, err := k.open(ctx)
		if err != nil {
			return nil, err
		}
		if err := s.start(ctx, handle); err != nil {
			return nil, errors.Join(err, s.close(ctx))
		}
		return runningStore{s}, nil
	}}
}

// delayed returns a keeper whose handlers wait before their work.
func (k keeper) delayed(d time.Duration) keeper {
	return k.pausing(func(string) { time.Sleep(d) })
}

// pausing returns a keeper whose handlers call pause before their work.
func (k keeper) pausing(pause func(sequence string)) keeper {
	return keeper{k.name, func(ctx context.Context) (store, error) {
		s, err := k.open(ctx)
		if err != nil {
			return nil, err
		}
		return pausingStore{s, pause}, nil
	}}
}

type pausingStore struct {
	store
	pause func(sequence string)
}

func (s pausingStore) start(ctx context.Context, handle func(string) error) error {
	return s.store.start(ctx, func(sequence string) error {
		s.pause(sequence)
		return handle(sequence)
	})
}

// runningStore is a store as a system.
type runningStore struct{ store }

func (s runningStore) send(ctx context.Context, sequence string) error {
	return s.store.send(ctx, []string{sequence})
}

func (s runningStore) close(ctx context.Context) error {
	return errors.Join(s.stop(ctx), nothingWaits(ctx, s.store), s.store.close(ctx))
}

func nothingWaits(ctx context.Context, s store) error {
	n, err := s.waiting(ctx)
	if err == nil && n > 0 {
		err = fmt.Errorf("%d messages are left", n)
	}
	return err
}

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
