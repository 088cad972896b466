package sqlserver

import (
	"slices"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
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
	orders []order
	begun  bool          // cannot be taken back any more
	alone  bool          // has been separated from others
	over   chan struct{} // closed when every order has its outcome, or has moved

	// first is closed with over, or earlier when that takes long. Callers wait for it
	// alone, and look at their contexts only then: these are mostly one and the same,
	// whose channel hundreds would lock at once.
	first chan struct{}
	timer *time.Timer // closes first
	early sync.Once
}

// newSettlement makes one that has room for so many orders.
func newSettlement(room int) *settlement {
	return &settlement{orders: make([]order, 0, room), over: make(chan struct{}), first: make(chan struct{})}
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
	text   string      // an abandonment's
	mail   *mail       // what a completion sends, or nil
	err    error       // the outcome
	undone bool        // its caller does not want it any more
	moved  *settlement // where it is the only one now
}

// sends reports whether one of the orders sends something.
func (b *settlement) sends(list []int) bool {
	return slices.ContainsFunc(list, func(i int) bool { return b.orders[i].mail != nil })
}

// together returns how many of the orders, from the first, are carried out by one statement. What
// they send bounds it.
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

// lastEnd returns when the last of the leases ends.
func (b *settlement) lastEnd(list []int) (last time.Time) {
	for _, i := range list {
		if end := b.orders[i].leased.LockedUntil(); end.After(last) {
			last = end
		}
	}
	return last
}
