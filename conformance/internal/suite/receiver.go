package suite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
)

// receiver receives from one queue.
type receiver struct {
	core.Receiver
	t     *caseT
	queue string
	size  int // of the slices passed to Receive

	pending redeliveries // of read
}

// receiver opens a receiver in the case's mode.
func (t *caseT) receiver(transport core.Transport, queue string, maxInFlight int) *receiver {
	return t.receiverIn(t.mode, transport, queue, maxInFlight)
}

func (t *caseT) receiverIn(mode core.TransactionMode, transport core.Transport, queue string, maxInFlight int) *receiver {
	return t.openReceiver(transport, core.ReceiverConfig{Queue: queue, Mode: mode, MaxInFlight: maxInFlight})
}

func (t *caseT) openReceiver(transport core.Transport, cfg core.ReceiverConfig) *receiver {
	if limit := t.suite.h.MaxInFlight; limit > 0 {
		cfg.MaxInFlight = min(cfg.MaxInFlight, limit)
	}
	ctx, cancel := t.withTimeout()
	defer cancel()
	r, err := transport.OpenReceiver(ctx, cfg)
	if err != nil {
		t.stop(fmt.Sprintf("OpenReceiver opens a receiver in mode %v, which Capabilities.Transactions lists", cfg.Mode), "%v", err)
	}
	if r == nil {
		t.stop("OpenReceiver returns a receiver or an error", "it returned nil, nil")
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), t.suite.h.Timeout)
		defer cancel()
		if err := r.Close(ctx); err != nil {
			t.fail("Receiver.Close returns nil, also when called again", "%v", err)
		}
	})
	return &receiver{Receiver: r, t: t, queue: cfg.Queue, size: 8}
}

// tryOpening returns the error of OpenReceiver, and closes the receiver.
func (t *caseT) tryOpening(transport core.Transport, cfg core.ReceiverConfig) error {
	ctx, cancel := t.withTimeout()
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

var errNeither = errors.New("no error, but no receiver either: OpenReceiver returned nil, nil")

// close closes the receiver.
func (r *receiver) close() {
	ctx, cancel := r.t.withTimeout()
	defer cancel()
	if err := r.Close(ctx); err != nil {
		r.t.stop("Receiver.Close returns nil", "%v", err)
	}
}

// batch calls Receive once, and checks its results. If there is no delivery, err is that
// of ctx.
func (r *receiver) batch(ctx context.Context, size int) ([]core.Delivery, error) {
	dst := make([]core.Delivery, size)
	n, err := r.Receive(ctx, dst)
	r.t.recordProgress()
	switch {
	case n < 0 || n > len(dst):
		r.t.stop(fmt.Sprintf("Receive fills 1..%d elements", size), "it returned %d", n)
	case n > 0 && err != nil:
		r.t.stop("Receive returns deliveries or an error", "it returned %d deliveries and %v", n, err)
	case n == 0 && err == nil:
		r.t.stop("Receive blocks until it has a delivery or an error", "it returned 0, nil")
	case err != nil && ctx.Err() == nil:
		r.t.stop("Receive returns no error while its context goes on", "%v", err)
	}
	for i, d := range dst[:n] {
		if d == nil || d.Incoming() == nil {
			r.t.stop("Receive fills its slice with deliveries that have a message", "element %d is %v", i, d)
		}
	}
	return dst[:n], err
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

// take waits for the next n deliveries, and returns them.
func (r *receiver) take(n int) []core.Delivery {
	ctx, cancel := r.t.withTimeout()
	defer cancel()
	var taken []core.Delivery
	for len(taken) < n {
		got, err := r.batch(ctx, min(r.size, n-len(taken)))
		if err != nil {
			r.t.stop(fmt.Sprintf("%d messages are delivered from the queue", n), "%d after %v: %s", len(taken), r.t.timeout(), bodies(taken))
		}
		taken = append(taken, got...)
	}
	return taken
}

// next waits for the next delivery, and returns it.
func (r *receiver) next() core.Delivery { return r.take(1)[0] }

// takeFor returns the deliveries that arrive within d.
func (r *receiver) takeFor(d time.Duration) []core.Delivery {
	ctx, cancel := context.WithTimeout(r.t.ctx, d)
	defer cancel()
	var taken []core.Delivery
	for {
		got, err := r.batch(ctx, r.size)
		if err != nil {
			return taken
		}
		taken = append(taken, got...)
	}
}

// wantSilence checks that no message is delivered for a while.
func (r *receiver) wantSilence(expected string) {
	if got := r.takeFor(r.t.quietPeriod()); len(got) > 0 {
		r.t.stop(expected, "delivered: %s", bodies(got))
	}
}

// takeBodies returns the deliveries of the messages with these bodies. It stops the case
// if another message is delivered, or one of them twice.
func (r *receiver) takeBodies(expected string, want ...string) map[string]core.Delivery {
	ctx, cancel := r.t.withTimeout()
	defer cancel()
	taken := map[string]core.Delivery{}
	for len(taken) < len(want) {
		batch, err := r.batch(ctx, min(r.size, len(want)-len(taken)))
		if err != nil {
			missing := slices.DeleteFunc(slices.Clone(want), func(body string) bool { return taken[body] != nil })
			r.t.stop(expected, "after %v these have not come: %s", r.t.timeout(), sample(missing))
		}
		for _, d := range batch {
			body := string(d.Incoming().Body)
			switch {
			case slices.Contains(want, body) && taken[body] == nil:
				taken[body] = d
			case r.t.caps.MayDuplicate:
				r.t.complete(d)
			default:
				r.t.stop(expected, "%s came, which should not; expected were %s", excerpt([]byte(body)), sample(want))
			}
		}
	}
	return taken
}

// receiveResult has the results of one call of Receive.
type receiveResult struct {
	deliveries []core.Delivery
	err        error
	at         time.Time
}

// receiveAsync calls Receive in a separate goroutine.
func (r *receiver) receiveAsync(ctx context.Context, size int) <-chan receiveResult {
	answers := make(chan receiveResult, 1)
	r.t.goGuarded(func() {
		defer close(answers)
		dst := make([]core.Delivery, size)
		n, err := r.Receive(ctx, dst)
		answers <- receiveResult{dst[:max(0, min(n, size))], err, time.Now()}
	})
	return answers
}

// receiveInBackground calls Receive in a separate goroutine until a message is received
// or the case ends.
func (r *receiver) receiveInBackground() <-chan receiveResult { return r.receiveAsync(r.t.ctx, r.size) }

// awaitResult returns the results of a call that is expected to return soon, because of
// the event just before.
func (t *caseT) awaitResult(answers <-chan receiveResult, expected string) receiveResult {
	since := time.Now()
	timer := time.NewTimer(t.timeout())
	defer timer.Stop()
	select {
	case a := <-answers:
		if took := a.at.Sub(since); took > t.shortTimeout() {
			t.fail(expected, "it took %v", took)
		}
		return a
	case <-timer.C:
		t.stop(expected, "Receive has not returned after %v", t.timeout())
		panic("unreachable")
	}
}

// wantNoneDelivered checks that settled messages are not delivered to the receivers. It
// checks nothing if the broker itself makes duplicates.
func (t *caseT) wantNoneDelivered(expected string, receivers ...*receiver) {
	if t.caps.MayDuplicate {
		return
	}
	got := make([][]core.Delivery, len(receivers))
	var all sync.WaitGroup
	for i, r := range receivers {
		t.goInGroup(&all, func() { got[i] = r.takeFor(t.quietPeriod()) })
	}
	all.Wait()
	for i, deliveries := range got {
		if len(deliveries) > 0 {
			t.stop(expected, "receiver %d of %d was delivered %s", i+1, len(receivers), bodies(deliveries))
		}
	}
}
