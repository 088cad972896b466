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

// maxInFlightCases are about the unsettled deliveries of a receiver. In None there are
// none.
var maxInFlightCases = []testCase{
	{rule: "C3", title: "no more than MaxInFlight are handed out", modes: withRedelivery, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		sent := t.messages(queue, 10)
		t.send(transport, sent...)
		r := t.receiver(transport, queue, 3)
		r.size = 100
		held := t.takeExactly(r, nil, 3, "with MaxInFlight 3, three are handed out and no more while none of them is settled")
		completed := []core.Delivery{held[0]}
		for _, settle := range []func(...core.Delivery){t.complete, t.abandon, t.release} {
			settle(held[0])
			held = t.takeExactly(r, held[1:], 1, "with MaxInFlight 3, one is handed out after one of three was settled")
		}
		t.complete(held...)
		r.close()
		completed = append(completed, held...)
		rest := slices.DeleteFunc(bodiesOf(sent), func(body string) bool {
			return slices.ContainsFunc(completed, func(d core.Delivery) bool { return string(d.Incoming().Body) == body })
		})
		t.wantLeft(queue, "of 10 messages 4 were completed, the others abandoned, released or never handed out", rest...)
	}},
	{rule: "C3", title: "MaxInFlight holds for all callers together", modes: withRedelivery, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		t.send(transport, t.messages(queue, 20)...)
		r := t.receiver(transport, queue, 3)
		ctx, cancel := context.WithTimeout(t.ctx, t.quietPeriod())
		defer cancel()
		var mu sync.Mutex
		var held []core.Delivery
		var callers sync.WaitGroup
		for range 6 {
			t.goInGroup(&callers, func() {
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
	{rule: "C3", title: "SetMaxInFlight takes effect while messages are in flight", modes: withRedelivery, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		t.send(transport, t.messages(queue, 30)...)
		r := t.receiver(transport, queue, 2)
		held := t.takeExactly(r, nil, 2, "with MaxInFlight 2, two are handed out and no more while both are unsettled")
		r.SetMaxInFlight(5)
		held = t.takeExactly(r, held, 3, "raised from 2 to 5, three more are handed out")
		r.SetMaxInFlight(2)
		t.complete(held[:3]...) // earlier deliveries can still be settled
		held = t.takeExactly(r, held[3:], 0, "lowered from 5 to 2 with two unsettled, none is handed out")
		t.complete(held[0])
		held = t.takeExactly(r, held[1:], 1, "lowered to 2, one is handed out after one of two was settled")
		for _, n := range []int{9, 1, 7, 3, 0, 12, 4} {
			r.SetMaxInFlight(n)
		}
		held = t.takeExactly(r, held, 2, "changed many times, the last time to 4, two more are handed out than the two in hand")
		t.complete(held...)
	}},
	{rule: "C3", title: "a free place wakes a waiting Receive", modes: withRedelivery, run: func(t *caseT) {
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
			method := []string{"Complete", "Abandon", "SetMaxInFlight", "Release"}[i]
			ctx, cancel := t.withTimeout()
			waiting := r.receiveAsync(ctx, 1)
			t.sleep(t.quietPeriod() / 2)
			t.renew(held...)
			change()
			a := t.awaitResult(waiting, "a Receive that waits because MaxInFlight are unsettled returns soon after "+method+" made room")
			cancel()
			if a.err != nil {
				t.stop("Receive returns a message once there is room, by "+method, "%v", a.err)
			}
			held = append(held, a.deliveries...)
		}
		t.complete(held...)
	}},
	{rule: "C3", title: "after SetMaxInFlight 0 a receiver fetches no messages and releases its prefetched ones", modes: withRedelivery, run: func(t *caseT) {
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
			paused.wantSilence("with SetMaxInFlight(0) nothing is handed out")
		}
		t.renew(held...)
		other := t.receiver(t.open(), queue, 16)
		rest := bodiesOf(sent)
		for _, d := range taken {
			rest = slices.DeleteFunc(rest, func(body string) bool { return body == string(d.Incoming().Body) })
		}
		arrived := other.drain(rest...) // prefetched messages that were not handed out are here
		other.close()
		for _, d := range taken {
			arrived = append(arrived, d.Incoming())
		}
		t.wantFirstDeliveries(arrived)
		t.complete(held[0])
		t.release(held[1])
		paused.SetMaxInFlight(1)
		second := paused.next()
		if got, want := second.Incoming().Body, held[1].Incoming().Body; string(got) != string(want) {
			t.fail(fmt.Sprintf("after SetMaxInFlight(1) the message that is left is delivered, %q", want), "%q", got)
		}
		t.complete(second)
		t.wantLeft(queue, "after all messages were taken")
	}},
	{rule: "C3", title: "a waiting Receive can be paused", modes: withRedelivery, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		r := t.receiver(transport, queue, 8)
		ctx, cancel := t.withTimeout()
		defer cancel()
		waiting := r.receiveAsync(ctx, 8)
		t.sleep(t.quietPeriod())
		r.SetMaxInFlight(0)
		t.awaitPause()
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
		other.close()
		r.SetMaxInFlight(1)
		a := t.awaitResult(waiting, "a Receive that waits returns soon after SetMaxInFlight made room")
		if a.err != nil {
			t.stop("Receive goes on after SetMaxInFlight(1)", "%v", a.err)
		}
		t.complete(a.deliveries...)
		t.wantLeft(queue, "after the message was taken")
	}},
	{rule: "C3", title: "a receiver can have more than 1,000 messages in flight", modes: inReceiveOnly, slow: true, needs: []need{holdsManyDeliveries}, run: func(t *caseT) {
		const total = manyDeliveries
		transport := t.open()
		queue := t.queue(transport)
		sent := make([]string, total)
		for i := range sent {
			sent[i] = fmt.Sprint(i)
		}
		t.sendEach(transport, queue, sent...)
		r := t.receiver(transport, queue, total)
		r.size = 100
		expected := fmt.Sprintf("with MaxInFlight %d, that number of messages is delivered although none of them is settled: a limit of the broker on unsettled messages is set to MaxInFlight or above", total)
		held := map[string]core.Delivery{}
		for renewed := time.Now(); len(held) < total; {
			ctx, cancel := t.withTimeout()
			got, err := r.batch(ctx, r.size)
			cancel()
			if err != nil {
				t.stop(expected, "%d are, and then no more within %v", len(held), t.timeout())
			}
			for _, d := range got {
				held[string(d.Incoming().Body)] = d
			}
			if lock := t.lock(); lock > 0 && time.Since(renewed) > lock/4 {
				renewed = time.Now()
				for _, d := range held {
					t.renew(d)
				}
			}
		}
		t.complete(held["0"], held[fmt.Sprint(total-1)])
		r.close() // gives back the others
	}},
	{rule: "C3", title: "a paused receiver releases messages that arrive after Receive has ended", modes: withRedelivery, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		paused := t.receiver(transport, queue, 4)
		ctx, cancel := t.withQuietPeriod()
		defer cancel()
		if got, _ := paused.batch(ctx, 4); len(got) > 0 {
			t.stop("nothing is delivered from an empty queue", "%s was", bodies(got))
		}
		t.sendEach(transport, queue, "late") // a request of the receiver that is in progress may fetch it
		t.sleep(t.quietPeriod())
		paused.SetMaxInFlight(0)
		if t.caps.CountsReleases {
			t.awaitPause()
			t.release(paused.prefetched()...)
		}
		other := t.receiver(t.open(), queue, 4)
		d := other.takeBodies("a message that arrived when no Receive waited is available to another instance after SetMaxInFlight(0): the end of Receive's context, or the pause, ends an open request, and releases the messages that it has fetched", "late")["late"]
		t.complete(d)
		t.wantLeft(queue, "after the message was completed")
	}},
	{rule: "C3", title: "a delivery whose lock has ended does not count towards MaxInFlight", modes: withRedelivery, needs: []need{locks}, shortLocks: true, run: func(t *caseT) {
		const places = 2
		transport := t.open()
		queue := t.queue(transport)
		t.sendEach(transport, queue, "a", "b", "c", "d")
		r := t.receiver(transport, queue, places)
		lost := r.take(places)
		t.sleepPastLocks(lost...)
		next := r.takePlaces(places, "a receiver whose deliveries all lost their locks receives as many again: a lost lock leaves its place of MaxInFlight")
		for _, d := range lost {
			ctx, cancel := t.withTimeout()
			err := d.Complete(ctx)
			cancel()
			if !errors.Is(err, core.ErrLockLost) {
				t.fail("Complete after LockedUntil returns core.ErrLockLost, also where the message came to the same receiver again", "%v", err)
			}
		}
		t.wantNoPlaceLeft(r, next, "a late settlement frees no place of MaxInFlight: its place was free since the lock ended")
	}},
	{rule: "C3", title: "a message that arrives while a Receive is cancelled goes to another waiting Receive", modes: withRedelivery, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		r := t.receiver(transport, queue, 2)
		for round := range 30 {
			ctx, cancel := context.WithCancel(t.ctx)
			cancelled := r.receiveAsync(ctx, 1)
			t.sleep(time.Millisecond) // so that the first call is before the second
			waits := r.receiveAsync(t.ctx, 1)
			t.sleep(time.Millisecond)
			if round%3 == 0 {
				cancel() // the receiver may not have noticed this when the message arrives
			}
			t.send(transport, t.message(queue, fmt.Sprintf("of round %d", round)))
			if round%3 == 1 { // over a network the message takes a while
				t.sleep(time.Duration(t.random.IntN(2000)) * time.Microsecond)
			}
			cancel()
			if first := <-cancelled; len(first.deliveries) > 0 {
				t.complete(first.deliveries...)
				t.send(transport, t.message(queue, fmt.Sprintf("of round %d, for the call that waits", round)))
			}
			select {
			case second := <-waits:
				if len(second.deliveries) == 0 {
					t.stop("Receive returns a delivery, while its context goes on", "%v", second.err)
				}
				t.complete(second.deliveries...)
			case <-time.After(t.timeout()):
				t.stop("of two calls of Receive, one of which is cancelled while a message arrives, the other receives the message if the first has not returned it", "it has not, in round %d, after %v", round+1, t.timeout())
			}
		}
	}},
	{rule: "C3", title: "an endpoint handles as many messages concurrently as configured", run: func(t *caseT) {
		jobs := t.blockingHandler()
		transport := t.open()
		s := t.service(transport, func(c *core.Config) { c.Concurrency = 5 })
		s.handle("job", jobs.handle)
		s.run()
		msgs := t.jobs(s.queue, 12)
		t.send(transport, msgs...)
		t.awaitCount("12 messages wait for 5 handlers; handlers at the same time", 5, jobs.running)
		t.wantSteady("the number of handlers, of which none has ended,", 5, jobs.running)
		jobs.releaseAll()
		t.awaitCount("messages handled in the end", 12, jobs.messages)
		s.end()
		if highest := jobs.maxConcurrent(); highest > 5 {
			t.fail("an endpoint with Concurrency 5 runs no more than 5 handlers at the same time", "%d", highest)
		}
		t.wantOnce(msgs, jobs)
		t.wantLeft(s.queue, "after all was handled")
		t.wantLeft(s.errorQueue, "after all was handled")
	}},
	{rule: "C3", title: "an endpoint applies each change of its concurrency while it handles messages", run: func(t *caseT) {
		jobs := t.blockingHandler()
		transport := t.open()
		s := t.service(transport, func(c *core.Config) { c.Concurrency = 5 })
		s.handle("job", jobs.handle)
		s.run()
		change := func(n int) {
			if err := s.SetConcurrency(n); err != nil {
				t.stop("SetConcurrency accepts a number above 0", "%v", err)
			}
		}
		msgs := t.jobs(s.queue, 40)
		t.send(transport, msgs...)
		t.awaitCount("with 40 messages in the queue and concurrency 5, handlers at the same time", 5, jobs.running)
		change(10)
		t.awaitCount("after the concurrency was raised to 10, handlers at the same time", 10, jobs.running)
		t.wantSteady("the number of handlers at concurrency 10", 10, jobs.running)
		change(2)
		jobs.release(9) // eight handlers too many, and one whose slot another handler takes
		t.awaitCount("after nine of ten ended at concurrency 2, messages that were begun", 11, jobs.messages)
		t.awaitCount("after nine of ten ended at concurrency 2, handlers at the same time", 2, jobs.running)
		jobs.maxConcurrent()
		jobs.release(4)
		t.awaitCount("after four more ended, messages that were begun", 15, jobs.messages)
		t.wantSteady("the number of handlers at concurrency 2", 2, jobs.running)
		if highest := jobs.maxConcurrent(); highest > 2 {
			t.fail("after the concurrency was lowered to 2, no more than 2 handlers at the same time", "%d", highest)
		}
		for _, n := range []int{9, 3, 12, 1, 4} {
			change(n)
		}
		jobs.release(12) // as many as may have started in between
		t.await("after several changes at once, of which the last was to 4, there are 4 handlers at the same time", func() bool { return jobs.running() == 4 })
		jobs.maxConcurrent()
		jobs.release(4)
		t.awaitCount("after several changes at once and four that ended, handlers at the same time", 4, jobs.running)
		t.sleep(t.quietPeriod())
		if highest := jobs.maxConcurrent(); highest > 4 {
			t.fail("after the concurrency was lowered to 4, no more than 4 handlers at the same time", "%d", highest)
		}
		jobs.releaseAll()
		t.awaitCount("messages handled in the end", 40, jobs.messages)
		s.end()
		t.wantOnce(msgs, jobs)
		t.wantLeft(s.queue, "after all was handled")
	}},
	{rule: "C3", title: "a paused endpoint fetches no messages and releases its prefetched ones to other instances", modes: withRedelivery, run: func(t *caseT) {
		firstJobs, secondJobs := t.blockingHandler(), t.blockingHandler()
		transport := t.open()
		first := t.service(transport, func(c *core.Config) { c.Concurrency = 2 })
		second := t.serviceOn(t.open(), first.queue, first.errorQueue, func(c *core.Config) { c.Concurrency = 2 })
		first.handle("job", firstJobs.handle)
		second.handle("job", secondJobs.handle)
		secondJobs.releaseAll()
		msgs := t.jobs(first.queue, 10)
		t.send(transport, msgs...)
		first.run()
		t.awaitCount("of 10 messages, handlers of the first instance at the same time", 2, firstJobs.running)
		first.Pause()
		second.run()
		begun := 2
		if t.caps.CountsReleases { // the first instance handles its prefetched messages
			firstJobs.releaseAll()
			t.awaitCount("while the first instance is paused, messages that are handled", len(msgs), func() int { return firstJobs.messages() + secondJobs.messages() })
			t.await("a paused endpoint comes to rest", func() bool { return first.Health().InFlight == 0 })
			begun = firstJobs.messages()
		} else {
			t.awaitCount("while the first instance is paused with 2 messages in its handlers, messages that the second instance handles", 8, secondJobs.messages)
			firstJobs.release(2)
		}
		second.Pause()
		t.await("a paused endpoint comes to rest", func() bool { return second.Health().InFlight == 0 })
		handled := func() int { return firstJobs.messages() + secondJobs.messages() }
		send := func(bodies ...string) {
			more := t.jobs(first.queue, len(bodies))
			for i := range more {
				more[i].Body = []byte(bodies[i])
			}
			msgs = append(msgs, more...)
			t.send(transport, more...)
		}
		if t.caps.CountsReleases {
			t.await("soon after the pause, paused endpoints fetch nothing", func() bool {
				before := handled()
				send(fmt.Sprintf("probe %d", len(msgs)))
				t.sleep(t.quietPeriod())
				return handled() == before
			})
			begun = firstJobs.messages()
		}
		before := handled()
		send("more 1", "more 2", "more 3")
		t.wantSteady("the number of messages begun by instances that are paused", before, handled)
		if !t.caps.CountsReleases {
			firstJobs.releaseAll()
		}
		first.Resume()
		t.awaitCount("after Resume, messages that the first instance has begun", begun+len(msgs)-before, firstJobs.messages)
		first.end()
		second.end()
		t.wantOnce(msgs, firstJobs, secondJobs)
		t.wantLeft(first.queue, "after all was handled")
		t.wantLeft(first.errorQueue, "after all was handled")
	}},
}

// awaitPause rests until a receiver has surely stopped to fetch after SetMaxInFlight(0): a
// fetch in progress may use the old limit, and a busy broker that pushes messages needs
// some round trips to end that.
func (t *caseT) awaitPause() { t.sleep(5 * t.quietPeriod()) }

// prefetched receives the deliveries that the receiver still hands out after it has
// stopped fetching.
func (r *receiver) prefetched() []core.Delivery {
	var all []core.Delivery
	for {
		got := r.takeFor(r.t.quietPeriod())
		if len(got) == 0 {
			return all
		}
		all = append(all, got...)
	}
}

// takeExactly receives n deliveries in addition to those in held, and checks that no other is
// handed out. It returns all of them.
func (t *caseT) takeExactly(r *receiver, held []core.Delivery, n int, when string) []core.Delivery {
	ctx, cancel := t.withTimeout()
	defer cancel()
	for want := len(held) + n; len(held) != want; {
		got, err := r.batch(ctx, 100)
		if err != nil {
			t.stop(when, "%d of %d were handed out after %v", n-(want-len(held)), n, t.timeout())
		}
		if held = append(slices.Clip(held), got...); len(held) > want {
			t.stop(when, "%d were handed out at once: %s", len(held)-want+n, bodies(held))
		}
	}
	r.wantSilence(when)
	t.renew(held...)
	return held
}
