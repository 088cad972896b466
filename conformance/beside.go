package conformance

import (
	"context"
	"errors"
	"runtime/debug"
	"sync"

	"github.com/reprise-go/reprise/core"
)

// Goroutines beside a case's own. A panic in one of them, in the transport or because of
// its results, would end the whole test binary.

// beside runs f in a goroutine and adds it to all.
func (t *trial) beside(all *sync.WaitGroup, f func()) { all.Go(func() { t.guard(f) }) }

// apart runs f in a goroutine. f signals its end in a deferred call.
func (t *trial) apart(f func()) {
	go t.guard(f)
}

// guard runs f, and turns a panic into a failure.
func (t *trial) guard(f func()) {
	defer func() {
		if problem := recover(); problem != nil {
			t.fail("neither the transport nor the harness panics", "panic: %v\n%s", problem, debug.Stack())
		}
	}()
	f()
}

// wellFormed checks the results of a call of Receive in a goroutine that cannot stop the
// case. ended says whether the call's context had ended.
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

// tryOpening returns the error of OpenReceiver, and closes the receiver.
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

// subscriber returns the transport as a core.Subscriber, which it has to be if it claims
// PublishSubscribe.
func (t *trial) subscriber(transport core.Transport) core.Subscriber {
	s, ok := transport.(core.Subscriber)
	if !ok {
		t.stop("a transport that claims PublishSubscribe is a core.Subscriber", "%T has no methods Subscribe and Unsubscribe", transport)
	}
	return s
}
