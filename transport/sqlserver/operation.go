package sqlserver

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
)

const (
	// operationTimeout is when a statement counts as lost, because the network
	// swallowed it or its answer. What it waits for in the server is never that long.
	operationTimeout = 30 * time.Second
	// grace is how long an operation may go on after its caller does not want it any
	// more: to cut it off costs the connection, and leaves nobody knowing what became
	// of it.
	grace = 2 * time.Second
)

// operation returns a context for statements that are not to be cut off merely
// because their caller's context ends, and a function that ends it. They get some
// time then, as the contract asks (C3), and so they do when the receiver is closed.
func (r *receiver) operation(caller context.Context) (context.Context, func()) {
	under, cancel := context.WithTimeout(r.t.life, operationTimeout)
	var mu sync.Mutex
	var late *time.Timer
	unwanted := func() {
		mu.Lock()
		defer mu.Unlock()
		if late == nil {
			late = time.AfterFunc(grace, cancel)
		}
	}
	stopCaller, stopReceiver := context.AfterFunc(caller, unwanted), context.AfterFunc(r.closing, unwanted)
	return under, func() {
		stopCaller()
		stopReceiver()
		mu.Lock()
		defer mu.Unlock()
		if late != nil {
			late.Stop()
		}
		cancel()
	}
}

// rest lets time pass. Its error is why it ended early.
func rest(ctx, life context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-life.Done():
		return core.ErrClosed
	}
}

// outages tells an observer of them, and how long to wait before the next attempt:
// further and further apart, and never in step with others.
type outages struct {
	observer any

	mu    sync.Mutex
	since time.Time // zero: there is none
	last  time.Time // when the last failure was noted
	pause time.Duration
}

const (
	firstPause = 50 * time.Millisecond
	lastPause  = 10 * time.Second
)

// failed notes one failed attempt and when it began, and returns how long to wait.
// Attempts that were under way together, and failed together, are one.
func (o *outages) failed(err error, began time.Time) time.Duration {
	o.mu.Lock()
	switch {
	case o.since.IsZero():
		o.since, o.pause = time.Now(), firstPause
	case began.After(o.last):
		o.pause = min(2*o.pause, lastPause)
	}
	o.last = time.Now()
	wait := o.pause/2 + rand.N(o.pause) // half as long to one and a half times as long
	since := o.since
	o.mu.Unlock()
	o.tell(core.ConnectionChange{Err: err, Since: since, RetryIn: wait})
	return wait
}

// end notes a success.
func (o *outages) end() {
	o.mu.Lock()
	since := o.since
	o.since = time.Time{}
	o.mu.Unlock()
	if !since.IsZero() {
		o.tell(core.ConnectionChange{Connected: true, Since: since})
	}
}

func (o *outages) tell(change core.ConnectionChange) {
	if observer, ok := o.observer.(core.ConnectionObserver); ok {
		observer.ConnectionChanged(change)
	}
}
