package suite

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/queues"
)

var queueCases = []testCase{
	{rule: "C36", title: "Depth counts waiting, locked and delayed messages", modes: withRedelivery, needs: []need{depths}, run: func(t *caseT) {
		transport, other := t.open(), t.open()
		queue := t.queue(transport)
		t.wantDepth("in an empty queue", other, queue, counts(0, 0, 0))
		bodies := bodiesOf(t.messages(queue, 7))
		t.sendEach(transport, queue, bodies...)
		t.wantDepth("with 7 messages", other, queue, counts(7, 0, 0))
		r := t.receiver(transport, queue, 3)
		held := r.take(3)
		t.wantDepth("with 3 of 7 messages in flight", other, queue, t.countsInFlight(7, 3))
		t.complete(held[0])
		r.SetMaxInFlight(0)
		t.abandon(held[1])
		t.release(held[2])
		r.close()
		t.wantDepth("after one of 7 messages was completed, one abandoned and one released", other, queue, counts(6, 0, 0))
		if t.caps.DelayedDelivery {
			m := t.message(queue, "delayed")
			m.Delay = t.outlasting()
			t.send(transport, m)
			t.wantDepth("with 6 waiting messages and a delayed one", other, queue, counts(6, 0, 1))
		}
		r = t.receiver(transport, queue, 6)
		t.complete(r.take(6)...)
		r.close()
		delayed := 0
		if t.caps.DelayedDelivery {
			delayed = 1
		}
		t.wantDepth("after the waiting messages were completed", other, queue, counts(0, 0, delayed))
	}},
	{rule: "C36", title: "Depth has no effect on messages", modes: withRedelivery, needs: []need{depths}, run: func(t *caseT) {
		transport, other := t.open(), t.open()
		queue := t.queue(transport)
		bodies := bodiesOf(t.messages(queue, 3))
		t.sendEach(transport, queue, bodies...)
		r := t.receiver(transport, queue, 1)
		for range bodies {
			start := time.Now()
			for range 3 {
				t.depth(other, queue)
			}
			d := r.next()
			if took := time.Since(start); took > t.promptly() {
				t.recordLate("a delivery after Depth took %v", took)
				t.fail("a message is delivered to a receiver right after Depth of its queue", "it took %v", took)
			}
			if in := d.Incoming(); in.DeliveryCount != 1 || in.Redelivered {
				t.fail("Depth receives no message: the first delivery after it has DeliveryCount 1", "%d, redelivered %t", in.DeliveryCount, in.Redelivered)
			}
			t.complete(d)
		}
		r.close()
		t.wantLeft(queue, "after all messages were completed")
	}},
	{rule: "C36", title: "Depth counts receivers", modes: withRedelivery, needs: []need{depths}, run: func(t *caseT) {
		transport, other := t.open(), t.open()
		queue := t.queue(transport)
		t.wantDepth("without receivers", transport, queue, receivers(0))
		first, second := t.receiver(transport, queue, 1), t.receiver(other, queue, 1)
		t.send(transport, t.messages(queue, 2)...)
		both := []core.Delivery{first.next(), second.next()}
		t.wantDepth("with receivers of two processes", transport, queue, receivers(2))
		t.complete(both...)
		second.close()
		t.wantDepth("after one of two receivers was closed", transport, queue, receivers(1))
		first.close()
		t.wantDepth("after both receivers were closed", transport, queue, receivers(0))
	}},
	{rule: "C36", title: "Oldest is when the oldest message was sent", modes: withRedelivery, needs: []need{depths}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		if oldest := t.depth(transport, queue).Oldest; !oldest.IsZero() {
			t.fail("Oldest of an empty queue is the zero time", "%v", oldest)
		}
		before := time.Now()
		t.send(transport, t.message(queue, "first"))
		sent := time.Now()
		if t.caps.DelayedDelivery {
			m := t.message(queue, "delayed")
			m.Delay = t.outlasting()
			t.send(transport, m)
		}
		t.sleep(2 * expiryTolerance)
		t.send(transport, t.message(queue, "second"))
		t.wantDepth("with two messages", transport, queue, counts(2, 0, t.delayedIf(1)))
		if oldest := t.depth(transport, queue).Oldest; !oldest.IsZero() && (oldest.Before(before.Add(-expiryTolerance)) || oldest.After(sent.Add(expiryTolerance))) {
			t.fail(fmt.Sprintf("Oldest is between %v and %v, or the zero time if the broker does not tell it", before, sent), "%v", oldest)
		}
	}},
	{rule: "C36", title: "Depth of a queue that does not exist returns core.ErrQueueNotFound", modes: inHighest, needs: []need{depths}, run: func(t *caseT) {
		transport := t.open()
		t.queue(transport)
		missing := t.uniqueName()
		ctx, cancel := t.withTimeout()
		defer cancel()
		if depth, err := transport.(queues.DepthReader).Depth(ctx, missing); !errors.Is(err, core.ErrQueueNotFound) {
			t.fail("Depth of a queue that does not exist returns core.ErrQueueNotFound", "%+v, %v", depth, err)
		}
		if err := t.trySend(transport, t.message(missing, "lost")); !errors.Is(err, core.ErrQueueNotFound) {
			t.fail("Depth creates nothing: a Send to the missing queue returns core.ErrQueueNotFound", "%v", err)
		}
	}},

	{rule: "C37", title: "ListQueues has the queues, in order, by their addresses", modes: inHighest, needs: []need{queueLists}, run: func(t *caseT) {
		transport := t.open()
		var made []string
		for range 3 {
			queue := t.queue(transport)
			address, err := transport.Address(queue)
			if err != nil {
				t.stop("Address takes a queue's name", "%v", err)
			}
			made = append(made, address)
		}
		var listed, missing []string
		if !t.awaitTrue(func() bool { // a broker may list a new queue a little later
			listed = t.listQueues(transport)
			missing = slices.DeleteFunc(slices.Clone(made), func(name string) bool { return slices.Contains(listed, name) })
			return len(missing) == 0
		}) {
			t.fail(fmt.Sprintf("ListQueues has the addresses of queues that exist: %s", sample(made)), "after %v %d names, without %s", t.timeout(), len(listed), sample(missing))
		}
		if !slices.IsSorted(listed) || len(slices.Compact(slices.Clone(listed))) != len(listed) {
			t.fail("ListQueues returns each address once, in order", "%s", sample(listed))
		}
		for _, name := range made {
			if err := t.tryOpening(transport, core.ReceiverConfig{Queue: name, Mode: t.mode, MaxInFlight: 1}); err != nil {
				t.fail("OpenReceiver takes an address that ListQueues returned", "%q: %v", name, err)
			}
		}
	}},
	{rule: "C37", title: "ListQueues has no name that is no queue", modes: inHighest, exclusive: true, needs: []need{queueLists}, run: func(t *caseT) {
		transport := t.open()
		t.queue(transport)
		var removed string
		if t.suite.remover && t.suite.provisioner {
			removed = t.uniqueName()
			t.provision(transport, removed)
			t.remove(transport, []string{removed}, nil)
			address, err := transport.Address(removed)
			if err != nil {
				t.stop("Address takes a queue's name", "%v", err)
			}
			t.await("ListQueues has a removed queue no more", func() bool { return !slices.Contains(t.listQueues(transport), address) })
		}
		for _, name := range t.listQueues(transport) {
			if address, err := transport.Address(name); err != nil || address != name {
				t.fail(fmt.Sprintf("a name that ListQueues returns is an address: Address returns it, %q", name), "%q, %v", address, err)
			}
			if !t.suite.checker {
				continue
			}
			ctx, cancel := t.withTimeout()
			err := transport.(core.Checker).Check(ctx, core.Topology{Queues: []string{name}})
			cancel()
			if errors.Is(err, core.ErrQueueNotFound) && slices.Contains(t.listQueues(transport), name) {
				t.fail("a name that ListQueues returns is that of a queue", "%q: %v", name, err)
			}
		}
	}},
}

// delayedIf returns n if the transport delays messages.
func (t *caseT) delayedIf(n int) int {
	if t.caps.DelayedDelivery {
		return n
	}
	return 0
}

// countsInFlight returns a check of the numbers of a queue with messages in flight. A receiver that
// prefetches may have locked more. A broker that does not tell locked messages may count them as
// waiting in an estimate.
func (t *caseT) countsInFlight(total, inFlight int) func(d queues.Depth) string {
	return func(d queues.Depth) string {
		if d.Locked == -1 && !d.Exact && d.Ready == total {
			return ""
		}
		if !t.caps.Prefetch {
			return counts(total-inFlight, inFlight, 0)(d)
		}
		switch {
		case d.Locked != -1 && (d.Locked < inFlight || d.Locked > total):
			return fmt.Sprintf("Locked is between %d and %d", inFlight, total)
		case d.Ready != -1 && d.Ready > total-inFlight:
			return fmt.Sprintf("Ready is at most %d", total-inFlight)
		case d.Locked != -1 && d.Ready != -1 && d.Locked+d.Ready != total:
			return fmt.Sprintf("Ready and Locked are %d together", total)
		}
		return ""
	}
}

func (t *caseT) listQueues(transport core.Transport) []string {
	ctx, cancel := t.withTimeout()
	defer cancel()
	names, err := transport.(queues.Lister).ListQueues(ctx)
	if err != nil {
		t.stop("ListQueues returns the addresses of queues", "%v", err)
	}
	return names
}
