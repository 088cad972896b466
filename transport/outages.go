package transport

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
)

// Outages tells an endpoint of a broker's outages, and the adapter how long to wait
// before its next attempt: further and further apart, and never in step with other
// processes (C15). The zero value tells nothing. It is safe for concurrent use, once its
// field is set.
type Outages struct {
	// ConnectionChanged is that of core.ReceiverConfig, or nil.
	ConnectionChanged func(core.ConnectionChange)

	order sync.Mutex // held during calls of ConnectionChanged, so that changes are told in their order

	mu    sync.Mutex
	since time.Time // zero: there is none
	last  time.Time // when the last failure was noted
	ended time.Time // when the last outage ended
	pause time.Duration
}

const (
	firstPause = 50 * time.Millisecond
	lastPause  = 10 * time.Second
)

// Failed notes a failed attempt and when it began, and returns how long to wait before
// the next one. Attempts that were in progress at the same time, and failed together, are one. An
// attempt that began before the last outage ended is part of that one, and is not told.
func (o *Outages) Failed(err error, began time.Time) time.Duration {
	o.order.Lock()
	defer o.order.Unlock()
	o.mu.Lock()
	if o.since.IsZero() && began.Before(o.ended) {
		o.mu.Unlock()
		return firstPause/2 + rand.N(firstPause)
	}
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

// End notes a success.
func (o *Outages) End() {
	if !o.isOn() {
		return
	}
	o.order.Lock()
	defer o.order.Unlock()
	o.mu.Lock()
	since := o.since
	o.since, o.ended = time.Time{}, time.Now()
	o.mu.Unlock()
	if !since.IsZero() {
		o.tell(core.ConnectionChange{Connected: true, Since: since})
	}
}

func (o *Outages) isOn() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.since.IsZero()
}

// Retry calls try until it succeeds, fails with an error that is not transient, or ctx
// ends, which is the error then. It pauses with sleep for as long as Failed says, and an
// error of sleep ends it too.
func (o *Outages) Retry(ctx context.Context, try func() error, transient func(error) bool, sleep func(time.Duration) error) error {
	for {
		began := time.Now()
		err := try()
		switch {
		case err == nil:
			o.End()
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case !transient(err):
			return err
		}
		if err := sleep(o.Failed(err, began)); err != nil {
			return err
		}
	}
}

func (o *Outages) tell(change core.ConnectionChange) {
	if o.ConnectionChanged != nil {
		o.ConnectionChanged(change)
	}
}
