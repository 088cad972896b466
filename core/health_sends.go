package core

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// sendWatch knows whether the newest Send of a transport was accepted, for Health. A Send
// that succeeds after another one costs two loads.
type sendWatch struct {
	accepted atomic.Bool // one was, at some time
	failing  atomic.Pointer[failingSends]
}

// failingSends is since when each Send has failed.
type failingSends struct {
	since time.Time
	err   error // of the newest
}

// note takes the result of a Send.
func (w *sendWatch) note(ctx context.Context, err error) {
	switch {
	case err == nil:
		if w.failing.Load() != nil {
			w.failing.Store(nil)
		}
		if !w.accepted.Load() {
			w.accepted.Store(true)
		}
	case !errors.Is(ctx.Err(), context.Canceled) && !concernsMessage(err):
		for { // other Sends may have failed at the same time
			before := w.failing.Load()
			now := failingSends{since: time.Now(), err: err}
			if before != nil {
				now.since = before.since
			}
			if w.failing.CompareAndSwap(before, &now) {
				return
			}
		}
	}
}

// state returns since when Sends have failed, or nil, and whether the newest was accepted:
// nil and false before the first.
func (w *sendWatch) state() (failing *failingSends, accepted bool) {
	failing = w.failing.Load()
	return failing, w.accepted.Load() && failing == nil
}

// concernsMessage reports whether a Send failed for a reason that lies in its messages and
// their destinations, and says nothing of the broker. Of several messages it is enough that
// the reasons of all that failed are such.
func concernsMessage(err error) bool {
	if several, ok := errors.AsType[*SendError](err); ok {
		for _, r := range several.Results {
			if r.State != SendAccepted && !concernsMessage(r.Err) {
				return false
			}
		}
		return true
	}
	for _, target := range []error{ErrTooLarge, ErrInvalidHeader, ErrQueueNotFound, errors.ErrUnsupported} {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}
