package suite

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/reprise-go/reprise/core"
)

var delayCases = []testCase{
	{rule: "C13", title: "a delayed message is never early, and late by no more than DelayPrecision", modes: inHighest, needs: []need{delays}, run: func(t *caseT) {
		p := t.caps.DelayPrecision
		t.punctual(positive(p, p+p/2, 2*p, 2*p+p/4)...)
	}},
	{rule: "C13", title: "one of several delayed messages arrives within DelayPrecision", modes: inHighest, needs: []need{delays}, run: func(t *caseT) {
		// DelayTolerance allows for a busy machine. This case finds an adapter that uses
		// it up each time.
		const tries, margin = 20, 100 * time.Millisecond
		transport := t.open()
		queue := t.queue(transport)
		r := t.receiver(transport, queue, 1)
		p := t.caps.DelayPrecision
		limit, minimum := p+margin, time.Duration(math.MaxInt64)
		for range tries {
			m := t.message(queue, "delayed")
			m.Delay = max(p+p/2, 20*time.Millisecond)
			t.send(transport, m)
			due := time.Now().Add(m.Delay)
			t.complete(r.next())
			if minimum = min(minimum, time.Since(due)); minimum <= limit {
				return
			}
		}
		t.fail(fmt.Sprintf("of %d messages with a delay one at least is late by no more than the claimed DelayPrecision of %v", tries, p), "each is late by %v or more", minimum)
	}},
	{rule: "C13", title: "a message with a delay of zero is delivered at once", modes: inHighest, needs: []need{delays}, run: func(t *caseT) {
		t.punctual(0)
	}},
	{rule: "C13", title: "a message with a tiny delay is neither early nor lost", modes: inHighest, needs: []need{delays}, run: func(t *caseT) {
		p := t.caps.DelayPrecision
		t.punctual(positive(1, time.Microsecond, time.Millisecond, p/3, p-1)...)
	}},
	{rule: "C13", title: "a fraction of the precision is not cut off", modes: inHighest, needs: []need{delays}, run: func(t *caseT) {
		p := t.caps.DelayPrecision
		t.punctual(positive(p+p/2, p+9*p/10, 2*p-1)...)
	}},
	{rule: "C13", title: "a message with a long delay does not delay messages that are sent after it", modes: inHighest, needs: []need{delays}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		var due []dueMessage
		for _, delay := range []time.Duration{t.longDelay(), t.longDelay() / 2} {
			m := t.message(queue, "long")
			m.Delay = delay
			due = append(due, dueMessage{m, time.Now().Add(delay), time.Now().Add(delay)})
			t.send(transport, m)
		}
		r := t.receiver(transport, queue, 4)
		t.punctualOn(transport, queue, r, due, 0, t.briefDelay())
	}},
	{rule: "C13", title: "no message of fifty with random delays is early or missing", modes: inHighest, needs: []need{delays}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		r := t.receiver(transport, queue, 8)
		out := t.messages(queue, 50)
		for i := range out {
			out[i].Delay = time.Duration(t.random.Int64N(int64(t.briefDelay())))
		}
		start := time.Now()
		for batch := range slices.Chunk(out, 10) {
			t.send(transport, batch...)
		}
		seen := map[string]bool{}
		for len(seen) < len(out) {
			d := r.next()
			in := d.Incoming()
			i := slices.IndexFunc(out, func(o core.Outgoing) bool { return o.ID == in.ID })
			switch {
			case i < 0:
				t.stop("only messages that were sent to the queue arrive", "a message %q with body %s", in.ID, excerpt(in.Body))
			case seen[in.ID] && !t.caps.MayDuplicate:
				t.stop("a delayed message arrives once", "%q arrived twice", in.Body)
			}
			if remaining := time.Until(start.Add(out[i].Delay)); remaining > 0 {
				t.fail(fmt.Sprintf("a message with a delay of %v is never early", out[i].Delay), "it came at least %v early", remaining)
			}
			seen[in.ID] = true
			t.complete(d)
		}
		r.close()
		t.wantLeft(queue, "after all delayed messages were received")
	}},
	{rule: "C13", title: "a delayed message is the original", modes: inHighest, needs: []need{delays}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		delayed := t.message(queue, "late \x00\xff")
		delayed.Headers.Set("Empty", "")
		delayed.Delay = t.briefDelay()
		t.send(transport, delayed)
		r := t.receiver(transport, queue, 1)
		d := r.next()
		t.wantSame(d.Incoming(), delayed)
		if in := d.Incoming(); in.DeliveryCount != 1 {
			t.fail("the first delivery of a delayed message has DeliveryCount 1: waiting is no delivery", "%d", in.DeliveryCount)
		} else if in.NativeID == "" {
			t.fail("a delayed message has a NativeID", "it is empty")
		}
		t.complete(d)
		r.close()
		t.wantLeft(queue, "after the delayed message was received")
	}},
	{rule: "C13", title: "EnqueuedAt of a delayed message is when it became available", modes: inHighest, needs: []need{delays}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		// The broker's clock may differ from ours, so two of the broker's times are
		// compared.
		r := t.receiver(transport, queue, 1)
		t.send(transport, t.message(queue, "at once"))
		plain := r.next()
		t.complete(plain)
		delayedOut := t.message(queue, "late")
		delayedOut.Delay = t.briefDelay()
		t.send(transport, delayedOut)
		delayed := r.next()
		t.complete(delayed)
		from, end := plain.Incoming().EnqueuedAt, delayed.Incoming().EnqueuedAt
		if from.IsZero() || end.IsZero() {
			return
		}
		if minimum := delayedOut.Delay - t.caps.DelayPrecision; end.Sub(from) < minimum {
			t.fail(fmt.Sprintf("EnqueuedAt is the zero time, or when the message became available: at least %v after that of a message without delay sent before", minimum), "it is %v after it", end.Sub(from))
		}
	}},
	{rule: "C13", title: "no receiver gets a delayed message before it is due", modes: inHighest, needs: []need{delays}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		delayed := t.message(queue, "late")
		delayed.Delay = 2*t.quietPeriod() + t.briefDelay()
		start := time.Now()
		t.send(transport, delayed)
		arrived := t.contents(queue, 0)
		if left := time.Until(start.Add(delayed.Delay)); len(arrived) > 0 && left > 0 {
			t.stop("a delayed message cannot be received before it is due", "it was, %v early", left)
		} else if len(arrived) > 0 {
			return // the machine was slow
		}
		r := t.receiver(transport, queue, 1)
		t.complete(r.next())
		r.close()
		t.wantLeft(queue, "after the delayed message was received")
	}},
	{rule: "C13", title: "a delayed message goes to any queue", modes: inHighest, needs: []need{delays}, run: func(t *caseT) {
		transport := t.open()
		// Queues that another transport has created, and that this transport has never
		// received from.
		other := t.open()
		first, second := t.queue(other), t.queue(other)
		t.close(other)
		out := []core.Outgoing{t.message(first, "to the first"), t.message(second, "to the second")}
		for i := range out {
			out[i].Delay = t.briefDelay()
		}
		t.send(transport, out...)
		for i, queue := range []string{first, second} {
			r := t.receiver(transport, queue, 1)
			d := r.next()
			t.wantSame(d.Incoming(), out[i])
			t.complete(d)
			r.close()
			t.wantLeft(queue, "after its delayed message was received")
		}
	}},
	{rule: "C13", title: "a delayed message to an unknown queue is refused", modes: inHighest, needs: []need{delays}, run: func(t *caseT) {
		transport := t.open()
		lost := t.message(t.uniqueName(), "lost")
		lost.Delay = t.briefDelay()
		err := t.trySend(transport, lost)
		if !errors.Is(err, core.ErrQueueNotFound) {
			t.stop("a delayed message to a queue that does not exist is refused by Send with core.ErrQueueNotFound, not lost when it is due", "%v", err)
		}
		if state := t.sendResults(err, []core.Outgoing{lost})[0].State; state != core.SendRefused {
			t.fail("a message to a queue that does not exist is core.SendRefused", "%v", state)
		}
	}},
	{rule: "C13", title: "delayed messages whose queue is deleted do not delay other messages", modes: inHighest, needs: []need{delays, deletion}, run: func(t *caseT) {
		transport := t.open()
		gone, queue := t.queue(transport), t.queue(transport)
		r := t.receiver(transport, queue, 8)
		// More messages than a broker delivers at a time. They are due before the others.
		lost := t.messages(gone, 60)
		for i := range lost {
			lost[i].Delay = t.briefDelay()
		}
		t.send(transport, lost...)
		t.suite.h.DeleteQueue(t, gone)
		t.punctualOn(transport, queue, r, nil, t.briefDelay(), t.briefDelay(), t.briefDelay()+t.caps.DelayPrecision)
	}},
	{rule: "C13", title: "a delay above MaxDelay is refused before any message is sent", modes: inHighest, needs: []need{delays, longestDelay}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		for _, excess := range positive(1, time.Millisecond, time.Second, t.caps.DelayPrecision) {
			long := t.message(queue, "too long")
			long.Delay = t.caps.MaxDelay + excess
			t.wantSendRefused(transport, errors.ErrUnsupported, t.message(queue, "at once"), long)
		}
		t.wantLeft(queue, "after Sends with a delay over MaxDelay")
	}},
	{rule: "C13", title: "a message with the longest delay is accepted, and is not delivered at once", modes: inHighest, needs: []need{delays}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		longest := t.caps.MaxDelay
		if longest == 0 { // without limit
			longest = 10 * 365 * 24 * time.Hour
		}
		if longest < t.briefDelay()+4*t.quietPeriod() {
			t.stop(fmt.Sprintf("MaxDelay is %v at least, which is longer than DelayPrecision and the time for which the suite looks", t.briefDelay()+4*t.quietPeriod()), "it is %v", longest)
		}
		// Beyond these, counts of milliseconds and of seconds overflow.
		for _, delay := range []time.Duration{time.Hour, (1<<31 + 1) * time.Millisecond, longest} {
			if delay <= longest {
				m := t.message(queue, "after "+delay.String())
				m.Delay = delay
				t.send(transport, m)
			}
		}
		t.wantLeft(queue, "with messages that are due in an hour or more")
	}},
	{rule: "C13", title: "the broker keeps a delayed message, not the process that sent it", modes: inHighest, needs: []need{delays}, run: func(t *caseT) {
		sender := t.open()
		queue := t.queue(sender)
		delayed := t.message(queue, "late")
		delayed.Delay = t.briefDelay()
		start := time.Now()
		t.send(sender, delayed)
		t.close(sender)
		t.sleep(time.Until(start.Add(delayed.Delay))) // while no transport is connected
		r := t.receiver(t.open(), queue, 1)
		d := r.next()
		t.wantSame(d.Incoming(), delayed)
		t.complete(d)
		r.close()
		t.wantLeft(queue, "after the delayed message was received")
	}},
	{rule: "C13", title: "a delayed message is punctual for a receiver that opens after the sender closed", modes: inHighest, needs: []need{delays}, run: func(t *caseT) {
		sender := t.open()
		queue := t.queue(sender)
		other := t.open()
		r := t.receiver(other, queue, 1)
		delayed := t.message(queue, "late")
		delayed.Delay = t.briefDelay()
		start := time.Now()
		t.send(sender, delayed)
		due := time.Now().Add(delayed.Delay)
		t.close(sender)
		d := r.next()
		t.wantOnTime("a message whose sender has closed", delayed.Delay, start.Add(delayed.Delay), due, time.Now())
		t.complete(d)
	}},
	{rule: "C13", title: "messages that are sent with a settlement are delayed", modes: inAtomic, needs: []need{delays}, run: func(t *caseT) {
		for _, s := range []atomicSettle{completeWith, replaceWith} {
			f := t.atomicFixture()
			r := t.receiver(f.transport, f.to, 1)
			delayed := t.message(f.to, "late")
			delayed.Delay = t.briefDelay()
			t.sleep(t.quietPeriod()) // like the time of a handler: the delay does not count from the time of receipt
			start := time.Now()
			t.settleWith(s, f.delivery, delayed)
			due := time.Now().Add(delayed.Delay)
			d := r.next()
			t.wantOnTime("a message sent with "+s.name, delayed.Delay, start.Add(delayed.Delay), due, time.Now())
			t.wantSame(d.Incoming(), delayed)
			t.complete(d)
			r.close()
			t.wantQueues(f, "after the delayed message was received", nil, nil)
		}
	}},
	{rule: "C13", title: "a delayed copy goes to the receiver's own queue while the message is in flight", needs: []need{delays}, modes: withRedelivery, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		t.send(transport, t.message(queue, "original"))
		r := t.receiver(transport, queue, 2)
		d := r.next()
		delayed := t.message(queue, "copy")
		delayed.ID = d.Incoming().ID // like a delayed retry
		delayed.Headers = d.Incoming().Headers
		delayed.Delay = t.briefDelay()
		start := time.Now()
		t.send(transport, delayed)
		due := time.Now().Add(delayed.Delay)
		t.complete(d)
		redelivered := r.next()
		t.wantOnTime("a copy with the id of a message that was held", delayed.Delay, start.Add(delayed.Delay), due, time.Now())
		t.wantSame(redelivered.Incoming(), delayed)
		if first, second := d.Incoming().NativeID, redelivered.Incoming().NativeID; first == second {
			t.fail("each Send makes a copy with a separate NativeID", "both have %q", first)
		}
		if n := redelivered.Incoming().DeliveryCount; n != 1 {
			t.fail("a copy that was sent has DeliveryCount 1, with any id", "%d", n)
		}
		t.complete(redelivered)
		r.close()
		t.wantLeft(queue, "after message and copy were completed")
	}},
	{rule: "C13", title: "a delayed message that a handler sends arrives when it is due", needs: []need{delays}, run: func(t *caseT) {
		delay := t.delay()
		transport := t.open()
		out := t.queue(transport)
		s := t.service(transport, nil)
		times := make(chan time.Time, 2)
		s.handle("job", func(_ context.Context, m *core.Message) error {
			times <- time.Now()
			options := core.SendOptions{Delay: delay}
			if err := m.Send(out, jobType.Of([]byte("elsewhere")).With(options)); err != nil {
				return err
			}
			return m.Send(s.queue, reminderType.Of([]byte("to itself")).With(options))
		})
		s.handle("reminder", func(context.Context, *core.Message) error {
			times <- time.Now()
			return nil
		})
		s.run()
		r := t.receiver(t.open(), out, 1)
		t.send(transport, t.command(s.queue, "job", "now"))
		sent := t.awaitTime(times, "the handler of the sent message runs")
		t.complete(r.next())
		t.wantDue("a message that a handler sent elsewhere", delay, time.Since(sent))
		t.wantDue("a message that a handler sent to its own queue", delay, t.awaitTime(times, "the handler of the delayed message runs").Sub(sent))
		s.end()
		t.wantLeft(s.queue, "after all was handled")
		t.wantLeft(s.errorQueue, "after all was handled")
		t.wantLeft(out, "after its only message was consumed")
	}},
	{rule: "C13", title: "a delayed message is delivered after the process that sent it was killed", modes: inHighest, needs: []need{processes, delays}, run: func(t *caseT) {
		queue := t.queue(t.open())
		delay := 2*t.caps.DelayPrecision + time.Second
		if t.caps.MaxDelay > 0 {
			delay = min(delay, t.caps.MaxDelay)
		}
		start := time.Now()
		p := t.startWorker(workerSpec{To: queue, Prefix: t.id(), Count: 1, Delay: delay})
		p.awaitEvent(hasSent, t.timeout())
		sent := time.Now()
		p.kill()
		latest := delay + t.caps.DelayPrecision + t.suite.h.DelayTolerance
		var arrived time.Time
		t.receiver(t.open(), queue, 1).collect(latest+t.timeout(), func(*core.Incoming) bool {
			arrived = time.Now()
			return true
		})
		switch after := arrived.Sub(sent); {
		case arrived.IsZero():
			t.fail(fmt.Sprintf("a message sent with a delay of %v arrives, although its sender was killed in the meantime", delay), "it did not within %v", latest+t.timeout())
		case arrived.Sub(start) < delay:
			t.fail(fmt.Sprintf("a message sent with a delay of %v does not arrive before", delay), "after %v", arrived.Sub(start))
		case after > latest:
			t.fail(fmt.Sprintf("a message sent with a delay of %v arrives within %v, although its sender was killed in the meantime", delay, latest), "after %v", after)
		}
	}},
	{rule: "C13", title: "a delayed message survives a restart of the broker", modes: inHighest, exclusive: true, needs: []need{brokerControl, durable, delays}, run: func(t *caseT) {
		broker := t.brokerController()
		transport := t.open()
		queue := t.queue(transport)
		delay := 2*t.caps.DelayPrecision + time.Second
		if t.caps.MaxDelay > 0 {
			delay = min(delay, t.caps.MaxDelay)
		}
		m := t.message(queue, "delayed")
		m.Delay = delay
		start := time.Now()
		t.send(transport, m)
		broker.restart()
		var arrived time.Time
		t.receiver(t.open(), queue, 1).collect(delay+t.timeout(), func(*core.Incoming) bool {
			arrived = time.Now()
			return true
		})
		expected := fmt.Sprintf("Durable is claimed, so a message with a delay of %v arrives then, although the broker restarts during the delay", delay)
		switch {
		case arrived.IsZero():
			t.fail(expected, "it did not arrive within %v", delay+t.timeout())
		case arrived.Sub(start) < delay:
			t.fail(expected, "after %v", arrived.Sub(start))
		}
	}},
}

// positive leaves out delays of 0: a DelayPrecision may be 0, although C1 forbids it.
func positive(delays ...time.Duration) []time.Duration {
	return slices.DeleteFunc(delays, func(d time.Duration) bool { return d <= 0 })
}

// longDelay returns a delay that is longer than any case waits.
func (t *caseT) longDelay() time.Duration {
	if t.caps.MaxDelay > 0 {
		return min(time.Hour, t.caps.MaxDelay)
	}
	return time.Hour
}

// punctual sends one message for each delay and checks when it arrives.
func (t *caseT) punctual(delays ...time.Duration) {
	transport := t.open()
	queue := t.queue(transport)
	t.punctualOn(transport, queue, t.receiver(transport, queue, 4), nil, delays...)
}

// dueMessage is a message with a delay, and the earliest and latest time at which it is
// due.
type dueMessage struct {
	message        core.Outgoing
	earliest, last time.Time
}

// punctualOn is punctual on a queue that also has messages that are due later than all of
// these.
func (t *caseT) punctualOn(transport core.Transport, queue string, r *receiver, due []dueMessage, delays ...time.Duration) {
	expected := map[string]dueMessage{}
	for _, delay := range delays {
		m := t.message(queue, delay.String())
		m.Delay = delay
		start := time.Now()
		t.send(transport, m)
		expected[m.ID] = dueMessage{m, start.Add(delay), time.Now().Add(delay)}
	}
	for len(expected) > 0 {
		d := r.next()
		arrived := time.Now()
		e, ok := expected[d.Incoming().ID]
		if !ok {
			besides := ""
			for _, l := range due {
				if l.message.ID == d.Incoming().ID {
					besides = fmt.Sprintf(", %v before it was due, with a delay of %v", l.earliest.Sub(arrived), l.message.Delay)
				}
			}
			t.stop("each message arrives once, when it is due", "a message with the body %s arrived besides%s", excerpt(d.Incoming().Body), besides)
		}
		delete(expected, d.Incoming().ID)
		t.wantOnTime("a message", e.message.Delay, e.earliest, e.last, arrived)
		t.wantSame(d.Incoming(), e.message)
		t.complete(d)
	}
	r.close()
	t.wantLeft(queue, "after all that was due was received")
}
