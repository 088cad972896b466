package main

import (
	"context"
	"errors"
	"fmt"
	"runtime/pprof"
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
