package sqlserver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
)

// settler carries out what is to become of leased messages, many at a time: one
// goroutine a receiver, which takes what has come together since its last statement.
// It waits for more only while other messages are in work, and no longer than linger.
type settler struct {
	r    *receiver
	wake chan struct{} // something is to be done
	full chan struct{} // and it is not worth to wait for more
	done chan struct{} // closed when run has returned
	life context.Context
	end  context.CancelFunc

	mu      sync.Mutex // guards what follows
	next    *settlement
	running bool
	closed  bool
}

const (
	linger      = 500 * time.Microsecond
	settleBatch = 500
	// slow is after how long callers look at their contexts.
	slow = 100 * time.Millisecond
)

// action is what is to be done with a message.
type action int

const (
	completion action = iota
	abandonment
	release
	renewal
	actions
)

func (a action) String() string {
	return [...]string{"complete", "abandon", "release", "renew"}[a]
}

// settlement is what is done together.
type settlement struct {
	orders  []order
	begun   bool          // cannot be taken back any more
	settled int           // orders that are no renewals
	over    chan struct{} // closed when every order has its outcome

	// first is closed with over, or earlier when that takes long. Callers wait for it
	// alone, and look at their contexts only then: these are mostly one and the same,
	// whose channel hundreds would lock at once.
	first chan struct{}
	timer *time.Timer // closes first
	early sync.Once
}

func newSettlement() *settlement {
	return &settlement{over: make(chan struct{}), first: make(chan struct{})}
}

// stir makes callers look at their contexts.
func (b *settlement) stir() { b.early.Do(func() { close(b.first) }) }

// end tells callers that every order has its outcome.
func (b *settlement) end() {
	close(b.over)
	if b.timer != nil {
		b.timer.Stop()
	}
	b.stir()
}

// order is about one message.
type order struct {
	action action
	leased *leased
	text   string // an abandonment's
	err    error  // the outcome
	undone bool   // its caller does not want it any more
}

func newSettler(r *receiver) *settler {
	s := &settler{
		r:    r,
		wake: make(chan struct{}, 1),
		full: make(chan struct{}, 1),
		done: make(chan struct{}),
		next: newSettlement(),
	}
	s.life, s.end = context.WithCancel(r.t.life)
	return s
}

// do carries out one action and returns its outcome: nil, core.ErrLockLost, or that
// it did not happen.
func (s *settler) do(ctx context.Context, what action, d *leased, text string) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return core.ErrLockLost
	}
	if err := ctx.Err(); err != nil {
		s.mu.Unlock()
		return err
	}
	b, i := s.add(order{action: what, leased: d, text: text})
	s.mu.Unlock()
	<-b.first
	select {
	case <-b.over:
	case <-ctx.Done():
		s.mu.Lock()
		b.orders[i].undone = true
		begun := b.begun
		s.mu.Unlock()
		if !begun {
			return ctx.Err()
		}
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-b.over:
		case <-timer.C: // in an outage: it is not tried again
			return ctx.Err()
		}
	}
	return b.orders[i].err
}

// drop consumes a message that has expired. Nobody waits for it.
func (s *settler) drop(d *leased) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.add(order{action: completion, leased: d})
	}
}

// add is called with mu held.
func (s *settler) add(o order) (*settlement, int) {
	if !s.running {
		// The transport cannot be closing for good: it waits for its receivers.
		s.running = true
		go s.run()
	}
	b := s.next
	b.orders = append(b.orders, o)
	if o.action != renewal {
		b.settled++
	}
	if len(b.orders) == 1 {
		b.timer = time.AfterFunc(slow, b.stir)
		signal(s.wake)
	}
	if len(b.orders) >= settleBatch || b.settled >= int(s.r.inWork.Load()) {
		signal(s.full)
	}
	return b, len(b.orders) - 1
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
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
		if b := s.take(); len(b.orders) > 0 {
			s.carryOut(b)
		}
	}
}

// take begins the settlement that has come together.
func (s *settler) take() *settlement {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.next
	b.begun = true
	s.next = newSettlement()
	for _, c := range []chan struct{}{s.wake, s.full} {
		select {
		case <-c:
		default:
		}
	}
	return b
}

// fail ends a settlement that will not be carried out.
func (s *settler) fail(b *settlement) {
	for i := range b.orders {
		b.orders[i].err = core.ErrLockLost
	}
	s.ended(b)
}

// ended lets go of what is not held any more, all at once, and tells callers.
func (s *settler) ended(b *settlement) {
	over := make([]holding, 0, len(b.orders))
	for i := range b.orders {
		o := &b.orders[i]
		if o.err == nil && o.action != renewal || errors.Is(o.err, core.ErrLockLost) {
			over = append(over, o.leased)
		}
	}
	s.r.settled(over...)
	b.end()
}

// carryOut repeats a settlement through an outage, for as long as the leases can
// still hold.
func (s *settler) carryOut(b *settlement) {
	defer s.ended(b)
	var held [actions][]int // indices of orders
	for i := range b.orders {
		what := b.orders[i].action
		held[what] = append(held[what], i)
	}
	for what, list := range held {
		if len(list) > 0 {
			s.carryOutAll(action(what), b, list)
		}
	}
}

func (s *settler) carryOutAll(what action, b *settlement, list []int) {
	unknown := false // an attempt may have succeeded
	o := outages{}
	for {
		if list = s.wanted(b, list); len(list) == 0 {
			return
		}
		began := time.Now()
		held, err := s.attempt(s.life, what, b, list)
		if err == nil {
			if len(held) < len(list) {
				b.lose(list, held, unknown)
			}
			return
		}
		f := s.r.t.fault(err)
		unknown = unknown || f == faultOutage
		s.r.t.gaveUp(err)
		pause := o.failed(err, began)
		if f == faultConflict {
			pause = conflictPause
		}
		last := time.Time{}
		for _, i := range list {
			if until := b.orders[i].leased.LockedUntil(); until.After(last) {
				last = until
			}
		}
		if !f.passes() || s.isClosed() || time.Now().Add(pause).After(last) || rest(s.life, s.r.t.life, pause) != nil {
			for _, i := range list {
				b.orders[i].err = err
				if s.isClosed() {
					b.orders[i].err = core.ErrLockLost
				}
			}
			return
		}
	}
}

// lose gives the orders their outcome whose lease did not hold. Where an attempt may
// have succeeded whose answer was lost, and the lease holds, that did it: nobody else
// can have had the message.
func (b *settlement) lose(list []int, held []int64, unknown bool) {
	slices.Sort(held)
	for _, i := range list {
		d := b.orders[i].leased
		if _, ok := slices.BinarySearch(held, d.seq); !ok && !(unknown && time.Now().Before(d.LockedUntil())) {
			b.orders[i].err = core.ErrLockLost
		}
	}
}

// wanted drops the orders whose callers do not want them any more.
func (s *settler) wanted(b *settlement, list []int) []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(list, func(i int) bool {
		o := &b.orders[i]
		if o.undone && o.err == nil {
			o.err = context.Canceled
		}
		return o.undone
	})
}

func (s *settler) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// attempt returns the rows whose lease still held.
func (s *settler) attempt(ctx context.Context, what action, b *settlement, list []int) (held []int64, err error) {
	seqs, claims := make([]int64, len(list)), make([]int32, len(list))
	var texts []string
	for at, i := range list {
		o := &b.orders[i]
		seqs[at], claims[at] = o.leased.seq, int32(o.leased.claims)
		if what == abandonment {
			texts = append(texts, o.text)
		}
	}
	q, columns := s.r.q, s.r.t.dialect.list
	var sql string
	var args []any
	switch what {
	case completion:
		sql, args = q.complete, columns(seqs, claims)
	case abandonment:
		sql, args = q.abandon, columns(seqs, claims, texts)
	case release:
		sql, args = q.release, columns(seqs, claims)
	case renewal:
		sql, args = q.renew, append([]any{s.r.t.lease.Microseconds()}, columns(seqs, claims)...)
	default:
		return nil, fmt.Errorf("no such action: %d", what)
	}
	ctx, cancel := context.WithTimeout(ctx, operationTimeout)
	defer cancel()
	held = make([]int64, 0, len(list))
	var seq int64
	column := []any{&seq}
	err = s.r.t.db.exec(ctx, query(func(scan scanner) error {
		err := scan(column...)
		held = append(held, seq)
		return err
	}, sql, args...))
	return held, err
}

// close carries out what has been ordered, releases what is left, and ends. Without
// an answer it ends with ctx.
func (s *settler) close(ctx context.Context, left []holding) {
	s.mu.Lock()
	s.closed = true
	running := s.running
	s.mu.Unlock()
	stop := context.AfterFunc(ctx, s.end)
	defer stop()
	if running {
		s.mu.Lock()
		b := s.next
		pending := len(b.orders) > 0
		s.mu.Unlock()
		if pending {
			<-b.over
		}
	}
	s.releaseAll(ctx, left)
	s.end()
	if running {
		<-s.done
	}
}

// releaseAll makes messages available to others, if the server can be reached. What
// is not released comes again when its lease ends.
func (s *settler) releaseAll(ctx context.Context, left []holding) {
	b := &settlement{}
	var list []int
	for i, h := range left {
		b.orders = append(b.orders, order{action: release, leased: h.(*leased)})
		list = append(list, i)
	}
	if len(list) == 0 {
		return
	}
	if _, err := s.attempt(ctx, release, b, list); err == nil {
		s.r.t.ring(s.r.q)
	}
}
