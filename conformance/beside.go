package conformance

import (
	"context"
	"errors"
	"runtime/debug"
	"sync"

	"github.com/reprise-go/reprise/core"
)

// What runs beside a case's own goroutine. A panic there, of the transport or
// because of what it returned, would end the whole test binary.

// beside runs f in a goroutine that all waits for.
func (t *trial) beside(all *sync.WaitGroup, f func()) { all.Go(func() { t.guard(f) }) }

// apart runs f in a goroutine. What f is to say when it ends it says by defer.
func (t *trial) apart(f func()) {
	go t.guard(f)
}

// guard runs f, and makes a failure of its panic.
func (t *trial) guard(f func()) {
	defer func() {
		if problem := recover(); problem != nil {
			t.fail("neither the transport nor the harness panics", "panic: %v\n%s", problem, debug.Stack())
		}
	}()
	f()
}

// wellFormed checks what a call of Receive returned beside the case, which it
// cannot stop. ended says whether the call's context had ended.
func (r *receiver) wellFormed(dst []core.Delivery, n int, err error, ended bool) bool {
	if n < 0 || n > len(dst) || (n > 0) == (err != nil) || (err != nil && !ended) {
		r.t.fail("Receive fills 1..len(dst) elements and returns no error, or returns 0 and an error because its context ended",
			"%d of %d elements, %v, context ended: %t", n, len(dst), err, ended)
		return false
	}
	for i, d := range dst[:n] {
		if d == nil || d.Incoming() == nil {
			r.t.fail("Receive fills its slice with deliveries that have a message", "element %d is %v", i, d)
			return false
		}
	}
	return true
}

var errNeither = errors.New("no error, but no receiver either: OpenReceiver returned nil, nil")

// tryOpening returns what OpenReceiver returned, and closes what it opened.
func (t *trial) tryOpening(transport core.Transport, cfg core.ReceiverConfig) error {
	ctx, cancel := t.patient()
	defer cancel()
	r, err := transport.OpenReceiver(ctx, cfg)
	switch {
	case err != nil:
		return err
	case r == nil:
		return errNeither
	}
	_ = r.Close(context.WithoutCancel(ctx))
	return nil
}

// subscriber returns the transport as what it must be where it claims
// PublishSubscribe.
func (t *trial) subscriber(transport core.Transport) core.Subscriber {
	s, ok := transport.(core.Subscriber)
	if !ok {
		t.stop("a transport that claims PublishSubscribe is a core.Subscriber", "%T has no methods Subscribe and Unsubscribe", transport)
	}
	return s
}
