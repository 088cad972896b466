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

// lose receives one message for each way to settle, named by it, waits until their locks
// have ended, and returns the deliveries. The receiver fetches no others.
func (t *caseT) lose(transport core.Transport, queue string, ways []wayToSettle) (lost []core.Delivery, names []string) {
	for _, way := range ways {
		names = append(names, "for a late "+way.name)
	}
	t.sendEach(transport, queue, names...)
	r := t.receiver(transport, queue, len(ways))
	held := r.takeBodies("the messages are delivered", names...)
	r.SetMaxInFlight(0)
	for _, name := range names {
		lost = append(lost, held[name])
	}
	t.sleepPastLocks(lost...)
	return lost, names
}

// wantLockLost checks that settlements are refused because the lock was lost.
func (t *caseT) wantLockLost(when string, ways []wayToSettle, lost []core.Delivery) {
	for i, way := range ways {
		if err := t.trySettling(way, lost[i]); !errors.Is(err, core.ErrLockLost) {
			t.fail(fmt.Sprintf("%s %s returns core.ErrLockLost", way.name, when), "%v", err)
		}
	}
}

var lostLockCases = []testCase{
	{rule: "C6", title: "a settlement after the lock has ended is refused, and the message is redelivered", modes: withRedelivery, needs: []need{locks}, shortLocks: true, run: func(t *caseT) {
		transport := t.open()
		queue, out := t.queue(transport), t.queue(transport)
		ways := t.waysToSettle(out)
		lost, names := t.lose(transport, queue, ways)
		t.wantLockLost("after LockedUntil", ways, lost)
		for _, d := range t.receiver(t.open(), queue, len(ways)).takeBodies("a message whose lock has ended is redelivered, after any late settlement", names...) {
			t.complete(d)
		}
		t.wantLeft(queue, "after they were completed by who received them next")
		t.wantLeft(out, "a refused CompleteWith or ReplaceWith sends no messages")
	}},
	{rule: "C6", title: "a late settlement has no effect on the next delivery of the message", modes: withRedelivery, needs: []need{locks}, shortLocks: true, run: func(t *caseT) {
		transport := t.open()
		queue, out := t.queue(transport), t.queue(transport)
		ways := t.waysToSettle(out)
		lost, names := t.lose(transport, queue, ways)
		next := t.receiver(t.open(), queue, len(ways))
		held := next.takeBodies("a message whose lock has ended is redelivered", names...)
		t.wantLockLost("after the message went to another receiver", ways, lost)
		t.wantNoneDelivered("a late settlement takes the message from no other receiver", t.receiver(t.open(), queue, len(ways)))
		for _, name := range names {
			t.complete(held[name])
		}
		t.wantLeft(queue, "after the next holder completed them")
		t.wantLeft(out, "a refused CompleteWith or ReplaceWith sends no messages")
	}},
	{rule: "C6", title: "a late settlement does not change the delivery count", modes: withRedelivery, needs: []need{locks}, shortLocks: true, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		ways := t.waysToSettle("")[1:3] // Abandon and Release
		lost, names := t.lose(transport, queue, ways)
		next := t.receiver(t.open(), queue, len(ways))
		held := next.takeBodies("a message whose lock has ended is redelivered", names...)
		t.wantLockLost("after the message went to another receiver", ways, lost)
		for _, name := range names {
			t.abandon(held[name])
		}
		for name, d := range next.takeBodies("an abandoned message is redelivered", names...) {
			want := held[name].Incoming().DeliveryCount + 1
			if got := d.Incoming().DeliveryCount; got != want && (!t.caps.CountsReleases || got < want) {
				t.fail(fmt.Sprintf("DeliveryCount is one higher, %d, after one Abandon in time and one settlement too late", want), "it is %d", got)
			}
			t.complete(d)
		}
		t.wantLeft(queue, "after they were completed")
	}},
	{rule: "C6", title: "of deliveries received together, only those whose lock ended are lost", modes: withRedelivery, needs: []need{locks}, shortLocks: true, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		r := t.receiver(transport, queue, 4)
		t.sendEach(transport, queue, "completed", "renewed", "expired", "expired too")
		held := r.takeBodies("four messages are delivered", "completed", "renewed", "expired", "expired too")
		r.SetMaxInFlight(0)
		t.complete(held["completed"])
		expiring := []core.Delivery{held["expired"], held["expired too"]}
		stop := t.keepRenewing(held["renewed"])
		t.sleepPastLocks(expiring...)
		next := t.receiver(t.open(), queue, 4)
		redelivered := next.takeBodies("messages whose locks were not renewed are redelivered, and no others", "expired", "expired too")
		t.wantNoneDelivered("messages that were completed, or whose locks were renewed, are not redelivered", next)
		if err := stop(); err != nil {
			t.stop("a lock that is renewed in time holds", "Renew: %v", err)
		}
		t.complete(held["renewed"])
		for _, d := range expiring {
			if err := t.trySettling(t.waysToSettle("")[0], d); !errors.Is(err, core.ErrLockLost) {
				t.fail("Complete of a delivery whose lock has ended returns core.ErrLockLost", "%v", err)
			}
		}
		for _, d := range redelivered {
			t.complete(d)
		}
		t.wantLeft(queue, "after all were completed")
	}},
	{rule: "C6", title: "a settlement after the receiver was closed is refused", modes: withRedelivery, run: func(t *caseT) {
		t.settleAfter("its receiver was closed", func(_ core.Transport, r *receiver) { r.close() })
	}},
	{rule: "C6", title: "a settlement after the transport was closed is refused", modes: withRedelivery, run: func(t *caseT) {
		t.settleAfter("its transport was closed", func(transport core.Transport, _ *receiver) { t.close(transport) })
	}},
	{rule: "C6", title: "a delivery that is in flight in an outage is settled or redelivered", modes: withRedelivery, exclusive: true, needs: []need{outages, durable}, run: func(t *caseT) {
		broker := t.brokerController()
		transport := t.open()
		queue := t.queue(transport)
		settlements := []struct {
			name string
			call func(ctx context.Context, d core.Delivery) error
		}{
			{"Complete", func(ctx context.Context, d core.Delivery) error { return d.Complete(ctx) }},
			{"Abandon", func(ctx context.Context, d core.Delivery) error { return d.Abandon(ctx, errHandler) }},
			{"Release", func(ctx context.Context, d core.Delivery) error { return d.Release(ctx) }},
		}
		t.send(transport, t.messages(queue, 2*len(settlements))...)
		holder := t.receiver(transport, queue, 2*len(settlements))
		held := holder.take(2 * len(settlements))
		gone := map[string]string{} // bodies that may not, or need not, be redelivered, and the reason
		var lastErr error           // the result of the last settlement
		settle := func(i int, when string) {
			s := settlements[i%len(settlements)]
			ctx, cancel := t.withQuietPeriod()
			defer cancel()
			var err error
			if !t.returnsInTime(func() { err = s.call(ctx, held[i]) }) {
				t.stop(s.name+" "+when+" the outage returns when its context ends", "it has not returned %v later", t.timeout())
			}
			lastErr = err
			if s.name == "Complete" && err == nil {
				gone[string(held[i].Incoming().Body)] = s.name + " " + when + " the outage"
			}
		}
		broker.kill()
		for i := range settlements {
			settle(i, "during")
		}
		broker.start()
		retaken := t.retakes(holder, queue, held[len(settlements):])
		for i := range settlements {
			settle(len(settlements)+i, "after")
			if d := held[len(settlements)+i]; retaken.redelivered[string(d.Incoming().Body)] && !errors.Is(lastErr, core.ErrLockLost) {
				t.fail(settlements[i].name+" of a delivery whose message has come again after an outage returns core.ErrLockLost", "%v", lastErr)
			}
		}
		t.places(holder, queue, 2*len(settlements), retaken)
		holder.close() // it may have prefetched redelivered messages
		second := newOutageLog()
		second.drain(t.receiver(t.open(), queue, 8), 4*len(settlements)-len(gone))
		for _, d := range held {
			body := string(d.Incoming().Body)
			why, isGone := gone[body]
			switch n := second.deliveries[body]; {
			case n == 0 && !isGone:
				t.fail("a message that was abandoned or released, or whose settlement was an error, is redelivered after the outage", "%q does not", body)
			case n > 0 && isGone && t.caps.ConfirmsSettlement && !t.caps.MayDuplicate:
				t.fail("ConfirmsSettlement is claimed, so a message for which Complete returned nil does not come again", "%q does (%s)", body, why)
			}
		}
	}},
	{rule: "C6", title: "an Abandon or Release whose answer was lost is not repeated for a later delivery", modes: withRedelivery, exclusive: true, needs: []need{outages, durable}, run: returnsWithoutAnswer},
}

// settleAfter tries each way to settle after an event that takes the deliveries away from
// the receiver, before and after another receiver has received the messages.
func (t *caseT) settleAfter(event string, happens func(transport core.Transport, r *receiver)) {
	first, transport := t.open(), t.open()
	queue, out := t.queue(transport), t.queue(transport)
	ways := t.waysToSettle(out)
	var prompt, expired []string
	for _, way := range ways {
		prompt = append(prompt, way.name+" at once")
		expired = append(expired, way.name+" after another receiver took it")
	}
	all := slices.Concat(prompt, expired)
	t.sendEach(transport, queue, all...)
	r := t.receiver(first, queue, len(all))
	deliveries := r.takeBodies("the messages are delivered", all...)
	happens(first, r)
	pick := func(names []string) (picked []core.Delivery) {
		for _, name := range names {
			picked = append(picked, deliveries[name])
		}
		return picked
	}
	t.wantLockLost("of a delivery after "+event, ways, pick(prompt))
	next := t.receiver(transport, queue, len(all))
	held := next.takeBodies("unsettled messages are redelivered after "+event, all...)
	t.wantLockLost("of a delivery after "+event+" and another receiver took the message", ways, pick(expired))
	for _, name := range all {
		t.complete(held[name])
	}
	t.wantNoneDelivered("a settlement after "+event+" gives nothing back", next)
	next.close()
	t.wantLeft(queue, "after the next holder completed them")
	t.wantLeft(out, "a refused CompleteWith or ReplaceWith sends no messages")
}

// retaken has the messages that were redelivered after an outage and are still unsettled.
type retaken struct {
	redelivered map[string]bool // redelivered messages, by their bodies
	holder      []core.Delivery // the deliveries to the receiver that had the messages before
	other       *receiver       // has the other deliveries; nil: there are none
}

// retakes receives, with the receiver that had these deliveries in an outage and with
// another one, until their messages have been redelivered. It does nothing if locks end
// by time, and not with their connection: then the messages need not be redelivered.
func (t *caseT) retakes(holder *receiver, queue string, lost []core.Delivery) (all retaken) {
	all.redelivered = map[string]bool{}
	missing := map[string]bool{}
	for _, d := range lost {
		if !d.LockedUntil().IsZero() {
			return all
		}
		missing[string(d.Incoming().Body)] = true
	}
	other := t.receiver(t.open(), queue, len(lost))
	all.other = other
	for deadline := time.Now().Add(t.redeliveryTimeout()); len(missing) > 0 && time.Now().Before(deadline); {
		for _, r := range []*receiver{holder, other} {
			for _, d := range r.takeFor(t.quietPeriod() / 4) {
				body := string(d.Incoming().Body)
				all.redelivered[body] = true
				delete(missing, body)
				if r == holder {
					all.holder = append(all.holder, d)
				}
			}
		}
	}
	return all
}

// places checks after an outage that a receiver can hold exactly MaxInFlight deliveries.
// It sends as many messages as that takes.
func (t *caseT) places(r *receiver, queue string, maxInFlight int, before retaken) {
	if before.other != nil {
		before.other.close()
	}
	more := make([]core.Outgoing, maxInFlight)
	for i := range more {
		more[i] = t.message(queue, fmt.Sprint("more ", i))
	}
	t.sendEventually(t.open(), more...)
	held := slices.Concat(before.holder, r.takePlaces(maxInFlight-len(before.holder),
		fmt.Sprintf("a receiver whose connection was lost has as many deliveries in flight afterwards as before, %d: lost deliveries do not count towards MaxInFlight", maxInFlight)))
	t.wantNoPlaceLeft(r, held, fmt.Sprintf("late settlements of deliveries that were lost in an outage free no places: MaxInFlight is %d", maxInFlight))
}

// returnsWithoutAnswer lets the broker die while messages are being given back, so that
// some returns have taken effect but their answers are lost. Another instance then
// receives the messages. If the broker identifies a message only by its id, repeating a
// return would take the message away from that instance.
func returnsWithoutAnswer(t *caseT) {
	const n = 8
	broker := t.brokerController()
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
	returning, cancel := t.withTimeout()
	defer cancel()
	var all sync.WaitGroup
	for i, d := range held {
		t.goInGroup(&all, func() {
			t.sleep(took * time.Duration(i) / n)
			// The goroutine also gives back a delivery that Receive returns after the pause:
			// Receive completes a fetch in progress (C3), perhaps on a new connection, and
			// that connection would keep the message locked.
			for d.Abandon(returning, errHandler) == nil {
				dst := make([]core.Delivery, 1)
				if got, err := holder.Receive(receiving, dst); got == 0 || err != nil {
					return
				}
				d = dst[0]
			}
		})
	}
	t.sleep(3*took + t.randomPause())
	broker.kill()
	pause()
	holder.SetMaxInFlight(0)
	broker.start()

	// The next holder keeps each message long enough for a repeated return to arrive.
	const watched = 1500 * time.Millisecond
	next := t.receiver(second, queue, 2*n)
	next.size = 2 * n
	kept := map[string]core.Delivery{}
	deadline := time.Now().Add(t.redeliveryTimeout())
	for complete := false; time.Now().Before(deadline); {
		if len(kept) == n && !complete {
			complete, deadline = true, time.Now().Add(watched)
		}
		for _, d := range next.takeFor(t.quietPeriod() / 3) {
			body := string(d.Incoming().Body)
			if earlier := kept[body]; earlier != nil && isLockedAt(earlier, time.Now()) && !t.caps.MayDuplicate {
				t.stop("a return of which it is not known whether it happened is not made again once another instance may have the message: where the broker has no token for each delivery, it would give back that one's message",
					"%q was delivered again while another delivery of it was held; DeliveryCount %d, then %d", body, earlier.Incoming().DeliveryCount, d.Incoming().DeliveryCount)
			}
			kept[body] = d
		}
		for _, d := range kept {
			if lockedUntil := d.LockedUntil(); !lockedUntil.IsZero() && time.Until(lockedUntil) < t.lock()/2 {
				ctx, cancel := t.withTimeout()
				_ = d.Renew(ctx)
				cancel()
			}
		}
	}
	if len(kept) < n {
		t.stop("messages that were given back, or held, when the broker died are delivered to another instance", "%d of %d are after %v", len(kept), n, t.redeliveryTimeout())
	}
	for body, d := range kept {
		ctx, cancel := t.withTimeout()
		err := d.Complete(ctx)
		cancel()
		if err != nil && (!errors.Is(err, core.ErrLockLost) || isLockedAt(d, time.Now())) {
			t.fail("Complete returns nil for a delivery that is held, also when an earlier holder's return of the same message had no answer", "%q: %v", body, err)
		}
	}
	cancel()
	if !t.returnsInTime(all.Wait) {
		t.stop("Abandon returns when its context ends", "it has not returned %v later", t.timeout())
	}
}

// isLockedAt reports whether the lock of a delivery lasts until after the given time.
func isLockedAt(d core.Delivery, at time.Time) bool {
	lockedUntil := d.LockedUntil()
	return lockedUntil.IsZero() || at.Before(lockedUntil)
}
