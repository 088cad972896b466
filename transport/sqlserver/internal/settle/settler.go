// Package settle settles leased messages in batches. It knows no receiver: a function
// executes the requests of a batch.
package settle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/dialect"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/operation"
)

// Settler settles leased messages in batches: one goroutine, whose statement takes all
// requests that arrived since its last one. It waits for further requests only while other
// messages are being handled, and no longer than linger. A receiver has two settlers:
// leases are renewed while a settlement waits.
type Settler struct {
	cfg      Config
	wake     transport.Signal // there are requests
	full     transport.Signal // waiting for more requests is useless
	done     chan struct{}    // closed when run has returned
	attempts context.Context  // ends when attempts are useless
	end      context.CancelFunc

	single sync.WaitGroup // for settlements of one message

	mu      sync.Mutex // guards the fields below
	next    *batch
	current *batch // in progress, or ended
	running bool
	closed  bool
}

// Config has the needs of a settler.
type Config struct {
	Life   context.Context // of the transport
	Lease  time.Duration
	InWork *atomic.Int64 // the number of unsettled messages
	Works  bool          // handlers may have a transaction

	// Execute executes requests of one action, those with the indices in list, with one
	// statement. It returns the seq of the messages whose lease was valid.
	Execute func(ctx context.Context, action Action, requests []Request, list []int) (held []int64, err error)

	// Settled is called with messages that are settled or lost.
	Settled func(these ...core.Delivery)

	// Classify returns the class of an error of Execute, and Failed is called with each.
	Classify func(err error) dialect.Fault
	Failed   func(err error)
}

const (
	linger     = 500 * time.Microsecond
	maxSettled = 500
	// slow is the time after which callers check their contexts.
	slow = 100 * time.Millisecond
	// attemptShare is the part of a lease that one attempt may take: a row that another
	// transaction has locked, or a dead connection that reports no error, must not cost
	// the leases of all messages.
	attemptShare = 4
	// minAttempt is a minimum for it: cancelling statements that a busy server is about
	// to execute makes the server busier.
	minAttempt = 2 * time.Second
	// maxConcurrentSingles is how many messages are settled singly at a time.
	maxConcurrentSingles = 4
)

// New returns a settler. Its goroutine starts with the first request.
func New(cfg Config) *Settler {
	s := &Settler{
		cfg:  cfg,
		wake: transport.NewSignal(),
		full: transport.NewSignal(),
		done: make(chan struct{}),
		next: newBatch(0),
	}
	s.attempts, s.end = context.WithCancel(cfg.Life)
	return s
}

// Do performs one action and returns its outcome: nil, core.ErrLockLost, or the error for
// which it did not happen.
func (s *Settler) Do(ctx context.Context, request Request) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return core.ErrLockLost
	}
	if err := ctx.Err(); err != nil {
		s.mu.Unlock()
		return err
	}
	b, i := s.add(request)
	s.mu.Unlock()
	for {
		if err := s.await(ctx, b, i); err != nil {
			return err
		}
		o := &b.requests[i]
		if errors.Is(o.err, errUnwanted) {
			return ctx.Err()
		}
		if o.movedTo == nil {
			return o.err
		}
		b, i = o.movedTo, 0
	}
}

// await waits for the end of a settlement, or until the caller of request i stops waiting.
func (s *Settler) await(ctx context.Context, b *batch, i int) error {
	<-b.first
	select { // avoids the locks of both channels if it has ended
	case <-b.done:
		return nil
	default:
	}
	select {
	case <-b.done:
	case <-ctx.Done():
		s.mu.Lock()
		b.requests[i].abandoned = true
		begun := b.begun
		s.mu.Unlock()
		if !begun || errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return ctx.Err()
		}
		timer := time.NewTimer(operation.Grace)
		defer timer.Stop()
		select {
		case <-b.done:
		case <-timer.C: // in an outage: the attempt is not repeated
			return ctx.Err()
		}
	}
	return nil
}

// Drop consumes an expired message. No caller waits for it.
func (s *Settler) Drop(d Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.add(Request{Action: Completion, Message: d})
	}
}

// add is called with mu held.
func (s *Settler) add(o Request) (*batch, int) {
	if !s.running {
		// The transport cannot finish closing now: it waits for its receivers.
		s.running = true
		go s.run()
	}
	b := s.next
	b.requests = append(b.requests, o)
	if len(b.requests) == 1 {
		b.timer = time.AfterFunc(slow, b.wakeCallers)
		s.wake.Notify()
	}
	if len(b.requests) >= maxSettled || len(b.requests) >= int(s.cfg.InWork.Load()) {
		s.full.Notify()
	}
	return b, len(b.requests) - 1
}

func (s *Settler) run() {
	defer close(s.done)
	timer := time.NewTimer(linger)
	defer timer.Stop()
	for {
		select {
		case <-s.wake:
		case <-s.attempts.Done():
			s.fail(s.take())
			return
		}
		timer.Reset(linger)
		select {
		case <-s.full:
		case <-timer.C:
		case <-s.attempts.Done():
		}
		if b := s.take(); len(b.requests) > 0 {
			s.carryOut(b)
		}
	}
}

// take begins the next settlement.
func (s *Settler) take() *batch {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.next
	b.begun = true
	s.current, s.next = b, newBatch(len(b.requests)) // with the capacity for as many requests as the last
	discard(s.wake)
	discard(s.full)
	return b
}

// discard removes the wake-up of a signal that no goroutine has received.
func discard(s transport.Signal) {
	select {
	case <-s:
	default:
	}
}

// fail ends a settlement that will not be executed.
func (s *Settler) fail(b *batch) {
	for i := range b.requests {
		b.requests[i].err = core.ErrLockLost
	}
	s.ended(b)
}

// ended removes the ended deliveries from the receiver, all at once, and wakes callers.
func (s *Settler) ended(b *batch) {
	over := make([]core.Delivery, 0, len(b.requests))
	for i := range b.requests {
		o := &b.requests[i]
		if o.movedTo == nil && o.err == nil && o.Action != Renewal || errors.Is(o.err, core.ErrLockLost) {
			over = append(over, o.Message)
		}
	}
	s.cfg.Settled(over...)
	b.end()
}

// carryOut executes a settlement. In an outage it repeats it until the leases have ended.
func (s *Settler) carryOut(b *batch) {
	defer s.ended(b)
	var held [actions][]int // indices of requests
	for i := range b.requests {
		action := b.requests[i].Action
		held[action] = append(held[action], i)
	}
	for action, list := range held {
		for len(list) > 0 {
			n := b.together(list)
			s.carryOutAll(Action(action), b, slices.Clip(list[:n]), false)
			list = list[n:]
		}
	}
}

// carryOutAll repeats one action. unknown: an earlier attempt may have succeeded.
func (s *Settler) carryOutAll(action Action, b *batch, list []int, unknown bool) {
	o := transport.Outages{}
	for {
		if list = s.wanted(b, list); len(list) == 0 {
			return
		}
		began := time.Now()
		held, err := s.attempt(s.attempts, action, b, list)
		if err == nil {
			if len(held) < len(list) {
				b.lose(list, held, unknown && !s.isClosed())
			}
			return
		}
		f := s.cfg.Classify(err)
		unknown = unknown || f == dialect.FaultOutage
		s.cfg.Failed(err)
		expired := time.Since(began) >= AttemptLimit(s.cfg.Lease)
		sends := action == Completion && b.sending(list) // the server may refuse one of the sends
		if (expired || f == dialect.FaultBusy || f.RefusesStatement() || sends && !f.Transient()) && !b.split && s.split(b, list, unknown) {
			return
		}
		pause := o.Failed(err, began)
		if f == dialect.FaultConflict {
			pause = dialect.ConflictPause
		}
		if !f.Transient() || s.isClosed() || time.Now().Add(pause).After(b.lastEnd(list)) || transport.Sleep(s.attempts, s.cfg.Life, pause, nil) != nil {
			switch {
			case s.isClosed():
				err = core.ErrLockLost
			case s.cfg.Works && f.Transient() && action == Completion: // the handler is not at fault
				err = fmt.Errorf("%w: %w", core.ErrLockLost, err)
			}
			for _, i := range list {
				b.requests[i].err = err
			}
			return
		}
	}
}

// AttemptLimit is the time limit of one attempt, for the duration of leases.
func AttemptLimit(lease time.Duration) time.Duration {
	return min(operation.Timeout, max(minAttempt, lease/attemptShare))
}

// split moves requests to single settlements, which run in parallel with later batches:
// one message's row may be locked, or the database's encoding may not have one error's
// characters. It returns false when the settler is closed.
func (s *Settler) split(b *batch, list []int, unknown bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	var next atomic.Int32
	singles := make([]*batch, len(list))
	for at, i := range list {
		singles[at] = newBatch(1)
		singles[at].begun, singles[at].split = true, true
		singles[at].requests = append(singles[at].requests, b.requests[i])
		singles[at].wakeCallers() // it has taken long already
		b.requests[i].movedTo = singles[at]
	}
	for range min(maxConcurrentSingles, len(singles)) {
		s.single.Go(func() {
			for at := int(next.Add(1)) - 1; at < len(singles); at = int(next.Add(1)) - 1 {
				single := singles[at]
				s.carryOutAll(single.requests[0].Action, single, []int{0}, unknown)
				s.ended(single)
			}
		})
	}
	return true
}

// wanted drops the requests whose callers no longer wait.
func (s *Settler) wanted(b *batch, list []int) []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(list, func(i int) bool {
		o := &b.requests[i]
		if o.abandoned && o.err == nil {
			o.err = errUnwanted
		}
		return o.abandoned
	})
}

// errUnwanted is the error of a request whose caller no longer waits.
var errUnwanted = errors.New("the caller no longer waits")

func (s *Settler) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// attempt executes requests, within the time limit of an attempt.
func (s *Settler) attempt(ctx context.Context, action Action, b *batch, list []int) (held []int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, AttemptLimit(s.cfg.Lease))
	defer cancel()
	return s.cfg.Execute(ctx, action, b.requests, list)
}

// Close executes the remaining requests, and accepts no more. If the server does not
// answer, it returns when ctx ends.
func (s *Settler) Close(ctx context.Context) {
	s.mu.Lock()
	s.closed = true
	running, unfinished := s.running, []*batch{s.current, s.next}
	s.mu.Unlock()
	defer context.AfterFunc(ctx, s.end)()
	if running {
		for _, b := range unfinished {
			if b != nil && len(b.requests) > 0 {
				<-b.done
			}
		}
	}
	s.single.Wait()
	s.end()
	if running {
		<-s.done
	}
}
