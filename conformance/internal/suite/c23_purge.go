package suite

import (
	"errors"
	"fmt"
	"time"

	"github.com/reprise-go/reprise/core"
)

// purge empties a queue from another process, and checks the number of removed messages,
// if the broker reports it.
func (t *caseT) purge(queue string, want int) {
	remover := t.open().(core.Remover)
	if removed := t.purgeOnce(remover, queue); removed >= 0 && removed != want {
		t.fail(fmt.Sprintf("Purge returns how many messages it removed, %d", want), "%d", removed)
	}
}

func (t *caseT) purgeOnce(remover core.Remover, queue string) int {
	ctx, cancel := t.withTimeout()
	defer cancel()
	removed, err := remover.Purge(ctx, queue)
	if err != nil {
		t.stop(fmt.Sprintf("Purge of queue %q returns nil", queue), "%v", err)
	}
	return removed
}

var purgeCases = []testCase{
	{rule: "C23", title: "Purge empties a queue, which can be used as before", modes: inHighest, needs: []need{removing}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		t.purge(queue, 0)
		out := t.messages(queue, 20)
		out[3].Body = make([]byte, 4<<10)
		t.send(transport, out...)
		t.purge(queue, len(out))
		t.purge(queue, 0)
		m := t.message(queue, "after")
		t.send(transport, m)
		r := t.receiver(transport, queue, 1)
		d := r.next()
		t.wantSame(d.Incoming(), m)
		t.complete(d)
		r.close()
		t.wantLeft(queue, "after it was purged, and later messages were received")
	}},
	{rule: "C23", title: "Purge removes messages that were abandoned or released", modes: withRedelivery, needs: []need{removing}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		t.send(transport, t.messages(queue, 2)...)
		r := t.receiver(transport, queue, 2)
		both := r.take(2)
		t.abandon(both[0])
		t.release(both[1])
		r.close()
		remover, total := t.open().(core.Remover), 0
		t.await("Purge removes two messages that were given back", func() bool { // which the broker may return later
			removed := t.purgeOnce(remover, queue)
			total += max(removed, 0)
			return removed < 0 || total >= 2
		})
		t.wantLeft(queue, "after it was purged")
	}},
	{rule: "C23", title: "Purge keeps messages that are in flight", modes: withRedelivery, needs: []need{removing}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		t.send(transport, t.message(queue, "to be completed"), t.message(queue, "to be given back"))
		r := t.receiver(transport, queue, 2)
		held := r.takeBodies("both messages arrive", "to be completed", "to be given back")
		t.send(transport, t.message(queue, "waits"))
		t.purge(queue, 1)
		t.complete(held["to be completed"])
		t.release(held["to be given back"])
		r.close()
		t.wantLeft(queue, "after a purge while a receiver had two messages, of which it completed one", "to be given back")
	}},
	{rule: "C23", title: "Purge keeps delayed messages that are not due", modes: inHighest, needs: []need{removing, delays}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		m := t.message(queue, "delayed")
		m.Delay = t.briefDelay()
		start := time.Now()
		t.send(transport, m, t.message(queue, "ready"))
		t.purge(queue, 1)
		if took := time.Since(start); took >= m.Delay {
			t.recordLate("the queue was purged after %v, when a delay of %v had ended", took, m.Delay)
		}
		t.wantLeft(queue, "when the delayed message is due", "delayed")
	}},
	{rule: "C23", title: "Purge has no effect on other queues, and refuses a queue that does not exist", modes: inHighest, needs: []need{removing}, run: func(t *caseT) {
		transport := t.open()
		queue, other := t.queue(transport), t.queue(transport)
		address, err := transport.Address(queue)
		if err != nil {
			t.stop("Address takes a queue's name", "%v", err)
		}
		t.send(transport, t.message(queue, "removed"), t.message(other, "kept"))
		t.purge(address, 1)
		t.wantLeft(other, "after another one was purged", "kept")
		ctx, cancel := t.withTimeout()
		defer cancel()
		missing := t.uniqueName()
		if _, err := transport.(core.Remover).Purge(ctx, missing); !errors.Is(err, core.ErrQueueNotFound) {
			t.fail("Purge of a queue that does not exist returns core.ErrQueueNotFound", "%v", err)
		}
		if err := t.trySend(transport, t.message(missing, "lost")); !errors.Is(err, core.ErrQueueNotFound) {
			t.fail("Purge creates nothing: a Send to the missing queue returns core.ErrQueueNotFound", "%v", err)
		}
	}}, {rule: "C23", title: "Remove removes a queue with its messages, and no other", modes: inHighest, needs: []need{removing}, run: func(t *caseT) {
		transport := t.open()
		first, second, other := t.queue(transport), t.queue(transport), t.queue(transport)
		t.send(transport, t.message(first, "removed"), t.message(second, "removed too"), t.message(other, "kept"))
		address, err := transport.Address(first)
		if err != nil {
			t.stop("Address takes a queue's name", "%v", err)
		}
		t.remove(t.open(), []string{address, second}, nil)
		for _, queue := range []string{first, second} {
			t.await("a Send to a removed queue returns core.ErrQueueNotFound", func() bool {
				return errors.Is(t.trySend(transport, t.message(queue, "too late")), core.ErrQueueNotFound)
			})
		}
		t.wantLeft(other, "after others were removed", "kept")
		t.remove(transport, []string{first, t.uniqueName()}, nil) // neither exists
		if t.recreate(transport, first) {
			t.wantLeft(first, "after it was removed and created again")
		}
	}},
	{rule: "C23", title: "Remove ends the subscriptions of a queue", modes: inHighest, needs: []need{removing, publishing}, run: func(t *caseT) {
		transport := t.open()
		removed, kept := t.queue(transport), t.queue(transport)
		event := t.event("event")
		t.subscribe(transport, removed, event.Topic)
		t.subscribe(transport, kept, event.Topic)
		t.remove(transport, []string{removed}, nil)
		exists := t.recreate(transport, removed)
		t.sleep(t.caps.SubscriptionDelay)
		t.send(transport, event)
		t.wantLeft(kept, "after the other subscriber was removed", "event")
		if exists {
			t.wantLeft(removed, "after it was removed and created again, without a subscription")
		}
	}},
	{rule: "C23", title: "Remove removes a topic with its subscriptions, and no other", modes: inHighest, needs: []need{removing, publishing}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		gone, kept := t.event("gone"), t.event("kept")
		t.subscribe(transport, queue, gone.Topic, kept.Topic)
		if err := t.tryRemove(transport, nil, []string{gone.Topic}); errors.Is(err, errors.ErrUnsupported) {
			t.note("Remove of topics is refused: %v", err)
			return
		} else if err != nil {
			t.stop("Remove of a topic returns nil", "%v", err)
		}
		t.sleep(t.caps.SubscriptionDelay)
		_ = t.trySend(transport, gone) // which may be refused, because the topic does not exist
		t.send(transport, kept)
		t.wantLeft(queue, "after one of its topics was removed", "kept")
		t.remove(transport, nil, []string{gone.Topic, t.uniqueName()}) // neither exists
		t.subscribe(transport, queue, gone.Topic)
		t.send(transport, gone)
		t.wantLeft(queue, "after it was subscribed again to a removed topic", "gone")
	}},
}

// recreate creates a removed queue, and reports whether that is possible.
func (t *caseT) recreate(transport core.Transport, queue string) bool {
	if !t.suite.provisioner || t.suite.h.Queue != nil {
		return false
	}
	ctx, cancel := t.withTimeout()
	defer cancel()
	err := transport.(core.Provisioner).Provision(ctx, core.Topology{Queues: []string{queue}})
	if err != nil && !errors.Is(err, core.ErrUnavailable) { // the broker reserves the name for a while
		t.fail("Provision creates a removed queue again", "%v", err)
	}
	return err == nil
}

// remove removes queues and topics.
func (t *caseT) remove(transport core.Transport, queues, topics []string) {
	if err := t.tryRemove(transport, queues, topics); err != nil {
		t.stop(fmt.Sprintf("Remove of the queues %q and the topics %q returns nil", queues, topics), "%v", err)
	}
}

func (t *caseT) tryRemove(transport core.Transport, queues, topics []string) error {
	ctx, cancel := t.withTimeout()
	defer cancel()
	return transport.(core.Remover).Remove(ctx, queues, topics)
}
