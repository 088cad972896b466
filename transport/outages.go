package transport

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
)

// Outages notifies an endpoint of a broker's outages, and tells the adapter how long to
// wait before its next attempt: the pauses grow, and have jitter so that processes do not
// retry in step. The zero value does not notify. It is safe for concurrent use once
// its field is set.
type Outages struct {
	// ConnectionChanged is [core.ReceiverConfig.ConnectionChanged], or nil.
	ConnectionChanged func(core.ConnectionChange)

	order sync.Mutex // held during calls of ConnectionChanged, so that changes are reported in order

	mu    sync.Mutex
	since time.Time // zero: there is no outage
	last  time.Time // the last failure
	ended time.Time // the end of the last outage
	pause time.Duration
}

const (
	firstPause = 50 * time.Millisecond
	lastPause  = 10 * time.Second
	// longestRequest is the longest attempt that an outage may have prevented from the beginning. A
	// longer one, such as a wait for messages, had a connection.
	longestRequest = time.Minute
)

// Failed records a failed attempt and when it began, and returns how long to wait before
// the next one. The outage began with its first failed attempt, or at the end of that one if it took
// more than a minute. Attempts that were in progress at the same time, and failed together,
// count as one. An attempt that began before the last outage ended belongs to that
// outage, and ConnectionChanged is not called.
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
		o.since, o.pause = began, firstPause
		if now := time.Now(); now.Sub(began) > longestRequest {
			o.since = now
		}
	case began.After(o.last):
		o.pause = min(2*o.pause, lastPause)
	}
	o.last = time.Now()
	wait := o.pause/2 + rand.N(o.pause) // between half and one and a half of the pause
	since := o.since
	o.mu.Unlock()
	o.tell(core.ConnectionChange{Err: err, Since: since, RetryIn: wait})
	return wait
}

// End records a success.
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
// ends. Its error then matches ctx's and [core.ErrUnavailable], and wraps the last error of
// try. Between attempts it calls sleep with the pause of [Outages.Failed]; another error of
// sleep ends it too.
func (o *Outages) Retry(ctx context.Context, try func() error, transient func(error) bool, sleep func(time.Duration) error) error {
	var last error
	for {
		began := time.Now()
		err := try()
		switch {
		case err == nil:
			o.End()
			return nil
		case ctx.Err() != nil:
			if last == nil && !errors.Is(err, ctx.Err()) && transient(err) {
				last = err
			}
			return interrupted(ctx, last)
		case !transient(err):
			return err
		}
		last = err
		if err := sleep(o.Failed(err, began)); err != nil {
			if ctx.Err() != nil {
				return interrupted(ctx, last)
			}
			return err
		}
	}
}

func (o *Outages) tell(change core.ConnectionChange) {
	if o.ConnectionChanged != nil {
		o.ConnectionChanged(change)
	}
}
