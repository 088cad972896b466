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

// settleBatch is a batch of requests.
type settleBatch struct {
	requests []settleRequest
	begun    bool          // cannot be cancelled any more
	split    bool          // was split from other requests
	done     chan struct{} // closed when every request has its outcome, or has moved

	// first is closed with over, or earlier if the settlement takes long. Callers wait
	// for it alone, and check their contexts only then: most callers have the same
	// context, and hundreds of them would lock its channel at once.
	first chan struct{}
	timer *time.Timer // closes first
	early sync.Once
}

// newSettleBatch returns a batch with the capacity for room requests.
func newSettleBatch(room int) *settleBatch {
	return &settleBatch{requests: make([]settleRequest, 0, room), done: make(chan struct{}), first: make(chan struct{})}
}

// wakeCallers makes callers check their contexts.
func (b *settleBatch) wakeCallers() { b.early.Do(func() { close(b.first) }) }

// end tells callers that every request has its outcome.
func (b *settleBatch) end() {
	close(b.done)
	if b.timer != nil {
		b.timer.Stop()
	}
	b.wakeCallers()
}

// settleRequest is an action on one message.
type settleRequest struct {
	action    action
	leased    *leaseDelivery
	text      string       // of an abandonment
	sends     *sendPlan    // the messages that a completion sends, or nil
	err       error        // the outcome
	abandoned bool         // its caller no longer waits
	movedTo   *settleBatch // the batch of this request alone
}

// sends reports whether one of the requests sends messages.
func (b *settleBatch) sends(list []int) bool {
	return slices.ContainsFunc(list, func(i int) bool { return b.requests[i].sends != nil })
}

// together returns the number of requests, from the first, that one statement executes. The
// size of their messages limits it.
func (b *settleBatch) together(list []int) int {
	rows, bytes := 0, 0
	for n, i := range list {
		if b.requests[i].sends == nil {
			continue
		}
		r, by := b.requests[i].sends.size()
		rows, bytes = rows+r, bytes+by
		if n > 0 && (rows > rowsAtOnce || bytes > bytesAtOnce) {
			return n
		}
	}
	return len(list)
}

// lose gives core.ErrLockLost to requests whose lease was not valid. If the outcome of an
// earlier attempt is unknown and the lease has not ended, that attempt must have
// succeeded: no other receiver can have claimed the message.
func (b *settleBatch) lose(list []int, held []int64, unknown bool) {
	slices.Sort(held)
	for _, i := range list {
		d := b.requests[i].leased
		if _, ok := slices.BinarySearch(held, d.seq); !ok && !(unknown && time.Now().Before(d.LockedUntil())) {
			b.requests[i].err = core.ErrLockLost
		}
	}
}

// lastEnd returns the time at which the last of the leases ends.
func (b *settleBatch) lastEnd(list []int) (last time.Time) {
	for _, i := range list {
		if end := b.requests[i].leased.LockedUntil(); end.After(last) {
			last = end
		}
	}
	return last
}
