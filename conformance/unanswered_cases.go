package conformance

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
)

// unansweredCases are about settlements with an outcome that the transport does not know,
// or does not know yet.
var unansweredCases = []testCase{
	{rule: "C6", title: "a return whose answer was lost is not made again at another's expense", in: givingBack, exclusive: true, needs: []need{outages, durable}, run: returnsWithoutAnswer},
	{rule: "R28", title: "a message is not handled again while its settlement waits", in: inReceiveOnly, run: func(t *trial) {
		transport := t.open()
		var seen attempts
		queue, errorQueue := t.queue(transport), t.queue(transport)
		waiting, goOn, completed := make(chan core.Delivery, 1), make(chan struct{}), make(chan struct{}, endless)
		answer := sync.OnceFunc(func() { close(goOn) })
		var first sync.Once
		slow := &interfering{Transport: transport, complete: func(ctx context.Context, d core.Delivery) error {
			isFirst := false
			first.Do(func() { isFirst = true })
			if !isFirst {
				err := d.Complete(ctx)
				completed <- struct{}{}
				return err
			}
			waiting <- d
			<-goOn
			return errInterfered
		}}
		s := t.serviceOn(slow, queue, errorQueue, nil)
		t.Cleanup(answer) // before the endpoint is stopped
		s.handle("order", func(_ context.Context, m *core.Message) error { return seen.failWith(m, nil) })
		s.run()
		t.send(transport, t.command(queue, "order", "m1"))
		var d core.Delivery
		t.await("a message that was handled is completed", func() bool {
			select {
			case d = <-waiting:
				return true
			default:
				return false
			}
		})
		t.abandon(d) // like the end of the connection or of the lock
		t.receives(completed, "a message that comes again while Complete waits for its first delivery is completed without its handler")
		answer()
		s.leftNothing("after the message was settled again")
		t.attempted(&seen, "m1", 1)
	}},
}

// returnsWithoutAnswer lets the broker die while messages are being given back, so that
// some returns have taken effect but their answers are lost. Another instance then
// receives the messages. If the broker identifies a message only by its id, repeating a
// return would take the message away from that instance.
func returnsWithoutAnswer(t *trial) {
	const n = 8
	o := t.operator()
	first, second := t.open(), t.open()
	queue := t.queue(first)
	t.send(first, t.messages(queue, n)...)
	holder := t.receiver(first, queue, n)
	held := holder.take(n)
	began := time.Now()
	t.abandon(held[0])
	took := time.Since(began)
	held[0] = holder.next()

	// Each goroutine alternately gives back and receives, and the goroutines are spread
	// over the duration of a call.
	receiving, pause := context.WithCancel(t.ctx)
	defer pause()
	returning, cancel := t.patient()
	defer cancel()
	var all sync.WaitGroup
	for i, d := range held {
		t.beside(&all, func() {
			t.rest(took * time.Duration(i) / n)
			for receiving.Err() == nil && d.Abandon(returning, errHandler) == nil {
				dst := make([]core.Delivery, 1)
				if got, err := holder.Receive(receiving, dst); got == 0 || err != nil {
					return
				}
				d = dst[0]
			}
		})
	}
	t.rest(3*took + t.amid())
	o.kill()
	pause()
	holder.SetMaxInFlight(0)
	o.start()

	// The next holder keeps each message long enough for a repeated return to arrive.
	const watched = 1500 * time.Millisecond
	next := t.receiver(second, queue, 2*n)
	next.size = 2 * n
	kept := map[string]core.Delivery{}
	until := time.Now().Add(t.comesAgain())
	for complete := false; time.Now().Before(until); {
		if len(kept) == n && !complete {
			complete, until = true, time.Now().Add(watched)
		}
		for _, d := range next.within(t.quiet() / 3) {
			body := string(d.Incoming().Body)
			if earlier := kept[body]; earlier != nil && heldUntil(earlier, time.Now()) && !t.caps.MayDuplicate {
				t.stop("a return of which it is not known whether it happened is not made again once another instance may have the message: where the broker has no token for each delivery, it would give back that one's message",
					"%q was delivered again while another delivery of it was held; DeliveryCount %d, then %d", body, earlier.Incoming().DeliveryCount, d.Incoming().DeliveryCount)
			}
			kept[body] = d
		}
		for _, d := range kept {
			if until := d.LockedUntil(); !until.IsZero() && time.Until(until) < t.lock()/2 {
				ctx, cancel := t.patient()
				_ = d.Renew(ctx)
				cancel()
			}
		}
	}
	if len(kept) < n {
		t.stop("messages that were given back, or held, when the broker died are delivered to another instance", "%d of %d are after %v", len(kept), n, t.comesAgain())
	}
	for body, d := range kept {
		ctx, cancel := t.patient()
		err := d.Complete(ctx)
		cancel()
		if err != nil && (!errors.Is(err, core.ErrLockLost) || heldUntil(d, time.Now())) {
			t.fail("Complete returns nil for a delivery that is held, also when an earlier holder's return of the same message had no answer", "%q: %v", body, err)
		}
	}
	cancel()
	if !t.returns(all.Wait) {
		t.stop("Abandon returns when its context ends", "it has not returned %v later", t.patience())
	}
}

// heldUntil reports whether the lock of a delivery lasts until after the given time.
func heldUntil(d core.Delivery, at time.Time) bool {
	until := d.LockedUntil()
	return until.IsZero() || at.Before(until)
}
