package suite

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/queues"
)

var pageCases = []testCase{
	{rule: "C32", title: "a page has at most Limit messages, and Next of the last one is empty", modes: inHighest, needs: []need{browsing}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		if got := t.look(transport, queue, 5); len(got) > 0 {
			t.fail("an empty queue has an empty page", "%d messages", len(got))
		}
		bodies := t.filled(transport, queue, 6)
		for limit := 1; limit <= 7; limit++ {
			t.wantSeen(fmt.Sprintf("in pages of %d", limit), t.look(transport, queue, limit), bodies)
		}
		for _, m := range t.lookOn(transport, queues.Request{Queue: queue, Limit: 2, WithoutBody: true}) {
			if m.BodyBytes != len(bodies[0]) {
				t.fail(fmt.Sprintf("BodyBytes is the size of the body, %d, also WithoutBody", len(bodies[0])), "%d", m.BodyBytes)
			}
		}
		page := t.page(transport, queues.Request{Queue: queue, Limit: 2})
		repeated := t.page(transport, queues.Request{Queue: queue, Limit: 2})
		second := queues.Request{Queue: queue, Limit: 2, After: page.Next}
		if got, want := bodiesIn(incomingOf(repeated.Messages)), bodiesIn(incomingOf(page.Messages)); !slices.Equal(got, want) {
			t.fail(fmt.Sprintf("the first page of an unchanged queue is the same again: %s", sample(want)), "%s", sample(got))
		}
		if got, want := bodiesIn(incomingOf(t.page(transport, second).Messages)), bodiesIn(incomingOf(t.page(transport, second).Messages)); !slices.Equal(got, want) {
			t.fail(fmt.Sprintf("Next of a page can be used again, with the same result: %s", sample(want)), "%s", sample(got))
		}
		for _, limit := range []int{0, -1} {
			if _, err := t.tryPage(transport, queues.Request{Queue: queue, Limit: limit}); err == nil {
				t.fail("a Limit below 1 is refused", "Limit %d is not", limit)
			}
		}
	}},
	{rule: "C32", title: "Next is usable after its message has left, and by another process", modes: withRedelivery, needs: []need{browsing}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		t.filled(transport, queue, 8)
		page := t.page(transport, queues.Request{Queue: queue, Limit: 3})
		rest := t.lookOn(transport, queues.Request{Queue: queue, Limit: 3, After: page.Next})
		t.close(transport)
		transport = t.open()
		if got, want := bodiesIn(incomingOf(t.lookOn(transport, queues.Request{Queue: queue, Limit: 3, After: page.Next}))), bodiesIn(incomingOf(rest)); !slices.Equal(got, want) {
			t.fail(fmt.Sprintf("another process continues a look by Next: %s", sample(want)), "%s", sample(got))
		}
		r := t.receiver(transport, queue, 8)
		left := r.take(8)
		for _, m := range page.Messages { // the page's last is among them
			for _, d := range left {
				if bytes.Equal(d.Incoming().Body, m.Body) {
					t.complete(d)
				}
			}
		}
		got := t.lookOn(transport, queues.Request{Queue: queue, Limit: 3, After: page.Next})
		t.wantSeen("which continues after its message has left", got, bodiesIn(incomingOf(rest)))
		r.close()
	}},
	{rule: "C32", title: "Next is usable after a restart of the broker", modes: inHighest, exclusive: true, needs: []need{browsing, brokerControl, durable}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		bodies := t.filled(transport, queue, 8)
		page := t.page(transport, queues.Request{Queue: queue, Limit: 3})
		broker := t.brokerController()
		broker.kill()
		broker.start()
		var rest []queues.Message
		t.await("Browse works again after a restart of the broker", func() bool {
			_, err := t.tryPage(transport, queues.Request{Queue: queue, Limit: 1})
			return err == nil
		})
		rest = t.lookOn(transport, queues.Request{Queue: queue, Limit: 3, After: page.Next})
		t.wantSeen("with a restart of the broker after its first page", append(page.Messages, rest...), bodies)
	}},
	{rule: "C32", title: "After is the Next of a page of the same queue, or refused", modes: inHighest, needs: []need{browsing}, run: func(t *caseT) {
		transport := t.open()
		queue, other := t.queue(transport), t.queue(transport)
		bodies := bodiesOf(t.messages(queue, 4))
		var next string
		for _, q := range []string{other, queue} {
			t.sendEach(transport, q, bodies...)
			t.lookFor(transport, q, bodies...)
			page := t.page(transport, queues.Request{Queue: q, Limit: 2})
			if q == queue {
				for name, text := range map[string]string{
					"the Next of another queue": next, "a Next with more text": page.Next + "x", "more text and a Next": "x" + page.Next,
					"a space": " ", "any text": "'; drop table messages; --", "a negative number": "-1", "a long text": string(make([]byte, 100<<10)),
				} {
					if got, err := t.tryPage(transport, queues.Request{Queue: queue, Limit: 2, After: text}); err == nil {
						t.fail("After that is no Next of a page of the queue is refused", "%s, %s, is not: a page of %d messages", name, excerpt([]byte(text)), len(got.Messages))
					}
				}
			}
			next = page.Next
		}
	}},
	{rule: "C32", title: "MaxBytes bounds a page", modes: inHighest, needs: []need{browsing}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		var bodies []string
		for i := range 6 {
			m := t.message(queue, fmt.Sprintf("%d%s", i, bytes.Repeat([]byte("x"), 10_000)))
			bodies = append(bodies, string(m.Body))
			t.send(transport, m)
		}
		t.lookFor(transport, queue, bodies...)
		for _, limit := range []int{1, 5_000, 25_000} {
			r := queues.Request{Queue: queue, Limit: 100, MaxBytes: limit}
			var all []queues.Message
			for range maxPages {
				page := t.page(transport, r)
				size := 0
				for _, m := range page.Messages[:max(0, len(page.Messages)-1)] {
					size += m.BodyBytes
				}
				if size >= limit {
					t.fail(fmt.Sprintf("one message alone of a page is beyond MaxBytes, %d", limit), "%d messages, and %d bytes without the last one", len(page.Messages), size)
				}
				all = append(all, page.Messages...)
				if r.After = page.Next; r.After == "" {
					break
				}
			}
			t.wantSeen(fmt.Sprintf("in pages of %d bytes", limit), all, bodies)
		}
	}},
	{rule: "C32", title: "messages are found by their keys", modes: withRedelivery, needs: []need{browsing}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		bodies := bodiesOf(t.messages(queue, 6))
		t.sendEach(transport, queue, bodies...)
		keys := t.keysOf(t.lookFor(transport, queue, bodies...))
		want := []string{bodies[4], bodies[1]}
		r := queues.Request{Queue: queue, Limit: 2, Keys: []string{keys[want[0]], keys[want[1]]}}
		t.wantSeen("by two keys", t.page(transport, r).Messages, want)
		receiver := t.receiver(transport, queue, 6)
		for _, d := range receiver.take(6) {
			if string(d.Incoming().Body) == want[0] {
				t.complete(d)
			} else {
				t.release(d)
			}
		}
		receiver.close()
		t.wantSeen("by two keys, of which one has left the queue", t.page(transport, r).Messages, want[1:])
		r.Keys = []string{"no key of any message", keys[want[1]]}
		t.wantSeen("by a key, and a text that is none", t.page(transport, r).Messages, want[1:])
		r.Keys, r.MaxBytes = []string{keys[want[1]]}, 1
		t.wantSeen("by the key of a message that alone is larger than MaxBytes", t.page(transport, r).Messages, want[1:])
		r.Keys = append(r.Keys, keys[bodies[0]])
		if page, err := t.tryPage(transport, r); err == nil {
			t.fail("Keys of more messages than MaxBytes allows are refused", "of 2 messages, with MaxBytes 1, %d are shown", len(page.Messages))
		}
		r.Limit, r.MaxBytes = 1, 0
		if _, err := t.tryPage(transport, r); err == nil {
			t.fail("more Keys than Limit are refused", "2 keys with Limit 1 are not")
		}
	}},

	{rule: "C33", title: "a message is shown as the next delivery has it", needs: []need{browsing}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		rich, bare, long := t.richMessage(queue), core.Outgoing{Queue: queue, ID: t.id()}, t.message(queue, "long")
		long.Body = t.randomBytes(20 << 10)
		if t.caps.TimeToBeReceived {
			long.TimeToBeReceived = t.timeout() + time.Hour
		}
		bodies := []string{string(rich.Body), "", string(long.Body)}
		t.send(transport, rich, bare, long)
		shown := byBody(t.lookFor(transport, queue, bodies...))
		r := t.receiver(transport, queue, 3)
		for range bodies {
			d := r.next()
			t.wantShown(shown[string(d.Incoming().Body)], d)
			t.complete(d)
		}
	}},
	{rule: "C33", title: "a message that failed is shown with its count", modes: withRedelivery, needs: []need{browsing}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		t.send(transport, t.message(queue, "fails"))
		for range 3 {
			shown := t.lookFor(transport, queue, "fails")[0]
			r := t.receiver(transport, queue, 1)
			d := r.next()
			t.wantShown(shown, d)
			t.abandon(d)
			r.close()
		}
	}},
	{rule: "C33", title: "a message that cannot be parsed is shown as malformed", needs: []need{browsing, corruption}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		body := t.suite.h.Corrupt(t, queue)
		shown := byBody(t.lookFor(transport, queue, string(body)))[string(body)]
		d := t.receiver(transport, queue, 1).next()
		t.wantMalformed(d, body)
		t.wantShown(shown, d)
		t.complete(d)
	}},
	{rule: "C33", title: "the native properties of a message are shown", modes: inHighest, needs: []need{browsing, nativeMessages}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		describe := t.suite.h.SendNative(t, queue, "Native.Message")
		var shown []queues.Message
		t.await("a look shows a message with native properties", func() bool {
			shown = t.look(transport, queue, 10)
			return len(shown) > 0
		})
		d := t.receiver(transport, queue, 1).next()
		if got, want := describe(shown[0].Native), describe(d.Incoming().Native); got != want {
			t.fail(fmt.Sprintf("Incoming.Native is as in the next delivery: %s", want), "%s", got)
		}
		t.complete(d)
	}},
	{rule: "C33", title: "the state of a message says whether a receiver could get it", modes: withRedelivery, needs: []need{browsing}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		t.send(transport, t.message(queue, "held"))
		r := t.receiver(transport, queue, 1)
		d := r.next()
		r.SetMaxInFlight(0)
		bodies := []string{"held", "waiting"}
		t.send(transport, t.message(queue, "waiting"))
		var from, to time.Time
		if t.caps.DelayedDelivery {
			m := t.message(queue, "delayed")
			m.Delay = t.outlasting()
			from = time.Now().Add(m.Delay)
			t.send(transport, m)
			to = time.Now().Add(m.Delay)
			bodies = append(bodies, "delayed")
		}
		want := map[string]queues.State{"held": queues.Locked, "waiting": queues.Ready, "delayed": queues.Delayed}
		if t.suite.depths && t.depth(transport, queue).Locked == -1 { // the broker does not tell locks
			want["held"] = queues.Ready
		}
		var shown []queues.Message
		if !t.awaitTrue(func() bool {
			shown = t.lookFor(transport, queue, bodies...)
			return !slices.ContainsFunc(shown, func(m queues.Message) bool { return m.State != want[string(m.Body)] })
		}) {
			for _, m := range shown {
				if m.State != want[string(m.Body)] {
					t.fail(fmt.Sprintf("the message %q is %v", m.Body, want[string(m.Body)]), "it is %v", m.State)
				}
			}
		}
		for _, m := range shown {
			tolerance := t.caps.DelayPrecision + expiryTolerance
			switch due := m.DueAt; {
			case m.State != queues.Delayed && !due.IsZero():
				t.fail(fmt.Sprintf("DueAt of a message that is %v is the zero time", m.State), "%v", due)
			case m.State == queues.Delayed && (due.Before(from.Add(-tolerance)) || due.After(to.Add(tolerance))):
				t.fail(fmt.Sprintf("DueAt of the delayed message is between %v and %v", from, to), "%v", due)
			}
		}
		t.complete(d)
	}},
	{rule: "C33", title: "a message that was shown belongs to the caller", needs: []need{browsing}, modes: inHighest, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		m := t.richMessage(queue)
		t.send(transport, m)
		for range 2 {
			shown := t.lookFor(transport, queue, string(m.Body))[0]
			clear(shown.Body)
			clear(shown.Properties)
			shown.Headers.Set("Sender", "changed")
		}
		d := t.receiver(transport, queue, 1).next()
		t.wantSame(d.Incoming(), m)
		t.complete(d)
	}},
}

// wantShown compares a message that was shown with its next delivery.
func (t *caseT) wantShown(shown queues.Message, d core.Delivery) {
	in := d.Incoming()
	if in.Malformed == nil {
		t.wantSame(&shown.Incoming, core.Outgoing{ID: in.ID, Headers: in.Headers, Body: in.Body, GroupKey: in.GroupKey, Properties: in.Properties})
	} else {
		if shown.Malformed == nil || shown.Malformed.Error() != in.Malformed.Error() {
			t.fail(fmt.Sprintf("a message is shown with Malformed %q, as it is delivered", in.Malformed), "%v", shown.Malformed)
		}
		if !bytes.Equal(shown.Body, in.Body) || !maps.Equal(shown.Headers.Map(), in.Headers.Map()) || shown.ID != in.ID {
			t.fail(fmt.Sprintf("a malformed message is shown as it is delivered, %q with %v and the body %s", in.ID, in.Headers.Map(), excerpt(in.Body)), "%q with %v and the body %s", shown.ID, shown.Headers.Map(), excerpt(shown.Body))
		}
	}
	for _, field := range []struct {
		name      string
		got, want any
	}{
		{"NativeID", shown.NativeID, in.NativeID},
		{"IDSent", shown.IDSent, in.IDSent},
		{"Redelivered", shown.Redelivered, in.Redelivered},
		{"LastError", shown.LastError, in.LastError},
		{"EnqueuedAt", shown.EnqueuedAt.UTC(), in.EnqueuedAt.UTC()},
	} {
		if field.got != field.want {
			t.fail(fmt.Sprintf("%s is shown as it is delivered, %v", field.name, field.want), "%v", field.got)
		}
	}
	// An adapter may count it from a remaining time.
	if shown.ExpiresAt.IsZero() != in.ExpiresAt.IsZero() || shown.ExpiresAt.Sub(in.ExpiresAt).Abs() > expiryTolerance {
		t.fail(fmt.Sprintf("ExpiresAt is shown as it is delivered, %v", in.ExpiresAt), "%v", shown.ExpiresAt)
	}
	switch want := in.DeliveryCount - 1; {
	case !t.caps.NativeDeliveryCount && shown.DeliveryCount != 0:
		t.fail("DeliveryCount of a message that is shown is 0 without NativeDeliveryCount", "%d", shown.DeliveryCount)
	case t.caps.NativeDeliveryCount && shown.DeliveryCount != want:
		t.fail(fmt.Sprintf("DeliveryCount of a waiting message is that until now, %d", want), "%d", shown.DeliveryCount)
	}
}
