package suite

import (
	"context"
	"fmt"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

var expiryCases = []testCase{
	{rule: "C20", title: "an expired message is not delivered", needs: []need{expiry}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		t.send(transport, t.brief(queue, "brief"), t.message(queue, "for ever"))
		t.expire()
		r := t.receiver(transport, queue, 4)
		for _, d := range r.takeBodies("a message is not delivered past its time, and others are", "for ever") {
			t.complete(d)
		}
		r.wantSilence("a message is not delivered past its time")
	}},
	{rule: "C20", title: "a message is delivered as it was sent before it expires", needs: []need{expiry}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		sent := map[string]core.Outgoing{}
		// With some of these values, counts of milliseconds overflow, and little or
		// nothing of the time is left.
		for _, ttbr := range []time.Duration{time.Hour, (1<<31 + 1) * time.Millisecond, (1<<32 + 1) * time.Millisecond, 365 * 24 * time.Hour} {
			m := t.message(queue, "valid for "+ttbr.String())
			m.TimeToBeReceived = ttbr
			t.send(transport, m)
			sent[m.ID] = m
		}
		t.sleep(100 * time.Millisecond)
		r := t.receiver(transport, queue, 1)
		for range sent {
			d := r.next()
			t.wantSame(d.Incoming(), sent[d.Incoming().ID])
			if n := d.Incoming().DeliveryCount; n != 1 {
				t.fail("the first delivery of a message with a time to be received has DeliveryCount 1", "%d", n)
			}
			t.complete(d)
		}
		r.close()
		t.wantLeft(queue, "after all were completed")
	}},
	{rule: "C20", title: "a waiting message is not dropped before it expires", modes: inHighest, needs: []need{expiry}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		m := t.message(queue, "long")
		m.TimeToBeReceived = 2*t.timeout() + time.Hour
		t.send(transport, m, t.brief(queue, "brief"))
		t.close(transport)
		t.expire()
		t.wantLeft(queue, "after the time of another message", "long")
	}},
	{rule: "C20", title: "expired messages have no effect on other messages", modes: inHighest, needs: []need{expiry}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		var want []string
		for i := range 20 {
			m := t.message(queue, fmt.Sprintf("valid %d", i))
			want = append(want, string(m.Body))
			t.send(transport, t.brief(queue, "expired"), m, t.brief(queue, "expired too"))
		}
		t.expire()
		r := t.receiver(transport, queue, 2)
		m := t.message(queue, "later")
		t.send(transport, m)
		seen := map[string]int{}
		for range len(want) + 1 {
			d := r.next()
			seen[string(d.Incoming().Body)]++
			t.complete(d)
		}
		if n := seen["expired"] + seen["expired too"]; n > 0 {
			t.fail("of 61 messages, 40 of which have expired, none of the 40 is delivered", "%d of the first %d deliveries were expired messages", n, len(want)+1)
		}
		for _, body := range append(want, "later") {
			if seen[body] != 1 {
				t.fail("of 61 messages, 40 of which have expired, the 21 others are delivered once each", "%q was delivered %d times", body, seen[body])
			}
		}
		r.close()
		t.wantLeft(queue, "after all that had not expired were completed")
	}},
	{rule: "C20", title: "a message that expires behind a message in flight is not delivered", modes: withRedelivery, needs: []need{expiry}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		r := t.receiver(transport, queue, 1)
		t.send(transport, t.message(queue, "held"))
		d := r.next()
		t.send(transport, t.brief(queue, "brief"))
		t.expire()
		t.complete(d)
		r.wantSilence("a message is not delivered past its time, although a receiver was open all the time: the transport checks prefetched messages again before it delivers them")
		m := t.message(queue, "later")
		t.send(transport, m)
		d = r.next()
		t.wantSame(d.Incoming(), m)
		t.complete(d)
		r.close()
		t.wantLeft(queue, "after the brief message expired")
	}},
	{rule: "C20", title: "a prefetched message that expires is not delivered", modes: withRedelivery, needs: []need{expiry}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		r := t.receiver(transport, queue, 8)
		t.send(transport, t.message(queue, "first"), t.brief(queue, "brief"), t.brief(queue, "brief too"))
		// Each of these calls has room for one. The receiver may have fetched more by
		// now, perhaps all, and hands those out later. A broker that promises no order
		// may deliver "first" last.
		var taken []core.Delivery
		for len(taken) == 0 || string(taken[len(taken)-1].Incoming().Body) != "first" {
			taken = append(taken, r.next())
		}
		t.expire()
		if got := r.takeFor(t.quietPeriod()); len(got) > 0 {
			t.fail("a message is not delivered past its time, although its receiver had a place for it all the time: the transport checks prefetched messages again before it delivers them", "delivered: %s", bodies(got))
			t.complete(got...)
		}
		t.complete(taken...)
	}},
	{rule: "C20", title: "a message that expires while its receiver is paused is not delivered", modes: inHighest, needs: []need{expiry}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		r := t.receiver(transport, queue, 2)
		r.SetMaxInFlight(0)
		t.send(transport, t.brief(queue, "brief"), t.message(queue, "for ever"))
		t.expire()
		r.SetMaxInFlight(2)
		for _, d := range r.take(1) {
			if body := string(d.Incoming().Body); body != "for ever" {
				t.fail("a message is not delivered past its time", "%q is", body)
			}
			t.complete(d)
		}
		r.wantSilence("a message that expired during a pause is not delivered after it")
	}},
	{rule: "C20", title: "an expired message is not redelivered", modes: withRedelivery, needs: []need{expiry}, run: func(t *caseT) {
		for _, c := range []struct {
			name   string
			settle func(r *receiver, d core.Delivery)
		}{
			{"Abandon", func(_ *receiver, d core.Delivery) { t.abandon(d) }},
			{"Release", func(_ *receiver, d core.Delivery) { t.release(d) }},
			{"Receiver.Close", func(r *receiver, _ core.Delivery) { r.close() }},
		} {
			transport := t.open()
			queue := t.queue(transport)
			r := t.receiver(transport, queue, 1)
			d, tooLate := t.takeBrief(transport, queue, r)
			if tooLate {
				return
			}
			t.expire()
			c.settle(r, d)
			r.close()
			t.wantLeft(queue, "after "+c.name+" of a message whose time had passed")
		}
	}},
	{rule: "C20", title: "a message that is abandoned or released before it expires is redelivered until it expires", modes: withRedelivery, needs: []need{expiry}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		m := t.message(queue, "valid")
		m.TimeToBeReceived = t.timeout() + time.Hour
		t.send(transport, m)
		r := t.receiver(transport, queue, 1)
		t.abandon(r.next())
		t.release(r.next())
		d := r.next()
		t.wantSame(d.Incoming(), m)
		t.complete(d)
		brief, tooLate := t.takeBrief(transport, queue, r)
		if tooLate {
			return
		}
		t.abandon(brief)
		r.close()
		t.expire()
		t.wantLeft(queue, "after a message that was abandoned within its time had expired")
	}},
	{rule: "C20", title: "a message in flight may be completed after it expires", modes: withRedelivery, needs: []need{expiry}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		r := t.receiver(transport, queue, 1)
		d, tooLate := t.takeBrief(transport, queue, r)
		if tooLate {
			return
		}
		t.expire()
		t.complete(d)
		r.close()
		t.wantLeft(queue, "after the message was completed")
	}},
	{rule: "C20", title: "a delayed message expires after it was due, not before", modes: inHighest, needs: []need{expiry, delays}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		m := t.message(queue, "late")
		m.Delay = t.briefDelay()
		m.TimeToBeReceived = m.Delay + t.caps.DelayPrecision + t.timeout()
		start := time.Now()
		t.send(transport, m)
		due := time.Now().Add(m.Delay)
		r := t.receiver(transport, queue, 1)
		d := r.next()
		t.wantOnTime("a message that may be received for longer", m.Delay, start.Add(m.Delay), due, time.Now())
		t.wantSame(d.Incoming(), m)
		t.complete(d)
	}},
	{rule: "C20", title: "a delayed message that expires before it is due is never delivered", modes: inHighest, needs: []need{expiry, delays}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		m := t.message(queue, "expired")
		m.TimeToBeReceived = t.briefDelay() / 2
		m.Delay = t.briefDelay()
		t.send(transport, m)
		r := t.receiver(transport, queue, 1)
		if got := r.takeFor(m.Delay + t.caps.DelayPrecision + t.quietPeriod()); len(got) > 0 {
			t.fail("time to be received counts from Send, with a delay too: a message that expired before it was due is never delivered", "delivered: %s", bodies(got))
			t.complete(got...)
		}
		r.close()
		t.wantLeft(queue, "after a delayed message has expired")
	}},
	{rule: "C20", title: "an event expires", modes: inHighest, needs: []need{expiry, publishing}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		brief, long := t.event("brief"), t.event("long")
		brief.TimeToBeReceived, long.TimeToBeReceived = briefTime, time.Hour
		t.subscribe(transport, queue, brief.Topic, long.Topic)
		t.send(transport, brief, long)
		t.expire()
		t.wantLeft(queue, "after the time of one of two events", "long")
	}},
	{rule: "C20", title: "a message that is sent with a settlement expires", modes: inAtomic, needs: []need{expiry}, run: func(t *caseT) {
		for _, s := range []atomicSettle{completeWith, replaceWith} {
			f := t.atomicFixture()
			t.settleWith(s, f.delivery, t.brief(f.to, "brief"), t.message(f.to, "for ever"))
			t.expire()
			t.wantQueues(f, "after the time of one of two messages sent with "+s.name, nil, []string{"for ever"})
		}
	}},
	{rule: "C20", title: "the time to be received of a message that is sent with a settlement begins at the settlement", modes: inAtomic, needs: []need{expiry}, run: func(t *caseT) {
		for life := time.Second; ; life *= 2 {
			f := t.atomicFixture()
			t.sleep(life + 50*time.Millisecond) // like a handler that takes longer than the messages it sends may live
			brief := t.message(f.to, "brief")
			brief.TimeToBeReceived = life
			r := t.receiver(f.transport, f.to, 2)
			start := time.Now()
			t.settleWith(completeWith, f.delivery, brief, t.message(f.to, "for ever"))
			arrived := map[string]time.Duration{}
			r.forEach(life, func(d core.Delivery) bool {
				arrived[string(d.Incoming().Body)] = time.Since(start)
				t.complete(d)
				return len(arrived) == 2
			})
			r.close()
			f.receiver.close()
			at, other := arrived["for ever"]
			_, in := arrived["brief"]
			switch {
			case in:
				return
			case other && at < life/2: // so the machine was not slow
				t.stop(fmt.Sprintf("a message with a time to be received of %v, sent by CompleteWith %v after its message was received, is delivered: the time counts from CompleteWith", life, life), "it is not, and another one sent with it was after %v", at)
			case life > t.timeout()/2:
				t.stop(fmt.Sprintf("messages sent by CompleteWith are delivered within %v", life), "%d of 2 were", len(arrived))
			}
		}
	}},
	{rule: "C20", title: "copies for the audit queue and the error queue do not expire", needs: []need{expiry}, run: func(t *caseT) {
		transport := t.open()
		audit := t.queue(transport)
		var seen counter
		s := t.service(transport, func(c *core.Config) { c.AuditQueue = audit })
		s.handle("job", func(_ context.Context, m *core.Message) error {
			seen.add(string(m.RawBody()))
			if string(m.RawBody()) == "fails" {
				return errHandler
			}
			return nil
		})
		s.run()
		const life = time.Second
		for _, body := range []string{"succeeds", "fails"} {
			t.receivedInTime(transport, life, t.command(s.queue, "job", body), seen.total)
		}
		t.sleep(life + 50*time.Millisecond)
		s.end()
		t.wantLeft(audit, "after the time to be received of the message that succeeded", "succeeds")
		t.wantLeft(s.errorQueue, "after the time to be received of the message that failed", "fails")
	}},
	{rule: "C20", title: "ExpiresAt is when the message expires, at every delivery", needs: []need{expiry}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		plain, brief, delayed := t.message(queue, "for ever"), t.message(queue, "an hour"), t.message(queue, "delayed")
		brief.TimeToBeReceived, delayed.TimeToBeReceived = time.Hour, 2*time.Hour
		out := []core.Outgoing{plain, brief}
		if t.caps.DelayedDelivery {
			delayed.Delay = t.shortDelay()
			out = append(out, delayed)
		}
		start := time.Now()
		t.send(transport, out...)
		sent := time.Now()
		t.sleep(2 * expiryTolerance) // so that a time that counts from the delivery differs
		r := t.receiver(transport, queue, len(out))
		for _, d := range r.take(len(out)) {
			last := []core.Delivery{d}
			if t.mode != core.TransactionNone {
				t.wantExpiry(d.Incoming(), start, sent, out)
				t.release(d)
				last = r.take(1)
			}
			for _, d := range last {
				t.wantExpiry(d.Incoming(), start, sent, out)
				t.complete(d)
			}
		}
		r.close()
		t.wantLeft(queue, "after all were completed")
	}},
	{rule: "C20", title: "a message expires at its deadline, however it waits for its next attempt", modes: withRedelivery, slow: true, needs: []need{expiry, delays}, run: func(t *caseT) {
		transport := t.open()
		const life = time.Second
		var seen attempts
		waiting := t.waitingServices(transport, &seen)
		for _, w := range waiting {
			t.receivedInTime(transport, life, t.command(w.queue, w.messageType, w.messageType), func() int { return len(seen.forBody(w.messageType)) })
		}
		t.sleep(life + t.delay() + t.caps.DelayPrecision + expiryTolerance)
		count := map[string]int{}
		for _, w := range waiting {
			count[w.messageType] = len(seen.forBody(w.messageType))
		}
		t.sleep(2*t.delay() + t.caps.DelayPrecision)
		for _, w := range waiting {
			if further := len(seen.forBody(w.messageType)) - count[w.messageType]; further > 0 {
				t.fail(fmt.Sprintf("a message with a time to be received of %v that waits for its next attempt (%s) has none after its deadline", life, w.messageType), "it had %d more", further)
			}
			w.end()
			t.wantLeft(w.errorQueue, "after the time to be received of a message that waited for its next attempt")
		}
	}},
	{rule: "C20", title: "a message that waits for its next attempt has the rest of its time to be received", modes: withRedelivery, slow: true, needs: []need{expiry, delays}, run: func(t *caseT) {
		transport := t.open()
		const life = time.Hour
		var seen attempts
		for _, w := range t.waitingServices(transport, &seen) {
			m := t.command(w.queue, w.messageType, w.messageType)
			m.TimeToBeReceived = life
			m.Headers.Set(headers.TimeToBeReceived, headers.FormatSpan(life))
			start := time.Now()
			t.send(transport, m)
			sent := time.Now()
			t.awaitCount("attempts at a message of which none succeeds", 3, func() int { return len(seen.forBody(w.messageType)) })
			w.end()
			r := t.receiver(transport, w.queue, 1)
			d := r.next()
			t.wantExpiry(d.Incoming(), start, sent, []core.Outgoing{m})
			if got := d.Incoming().Headers.Get(headers.TimeToBeReceived); got != "01:00:00" {
				t.fail(fmt.Sprintf("a message that waits for its next attempt (%s) has the header %s that was sent, 01:00:00", w.messageType, headers.TimeToBeReceived), "%q", got)
			}
			t.complete(d)
			r.close()
		}
	}},
}

// expiryTolerance is how far ExpiresAt may be from the end of a time to be received: clocks are
// compared by times in whole seconds.
const expiryTolerance = 2 * time.Second

// wantExpiry checks ExpiresAt of one of the messages that were sent between start and sent.
func (t *caseT) wantExpiry(in *core.Incoming, start, sent time.Time, out []core.Outgoing) {
	var life time.Duration
	for _, o := range out {
		if o.ID == in.ID {
			life = o.TimeToBeReceived
		}
	}
	tolerance := expiryTolerance + t.suite.h.DelayTolerance
	switch {
	case life == 0 && !in.ExpiresAt.IsZero():
		t.fail("ExpiresAt of a message without a time to be received is the zero time", "of %q it is %v", in.Body, in.ExpiresAt)
	case life > 0 && in.ExpiresAt.IsZero():
		t.fail("ExpiresAt of a message with a time to be received is its end", "of %q it is the zero time", in.Body)
	case life > 0 && (in.ExpiresAt.Before(start.Add(life-tolerance)) || in.ExpiresAt.After(sent.Add(life+tolerance))):
		t.fail(fmt.Sprintf("ExpiresAt of a message with a time to be received of %v is that long after it was sent, by the clock of this process, within %v", life, tolerance),
			"of %q it is %v after it", in.Body, in.ExpiresAt.Sub(sent))
	}
}

// waitingService is a service whose handlers never succeed: messages of its type wait in one way.
type waitingService struct {
	*service
	messageType string
}

// waitingServices starts a service for each way in which a message waits for its next attempt.
func (t *caseT) waitingServices(transport core.Transport, seen *attempts) (all []waitingService) {
	wait := t.delay()
	for _, way := range []struct {
		name   string
		result error
	}{
		{"an immediate retry", errHandler}, {"a delayed retry", errHandler},
		{"RetryAfter", core.RetryAfter(errHandler, wait)}, {"Defer", core.Defer(errHandler, wait)}, {"Refuse", core.Refuse(errHandler, wait)}, {"PutBack", core.PutBack(errHandler, wait)},
	} {
		s := t.service(transport, func(c *core.Config) {
			c.Recoverability.MaxDeliveries = core.Off
			switch way.name {
			case "an immediate retry":
				c.Recoverability.Immediate = core.Immediate{NumberOfRetries: 1000, Pause: wait, MaxPause: wait}
			case "a delayed retry":
				c.Recoverability.Delayed = core.Delayed{NumberOfRetries: 1000, TimeIncrease: wait, MaxDelay: wait}
			}
		})
		s.handle(way.name, func(_ context.Context, m *core.Message) error { return seen.failWith(m, way.result) })
		s.run()
		all = append(all, waitingService{s, way.name})
	}
	return all
}

// briefTime is the lifetime of messages that are to expire.
const briefTime = 500 * time.Millisecond

// brief returns a message that expires soon.
func (t *caseT) brief(queue, body string) core.Outgoing {
	m := t.message(queue, body)
	m.TimeToBeReceived = briefTime
	return m
}

// expire waits until all brief messages that were sent have expired.
func (t *caseT) expire() { t.sleep(briefTime + 50*time.Millisecond) }

// takeBrief receives a brief message. If that takes longer than the message lives, the
// case cannot decide anything, and takeBrief returns tooLate.
func (t *caseT) takeBrief(transport core.Transport, queue string, r *receiver) (d core.Delivery, tooLate bool) {
	for range 3 {
		t.send(transport, t.brief(queue, "brief"))
		if got := r.takeOne(briefTime); got != nil {
			return got, false
		}
	}
	t.note("no message that lives for %v could be received in time", briefTime)
	return nil, true
}

// takeOne returns the first delivery within d, or nil.
func (r *receiver) takeOne(d time.Duration) core.Delivery {
	deadline := time.Now().Add(d)
	for pause := d / 8; time.Now().Before(deadline); {
		if got := r.takeFor(pause); len(got) > 0 {
			return got[0]
		}
	}
	return nil
}
