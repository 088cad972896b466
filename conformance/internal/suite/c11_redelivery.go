package suite

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

// redeliveryCases are about the contents of redelivered messages, and about their earlier
// deliveries.
var redeliveryCases = []testCase{
	{rule: "C11", title: "an abandoned message is redelivered as it was sent", modes: withRedelivery, run: func(t *caseT) {
		t.redelivers(func(r *receiver, d core.Delivery) *receiver { t.abandon(d); return r })
	}},
	{rule: "C11", title: "a released message is redelivered as it was sent", modes: withRedelivery, run: func(t *caseT) {
		t.redelivers(func(r *receiver, d core.Delivery) *receiver { t.release(d); return r })
	}},
	{rule: "C11", title: "a message whose receiver was closed is redelivered as it was sent", modes: withRedelivery, run: func(t *caseT) {
		t.redelivers(func(r *receiver, _ core.Delivery) *receiver {
			r.close()
			return t.receiver(t.open(), r.queue, 1)
		})
	}},
	{rule: "C11", title: "a handler's changes to its headers have no effect on other deliveries", modes: withRedelivery, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		sent := t.richMessage(queue)
		t.send(transport, sent)
		r := t.receiver(transport, queue, 1)
		for range 4 {
			d := r.next()
			t.wantSame(d.Incoming(), sent)
			own := d.Incoming().Headers // a copy
			own.Set("Added", "by the handler")
			own.Set("UPPER", "changed by the handler")
			own.Del("Empty", headers.MessageID)
			t.wantSame(d.Incoming(), sent)
			t.abandon(d)
		}
		d := r.next()
		t.wantSame(d.Incoming(), sent)
		t.complete(d)
	}},
	{rule: "C11", title: "a sender's changes to its headers have no effect on sent messages", modes: inHighest, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		given := []core.Outgoing{t.richMessage(queue), t.richMessage(queue)}
		sent := slices.Clone(given)
		t.send(transport, given...)
		for i := range given {
			given[i].Headers.Set("Added", "after Send")
			given[i].Headers.Set("UPPER", "changed after Send")
			given[i].Headers.Del("Empty", headers.MessageID)
		}
		t.arriveUnchanged(transport, queue, sent...)
	}},
	{rule: "C11", title: "a transport does not change the message of a delivery later", run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		const messages, atOnce = 400, 20
		sent := map[string]core.Outgoing{}
		var all []core.Outgoing
		for i := range messages {
			m := t.message(queue, "")
			m.Body = append(fmt.Appendf(nil, "body %d ", i), t.randomBytes(t.random.IntN(3000))...)
			m.Headers.Set("Number", fmt.Sprint(i))
			sent[m.ID] = m
			all = append(all, m)
		}
		r := t.receiver(transport, queue, atOnce)
		var received []*core.Incoming
		var before []core.Incoming // the messages as first received
		for batch := range slices.Chunk(all, atOnce) {
			t.send(transport, batch...)
			held := r.take(len(batch))
			for _, d := range held {
				in := d.Incoming()
				received = append(received, in)
				before = append(before, *in)
				before[len(before)-1].Body = bytes.Clone(in.Body)
			}
			for _, d := range held { // one by one, because otherwise a slow broker's locks could end before they are settled
				t.renew(d)
				t.complete(d)
			}
		}
		r.close()
		for i, in := range received {
			m, known := sent[before[i].ID]
			if !known {
				t.stop("Incoming.ID is the id that was sent", "%q", before[i].ID)
			}
			if !bytes.Equal(before[i].Body, m.Body) {
				t.stop(fmt.Sprintf("the body is that which was sent, %s", excerpt(m.Body)), "%s%s", excerpt(before[i].Body), ofAnother(before[i].Body, all))
			}
			if !bytes.Equal(in.Body, m.Body) || !maps.Equal(in.Headers.Map(), m.Headers.Map()) || in.ID != m.ID {
				t.stop(fmt.Sprintf("a message stays as it was received, %q with %s, while others are received and settled", m.ID, excerpt(m.Body)),
					"it has become %q with %s, and %s", in.ID, excerpt(in.Body), excerptHeaders(in.Headers.Map(), m.Headers.Map()))
			}
		}
	}},
	{rule: "C11", title: "NativeID stays the same when a message is redelivered", modes: withRedelivery, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		t.send(transport, t.message(queue, "any"))
		r := t.receiver(transport, queue, 1)
		d := r.next()
		id := d.Incoming().NativeID
		stays := func(after string) {
			if d = r.next(); d.Incoming().NativeID != id {
				t.fail(fmt.Sprintf("NativeID names one stored copy of a message: after %s it is still %q", after, id), "%q", d.Incoming().NativeID)
			}
		}
		t.abandon(d)
		stays("Abandon")
		t.release(d)
		stays("Release")
		r.close()
		r = t.receiver(transport, queue, 1)
		stays("its receiver was closed")
		r.close()
		r = t.receiver(t.open(), queue, 1)
		stays("another process received it")
		t.complete(d)
	}},
	{rule: "C11", title: "equal messages of another program have separate NativeIDs, also when they are redelivered", modes: withRedelivery, needs: []need{nativeMessages}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		for range 2 {
			t.suite.h.SendNative(t, queue, "order")
		}
		r := t.receiver(transport, queue, 2)
		var named []string
		for range 2 {
			first, second := r.next(), r.next()
			one, other := first.Incoming(), second.Incoming()
			ids := []string{one.NativeID, other.NativeID}
			slices.Sort(ids)
			switch {
			case ids[0] == "" || ids[0] == ids[1]:
				t.fail("NativeID names one stored copy of a message, also where another program has sent two that are equal", "they have %q", ids)
			case !one.IDSent && !other.IDSent && one.ID == other.ID:
				t.fail("two messages whose senders gave them no id have different IDs, even if they are equal", "both have %q", one.ID)
			case named != nil && !slices.Equal(ids, named):
				t.fail(fmt.Sprintf("NativeIDs stay the same when messages are redelivered, %q", named), "%q", ids)
			}
			named = ids
			t.abandon(first)
			t.abandon(second)
		}
		t.complete(r.next())
		t.complete(r.next())
	}},
	{rule: "C11", title: "NativeID is new for every Send", run: func(t *caseT) {
		transport := t.open()
		queue, other := t.queue(transport), t.queue(transport)
		seen := map[string]string{}
		m := t.message(queue, "the same")
		here, there := t.receiver(transport, queue, 8), t.receiver(t.open(), other, 8)
		for round := range 3 {
			copies := []core.Outgoing{m, m, m}
			copies[2].Queue = other
			t.send(transport, copies...)
			first := here.drain("the same", "the same")
			second := there.drain("the same")
			for i, in := range append(first, second...) {
				where := fmt.Sprintf("copy %d of round %d", i, round)
				if in.NativeID == "" {
					t.fail("NativeID names one stored copy of a message", "it is empty for %s", where)
				}
				if before, known := seen[in.NativeID]; known && !t.caps.MayDuplicate {
					t.fail("NativeID is new for every Send, also where id, headers and body are the same", "%q names %s and %s", in.NativeID, before, where)
				}
				seen[in.NativeID] = where
			}
		}
	}},
}

// redelivers checks that a message has the same headers and body at every delivery.
func (t *caseT) redelivers(settle func(r *receiver, d core.Delivery) *receiver) {
	transport := t.open()
	queue := t.queue(transport)
	small, large := t.richMessage(queue), t.richMessage(queue)
	size := 100 << 10
	if limit := t.caps.MaxMessageBytes; limit > 0 {
		size = min(size, limit/2)
	}
	large.Body = t.randomBytes(size)
	for _, m := range []core.Outgoing{small, large} {
		t.send(transport, m)
		r := t.receiver(transport, queue, 1)
		for range 4 {
			d := r.next()
			t.wantSame(d.Incoming(), m)
			r = settle(r, d)
		}
		d := r.next()
		t.wantSame(d.Incoming(), m)
		t.complete(d)
		r.close()
	}
	t.wantLeft(queue, "after both messages were completed")
}
