package suite

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/queues"
)

// replacement is a message that is sent instead of a taken one.
func (t *caseT) replacement(queue, body string) core.Outgoing {
	m := t.message(queue, "instead of "+body)
	m.Reason = core.ReasonReturn
	return m
}

var takeCases = []testCase{
	{rule: "C34", title: "a taken message is consumed, and its replacements arrive", modes: inHighest, needs: []need{taking, browsing}, run: func(t *caseT) {
		transport := t.open()
		queue, to, copies := t.queue(transport), t.queue(transport), t.queue(transport)
		bodies := []string{"replaced", "removed", "kept"}
		t.sendEach(transport, queue, bodies...)
		if t.caps.DelayedDelivery {
			m := t.message(queue, "delayed")
			m.Delay = t.outlasting()
			t.send(transport, m)
			bodies = append(bodies, "delayed")
		}
		keys := t.keysOf(t.lookFor(transport, queue, bodies...))
		rich := t.richMessage(to)
		takes := []queues.Take{
			{Key: keys["replaced"], Out: []core.Outgoing{rich, t.replacement(copies, "replaced")}},
			{Key: keys["removed"]},
		}
		want := []queues.TakeState{queues.TakeDone, queues.TakeDone}
		expected := []string{"instead of replaced"}
		if t.caps.DelayedDelivery {
			takes = append(takes, queues.Take{Key: keys["delayed"], Out: []core.Outgoing{t.replacement(copies, "delayed")}})
			want = append(want, queues.TakeDone)
			expected = append(expected, "instead of delayed")
		}
		t.wantTaken("of messages that are in the queue", transport, queue, takes, want...)
		if left := t.look(transport, queue, 10); len(left) != 1 || string(left[0].Body) != "kept" {
			t.fail("after Take of the others, one message is in the queue", "%s", sample(bodiesIn(incomingOf(left))))
		}
		t.wantLeft(queue, "after the others were taken", "kept")
		for _, in := range t.wantLeft(to, "after a message was replaced", string(rich.Body)) {
			t.wantSame(in, rich)
		}
		t.wantLeft(copies, "after messages were replaced", expected...)
	}},
	{rule: "C34", title: "a message whose replacement is refused stays, and nothing is sent", modes: inHighest, needs: []need{taking, browsing}, run: func(t *caseT) {
		transport := t.open()
		queue, to := t.queue(transport), t.queue(transport)
		t.send(transport, t.message(queue, "stays"))
		key := t.keysOf(t.lookFor(transport, queue, "stays"))["stays"]
		refused := []queues.Take{{Key: key, Out: []core.Outgoing{t.replacement(to, "stays"), t.replacement(t.uniqueName(), "stays")}}}
		r := t.wantTaken("of a message with a replacement for a queue that does not exist", transport, queue, refused, queues.TakeRefused)[0]
		if !errors.Is(r.Err, core.ErrQueueNotFound) {
			t.fail("Err of a TakeResult matches core.ErrQueueNotFound if the queue of a replacement does not exist", "%v", r.Err)
		}
		unsupported := t.unsupported(to)
		if limit := t.caps.MaxMessageBytes; limit > 0 && limit <= 64<<20 {
			large := t.message(to, "stays") // as an application: a return has the limits of copies
			large.Body = make([]byte, 2*limit)
			unsupported = append(unsupported, large)
		}
		for _, m := range unsupported {
			take := []queues.Take{{Key: key, Out: []core.Outgoing{t.replacement(to, "stays"), m}}}
			t.wantTaken("of a message with a replacement that the transport cannot send", transport, queue, take, queues.TakeRefused)
		}
		t.wantLeft(queue, "after Take was refused", "stays")
		t.wantLeft(to, "after Take was refused")
	}},
	{rule: "C34", title: "a message that cannot be taken is not replaced", modes: withRedelivery, needs: []need{taking, browsing}, run: func(t *caseT) {
		transport := t.open()
		queue, to := t.queue(transport), t.queue(transport)
		bodies := []string{"locked", "gone"}
		t.sendEach(transport, queue, bodies...)
		keys := t.keysOf(t.lookFor(transport, queue, bodies...))
		r := t.receiver(transport, queue, 2)
		held := r.takeBodies("both messages are delivered", bodies...)
		t.complete(held["gone"])
		takes := []queues.Take{
			{Key: keys["locked"], Out: []core.Outgoing{t.replacement(to, "locked")}},
			{Key: keys["gone"], Out: []core.Outgoing{t.replacement(to, "gone")}},
		}
		t.wantTaken("of a message in flight and one that has left", t.open(), queue, takes, queues.TakeLocked, queues.TakeGone)
		t.complete(held["locked"])
		r.close()
		t.wantLeft(to, "after no message could be taken")
		t.wantLeft(queue, "after both messages were completed")
	}},
	{rule: "C34", title: "of takers and receivers, one gets each message", modes: withRedelivery, needs: []need{taking, browsing}, run: takeBesideReceivers},
	{rule: "C34", title: "a Take that the end of its process interrupts happens or does not", modes: inHighest, needs: []need{taking, browsing, processes}, run: takeInKilledProcesses},
	{rule: "C34", title: "a Take that the end of the broker interrupts happens or does not", modes: inHighest, exclusive: true, needs: []need{taking, browsing, brokerControl, durable}, run: takeWhileBrokerDies},

	{rule: "C35", title: "each message has a separate result", modes: withRedelivery, needs: []need{taking, browsing}, run: func(t *caseT) {
		transport := t.open()
		queue, to := t.queue(transport), t.queue(transport)
		inFlight := []string{"locked", "gone"}
		t.sendEach(transport, queue, inFlight...)
		all := t.keysOf(t.lookFor(transport, queue, inFlight...))
		r := t.receiver(transport, queue, 2)
		held := r.takeBodies("both messages are delivered", inFlight...)
		r.SetMaxInFlight(0)
		t.complete(held["gone"])
		waiting := []string{"first", "refused", "newer", "last"}
		t.sendEach(transport, queue, waiting...)
		maps.Copy(all, t.keysOf(t.lookFor(transport, queue, waiting...)))
		take := func(body string) queues.Take {
			return queues.Take{Key: all[body], Out: []core.Outgoing{t.replacement(to, body)}}
		}
		refused, newer := take("refused"), take("newer")
		refused.Out[0].Queue = t.uniqueName()
		newer.NativeID = "another copy"
		takes := []queues.Take{take("first"), take("locked"), refused, take("gone"), newer, {Key: "no key"}, take("last"), take("first")}
		want := []queues.TakeState{
			queues.TakeDone, queues.TakeLocked, queues.TakeRefused, queues.TakeGone, queues.TakeGone, queues.TakeGone, queues.TakeDone, queues.TakeGone,
		}
		t.wantTaken("of eight messages", t.open(), queue, takes, want...)
		t.complete(held["locked"])
		r.close()
		t.wantLeft(queue, "after two messages were taken and one was completed", "refused", "newer")
		t.wantLeft(to, "after two messages were taken", "instead of first", "instead of last")
	}},
	{rule: "C35", title: "a message that is released can be taken, by its key or its native id", modes: withRedelivery, needs: []need{taking, browsing}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		bodies := []string{"abandoned", "released"}
		t.sendEach(transport, queue, bodies...)
		r := t.receiver(transport, queue, 2)
		held := r.takeBodies("both messages are delivered", bodies...)
		keys := t.keysOf(t.lookFor(transport, queue, bodies...))
		takes := []queues.Take{{Key: keys["abandoned"]}, {Key: keys["released"]}}
		t.wantTaken("of messages in flight", t.open(), queue, takes, queues.TakeLocked, queues.TakeLocked)
		r.SetMaxInFlight(0)
		t.abandon(held["abandoned"])
		t.release(held["released"])
		r.close()
		takes = nil
		for _, m := range t.lookFor(transport, queue, bodies...) { // they may have other keys now
			takes = append(takes, queues.Take{Key: m.Key, NativeID: m.NativeID})
		}
		t.wantTaken("of messages that were given back", t.open(), queue, takes, queues.TakeDone, queues.TakeDone)
		t.wantLeft(queue, "after both messages were taken")
	}},
	{rule: "C35", title: "Take from a queue that does not exist returns core.ErrQueueNotFound", modes: inHighest, needs: []need{taking, browsing}, run: func(t *caseT) {
		transport := t.open()
		queue, missing := t.queue(transport), t.uniqueName()
		if results, err := t.tryTaking(transport, missing, queues.Take{Key: "1"}); !errors.Is(err, core.ErrQueueNotFound) {
			t.fail("Take from a queue that does not exist returns core.ErrQueueNotFound", "%v, %v", results, err)
		}
		t.wantTaken("of nothing", transport, queue, nil)
	}},
}

// takeBesideReceivers lets two tools and two receivers compete for messages.
func takeBesideReceivers(t *caseT) {
	transport := t.open()
	queue, to := t.queue(transport), t.queue(transport)
	bodies := bodiesOf(t.messages(queue, 60))
	t.sendEach(transport, queue, bodies...)
	keys := t.keysOf(t.lookFor(transport, queue, bodies...))
	var mu sync.Mutex
	takenBy, receivedBy := map[string]int{}, map[string]int{}
	var all, receiving sync.WaitGroup
	var rs []*receiver
	ctx, cancel := t.withTimeout() // until the tools have ended
	defer cancel()
	for i := range 2 {
		tool, r := t.open(), t.receiver(t.open(), queue, 3)
		order := slices.Clone(bodies)
		if i == 1 {
			slices.Reverse(order)
		}
		takesOf := map[string]queues.Take{}
		for _, body := range bodies {
			takesOf[body] = queues.Take{Key: keys[body], Out: []core.Outgoing{t.message(to, body)}}
		}
		t.goInGroup(&all, func() {
			for chunk := range slices.Chunk(order, 5) {
				var takes []queues.Take
				for _, body := range chunk {
					takes = append(takes, takesOf[body])
				}
				results, err := t.tryTaking(tool, queue, takes...)
				if err != nil || len(results) != len(takes) {
					t.fail("Take beside receivers returns a result for each message", "%d, %v", len(results), err)
					return
				}
				mu.Lock()
				for n, r := range results {
					if r.State == queues.TakeDone {
						takenBy[chunk[n]]++
					} else if r.State != queues.TakeGone && r.State != queues.TakeLocked {
						t.fail("Take beside receivers says done, gone or locked", "%v, %v", r.State, r.Err)
					}
				}
				mu.Unlock()
			}
		})
		t.goInGroup(&receiving, func() {
			for ctx.Err() == nil {
				dst := make([]core.Delivery, 1)
				n, err := r.Receive(ctx, dst)
				if !r.wellFormed(dst, n, err, ctx.Err() != nil) || n == 0 {
					return
				}
				if err := dst[0].Complete(t.ctx); err != nil {
					t.fail(completesHeld, "%v", err)
				}
				mu.Lock()
				receivedBy[string(dst[0].Incoming().Body)]++
				mu.Unlock()
			}
		})
		rs = append(rs, r)
	}
	all.Wait()
	cancel()
	receiving.Wait()
	for _, r := range rs {
		r.close()
	}
	var arrive, left []string
	for _, body := range bodies {
		taken, received := takenBy[body], receivedBy[body]
		if taken+received > 1 && !t.caps.MayDuplicate {
			t.fail("one tool or one receiver gets each message", "%s was taken %d times and received %d times", body, taken, received)
		}
		switch {
		case taken > 0:
			arrive = append(arrive, body)
		case received == 0:
			left = append(left, body)
		}
	}
	t.wantLeft(to, "after tools took messages beside receivers", arrive...)
	t.wantLeft(queue, "after tools took messages beside receivers", left...)
}

// takeInKilledProcesses takes messages in processes that are killed, each at another moment of a
// Take.
func takeInKilledProcesses(t *caseT) {
	const kills = 6
	transport := t.open()
	queue, to := t.queue(transport), t.queue(transport)
	bodies := t.filled(transport, queue, 60)
	taken := map[string]bool{} // for certain
	prefix := t.uniqueName()
	for n := range kills + 1 {
		spec := workerSpec{Queue: queue, To: to, Prefix: prefix, Takes: []workerTake{}}
		for _, m := range t.look(transport, queue, 100) {
			if m.State != queues.Locked { // by a process that was killed
				spec.Takes = append(spec.Takes, workerTake{m.Key, string(m.Body)})
			}
		}
		if n == kills {
			spec.Takes = spec.Takes[:min(len(spec.Takes), 3)] // the others stay
		}
		if len(spec.Takes) < 3 {
			break
		}
		p := t.startWorker(spec)
		p.awaitEvent(hasTaken, t.timeout())
		start := time.Now()
		p.awaitEvent(hasTaken, t.timeout())
		took := time.Since(start)
		if n < kills {
			t.sleep(took * time.Duration(2*n+1) / (2 * kills))
		} else {
			p.awaitEvent(hasTaken, t.timeout())
		}
		p.kill()
		for _, e := range p.allEvents() {
			taken[e.ID] = true
		}
	}
	arrived := map[string]int{}
	for _, in := range t.drainQueue(to, func(found []*core.Incoming) bool { return len(distinct(found)) >= len(taken) }) {
		arrived[string(in.Body)]++
	}
	left := map[string]int{}
	for _, in := range t.drainQueue(queue, func(found []*core.Incoming) bool { return len(distinct(found))+len(arrived) >= len(bodies) }) {
		left[string(in.Body)]++
	}
	t.wantTakenOrLeft("its process", bodies, taken, arrived, left)
	t.note("%d of %d messages were taken by processes, of which %d were killed", len(arrived), len(bodies), kills)
}

// wantTakenOrLeft checks that each message was either consumed and replaced, or neither.
func (t *caseT) wantTakenOrLeft(killed string, bodies []string, taken map[string]bool, arrived, left map[string]int) {
	for _, body := range bodies {
		if n := arrived[body] + left[body]; n != 1 && (n == 0 || arrived[body] > 0 && left[body] > 0 || !t.caps.MayDuplicate) {
			t.fail(fmt.Sprintf("a message that is taken while %s is killed is either consumed and replaced, or neither", killed),
				"%s is %d times in its queue, and its replacement arrived %d times; Take called it done: %t", body, left[body], arrived[body], taken[body])
		}
		if taken[body] && arrived[body] == 0 {
			t.fail(fmt.Sprintf("a message that Take called done is replaced, also after %s was killed", killed), "the replacement of %s is missing", body)
		}
	}
}

// takeWhileBrokerDies takes messages while the broker is killed, at another moment of a Take each
// time.
func takeWhileBrokerDies(t *caseT) {
	const rounds = 4
	transport := t.open()
	queue, to := t.queue(transport), t.queue(transport)
	bodies := bodiesOf(t.messages(queue, 600)) // a broker that ends slowly still interrupts a Take
	t.sendEach(transport, queue, bodies...)
	t.lookFor(transport, queue, bodies...)
	states := map[string]queues.TakeState{}
	for round := range rounds {
		left := t.look(transport, queue, 100)
		var mu sync.Mutex
		var took time.Duration // of the first Take
		firstTaken := make(chan struct{})
		var all sync.WaitGroup
		var takes []queues.Take
		for _, m := range left {
			takes = append(takes, queues.Take{Key: m.Key, Out: []core.Outgoing{t.message(to, string(m.Body))}})
		}
		t.goInGroup(&all, func() {
			first := sync.OnceFunc(func() { close(firstTaken) })
			defer first()
			for len(left) > 0 {
				n := min(len(left), 2)
				chunk, takes := left[:n], takes[len(takes)-len(left):][:n]
				left = left[n:]
				start := time.Now()
				results, err := t.tryTaking(transport, queue, takes...)
				mu.Lock()
				if took == 0 {
					took = time.Since(start)
				}
				for n, m := range chunk {
					states[string(m.Body)] = queues.TakeUnknown
					if n < len(results) {
						states[string(m.Body)] = results[n].State
					}
				}
				mu.Unlock()
				first()
				if err != nil {
					return
				}
			}
		})
		<-firstTaken
		mu.Lock()
		pause := took * time.Duration(2*round+1) / (2 * rounds)
		mu.Unlock()
		t.sleep(pause)
		broker := t.brokerController()
		broker.kill()
		all.Wait()
		broker.start()
		t.await("Browse works again after a restart of the broker", func() bool {
			_, err := t.tryPage(transport, queues.Request{Queue: queue, Limit: 1})
			return err == nil
		})
	}
	t.close(transport)
	taken := map[string]bool{} // for certain
	for body, state := range states {
		if state == queues.TakeDone {
			taken[body] = true
		}
	}
	arrived, left := map[string]int{}, map[string]int{}
	for _, in := range t.drainQueue(to, func(found []*core.Incoming) bool { return len(distinct(found)) >= len(taken) }) {
		arrived[string(in.Body)]++
	}
	for _, in := range t.drainQueue(queue, func(found []*core.Incoming) bool { return len(distinct(found))+len(arrived) >= len(bodies) }) {
		left[string(in.Body)]++
	}
	t.wantTakenOrLeft("the broker", bodies, taken, arrived, left)
	t.note("%d of %d messages were taken beside %d restarts of the broker, %d with a result", len(arrived), len(bodies), rounds, len(taken))
}
