package sqlserver

import (
	"slices"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
)

// action is an action on a leased message.
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

// settlement is a batch of orders.
type settlement struct {
	orders []order
	begun  bool          // cannot be cancelled any more
	alone  bool          // was separated from other orders
	over   chan struct{} // closed when every order has its outcome, or has moved

	// first is closed with over, or earlier if the settlement takes long. Callers wait
	// for it alone, and check their contexts only then: most callers have the same
	// context, and hundreds of them would lock its channel at once.
	first chan struct{}
	timer *time.Timer // closes first
	early sync.Once
}

// newSettlement returns a settlement with the capacity for room orders.
func newSettlement(room int) *settlement {
	return &settlement{orders: make([]order, 0, room), over: make(chan struct{}), first: make(chan struct{})}
}

// stir makes callers check their contexts.
func (b *settlement) stir() { b.early.Do(func() { close(b.first) }) }

// end tells callers that every order has its outcome.
func (b *settlement) end() {
	close(b.over)
	if b.timer != nil {
		b.timer.Stop()
	}
	b.stir()
}

// order is an action on one message.
type order struct {
	action action
	leased *leased
	text   string      // of an abandonment
	mail   *mail       // the messages that a completion sends, or nil
	err    error       // the outcome
	undone bool        // its caller no longer waits
	moved  *settlement // the settlement of this order alone
}

// sends reports whether one of the orders sends messages.
func (b *settlement) sends(list []int) bool {
	return slices.ContainsFunc(list, func(i int) bool { return b.orders[i].mail != nil })
}

// together returns the number of orders, from the first, that one statement executes. The
// size of their messages limits it.
func (b *settlement) together(list []int) int {
	rows, bytes := 0, 0
	for n, i := range list {
		if b.orders[i].mail == nil {
			continue
		}
		r, by := b.orders[i].mail.size()
		rows, bytes = rows+r, bytes+by
		if n > 0 && (rows > rowsAtOnce || bytes > bytesAtOnce) {
			return n
		}
	}
	return len(list)
}

// lose gives core.ErrLockLost to orders whose lease was not valid. If the outcome of an
// earlier attempt is unknown and the lease has not ended, that attempt must have
// succeeded: no other receiver can have claimed the message.
func (b *settlement) lose(list []int, held []int64, unknown bool) {
	slices.Sort(held)
	for _, i := range list {
		d := b.orders[i].leased
		if _, ok := slices.BinarySearch(held, d.seq); !ok && !(unknown && time.Now().Before(d.LockedUntil())) {
			b.orders[i].err = core.ErrLockLost
		}
	}
}

// lastEnd returns the time at which the last of the leases ends.
func (b *settlement) lastEnd(list []int) (last time.Time) {
	for _, i := range list {
		if end := b.orders[i].leased.LockedUntil(); end.After(last) {
			last = end
		}
	}
	return last
}
