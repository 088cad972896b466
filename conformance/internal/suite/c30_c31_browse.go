package suite

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/queues"
)

// lookClosely looks at a queue in every way.
func (t *caseT) lookClosely(transport core.Transport, queue string) {
	keys := slices.Collect(maps.Values(t.keysOf(t.look(transport, queue, 3))))
	t.look(transport, queue, 100)
	t.lookOn(transport, queues.Request{Queue: queue, Limit: 2, WithoutBody: true})
	if len(keys) > 0 {
		t.page(transport, queues.Request{Queue: queue, Limit: len(keys), Keys: keys})
	}
}

// promptly is how long a delivery may take that waits for nothing.
func (t *caseT) promptly() time.Duration { return t.suite.h.DelayTolerance + t.quietPeriod()/10 }

var browseCases = []testCase{
	{rule: "C30", title: "a look changes neither the order nor the counts of messages", modes: withRedelivery, needs: []need{browsing}, run: func(t *caseT) {
		transport := t.open()
		// The second queue shows how the broker delivers without a look.
		var delivered [2][]string
		for i := range delivered {
			queue := t.queue(transport)
			var bodies []string
			for n := range 6 {
				bodies = append(bodies, fmt.Sprintf("body %d", n))
				t.send(transport, t.message(queue, bodies[n]))
			}
			r := t.receiver(transport, queue, 1)
			t.abandon(r.next())
			r.close()
			if i == 0 {
				t.lookFor(transport, queue, bodies...)
				for range 3 {
					t.lookClosely(transport, queue)
				}
			}
			r = t.receiver(transport, queue, 1)
			counts := map[string]int{}
			for range bodies {
				d := r.next()
				in := d.Incoming()
				counts[string(in.Body)]++
				delivered[i] = append(delivered[i], fmt.Sprintf("%s: delivery %d, redelivered %t", in.Body, in.DeliveryCount, in.Redelivered))
				t.complete(d)
			}
			r.close()
			t.wantLeft(queue, "after all messages were completed")
		}
		if !slices.Equal(delivered[0], delivered[1]) {
			t.fail(fmt.Sprintf("messages are delivered after a look as without one: %s", sample(delivered[1])), "%s", sample(delivered[0]))
		}
	}},
	{rule: "C30", title: "a look locks no message", modes: inHighest, needs: []need{browsing}, run: func(t *caseT) {
		transport, other := t.open(), t.open()
		queue := t.queue(transport)
		bodies := bodiesOf(t.messages(queue, 5))
		t.sendEach(transport, queue, bodies...)
		t.lookFor(other, queue, bodies...)
		r := t.receiver(transport, queue, 5)
		for range bodies {
			start := time.Now()
			t.lookClosely(other, queue)
			d := r.next()
			if took := time.Since(start); took > t.promptly() {
				t.recordLate("a delivery after a look took %v", took)
				t.fail("a message is delivered to a receiver right after a look at it", "it took %v", took)
			}
			t.complete(d)
		}
		r.close()
		t.wantLeft(queue, "after all were completed")
	}},
	{rule: "C30", title: "a look at a message in flight keeps it in flight", modes: withRedelivery, needs: []need{browsing}, run: func(t *caseT) {
		transport, other := t.open(), t.open()
		queue := t.queue(transport)
		t.send(transport, t.message(queue, "held"))
		r, rival := t.receiver(transport, queue, 1), t.receiver(other, queue, 1)
		d, mine := t.nextOf(r, rival)
		before := d.LockedUntil()
		for range 3 {
			t.lookClosely(other, queue)
		}
		if after := d.LockedUntil(); !after.Equal(before) {
			t.fail(fmt.Sprintf("LockedUntil stays %v", before), "%v", after)
		}
		mine.wantSilence("a message that is in flight is delivered to no other receiver after a look")
		t.complete(d)
		r.close()
		rival.close()
		t.wantLeft(queue, "after the message was completed")
	}},
	{rule: "C30", title: "a look keeps due times and messages that expire", modes: inHighest, needs: []need{browsing}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		plain, delayed, expiring := t.message(queue, "plain"), t.message(queue, "delayed"), t.message(queue, "expiring")
		bodies := []string{"plain"}
		start := time.Now()
		t.send(transport, plain)
		if t.caps.DelayedDelivery {
			delayed.Delay = t.briefDelay()
			t.send(transport, delayed)
			bodies = append(bodies, "delayed")
		}
		due := time.Now().Add(delayed.Delay)
		if t.caps.TimeToBeReceived {
			expiring.TimeToBeReceived = t.timeout() + time.Hour
			t.send(transport, expiring)
			bodies = append(bodies, "expiring")
		}
		for range 3 {
			t.lookClosely(transport, queue)
		}
		r := t.receiver(transport, queue, 3)
		for range bodies {
			d := r.next()
			if string(d.Incoming().Body) == "delayed" {
				t.wantOnTime("a message that was looked at", delayed.Delay, start.Add(delayed.Delay), due, time.Now())
			}
			t.complete(d)
		}
		r.close()
		t.wantLeft(queue, "after all messages were completed")
	}},
	{rule: "C30", title: "a look keeps groups in order", modes: withRedelivery, needs: []need{browsing, groupOrder}, run: func(t *caseT) {
		transport := t.open()
		queue := t.groupQueue(transport)
		if _, err := t.tryPage(transport, queues.Request{Queue: queue, Limit: 1}); errors.Is(err, errors.ErrUnsupported) {
			return // it looks into other queues
		}
		bodies := []string{"first", "second", "third"}
		t.sendGroup(transport, queue, "one", bodies...)
		r := t.receiver(transport, queue, 3)
		t.lookFor(transport, queue, bodies...)
		for _, want := range bodies {
			d := r.next()
			if body := string(d.Incoming().Body); body != want {
				t.fail(fmt.Sprintf("the messages of a group are delivered in their order: %q", want), "%q", body)
			}
			t.lookClosely(transport, queue)
			r.wantSilence("while a message of a group is in flight, no other one is delivered, also after a look")
			t.complete(d)
		}
		r.close()
		t.wantLeft(queue, "after all messages were completed")
	}},
	{rule: "C30", title: "a look at a queue that does not exist returns core.ErrQueueNotFound", modes: inHighest, needs: []need{browsing}, run: func(t *caseT) {
		transport := t.open()
		t.queue(transport)
		missing := t.uniqueName()
		for _, r := range []queues.Request{{Limit: 1}, {Limit: 1, Keys: []string{"1"}}} {
			r.Queue = missing
			if page, err := t.tryPage(transport, r); !errors.Is(err, core.ErrQueueNotFound) {
				t.fail("Browse of a queue that does not exist returns core.ErrQueueNotFound", "%v, %v", page, err)
			}
		}
		if err := t.trySend(transport, t.message(missing, "lost")); !errors.Is(err, core.ErrQueueNotFound) {
			t.fail("Browse creates nothing: a Send to the missing queue returns core.ErrQueueNotFound", "%v", err)
		}
	}},

	{rule: "C31", title: "each message of a long queue is shown once", modes: inHighest, needs: []need{browsing}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		bodies := bodiesOf(t.messages(queue, manyDeliveries))
		t.sendEach(transport, queue, bodies...)
		t.lookFor(transport, queue, bodies[len(bodies)-1])
		t.wantSeen("in pages of 100", t.look(transport, queue, 100), bodies)
		t.wantSeen("in one page, or as many as the broker needs", t.look(transport, queue, 2*manyDeliveries), bodies)
	}},
	{rule: "C31", title: "waiting, delayed and locked messages are shown once each", modes: withRedelivery, needs: []need{browsing}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		first := []string{"locked 1", "locked 2", "abandoned", "released"}
		t.sendEach(transport, queue, first...)
		r := t.receiver(transport, queue, 4)
		held := r.takeBodies("four messages are delivered", first...)
		r.SetMaxInFlight(0)
		t.abandon(held["abandoned"])
		t.release(held["released"])
		bodies := append(first, "waiting 1", "waiting 2", "waiting 3")
		t.sendEach(transport, queue, "waiting 1", "waiting 2", "waiting 3")
		if t.caps.DelayedDelivery {
			var delayed []core.Outgoing
			for i := range 5 { // which are due at the same time
				m := t.message(queue, fmt.Sprintf("delayed %d", i))
				m.Delay = t.outlasting()
				delayed = append(delayed, m)
				bodies = append(bodies, string(m.Body))
			}
			t.send(transport, delayed...)
		}
		t.lookFor(transport, queue, bodies...)
		for limit := 1; limit <= len(bodies)+1; limit += 2 {
			t.wantSeen(fmt.Sprintf("in pages of %d", limit), t.look(transport, queue, limit), bodies)
		}
		t.complete(held["locked 1"], held["locked 2"])
	}},
	{rule: "C31", title: "messages that leave during a look hide no other", modes: inHighest, needs: []need{browsing}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		bodies := t.filled(transport, queue, 20)
		page := t.page(transport, queues.Request{Queue: queue, Limit: 6})
		r := t.receiver(t.open(), queue, 8)
		left := r.take(8)
		t.complete(left...)
		r.close()
		gone := bodiesIn(incomingOfDeliveries(left))
		stayed := slices.DeleteFunc(slices.Clone(bodies), func(body string) bool { return slices.Contains(gone, body) })
		rest := t.lookOn(transport, queues.Request{Queue: queue, Limit: 6, After: page.Next})
		t.wantSeen("after 8 of 20 messages have left between its first page and the second", append(page.Messages, rest...), stayed, gone...)
	}},
	{rule: "C31", title: "messages that come back during a look are not shown twice", modes: withRedelivery, needs: []need{browsing}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		bodies := t.filled(transport, queue, 12)
		r := queues.Request{Queue: queue, Limit: 3}
		var seen []queues.Message
		var back []string
		for n := 0; ; n++ {
			page := t.page(transport, r)
			seen = append(seen, page.Messages...)
			if page.Next == "" {
				break
			}
			r.After = page.Next
			if n > 2 {
				continue
			}
			receiver := t.receiver(t.open(), queue, 2)
			both := receiver.take(2)
			back = append(back, bodiesIn(incomingOfDeliveries(both))...)
			t.abandon(both[0])
			t.release(both[1])
			receiver.close()
		}
		stayed := slices.DeleteFunc(slices.Clone(bodies), func(body string) bool { return slices.Contains(back, body) })
		t.wantSeen("while others come back", seen, stayed, back...)
	}},
	{rule: "C31", title: "looks beside senders and receivers show each message once", modes: withRedelivery, needs: []need{browsing}, run: lookBesideTraffic},
}

// nextOf returns the next delivery of one of two receivers, and the other receiver.
func (t *caseT) nextOf(r, rival *receiver) (core.Delivery, *receiver) {
	for {
		if got := r.takeFor(t.quietPeriod() / 10); len(got) > 0 {
			return got[0], rival
		}
		if got := rival.takeFor(t.quietPeriod() / 10); len(got) > 0 {
			return got[0], r
		}
	}
}

// lookBesideTraffic looks while senders and receivers work on the queue. Delayed messages stay.
func lookBesideTraffic(t *caseT) {
	transport := t.open()
	queue := t.queue(transport)
	var stayed []string
	if t.caps.DelayedDelivery {
		for i := range 10 {
			m := t.message(queue, fmt.Sprintf("stays %d", i))
			m.Delay = t.outlasting()
			stayed = append(stayed, string(m.Body))
			t.send(transport, m)
		}
		t.lookFor(transport, queue, stayed...)
	}
	const total, senders = 120, 2
	var sent []core.Outgoing
	for i := range total {
		sent = append(sent, t.message(queue, fmt.Sprintf("passes %d", i)))
	}
	var all sync.WaitGroup
	var consumed atomic.Int64
	var seenOnce sync.Map // bodies that were delivered
	for i := range senders {
		own := t.open()
		t.goInGroup(&all, func() {
			for n := i; n < total; n += senders {
				if err := t.trySend(own, sent[n]); err != nil {
					t.fail("Send accepts a message during a look", "%v", err)
				}
			}
		})
		r := t.receiver(own, queue, 4)
		t.goInGroup(&all, func() {
			deadline := time.Now().Add(t.timeout())
			for consumed.Load() < total && time.Now().Before(deadline) {
				for _, d := range r.takeFor(t.quietPeriod() / 10) {
					ctx, cancel := t.withTimeout()
					var err error
					body := string(d.Incoming().Body)
					switch _, redelivered := seenOnce.LoadOrStore(body, true); {
					case redelivered:
						err = d.Complete(ctx)
						consumed.Add(1)
					case len(body)%2 == 0:
						err = d.Abandon(ctx, errHandler)
					default:
						err = d.Release(ctx)
					}
					cancel()
					if err != nil {
						t.fail("a delivery is settled during a look", "%v", err)
					}
				}
			}
		})
	}
	for looks := 0; consumed.Load() < total && looks < maxPages; looks++ {
		t.wantSeen("beside senders and receivers", t.look(transport, queue, 7), stayed, bodiesOf(sent)...)
		t.sleep(t.quietPeriod() / 100)
		if t.Failed() {
			break
		}
	}
	all.Wait()
	if n := consumed.Load(); n != total && !t.caps.MayDuplicate {
		t.fail(fmt.Sprintf("%d messages are delivered during looks", total), "%d", n)
	}
}
