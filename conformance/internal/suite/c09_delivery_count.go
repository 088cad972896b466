package suite

import (
	"fmt"

	"github.com/reprise-go/reprise/core"
)

// abandonN abandons a message n times, and returns its last delivery.
func (r *receiver) abandonN(n int) core.Delivery {
	d := r.next()
	for range n {
		r.t.abandon(d)
		d = r.next()
	}
	return d
}

// wantFirstDelivery checks that a delivery is the first one of its message.
func (t *caseT) wantFirstDelivery(subject string, in *core.Incoming) {
	if in.DeliveryCount != 1 {
		t.fail("DeliveryCount is 1 "+subject, "it is %d", in.DeliveryCount)
	}
	if in.Redelivered {
		t.fail("Redelivered is false "+subject, "it is true")
	}
}

var deliveryCountCases = []testCase{
	{rule: "C9", title: "a first delivery has the count 1 and is no redelivery", run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		names := []string{"a", "b", "c", "d"}
		t.sendEach(transport, queue, names...)
		r := t.receiver(transport, queue, 4)
		for _, d := range r.takeBodies("four messages are delivered", names...) {
			t.wantFirstDelivery("on the first delivery", d.Incoming())
			t.complete(d)
		}
		t.wantLeft(queue, "after all were completed")
	}},
	{rule: "C9", title: "another copy of a message has a separate delivery count", run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		r := t.receiver(transport, queue, 2)
		one := t.message(queue, "one copy")
		other := one
		other.Body = []byte("another copy")
		t.send(transport, one)
		held := r.next()
		if t.mode != core.TransactionNone {
			t.abandon(held)
			held = r.next()
		}
		t.send(transport, other)
		copied := r.next()
		if got := string(copied.Incoming().Body); got != string(other.Body) {
			t.stop("a message that is held is not delivered again", "%q was", got)
		}
		t.wantFirstDelivery("on the first delivery of another copy with the same id", copied.Incoming())
		if one, other := held.Incoming().NativeID, copied.Incoming().NativeID; one == other {
			t.fail("every copy that was sent has a separate NativeID", "two have %q", one)
		}
		t.complete(held, copied)
		t.wantLeft(queue, "after both were completed")
	}},
	{rule: "C9", title: "the delivery count and the NativeID belong to one copy of a message", modes: withRedelivery, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		names := []string{"failing never", "failing once", "failing twice", "failing thrice"}
		t.sendEach(transport, queue, names...)
		r := t.receiver(transport, queue, len(names))
		held := r.takeBodies("four messages are delivered", names...)
		native := map[string]string{}
		for failures := range names {
			var redelivered []string
			for i, name := range names {
				if i < failures {
					continue // this one has failed often enough
				}
				in := held[name].Incoming()
				if failures == 0 {
					native[in.NativeID] = name
				}
				t.wantCount(fmt.Sprintf("after %d failures, and any number of failures of other messages", failures), held[name], failures+1)
				if was := native[in.NativeID]; was != name {
					t.fail("a copy has one NativeID over its redeliveries, and no other copy has it", "%q now has that of %q, %q", name, was, in.NativeID)
				}
				if i == failures {
					t.complete(held[name])
				} else {
					t.abandon(held[name])
					redelivered = append(redelivered, name)
				}
			}
			held = r.takeBodies("abandoned messages are redelivered", redelivered...)
		}
		t.wantLeft(queue, "after all were completed")
	}},
	{rule: "C9", title: "a delivery whose count is above 1 is a redelivery", modes: withRedelivery, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		t.sendEach(transport, queue, "failing")
		r := t.receiver(transport, queue, 1)
		d := r.next()
		for range 3 {
			t.abandon(d)
			d = r.next()
			if in := d.Incoming(); in.DeliveryCount < 2 || !in.Redelivered {
				t.fail("after an Abandon, DeliveryCount is above 1 and Redelivered is true", "DeliveryCount is %d and Redelivered is %t", in.DeliveryCount, in.Redelivered)
			}
		}
		t.complete(d)
		t.wantLeft(queue, "after it was completed")
	}},
	{rule: "C9", title: "a delivery after one whose lock ended is a redelivery", modes: withRedelivery, needs: []need{locks}, shortLocks: true, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		t.sendEach(transport, queue, "forgotten")
		r := t.receiver(transport, queue, 1)
		lost := r.next()
		r.SetMaxInFlight(0)
		t.sleepPastLocks(lost)
		d := t.receiver(t.open(), queue, 1).next()
		minimum := 1
		if t.caps.NativeDeliveryCount { // its receiver may hang or have died, perhaps because of the message
			minimum = 2
		}
		if in := d.Incoming(); !in.Redelivered || in.DeliveryCount < minimum {
			t.fail(fmt.Sprintf("after a delivery whose lock ended, Redelivered is true and DeliveryCount is %d at least", minimum), "Redelivered is %t and DeliveryCount is %d", in.Redelivered, in.DeliveryCount)
		}
		t.complete(d)
		t.wantLeft(queue, "after it was completed")
	}},
	{rule: "C9", title: "a delivery of an abandoned or released message is a redelivery", modes: inReceiveOnly, run: func(t *caseT) {
		for _, c := range []struct {
			name   string
			settle func(r *receiver, d core.Delivery)
		}{
			{"Release", func(_ *receiver, d core.Delivery) { t.release(d) }},
			{"Receiver.Close", func(r *receiver, _ core.Delivery) { r.close() }},
		} {
			transport := t.open()
			queue := t.queue(transport)
			t.sendEach(transport, queue, "given back")
			r := t.receiver(transport, queue, 1)
			c.settle(r, r.next())
			r.close()
			d := t.receiver(transport, queue, 1).next()
			if in := d.Incoming(); !in.Redelivered && in.DeliveryCount < 2 {
				t.fail("after "+c.name+" Redelivered is true or DeliveryCount above 1: a message whose settlement was lost is known by it (R28)", "Redelivered is %t and DeliveryCount is %d", in.Redelivered, in.DeliveryCount)
			}
			t.complete(d)
			t.wantLeft(queue, "after it was completed")
		}
	}},
	{rule: "C9", title: "the delivery count continues after a restart of the process", modes: withRedelivery, needs: []need{nativeCount}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		t.sendEach(transport, queue, "failing")
		d := t.receiver(transport, queue, 1).abandonN(2)
		native := d.Incoming().NativeID
		t.abandon(d)
		t.close(transport)
		transport = t.open()
		r := t.receiver(transport, queue, 1)
		d = r.next()
		in := d.Incoming()
		t.countedBeside("after three failures and a restart, because NativeDeliveryCount is claimed", d, 4)
		if !in.Redelivered || in.NativeID != native {
			t.fail(fmt.Sprintf("after a restart Redelivered is true, and NativeID %q as before", native), "Redelivered is %t, and NativeID %q", in.Redelivered, in.NativeID)
		}
		t.abandon(d)
		d = r.next()
		t.countedBeside("after four failures, the last one after a restart", d, 5)
		t.complete(d)
		t.wantLeft(queue, "after it was completed")
	}},
	{rule: "C9", title: "instances share the delivery count", modes: withRedelivery, needs: []need{nativeCount}, run: func(t *caseT) {
		first, second := t.open(), t.open()
		queue := t.queue(first)
		t.sendEach(first, queue, "failing")
		r := t.receiver(first, queue, 1)
		var other *receiver // opened when its turn comes: opened and paused before, it could have fetched the message, and put back a copy
		native := ""
		for failures := range 6 {
			d := r.next()
			t.wantCount(fmt.Sprintf("after %d failures at two instances in turn, because NativeDeliveryCount is claimed", failures), d, failures+1)
			if native == "" {
				native = d.Incoming().NativeID
			}
			if got := d.Incoming().NativeID; got != native {
				t.fail(fmt.Sprintf("NativeID is the same for every instance, %q", native), "it is %q", got)
			}
			r.SetMaxInFlight(0)
			t.abandon(d)
			if other == nil {
				other = t.receiver(second, queue, 1)
			}
			r, other = other, r
			r.SetMaxInFlight(1)
		}
		t.complete(r.next())
		t.wantLeft(queue, "after it was completed")
	}},
	{rule: "C9", title: "without NativeDeliveryCount the delivery count restarts with the process", modes: withRedelivery, needs: []need{noNativeCount}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		t.sendEach(transport, queue, "failing")
		d := t.receiver(transport, queue, 1).abandonN(2)
		t.wantCount("after two failures", d, 3)
		t.abandon(d)
		t.close(transport)
		r := t.receiver(t.open(), queue, 1)
		d = r.next()
		t.wantCount("after a restart; a transport whose count survives it claims NativeDeliveryCount", d, 1)
		t.abandon(d)
		d = r.next()
		t.wantCount("after one more failure", d, 2)
		t.complete(d)
		t.wantLeft(queue, "after it was completed")
	}},
	{rule: "C9", title: "without NativeDeliveryCount each instance has a separate delivery count", modes: withRedelivery, needs: []need{noNativeCount}, run: func(t *caseT) {
		first, second := t.open(), t.open()
		queue := t.queue(first)
		r, other := t.receiver(first, queue, 1), t.receiver(second, queue, 1)
		other.SetMaxInFlight(0)
		t.sendEach(first, queue, "failing")
		for round := range 3 {
			for _, instance := range []string{"first", "second"} {
				d := r.next()
				t.wantCount(fmt.Sprintf("after %d failures at the %s instance, with any count at the other one", round, instance), d, round+1)
				r.SetMaxInFlight(0)
				t.abandon(d)
				r, other = other, r
				r.SetMaxInFlight(1)
			}
		}
		t.complete(r.next())
		t.wantLeft(queue, "after it was completed")
	}},
	{rule: "C9", title: "an instance counts the deliveries of a message after other instances took many that failed there", modes: withRedelivery, needs: []need{noNativeCount}, run: func(t *caseT) {
		first, second := t.open(), t.open()
		queue := t.queue(first)
		const batch = 10 // some transports have a connection for each
		r, other := t.receiver(first, queue, batch), t.receiver(second, queue, batch)
		other.SetMaxInFlight(0)
		for range manyFailures / batch {
			t.send(first, t.messages(queue, batch)...)
			failed := r.take(batch)
			r.SetMaxInFlight(0)
			t.abandon(failed...)
			other.SetMaxInFlight(batch)
			t.complete(other.take(batch)...)
			other.SetMaxInFlight(0)
			r.SetMaxInFlight(batch)
		}
		t.sendEach(first, queue, "failing")
		for failures := 0; ; failures++ {
			d := r.next()
			if d.Incoming().DeliveryCount > 3 {
				t.complete(d)
				break
			}
			if failures == 1000 {
				t.stop(fmt.Sprintf("after an instance saw %d messages fail that others completed, it counts the failures of one more", manyFailures),
					"after %d failures its DeliveryCount is %d", failures, d.Incoming().DeliveryCount)
			}
			t.abandon(d)
		}
		t.wantLeft(queue, "after it was completed")
	}},
	{rule: "C9", title: "a message that was in flight when the broker was killed is a redelivery", modes: inReceiveOnly, exclusive: true, needs: []need{brokerControl, durable}, run: func(t *caseT) {
		broker := t.brokerController()
		transport := t.open()
		queue := t.queue(transport)
		t.sendEach(transport, queue, "handed out")
		r := t.receiver(transport, queue, 1)
		r.next()
		broker.kill()       // at once: some brokers store a moment later that they have delivered a message
		r.SetMaxInFlight(0) // now: it may keep messages that it fetches when it is connected again
		broker.start()
		other := t.receiver(transport, queue, 1) // of the same process, which remembers deliveries
		ended := other.forEach(t.redeliveryTimeout(), func(d core.Delivery) bool {
			if in := d.Incoming(); !in.Redelivered && in.DeliveryCount < 2 {
				t.fail("a message that was in flight when the broker was killed is redelivered with Redelivered set, or a DeliveryCount above 1: the engine recognises by it the messages that it has handled already (R28). Where a broker may forget deliveries, the adapter sets Redelivered for each message that may be older than the broker's last start",
					"Redelivered is false and DeliveryCount is %d", in.DeliveryCount)
			}
			t.complete(d)
			return true
		})
		if !ended {
			t.fail("Durable is claimed, so a message that was in flight when the broker was killed is redelivered", "it does not within %v", t.redeliveryTimeout())
		}
	}},
	{rule: "C9", title: "a delivery whose process was killed is counted", modes: withLeases, needs: []need{processes, nativeCount}, run: func(t *caseT) {
		w := t.workerFixture(1)
		w.Then = blocks
		transport := t.open()
		t.send(transport, t.command(w.queue, workType, "work"))
		p := t.startWorker(w.workerSpec)
		p.awaitEvent(isHandling, t.timeout())
		p.kill()
		var in *core.Incoming
		t.receiver(transport, w.queue, 1).collect(t.redeliveryTimeout(), func(next *core.Incoming) bool {
			in = next
			return true
		})
		if in == nil {
			t.stop("a message is redelivered after the process that handled it was killed", "it did not within %v", t.redeliveryTimeout())
		}
		if in.DeliveryCount < 2 {
			t.fail("NativeDeliveryCount is claimed, so the delivery to the process that was killed counts: DeliveryCount is 2, or more", "%d", in.DeliveryCount)
		}
		if !in.Redelivered {
			t.fail("Redelivered is true after the message was delivered to a process that was killed", "false, with DeliveryCount %d", in.DeliveryCount)
		}
	}},
	{rule: "C9", title: "DeliveryCount survives a restart of the broker", modes: withRedelivery, exclusive: true, needs: []need{brokerControl, durable, nativeCount}, run: func(t *caseT) {
		broker := t.brokerController()
		transport := t.open()
		queue := t.queue(transport)
		t.send(transport, t.message(queue, "counted"))
		r := t.receiver(transport, queue, 1)
		for range 2 {
			t.abandon(r.next())
		}
		r.close() // no delivery is unsettled when the broker dies
		t.sleep(t.caps.DeliveryCountLag)
		broker.restart()
		d := t.receiver(t.open(), queue, 1).next()
		if n := d.Incoming().DeliveryCount; n < 3 || n > 3 && !t.caps.CountsReleases {
			t.fail("NativeDeliveryCount and Durable are claimed, so the DeliveryCount of a message that was abandoned twice is 3 after the broker was killed, at once or DeliveryCountLag later, and started again", "%d", n)
		}
		t.complete(d)
	}},
}
