package conformance

import (
	"errors"
	"fmt"
	"slices"

	"github.com/reprise-go/reprise/core"
)

// lose receives one message for each way to settle, named by it, waits until their locks
// have ended, and returns the deliveries. The receiver fetches no others.
func (t *trial) lose(transport core.Transport, queue string, ways []wayToSettle) (late []core.Delivery, names []string) {
	for _, way := range ways {
		names = append(names, "for a late "+way.name)
	}
	t.sendEach(transport, queue, names...)
	r := t.receiver(transport, queue, len(ways))
	held := r.takeThese("the messages are delivered", names...)
	r.SetMaxInFlight(0)
	for _, name := range names {
		late = append(late, held[name])
	}
	t.outlive(late...)
	return late, names
}

// tooLate checks that settlements are refused because the lock was lost.
func (t *trial) tooLate(when string, ways []wayToSettle, late []core.Delivery) {
	for i, way := range ways {
		if err := t.trySettling(way, late[i]); !errors.Is(err, core.ErrLockLost) {
			t.fail(fmt.Sprintf("%s %s returns core.ErrLockLost", way.name, when), "%v", err)
		}
	}
}

var lostLockCases = []testCase{
	{rule: "C6", title: "a settlement after the lock has ended is refused, and the message comes again", in: givingBack, needs: []need{locks}, shortLocks: true, run: func(t *trial) {
		transport := t.open()
		queue, out := t.queue(transport), t.queue(transport)
		ways := t.waysToSettle(out)
		late, names := t.lose(transport, queue, ways)
		t.tooLate("after LockedUntil", ways, late)
		for _, d := range t.receiver(t.open(), queue, len(ways)).takeThese("a message whose lock has ended comes again, whatever was tried too late", names...) {
			t.complete(d)
		}
		t.left(queue, "after they were completed by who received them next")
		t.left(out, "what CompleteWith and ReplaceWith would have sent is not there after they were refused")
	}},
	{rule: "C6", title: "a late settlement does not touch the next holder", in: givingBack, needs: []need{locks}, shortLocks: true, run: func(t *trial) {
		transport := t.open()
		queue, out := t.queue(transport), t.queue(transport)
		ways := t.waysToSettle(out)
		late, names := t.lose(transport, queue, ways)
		next := t.receiver(t.open(), queue, len(ways))
		held := next.takeThese("a message whose lock has ended comes again", names...)
		t.tooLate("after the message went to another receiver", ways, late)
		t.nobodyGets("a late settlement takes the message from nobody", t.receiver(t.open(), queue, len(ways)))
		for _, name := range names {
			t.complete(held[name])
		}
		t.left(queue, "after the next holder completed them")
		t.left(out, "what CompleteWith and ReplaceWith would have sent is not there after they were refused")
	}},
	{rule: "C6", title: "a late settlement counts nothing", in: givingBack, needs: []need{locks}, shortLocks: true, run: func(t *trial) {
		transport := t.open()
		queue := t.queue(transport)
		ways := t.waysToSettle("")[1:3] // Abandon and Release
		late, names := t.lose(transport, queue, ways)
		next := t.receiver(t.open(), queue, len(ways))
		held := next.takeThese("a message whose lock has ended comes again", names...)
		t.tooLate("after the message went to another receiver", ways, late)
		for _, name := range names {
			t.abandon(held[name])
		}
		for name, d := range next.takeThese("an abandoned message comes again", names...) {
			want := held[name].Incoming().DeliveryCount + 1
			if got := d.Incoming().DeliveryCount; got != want && (!t.caps.CountsReleases || got < want) {
				t.fail(fmt.Sprintf("DeliveryCount is one higher, %d, after one Abandon in time and one settlement too late", want), "it is %d", got)
			}
			t.complete(d)
		}
		t.left(queue, "after they were completed")
	}},
	{rule: "C6", title: "of deliveries received together, only those whose lock ended are lost", in: givingBack, needs: []need{locks}, shortLocks: true, run: func(t *trial) {
		transport := t.open()
		queue := t.queue(transport)
		r := t.receiver(transport, queue, 4)
		t.sendEach(transport, queue, "completed", "renewed", "expired", "expired too")
		held := r.takeThese("four messages are delivered", "completed", "renewed", "expired", "expired too")
		r.SetMaxInFlight(0)
		t.complete(held["completed"])
		expiring := []core.Delivery{held["expired"], held["expired too"]}
		stop := t.keepRenewing(held["renewed"])
		t.outlive(expiring...)
		next := t.receiver(t.open(), queue, 4)
		again := next.takeThese("those that nobody renewed come again, and nothing else", "expired", "expired too")
		t.nobodyGets("what was renewed or completed does not come again", next)
		if err := stop(); err != nil {
			t.stop("a lock that is renewed in time holds", "Renew: %v", err)
		}
		t.complete(held["renewed"])
		for _, d := range expiring {
			if err := t.trySettling(t.waysToSettle("")[0], d); !errors.Is(err, core.ErrLockLost) {
				t.fail("Complete of a delivery whose lock has ended returns core.ErrLockLost", "%v", err)
			}
		}
		for _, d := range again {
			t.complete(d)
		}
		t.left(queue, "after all were completed")
	}},
	{rule: "C6", title: "a settlement after the receiver was closed is refused", in: givingBack, run: func(t *trial) {
		t.settleAfter("its receiver was closed", func(_ core.Transport, r *receiver) { r.shut() })
	}},
	{rule: "C6", title: "a settlement after the transport was closed is refused", in: givingBack, run: func(t *trial) {
		t.settleAfter("its transport was closed", func(transport core.Transport, _ *receiver) { t.close(transport) })
	}},
}

// settleAfter tries each way to settle after an event that takes the deliveries away from
// the receiver, before and after another receiver has received the messages.
func (t *trial) settleAfter(event string, happens func(transport core.Transport, r *receiver)) {
	first, transport := t.open(), t.open()
	queue, out := t.queue(transport), t.queue(transport)
	ways := t.waysToSettle(out)
	var early, late []string
	for _, way := range ways {
		early = append(early, way.name+" at once")
		late = append(late, way.name+" after another receiver took it")
	}
	all := slices.Concat(early, late)
	t.sendEach(transport, queue, all...)
	r := t.receiver(first, queue, len(all))
	deliveries := r.takeThese("the messages are delivered", all...)
	happens(first, r)
	pick := func(names []string) (picked []core.Delivery) {
		for _, name := range names {
			picked = append(picked, deliveries[name])
		}
		return picked
	}
	t.tooLate("of a delivery after "+event, ways, pick(early))
	next := t.receiver(transport, queue, len(all))
	held := next.takeThese("what was unsettled comes again after "+event, all...)
	t.tooLate("of a delivery after "+event+" and another receiver took the message", ways, pick(late))
	for _, name := range all {
		t.complete(held[name])
	}
	t.nobodyGets("a settlement after "+event+" gives nothing back", next)
	next.shut()
	t.left(queue, "after the next holder completed them")
	t.left(out, "what CompleteWith and ReplaceWith would have sent is not there after they were refused")
}
