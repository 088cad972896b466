package conformance

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/reprise-go/reprise/core"
)

// inFlightCases are about the unsettled deliveries of a receiver. In None there are none.
var inFlightCases = []testCase{
	{rule: "C3", title: "no more than MaxInFlight are handed out", in: givingBack, run: func(t *trial) {
		transport := t.open()
		queue := t.queue(transport)
		sent := t.messages(queue, 10)
		t.send(transport, sent...)
		r := t.receiver(transport, queue, 3)
		r.size = 100
		held := t.exactly(r, nil, 3, "with MaxInFlight 3, three are handed out and no more while none of them is settled")
		completed := []core.Delivery{held[0]}
		for _, settle := range []func(...core.Delivery){t.complete, t.abandon, t.release} {
			settle(held[0])
			held = t.exactly(r, held[1:], 1, "with MaxInFlight 3, one is handed out after one of three was settled")
		}
		t.complete(held...)
		r.shut()
		completed = append(completed, held...)
		rest := slices.DeleteFunc(bodiesOf(sent), func(body string) bool {
			return slices.ContainsFunc(completed, func(d core.Delivery) bool { return string(d.Incoming().Body) == body })
		})
		t.left(queue, "of 10 messages 4 were completed, the others abandoned, released or never handed out", rest...)
	}},
	{rule: "C3", title: "MaxInFlight holds for all callers together", in: givingBack, run: func(t *trial) {
		transport := t.open()
		queue := t.queue(transport)
		t.send(transport, t.messages(queue, 20)...)
		r := t.receiver(transport, queue, 3)
		ctx, cancel := context.WithTimeout(t.ctx, t.quiet())
		defer cancel()
		var mu sync.Mutex
		var held []core.Delivery
		var callers sync.WaitGroup
		for range 6 {
			t.beside(&callers, func() {
				dst := make([]core.Delivery, 4)
				for ctx.Err() == nil {
					n, err := r.Receive(ctx, dst)
					if !r.wellFormed(dst, n, err, ctx.Err() != nil) || err != nil {
						return
					}
					mu.Lock()
					held = append(held, dst[:n]...)
					mu.Unlock()
				}
			})
		}
		callers.Wait()
		if len(held) > 3 {
			t.fail("with MaxInFlight 3, six callers of Receive hold three deliveries together", "they hold %d", len(held))
		}
		t.release(held...)
	}},
	{rule: "C3", title: "SetMaxInFlight takes effect while messages are in flight", in: givingBack, run: func(t *trial) {
		transport := t.open()
		queue := t.queue(transport)
		t.send(transport, t.messages(queue, 30)...)
		r := t.receiver(transport, queue, 2)
		held := t.exactly(r, nil, 2, "with MaxInFlight 2, two are handed out and no more while both are unsettled")
		r.SetMaxInFlight(5)
		held = t.exactly(r, held, 3, "raised from 2 to 5, three more are handed out")
		r.SetMaxInFlight(2)
		t.complete(held[:3]...) // earlier deliveries can still be settled
		held = t.exactly(r, held[3:], 0, "lowered from 5 to 2 with two unsettled, none is handed out")
		t.complete(held[0])
		held = t.exactly(r, held[1:], 1, "lowered to 2, one is handed out after one of two was settled")
		for _, n := range []int{9, 1, 7, 3, 0, 12, 4} {
			r.SetMaxInFlight(n)
		}
		held = t.exactly(r, held, 2, "changed many times, the last time to 4, two more are handed out than the two in hand")
		t.complete(held...)
	}},
	{rule: "C3", title: "room wakes a Receive that waits", in: givingBack, run: func(t *trial) {
		transport := t.open()
		queue := t.queue(transport)
		t.send(transport, t.messages(queue, 5)...)
		r := t.receiver(transport, queue, 1)
		held := r.take(1)
		for i, change := range []func(){
			func() { t.complete(held[0]); held = held[1:] },
			func() { t.abandon(held[0]); held = held[1:] },
			func() { r.SetMaxInFlight(2) },
			func() { t.release(held[0]); held = held[1:] },
		} {
			what := []string{"Complete", "Abandon", "SetMaxInFlight", "Release"}[i]
			ctx, cancel := t.patient()
			waiting := r.ask(ctx, 1)
			t.rest(t.quiet() / 2)
			t.renew(held...)
			change()
			a := t.soonAnswered(waiting, "a Receive that waits because MaxInFlight are unsettled returns soon after "+what+" made room")
			cancel()
			if a.err != nil {
				t.stop("Receive returns a message once there is room, by "+what, "%v", a.err)
			}
			held = append(held, a.deliveries...)
		}
		t.complete(held...)
	}},
	{rule: "C3", title: "SetMaxInFlight 0 fetches nothing more, and keeps nothing", in: givingBack, run: func(t *trial) {
		transport := t.open()
		queue := t.queue(transport)
		sent := t.messages(queue, 12)
		t.send(transport, sent...)
		paused := t.receiver(transport, queue, 8)
		paused.size = 1
		held := paused.take(2) // it may have fetched more
		paused.SetMaxInFlight(0)
		taken := slices.Clone(held)
		if t.caps.CountsReleases {
			prefetched := paused.prefetched()
			taken = append(taken, prefetched...)
			t.complete(prefetched...)
		} else {
			paused.silent("with SetMaxInFlight(0) nothing is handed out")
		}
		t.renew(held...)
		other := t.receiver(t.open(), queue, 16)
		rest := bodiesOf(sent)
		for _, d := range taken {
			rest = slices.DeleteFunc(rest, func(body string) bool { return body == string(d.Incoming().Body) })
		}
		arrived := other.drain(rest...) // prefetched messages that were not handed out are here
		other.shut()
		for _, d := range taken {
			arrived = append(arrived, d.Incoming())
		}
		t.uncounted(arrived)
		t.complete(held[0])
		t.release(held[1])
		paused.SetMaxInFlight(1)
		again := paused.next()
		if got, want := again.Incoming().Body, held[1].Incoming().Body; string(got) != string(want) {
			t.fail(fmt.Sprintf("after SetMaxInFlight(1) the message that is left is delivered, %q", want), "%q", got)
		}
		t.complete(again)
		t.left(queue, "after all messages were taken")
	}},
	{rule: "C3", title: "a Receive that waits can be paused", in: givingBack, run: func(t *trial) {
		transport := t.open()
		queue := t.queue(transport)
		r := t.receiver(transport, queue, 8)
		ctx, cancel := t.patient()
		defer cancel()
		waiting := r.ask(ctx, 8)
		t.rest(t.quiet())
		r.SetMaxInFlight(0)
		t.rest(t.quiet()) // a fetch in progress may still use the old limit
		m := t.message(queue, "while it is paused")
		t.send(transport, m)
		select {
		case a := <-waiting:
			t.stop("a Receive that waits returns nothing after SetMaxInFlight(0)", "it returned %s and the error %v", bodies(a.deliveries), a.err)
		default:
		}
		other := t.receiver(t.open(), queue, 1)
		d := other.next() // no other receiver has it
		t.release(d)
		other.shut()
		r.SetMaxInFlight(1)
		a := t.soonAnswered(waiting, "a Receive that waits returns soon after SetMaxInFlight made room")
		if a.err != nil {
			t.stop("Receive goes on after SetMaxInFlight(1)", "%v", a.err)
		}
		t.complete(a.deliveries...)
		t.left(queue, "after the message was taken")
	}},
}

// prefetched receives the deliveries that the receiver still hands out after it has
// stopped fetching.
func (r *receiver) prefetched() []core.Delivery {
	var all []core.Delivery
	for {
		got := r.within(r.t.quiet())
		if len(got) == 0 {
			return all
		}
		all = append(all, got...)
	}
}

// uncounted checks that no earlier delivery was counted as an attempt.
func (t *trial) uncounted(arrived []*core.Incoming) {
	if t.caps.MayDuplicate {
		return
	}
	for _, in := range arrived {
		if in.DeliveryCount != 1 {
			t.fail("DeliveryCount is 1 at the first delivery: a message that was prefetched and never handled has not failed; where the broker counts it, the receiver keeps it and hands it out",
				"it is %d for %s", in.DeliveryCount, excerpt(in.Body))
		}
	}
}

// exactly receives n deliveries in addition to those in held, and checks that no other is
// handed out. It returns all of them.
func (t *trial) exactly(r *receiver, held []core.Delivery, n int, when string) []core.Delivery {
	ctx, cancel := t.patient()
	defer cancel()
	for want := len(held) + n; len(held) != want; {
		got, err := r.batch(ctx, 100)
		if err != nil {
			t.stop(when, "%d of %d were handed out after %v", n-(want-len(held)), n, t.patience())
		}
		if held = append(slices.Clip(held), got...); len(held) > want {
			t.stop(when, "%d were handed out at once: %s", len(held)-want+n, bodies(held))
		}
	}
	r.silent(when)
	t.renew(held...)
	return held
}
