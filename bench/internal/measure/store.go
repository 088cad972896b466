package measure

import (
	"context"
	"errors"
	"fmt"
	"runtime/pprof"
	"time"
)

// Store is a messaging system that keeps messages while no handler runs.
type Store interface {
	// Send sends messages in one call, as its user would. It may be called concurrently.
	Send(ctx context.Context, sequences []string) error
	// FinishSends waits for the system's remaining work for the sent messages.
	FinishSends(ctx context.Context) error
	// Start begins to handle messages.
	Start(ctx context.Context, handle func(sequence string) error) error
	// Stop ends the handling when all messages were handled, and returns an error unless the messages that handlers send are
	// there.
	Stop(ctx context.Context) error
	// Waiting counts the messages that were not handled, or moved to another queue.
	Waiting(ctx context.Context) (int, error)
	// Close removes the system.
	Close(ctx context.Context) error
}

// requestCounter is implemented by stores whose user pays for each request.
type requestCounter interface {
	// Requests returns the number of requests that the server has had so far.
	Requests(ctx context.Context) (int, error)
}

// requests returns the number of requests to the server of a store, or 0 if the store
// does not count them.
func requests(ctx context.Context, s Store) (int, error) {
	if p, ok := s.(pausingStore); ok {
		s = p.Store
	}
	if c, ok := s.(requestCounter); ok {
		return c.Requests(ctx)
	}
	return 0, nil
}

// StoreContender is one way of doing the work of a scenario with a store.
type StoreContender struct {
	Name string
	Open func(ctx context.Context) (Store, error)
}

// patienceEach is added to patience for each message: a large backlog also takes time to
// send.
const patienceEach = 200 * time.Microsecond

// withStore runs f while the store is open.
func (c StoreContender) withStore(ctx context.Context, l *ledger, f func(ctx context.Context, s Store) error) (err error) {
	limit := patience + time.Duration(len(l.attempts))*patienceEach
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it took longer than %v", limit))
	defer cancel()
	defer context.AfterFunc(ctx, l.giveUp)()
	pprof.Do(ctx, pprof.Labels("contender", c.Name), func(ctx context.Context) {
		var s Store
		if s, err = c.Open(ctx); err != nil {
			return
		}
		if err = f(ctx, s); err != nil {
			err = errors.Join(err, context.Cause(ctx))
		}
		err = errors.Join(err, s.Close(ctx))
	})
	if err != nil {
		return fmt.Errorf("%s: %w", c.Name, err)
	}
	return nil
}

// Contender returns the contender whose store has a handler that runs from the start.
func (c StoreContender) Contender() Contender {
	return Contender{c.Name, func(ctx context.Context, handle func(string) error) (System, error) {
		s, err := c.Open(ctx)
		if err != nil {
			return nil, err
		}
		if err := s.Start(ctx, handle); err != nil {
			return nil, errors.Join(err, s.Close(ctx))
		}
		return runningStore{s}, nil
	}}
}

// Delayed returns a contender whose handlers wait before their work.
func (c StoreContender) Delayed(d time.Duration) StoreContender {
	return c.Pausing(func(string) { time.Sleep(d) })
}

// Pausing returns a contender whose handlers call pause before their work.
func (c StoreContender) Pausing(pause func(sequence string)) StoreContender {
	return StoreContender{c.Name, func(ctx context.Context) (Store, error) {
		s, err := c.Open(ctx)
		if err != nil {
			return nil, err
		}
		return pausingStore{s, pause}, nil
	}}
}

type pausingStore struct {
	Store
	pause func(sequence string)
}

func (s pausingStore) Start(ctx context.Context, handle func(string) error) error {
	return s.Store.Start(ctx, func(sequence string) error {
		s.pause(sequence)
		return handle(sequence)
	})
}

// runningStore is a store as a system.
type runningStore struct{ Store }

func (s runningStore) Send(ctx context.Context, sequence string) error {
	return s.Store.Send(ctx, []string{sequence})
}

func (s runningStore) Close(ctx context.Context) error {
	return errors.Join(s.Stop(ctx), nothingWaits(ctx, s.Store), s.Store.Close(ctx))
}

func nothingWaits(ctx context.Context, s Store) error {
	n, err := s.Waiting(ctx)
	if err == nil && n > 0 {
		err = fmt.Errorf("%d messages are left", n)
	}
	return err
}
