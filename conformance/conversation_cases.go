package conformance

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/reprise-go/reprise/core"
)

var conversationCases = []testCase{
	{rule: "C1", title: "a reply finds its way by the address that the transport gave", run: func(t *trial) {
		transport := t.open()
		asking := t.service(transport, nil)
		answering := t.service(t.open(), nil)
		answers := t.crowd()
		answers.open()
		asking.handle("answer", answers.handle)
		answering.handle("question", func(_ context.Context, m *core.Message) error {
			return m.Reply("answer", append([]byte("re "), m.RawBody()...))
		})
		asking.run()
		answering.run()
		var expected []core.Outgoing
		for i := range 3 {
			body := fmt.Appendf(nil, "question %d", i)
			ctx, cancel := t.patient()
			err := asking.Send(ctx, answering.queue, "question", body)
			cancel()
			if err != nil {
				t.stop("Endpoint.Send sends to a queue", "%v", err)
			}
			expected = append(expected, t.message(asking.queue, "re "+string(body)))
		}
		t.reach("replies to 3 questions", 3, answers.messages)
		asking.end()
		answering.end()
		t.once(expected, answers)
		for _, queue := range []string{asking.queue, answering.queue, asking.errorQueue, answering.errorQueue} {
			t.left(queue, "after all questions were answered")
		}
	}},
	{rule: "C19", title: "an event is handled once by each endpoint, whatever the number of its instances", needs: []need{publishing}, run: func(t *trial) {
		topic := t.uniqueName()
		transport := t.open()
		firstEvents, secondEvents, otherEvents := t.crowd(), t.crowd(), t.crowd()
		first := t.service(transport, nil)
		second := t.serviceOn(t.open(), first.queue, first.errorQueue, nil)
		other := t.service(t.open(), nil)
		for s, events := range map[*service]*crowd{first: firstEvents, second: secondEvents, other: otherEvents} {
			s.handleEvent(topic, events.handle)
			events.open()
			s.run()
		}
		t.rest(t.caps.SubscriptionDelay)
		msgs := t.publish(transport, topic, "event", 6)
		t.reach("events handled by an endpoint of two instances", 6, func() int { return firstEvents.messages() + secondEvents.messages() })
		t.reach("events handled by another endpoint", 6, otherEvents.messages)
		t.rest(t.quiet())
		for _, s := range []*service{first, second, other} {
			s.end()
		}
		t.once(msgs, firstEvents, secondEvents)
		t.once(msgs, otherEvents)
		for _, queue := range []string{first.queue, first.errorQueue, other.queue, other.errorQueue} {
			t.left(queue, "after all was handled")
		}
	}},
	{rule: "C19", title: "an event waits for an endpoint of which no instance runs any more", needs: []need{publishing}, run: func(t *trial) {
		topic := t.uniqueName()
		transport := t.open()
		firstEvents, secondEvents := t.crowd(), t.crowd()
		firstEvents.open()
		secondEvents.open()
		first := t.service(transport, nil)
		second := t.serviceOn(t.open(), first.queue, first.errorQueue, nil)
		first.handleEvent(topic, firstEvents.handle)
		second.handleEvent(topic, secondEvents.handle)
		first.run()
		second.run()
		t.rest(t.caps.SubscriptionDelay)
		second.end()
		early := t.publish(transport, topic, "early", 2)
		t.reach("events handled by the instance that still runs", 2, firstEvents.messages)
		first.end()
		late := t.publish(transport, topic, "late", 2)
		t.steady("the number of events handled by an endpoint that is stopped", 2, firstEvents.messages)
		second.run()
		t.reach("events that were published meanwhile and are handled when an instance runs again", 2, secondEvents.messages)
		second.end()
		t.once(append(early, late...), firstEvents, secondEvents)
		t.left(first.queue, "after all was handled")
	}},
	{rule: "C10", title: "the audit queue gets a copy of what was handled, and of nothing else", run: func(t *trial) {
		transport := t.open()
		audit := t.queue(transport)
		s := t.service(transport, func(c *core.Config) { c.AuditQueue = audit })
		jobs := t.crowd()
		s.handle("job", func(_ context.Context, m *core.Message) error {
			jobs.enter(string(m.RawBody()))
			defer jobs.leave()
			switch string(m.RawBody()) {
			case "bad":
				return errHandler
			case "unwanted":
				return core.Discard("the case wants it")
			}
			m.Headers.Set("Sender", "the handler's own")
			return nil
		})
		good := t.command(s.queue, "job", "good")
		for i := range 8 {
			good.Headers.Set(fmt.Sprintf("Custom.%d", i), fmt.Sprintf("välue %d", i))
		}
		s.run()
		t.send(transport, t.command(s.queue, "job", "bad"), good, t.command(s.queue, "job", "unwanted"))
		t.reach("messages handled", 3, jobs.messages)
		s.end()
		for _, in := range t.left(audit, "the copies of what was handled", "good") {
			if in.ID != good.ID {
				t.fail("the audit copy has the message's id, "+good.ID, "%q", in.ID)
			}
			for key, want := range good.Headers.All() {
				if got := in.Headers.Get(key); got != want {
					t.fail(fmt.Sprintf("the audit copy has the message's header %s: %q", key, want), "%q", got)
				}
			}
			if in.Headers.Get(core.HeaderProcessingEndpoint) != s.queue {
				t.fail(fmt.Sprintf("the audit copy says in the header %s who handled it: %q", core.HeaderProcessingEndpoint, s.queue), "%q", in.Headers.Map())
			}
		}
		t.left(s.errorQueue, "what failed", "bad")
		t.left(s.queue, "after all was handled")
	}},
	{rule: "C13", title: "what a handler sends with a delay comes when it is due", needs: []need{delays}, run: func(t *trial) {
		delay := t.delay()
		transport := t.open()
		out := t.queue(transport)
		s := t.service(transport, nil)
		times := make(chan time.Time, 2)
		s.handle("job", func(_ context.Context, m *core.Message) error {
			times <- time.Now()
			later := core.SendOptions{Delay: delay}
			if err := m.Send(out, "job", []byte("elsewhere"), later); err != nil {
				return err
			}
			return m.Send(s.queue, "reminder", []byte("to itself"), later)
		})
		s.handle("reminder", func(context.Context, *core.Message) error {
			times <- time.Now()
			return nil
		})
		s.run()
		r := t.receiver(t.open(), out, 1)
		t.send(transport, t.command(s.queue, "job", "now"))
		sent := t.moment(times, "the handler of what was sent runs")
		t.complete(r.next())
		t.due("a message that a handler sent elsewhere", delay, time.Since(sent))
		t.due("a message that a handler sent to its own queue", delay, t.moment(times, "the handler of what was delayed runs").Sub(sent))
		s.end()
		t.left(s.queue, "after all was handled")
		t.left(s.errorQueue, "after all was handled")
		t.left(out, "after its only message was consumed")
	}},
	{rule: "C10", title: "messages of 64 KiB come and go", slow: true, run: func(t *trial) {
		transport := t.open()
		s := t.service(transport, nil)
		out := t.queue(transport)
		s.handle("job", func(_ context.Context, m *core.Message) error { return m.Send(out, "done", m.RawBody()) })
		s.handle("bad", func(context.Context, *core.Message) error { return errHandler })
		size := 64 << 10
		if limit := t.caps.MaxMessageBytes; limit > 0 { // the endpoint reserves 8 KiB, or half
			size = min(size, max(limit-8<<10, limit/2)-2<<10)
		}
		body := make([]byte, size)
		for i := range body {
			body[i] = byte(t.random.Uint32())
		}
		s.run()
		t.send(transport, t.command(s.queue, "job", string(body)), t.command(s.queue, "bad", string(body)))
		for queue, what := range map[string]string{out: "what a handler sent", s.errorQueue: "what failed"} {
			d := t.receiver(transport, queue, 1).next()
			if in := d.Incoming(); !bytes.Equal(in.Body, body) {
				t.fail(fmt.Sprintf("%s has the body of %d bytes that was sent", what, len(body)), "%d bytes, which differ from byte %d on", len(in.Body), differ(in.Body, body))
			}
			t.complete(d)
		}
		s.end()
		t.left(s.queue, "after all was handled")
	}},
}

// differ returns the index of the first byte in which two bodies differ.
func differ(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

// publish publishes n events through a send-only endpoint.
func (t *trial) publish(transport core.Transport, topic, name string, n int) []core.Outgoing {
	ep, err := core.New(t.uniqueName(), transport, core.Config{SendOnly: true})
	if err != nil {
		t.stop("core.New makes a send-only endpoint", "%v", err)
	}
	ctx, cancel := t.patient()
	defer cancel()
	var sent []core.Outgoing
	for i := range n {
		body := fmt.Sprintf("%s %d", name, i)
		if err := ep.Publish(ctx, topic, []byte(body)); err != nil {
			t.stop("Endpoint.Publish publishes", "%v", err)
		}
		sent = append(sent, core.Outgoing{Topic: topic, Body: []byte(body)})
	}
	return sent
}

// delay returns a delay that can be told from none despite the transport's precision.
func (t *trial) delay() time.Duration { return max(2*t.caps.DelayPrecision, 300*time.Millisecond) }

// due checks that a delayed message arrived neither too early nor too late.
func (t *trial) due(what string, delay, after time.Duration) {
	switch latest := delay + t.caps.DelayPrecision + t.suite.h.DelayTolerance; {
	case after < delay:
		t.fail(fmt.Sprintf("%s with a delay of %v is not early", what, delay), "it came after %v", after)
	case after > latest:
		t.fail(fmt.Sprintf("%s with a delay of %v comes within %v, DelayPrecision and what the harness allows for included", what, delay, latest), "it came after %v", after)
	}
}

// moment returns the next time reported by a handler.
func (t *trial) moment(times <-chan time.Time, what string) time.Time {
	timer := time.NewTimer(t.patience())
	defer timer.Stop()
	select {
	case at := <-times:
		return at
	case <-timer.C:
		t.stop(what, "it did not within %v", t.patience())
		return time.Time{}
	}
}
