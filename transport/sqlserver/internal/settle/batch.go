package settle

import (
	"slices"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/dialect"
)

// Action is an action on a leased message.
type Action int

const (
	Completion Action = iota
	Abandonment
	Release
	Renewal
	actions
)

func (a Action) String() string {
	return [...]string{"complete", "abandon", "release", "renew"}[a]
}

// batch is a batch of requests.
type batch struct {
	requests []Request
	begun    bool          // cannot be cancelled any more
	split    bool          // was split from other requests
	done     chan struct{} // closed when every request has its outcome, or has moved

	// first is closed with done, or earlier if the settlement takes long. Callers wait
	// for it alone, and check their contexts only then: most callers have the same
	// context, and hundreds of them would lock its channel at once.
	first chan struct{}
	timer *time.Timer // closes first
	early sync.Once
}

// newBatch returns a batch with the capacity for room requests.
func newBatch(room int) *batch {
	return &batch{requests: make([]Request, 0, room), done: make(chan struct{}), first: make(chan struct{})}
}

// wakeCallers makes callers check their contexts.
func (b *batch) wakeCallers() { b.early.Do(func() { close(b.first) }) }

// end tells callers that every request has its outcome.
func (b *batch) end() {
	close(b.done)
	if b.timer != nil {
		b.timer.Stop()
	}
	b.wakeCallers()
}

// Request is an action on one message.
type Request struct {
	Action  Action
	Message Message
	Text    string // of an abandonment
	Sends   Sends  // the messages that a completion sends, or nil

	err       error  // the outcome
	abandoned bool   // its caller no longer waits
	movedTo   *batch // the batch of this request alone
}

// Message is a leased message.
type Message interface {
	core.Delivery
	// Seq identifies the row.
	Seq() int64
}

// Sends are messages that are sent together with a completion.
type Sends interface {
	// Size returns the number of rows and bytes.
	Size() (rows, bytes int)
}

// sending reports whether one of the requests sends messages.
func (b *batch) sending(list []int) bool {
	return slices.ContainsFunc(list, func(i int) bool { return b.requests[i].Sends != nil })
}

// together returns the number of requests, from the first, that one statement executes. The
// size of their messages limits it.
func (b *batch) together(list []int) int {
	rows, bytes := 0, 0
	for n, i := range list {
		if b.requests[i].Sends == nil {
			continue
		}
		r, by := b.requests[i].Sends.Size()
		rows, bytes = rows+r, bytes+by
		if n > 0 && (rows > dialect.RowsAtOnce || bytes > dialect.BytesAtOnce) {
			return n
		}
	}
	return len(list)
}

// lose gives core.ErrLockLost to requests whose lease was not valid. If the outcome of an
// earlier attempt is unknown and the lease has not ended, that attempt must have
// succeeded: no other receiver can have claimed the message.
func (b *batch) lose(list []int, held []int64, unknown bool) {
	slices.Sort(held)
	for _, i := range list {
		d := b.requests[i].Message
		if _, ok := slices.BinarySearch(held, d.Seq()); !ok && !(unknown && time.Now().Before(d.LockedUntil())) {
			b.requests[i].err = core.ErrLockLost
		}
	}
}

// lastEnd returns the time at which the last of the leases ends.
func (b *batch) lastEnd(list []int) (last time.Time) {
	for _, i := range list {
		if end := b.requests[i].Message.LockedUntil(); end.After(last) {
			last = end
		}
	}
	return last
}
