package core

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// sendWatch records whether the newest Send of a transport was accepted, for Health. A
// Send that succeeds after a successful one costs two atomic loads.
type sendWatch struct {
	accepted atomic.Bool // whether a Send was ever accepted
	failing  atomic.Pointer[failingSends]

	// tell notifies the observers of a send-only endpoint. It is nil on other endpoints,
	// whose receivers report their connection, and without observers.
	tell    func(ConnectionChange)
	mu      sync.Mutex
	telling bool
	told    *failingSends // the outage that they know of
}

// failingSends is a period in which every Send has failed.
type failingSends struct {
	since time.Time
	err   error // of the newest
}

// note records the result of a Send.
func (w *sendWatch) note(ctx context.Context, err error) {
	switch {
	case err == nil:
		if w.failing.Load() != nil {
			w.failing.Store(nil)
			w.changed()
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
				break
			}
		}
		w.changed()
	}
}

// changed starts a goroutine that notifies observers of the beginning or the end of an
// outage, so that they do not delay a Send, and may send themselves.
func (w *sendWatch) changed() {
	if w.tell == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.telling && w.hasNewsLocked() {
		w.telling = true
		go w.tellAll()
	}
}

func (w *sendWatch) hasNewsLocked() bool { return (w.failing.Load() == nil) != (w.told == nil) }

// tellAll notifies observers until they know the newest state. Outages that begin and end
// while they are busy are left out. If an observer ends the goroutine (runtime.Goexit),
// another goroutine continues.
func (w *sendWatch) tellAll() {
	finished := false
	defer func() {
		if !finished {
			go w.tellAll()
		}
	}()
	for {
		change, ok := w.next()
		if !ok {
			break
		}
		w.tell(change)
	}
	finished = true
}

// next returns the change that observers do not know yet, if there is one.
func (w *sendWatch) next() (change ConnectionChange, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.hasNewsLocked() {
		w.telling = false
		return change, false
	}
	before := w.told
	if w.told = w.failing.Load(); w.told == nil {
		return ConnectionChange{Connected: true, Since: before.since}, true
	}
	return ConnectionChange{Err: w.told.err, Since: w.told.since}, true
}

// state returns the current failures of Sends, or nil, and whether the newest was
// accepted: nil and false before the first.
func (w *sendWatch) state() (failing *failingSends, accepted bool) {
	failing = w.failing.Load()
	return failing, w.accepted.Load() && failing == nil
}

// concernsMessage reports whether a Send failed because of its messages and their
// destinations, which says nothing about the broker. Of several messages all that failed
// must have such a reason.
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
