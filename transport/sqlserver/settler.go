package sqlserver

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
	"github.com/reprise-go/reprise/transport/sqlserver/internal/postgres"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/sqlexec"
)

// settler settles leased messages in batches: one goroutine, whose statement takes all
// requests that arrived since its last one. It waits for further requests only while other
// messages are being handled, and no longer than linger. A receiver has two settlers:
// leases are renewed while a settlement waits.
type settler struct {
	r    *leaseStrategy
	wake transport.Signal // there are requests
	full transport.Signal // waiting for more requests is useless
	done chan struct{}    // closed when run has returned
	life context.Context
	end  context.CancelFunc

	single sync.WaitGroup // for settlements of one message

	mu      sync.Mutex // guards the fields below
	next    *settleBatch
	current *settleBatch // in progress, or ended
	running bool
	closed  bool
}

const (
	linger      = 500 * time.Microsecond
	mostSettled = 500
	// slow is the time after which callers check their contexts.
	slow = 100 * time.Millisecond
	// attemptShare is the part of a lease that one attempt may take: a row that another
	// transaction has locked, or a dead connection that reports no error, must not cost
	// the leases of all messages.
	attemptShare = 4
	// leastAttempt is a minimum for it: cancelling statements that a busy server is about
	// to execute makes the server busier.
	leastAttempt = 2 * time.Second
	// singlesAtOnce is how many messages are settled singly at a time.
	singlesAtOnce = 4
)

func newSettler(r *leaseStrategy) *settler {
	s := &settler{
		r:    r,
		wake: transport.NewSignal(),
		full: transport.NewSignal(),
		done: make(chan struct{}),
		next: newSettleBatch(0),
	}
	s.life, s.end = context.WithCancel(r.t.life.Context())
	return s
}

// do performs one action and returns its outcome: nil, core.ErrLockLost, or the error for
// which it did not happen.
func (s *settler) do(ctx context.Context, what settleRequest) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return core.ErrLockLost
	}
	if err := ctx.Err(); err != nil {
		s.mu.Unlock()
		return err
	}
	b, i := s.add(what)
	s.mu.Unlock()
	for {
		if err := s.await(ctx, b, i); err != nil {
			return err
		}
		o := &b.requests[i]
		if o.movedTo == nil {
			return o.err
		}
		b, i = o.movedTo, 0
	}
}

// await waits for the end of a settlement, or until the caller of request i stops waiting.
func (s *settler) await(ctx context.Context, b *settleBatch, i int) error {
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
		if !begun {
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

// drop consumes an expired message. No caller waits for it.
func (s *settler) drop(d *leaseDelivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.add(settleRequest{action: completion, leased: d})
	}
}

// add is called with mu held.
func (s *settler) add(o settleRequest) (*settleBatch, int) {
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
	if len(b.requests) >= mostSettled || len(b.requests) >= int(s.r.inWork.Load()) {
		s.full.Notify()
	}
	return b, len(b.requests) - 1
}

func (s *settler) run() {
	defer close(s.done)
	timer := time.NewTimer(linger)
	defer timer.Stop()
	for {
		select {
		case <-s.wake:
		case <-s.life.Done():
			s.fail(s.take())
			return
		}
		timer.Reset(linger)
		select {
		case <-s.full:
		case <-timer.C:
		case <-s.life.Done():
		}
		if b := s.take(); len(b.requests) > 0 {
			s.carryOut(b)
		}
	}
}

// take begins the next settlement.
func (s *settler) take() *settleBatch {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.next
	b.begun = true
	s.current, s.next = b, newSettleBatch(len(b.requests)) // with the capacity for as many requests as the last
	s.wake.Clear()
	s.full.Clear()
	return b
}

// fail ends a settlement that will not be executed.
func (s *settler) fail(b *settleBatch) {
	for i := range b.requests {
		b.requests[i].err = core.ErrLockLost
	}
	s.ended(b)
}

// ended removes the ended deliveries from the receiver, all at once, and wakes callers.
func (s *settler) ended(b *settleBatch) {
	over := make([]holding, 0, len(b.requests))
	for i := range b.requests {
		o := &b.requests[i]
		if o.movedTo == nil && o.err == nil && o.action != renewal || errors.Is(o.err, core.ErrLockLost) {
			over = append(over, o.leased)
		}
	}
	s.r.settled(over...)
	b.end()
}

// carryOut executes a settlement. In an outage it repeats it until the leases have ended.
func (s *settler) carryOut(b *settleBatch) {
	defer s.ended(b)
	var held [actions][]int // indices of requests
	for i := range b.requests {
		what := b.requests[i].action
		held[what] = append(held[what], i)
	}
	for what, list := range held {
		for len(list) > 0 {
			n := b.together(list)
			s.carryOutAll(action(what), b, slices.Clip(list[:n]), false)
			list = list[n:]
		}
	}
}

// carryOutAll repeats one action. unknown: an earlier attempt may have succeeded.
func (s *settler) carryOutAll(what action, b *settleBatch, list []int, unknown bool) {
	o := transport.Outages{}
	for {
		if list = s.wanted(b, list); len(list) == 0 {
			return
		}
		began := time.Now()
		held, err := s.attempt(s.life, what, b, list)
		if err == nil {
			if len(held) < len(list) {
				b.lose(list, held, unknown && !s.isClosed())
			}
			return
		}
		f := s.r.t.fault(err)
		unknown = unknown || f == dialect.FaultOutage
		s.r.t.gaveUp(err)
		late := time.Since(began) >= s.attemptLimit()
		sends := what == completion && b.sends(list) // the server may refuse one of the sends
		if (late || f == dialect.FaultBusy || f == dialect.FaultStatement || sends && !f.Transient()) && !b.split && s.split(b, list, unknown) {
			return
		}
		pause := o.Failed(err, began)
		if f == dialect.FaultConflict {
			pause = conflictPause
		}
		if !f.Transient() || s.isClosed() || time.Now().Add(pause).After(b.lastEnd(list)) || transport.Sleep(s.life, s.r.t.life.Context(), pause, nil) != nil {
			switch {
			case s.isClosed():
				err = core.ErrLockLost
			case s.r.works && f.Transient() && what == completion: // the handler is not at fault
				err = fmt.Errorf("%w: %w", core.ErrLockLost, err)
			}
			for _, i := range list {
				b.requests[i].err = err
			}
			return
		}
	}
}

// attemptLimit is the time limit of one attempt.
func (s *settler) attemptLimit() time.Duration {
	return min(operation.Timeout, max(leastAttempt, s.r.t.lease/attemptShare))
}

// split moves requests to single settlements, which run in parallel with later batches:
// one message's row may be locked, or the database's encoding may not have one error's
// characters. It returns false when the settler is closed.
func (s *settler) split(b *settleBatch, list []int, unknown bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	var next atomic.Int32
	singles := make([]*settleBatch, len(list))
	for at, i := range list {
		singles[at] = newSettleBatch(1)
		singles[at].begun, singles[at].split = true, true
		singles[at].requests = append(singles[at].requests, b.requests[i])
		singles[at].wakeCallers() // it has taken long already
		b.requests[i].movedTo = singles[at]
	}
	for range min(singlesAtOnce, len(singles)) {
		s.single.Go(func() {
			for at := int(next.Add(1)) - 1; at < len(singles); at = int(next.Add(1)) - 1 {
				single := singles[at]
				s.carryOutAll(single.requests[0].action, single, []int{0}, unknown)
				s.ended(single)
			}
		})
	}
	return true
}

// wanted drops the requests whose callers no longer wait.
func (s *settler) wanted(b *settleBatch, list []int) []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(list, func(i int) bool {
		o := &b.requests[i]
		if o.abandoned && o.err == nil {
			o.err = context.Canceled
		}
		return o.abandoned
	})
}

func (s *settler) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// attempt executes requests with one statement, and returns the rows whose lease was valid.
func (s *settler) attempt(ctx context.Context, what action, b *settleBatch, list []int) (held []int64, err error) {
	seqs, claims := make([]int64, len(list)), make([]int32, len(list))
	var texts []string
	for at, i := range list {
		o := &b.requests[i]
		seqs[at], claims[at] = o.leased.seq, int32(o.leased.claims)
		if what == abandonment {
			texts = append(texts, o.text)
		}
	}
	q, columns := s.r.q, s.r.t.dialect.List
	var sql string
	var args []any
	switch what {
	case completion:
		sql, args = q.Complete, columns(seqs, claims)
		if b.sends(list) {
			sends := make([]postgres.Sent, 0, len(list))
			for _, i := range list {
				if o := &b.requests[i]; o.sends != nil {
					sends = o.sends.appendTo(sends, o.leased.seq)
				}
			}
			together := postgres.CompleteAndSend(q.QueueTexts, s.r.t.delayed.DelayedTexts, seqs, claims, sends)
			sql, args = together.SQL, together.Args
		}
	case abandonment:
		sql, args = q.Abandon, columns(seqs, claims, texts)
	case release:
		sql, args = q.Release, columns(seqs, claims)
	case renewal:
		sql, args = q.Renew, append([]any{s.r.t.lease.Microseconds()}, columns(seqs, claims)...)
	default:
		return nil, fmt.Errorf("no such action: %d", what)
	}
	ctx, cancel := context.WithTimeout(ctx, s.attemptLimit())
	defer cancel()
	held = make([]int64, 0, len(list))
	var seq int64
	column := []any{&seq}
	err = s.r.t.db.Exec(ctx, sqlexec.Query(func(scan sqlexec.Scanner) error {
		err := scan(column...)
		held = append(held, seq)
		return err
	}, sql, args...))
	return held, err
}

// close executes the remaining requests, and accepts no more. If the server does not
// answer, it returns when ctx ends.
func (s *settler) close(ctx context.Context) {
	s.mu.Lock()
	s.closed = true
	running, unfinished := s.running, []*settleBatch{s.current, s.next}
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

// releaseAll makes messages available to other receivers, if the server can be reached. A
// message that is not released is redelivered when its lease ends.
func (s *settler) releaseAll(ctx context.Context, left []holding) {
	b := &settleBatch{}
	var list []int
	for i, h := range left {
		b.requests = append(b.requests, settleRequest{action: release, leased: h.(*leaseDelivery)})
		list = append(list, i)
	}
	if len(list) == 0 {
		return
	}
	if _, err := s.attempt(ctx, release, b, list); err == nil {
		s.r.t.wakeReceivers(s.r.q)
	}
}
