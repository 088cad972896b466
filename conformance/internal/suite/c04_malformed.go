package suite

import (
	"fmt"
	"slices"

	"github.com/reprise-go/reprise/core"
)

var malformedCases = []testCase{
	{rule: "C4", title: "a message that cannot be parsed is delivered as Malformed, with its body", needs: []need{corruption}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		body := t.suite.h.Corrupt(t, queue)
		r := t.receiver(transport, queue, 1)
		d := r.next()
		t.wantMalformed(d, body)
		in := d.Incoming()
		if in.ID == "" || in.NativeID == "" {
			t.fail("a malformed message has the ID and the NativeID that the broker gives", "ID %q, NativeID %q", in.ID, in.NativeID)
		}
		if in.DeliveryCount != 1 {
			t.fail("a malformed message has DeliveryCount 1 at first", "%d", in.DeliveryCount)
		}
		t.complete(d)
		r.close()
		t.wantLeft(queue, "after a malformed message was completed")
	}},
	{rule: "C4", title: "the messages before and after a malformed one are delivered", needs: []need{corruption}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		r := t.receiver(transport, queue, 8)
		before, after := t.messages(queue, 3), t.messages(queue, 3)
		t.send(transport, before...)
		body := t.suite.h.Corrupt(t, queue)
		t.send(transport, after...)
		sound := map[string]core.Outgoing{}
		for _, m := range slices.Concat(before, after) {
			sound[m.ID] = m
		}
		malformed := 0
		for _, d := range r.take(7) {
			if d.Incoming().Malformed != nil {
				t.wantMalformed(d, body)
				malformed++
			} else {
				t.wantSame(d.Incoming(), sound[d.Incoming().ID])
				delete(sound, d.Incoming().ID)
			}
			t.complete(d)
		}
		if malformed != 1 || len(sound) != 0 {
			t.fail("1 malformed and 6 sound messages are delivered once each", "%d malformed and %d sound ones were among the first 7, of which %d different ones of the 6 sound", malformed, 7-malformed, 6-len(sound))
		}
		m := t.message(queue, "later")
		t.send(transport, m)
		d := r.next()
		t.wantSame(d.Incoming(), m)
		t.complete(d)
		r.close()
		t.wantLeft(queue, "after all were completed")
	}},
	{rule: "C4", title: "several malformed messages are delivered, each with its own body", needs: []need{corruption}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		body := t.suite.h.Corrupt(t, queue)
		for range 2 {
			t.suite.h.Corrupt(t, queue)
		}
		r := t.receiver(transport, queue, 8)
		natives := map[string]bool{}
		for _, d := range r.take(3) {
			t.wantMalformed(d, body)
			natives[d.Incoming().NativeID] = true
			t.complete(d)
		}
		if len(natives) != 3 {
			t.fail("3 malformed messages have 3 NativeIDs: they key the memories of the engine", "%d: %v", len(natives), natives)
		}
		r.close()
		t.wantLeft(queue, "after 3 malformed messages were completed")
	}},
	{rule: "C4", title: "a malformed message is abandoned like any other", modes: withRedelivery, needs: []need{corruption}, run: func(t *caseT) {
		t.malformedIsRedelivered("Abandon", func(d core.Delivery) { t.abandon(d) }, 2)
	}},
	{rule: "C4", title: "a malformed message is released like any other", modes: withRedelivery, needs: []need{corruption}, run: func(t *caseT) {
		t.malformedIsRedelivered("Release", func(d core.Delivery) { t.release(d) }, 1)
	}},
	{rule: "C4", title: "an unsettled malformed message is redelivered when its receiver closes", modes: withRedelivery, needs: []need{corruption}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		body := t.suite.h.Corrupt(t, queue)
		r := t.receiver(transport, queue, 1)
		r.next()
		r.close()
		r = t.receiver(t.open(), queue, 1)
		d := r.next()
		t.wantMalformed(d, body)
		t.complete(d)
		r.close()
		t.wantLeft(queue, "after the malformed message was completed")
	}},
	{rule: "C4", title: "a malformed message is replaced atomically", modes: inAtomic, needs: []need{corruption}, run: func(t *caseT) {
		for _, s := range []atomicSettle{replaceWith, completeWith} {
			transport := t.open()
			queue, errorQueue := t.queue(transport), t.queue(transport)
			body := t.suite.h.Corrupt(t, queue)
			r := t.receiver(transport, queue, 1)
			d := r.next()
			t.wantMalformed(d, body)
			t.wantSettleRefused(s, d, core.ErrQueueNotFound, t.message(errorQueue, "too many"), t.message(t.uniqueName(), "lost"))
			t.settleWith(s, d, t.message(errorQueue, string(body)))
			r.close()
			t.wantLeft(queue, "after "+s.name+" of a malformed message")
			t.wantLeft(errorQueue, "after "+s.name+" of a malformed message", string(body))
		}
	}},
}

// malformedIsRedelivered gives a malformed message back and checks its next delivery.
func (t *caseT) malformedIsRedelivered(operation string, settle func(d core.Delivery), count int) {
	transport := t.open()
	queue := t.queue(transport)
	body := t.suite.h.Corrupt(t, queue)
	r := t.receiver(transport, queue, 1)
	first := r.next()
	t.wantMalformed(first, body)
	settle(first)
	redelivered := r.next()
	t.wantMalformed(redelivered, body)
	in := redelivered.Incoming()
	if in.NativeID != first.Incoming().NativeID {
		t.fail("a malformed message has the same NativeID at every delivery, here "+first.Incoming().NativeID, "%s", in.NativeID)
	}
	if in.DeliveryCount != count && !t.returnCounted(operation, in.DeliveryCount, count) {
		t.fail(fmt.Sprintf("after %s a malformed message has DeliveryCount %d", operation, count), "%d", in.DeliveryCount)
	}
	t.complete(redelivered)
	r.close()
	t.wantLeft(queue, "after the malformed message was completed")
}
