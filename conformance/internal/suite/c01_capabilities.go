package suite

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/queues"
)

var capabilityCases = []testCase{
	{rule: "C1", title: "the capabilities never change", modes: inHighest, run: func(t *caseT) {
		transport := t.open()
		before := transport.Capabilities()
		before.Transactions = slices.Clone(before.Transactions)
		caps := transport.Capabilities()
		for i := range caps.Transactions {
			caps.Transactions[i] = -1
		}
		check := func(when string) {
			if now := transport.Capabilities(); !reflect.DeepEqual(now, before) {
				t.fail(fmt.Sprintf("Capabilities returns the same %s: %+v", when, before), "%+v", now)
			}
		}
		check("after its answer's slice was written to")
		t.send(transport, t.message(t.queue(transport), "any"))
		check("after a Send")
		t.close(transport)
		check("after Close")
		if other := t.open().Capabilities(); !reflect.DeepEqual(other, before) {
			t.fail(fmt.Sprintf("every transport that Harness.Open returns has the same capabilities: %+v", before), "%+v", other)
		}
	}},
	{rule: "C1", title: "the capabilities are consistent", modes: inHighest, run: func(t *caseT) {
		c := t.caps
		for i, mode := range c.Transactions {
			if mode <= core.TransactionDefault || mode > core.TransactionSendsAtomicWithReceive {
				t.fail("Transactions lists None, ReceiveOnly and SendsAtomicWithReceive alone", "%v", mode)
			}
			if slices.Contains(c.Transactions[:i], mode) {
				t.fail("Transactions lists a mode once", "%v is there twice", mode)
			}
		}
		for name, value := range map[string]int64{
			"MaxDelay": int64(c.MaxDelay), "DelayPrecision": int64(c.DelayPrecision), "SubscriptionDelay": int64(c.SubscriptionDelay),
			"MaxLockTime": int64(c.MaxLockTime), "DeliveryCountLag": int64(c.DeliveryCountLag),
			"MaxReceiveBatch": int64(c.MaxReceiveBatch), "MaxUnsettled": int64(c.MaxUnsettled), "MaxMessageBytes": int64(c.MaxMessageBytes),
			"MaxHeaderBytes": int64(c.MaxHeaderBytes), "MaxHeaderKeyBytes": int64(c.MaxHeaderKeyBytes),
		} {
			if value < 0 {
				t.fail("a limit is above 0, or 0 for none", "%s is %d", name, value)
			}
		}
		if c.DelayedDelivery && c.DelayPrecision == 0 {
			t.fail("a transport with DelayedDelivery says in DelayPrecision how late a message may be", "it is 0, which no clock can hold")
		}
		if c.CountsReleases && !c.NativeDeliveryCount {
			t.fail("a transport that claims CountsReleases claims NativeDeliveryCount too: it is the broker's count that rises with every delivery", "NativeDeliveryCount is false")
		}
	}},
	{rule: "C1", title: "a transaction mode that is not claimed is refused", modes: inHighest, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		for mode := core.TransactionDefault; mode <= core.TransactionSendsAtomicWithReceive+1; mode++ {
			err := t.tryOpening(transport, core.ReceiverConfig{Queue: queue, Mode: mode, MaxInFlight: 1})
			switch {
			case t.caps.Supports(mode) && err != nil:
				t.fail(fmt.Sprintf("OpenReceiver opens a receiver in mode %v, which Capabilities.Transactions lists", mode), "%v", err)
			case !t.caps.Supports(mode) && !errors.Is(err, errors.ErrUnsupported):
				t.fail(fmt.Sprintf("OpenReceiver refuses mode %v, which Capabilities.Transactions does not list, with errors.ErrUnsupported", mode), "%v", err)
			}
		}
	}},
	{rule: "C1", title: "methods that do not apply to a delivery are refused and change nothing", run: func(t *caseT) {
		transport := t.open()
		queue, out := t.queue(transport), t.queue(transport)
		names := []string{"first", "second"}
		t.sendEach(transport, queue, names...)
		r := t.receiver(transport, queue, len(names))
		held := r.takeBodies("the messages are delivered", names...)
		for _, method := range t.unclaimedMethods(out) {
			for _, name := range names {
				if err := method.call(held[name]); !errors.Is(err, errors.ErrUnsupported) {
					t.fail(fmt.Sprintf("in %v %s is refused with errors.ErrUnsupported", t.mode, method.name), "%v", err)
				}
			}
		}
		for _, name := range names {
			t.complete(held[name]) // stops the case if a refused call has settled it
		}
		r.close()
		t.wantLeft(queue, "after all were completed, methods that do not apply having been called before")
		t.wantLeft(out, "after CompleteWith and ReplaceWith were refused with errors.ErrUnsupported")
	}},
	{rule: "C1", title: "methods that apply to a delivery are not refused as unsupported", modes: withRedelivery, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		r := t.receiver(transport, queue, 1)
		for _, way := range t.waysToSettle(t.queue(transport)) {
			t.sendEach(transport, queue, way.name)
			d := r.next()
			if t.mode == core.TransactionSendsAtomicWithReceive {
				t.reset(d)
			}
			if err := t.trySettling(way, d); err != nil {
				t.stop(fmt.Sprintf("in %v %s settles a delivery that is held", t.mode, way.name), "%v", err)
			}
			if !way.consumes {
				t.complete(r.next())
			}
		}
	}},
	{rule: "C1", title: "the accessors of a delivery return its message and have no effect", run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		t.send(transport, t.message(queue, "any"))
		d := t.receiver(transport, queue, 1).next()
		if lockedUntil := d.LockedUntil(); t.mode == core.TransactionNone && !lockedUntil.IsZero() {
			t.fail("in mode None a delivery has no lock that could end", "LockedUntil is %v", lockedUntil)
		}
		if t.mode != core.TransactionSendsAtomicWithReceive && d.BindContext(t.ctx) != t.ctx {
			t.fail("BindContext returns the context that it was given, but in SendsAtomicWithReceive", "in %v it is another", t.mode)
		}
		if first, second := d.Incoming(), d.Incoming(); first != second {
			t.fail("Incoming returns the same pointer at every call", "%p, then %p", first, second)
		}
		t.complete(d)
	}},
	{rule: "C1", title: "delay is refused where DelayedDelivery is not claimed", modes: inHighest, needs: []need{noDelays}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		delayed := t.message(queue, "late")
		delayed.Delay = time.Second
		t.wantSendRefused(transport, errors.ErrUnsupported, t.message(queue, "at once"), delayed)
		t.wantLeft(queue, "after a refused Send")
	}},
	{rule: "C1", title: "time to be received is refused where it is not claimed", modes: inHighest, needs: []need{noExpiry}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		brief := t.message(queue, "brief")
		brief.TimeToBeReceived = time.Hour
		t.wantSendRefused(transport, errors.ErrUnsupported, t.message(queue, "for ever"), brief)
		t.wantLeft(queue, "after a refused Send")
	}},
	{rule: "C1", title: "publish and subscribe are refused where they are not claimed", modes: inHighest, needs: []need{noPublishing}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		event := t.message("", "event")
		event.Topic = t.uniqueName()
		t.wantSendRefused(transport, errors.ErrUnsupported, t.message(queue, "command"), event)
		t.wantLeft(queue, "after a refused Send")
		subscriber, ok := transport.(core.Subscriber)
		if !ok {
			return
		}
		if err := subscriber.Subscribe(t.ctx, queue, event.Topic); !errors.Is(err, errors.ErrUnsupported) {
			t.fail("Subscribe is refused with errors.ErrUnsupported", "%v", err)
		}
		if err := subscriber.Unsubscribe(t.ctx, queue, event.Topic); !errors.Is(err, errors.ErrUnsupported) {
			t.fail("Unsubscribe is refused with errors.ErrUnsupported", "%v", err)
		}
	}},
	{rule: "C1", title: "base topics are refused where BaseTopics is not claimed", modes: inHighest, needs: []need{publishing, noBaseTopics}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		event := t.event("event")
		event.BaseTopics = []string{t.uniqueName()}
		t.subscribe(transport, queue, event.Topic)
		t.wantSendRefused(transport, errors.ErrUnsupported, t.message(queue, "command"), event)
		t.wantLeft(queue, "after a refused Send")
	}},
	{rule: "C1", title: "CompleteWith and ReplaceWith refuse messages that need an unclaimed capability", modes: inAtomic, needs: []need{unclaimedSends}, run: func(t *caseT) {
		for _, s := range []atomicSettle{completeWith, replaceWith} {
			f := t.atomicFixture()
			for _, m := range t.unsupported(f.to) {
				t.wantSettleRefused(s, f.delivery, errors.ErrUnsupported, t.message(f.to, "supported"), m)
			}
			t.release(f.delivery)
			t.wantQueues(f, "after "+s.name+" was refused with errors.ErrUnsupported", []string{forwardedBody}, nil)
		}
	}},
	{rule: "C1", title: "a transport that claims PublishSubscribe is a core.Subscriber", modes: inHighest, needs: []need{publishing}, run: func(t *caseT) {
		if transport := t.open(); transport != nil {
			if _, ok := transport.(core.Subscriber); !ok {
				t.fail("the transport has the methods of core.Subscriber", "%T has not", transport)
			}
		}
	}},
	{rule: "C1", title: "an address is canonical", modes: inHighest, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		address, err := transport.Address(queue)
		if err != nil {
			t.stop("Address takes a queue's name", "%v", err)
		}
		second, err := transport.Address(address)
		if err != nil || second != address {
			t.fail(fmt.Sprintf("the address of an address is itself, %q", address), "%q, %v", second, err)
		}
		if other, err := t.open().Address(queue); err != nil || other != address {
			t.fail(fmt.Sprintf("another instance has the same address, %q", address), "%q, %v", other, err)
		}
		if _, err := transport.Address(""); err == nil {
			t.fail("Address refuses an empty name", "nil")
		}
		t.send(transport, t.message(address, "by address"))
		r := t.receiver(transport, address, 1)
		d := r.next()
		t.complete(d)
		t.wantLeft(queue, "after the messages for the address were received")
	}},
	{rule: "C1", title: "a reply arrives at the address that the transport returned", run: func(t *caseT) {
		transport := t.open()
		asking := t.service(transport, nil)
		answering := t.service(t.open(), nil)
		answers := t.blockingHandler()
		answers.releaseAll()
		asking.handle("answer", answers.handle)
		answering.handle("question", func(_ context.Context, m *core.Message) error {
			return m.Reply(answerType.Of(append([]byte("re "), m.RawBody()...)))
		})
		asking.run()
		answering.run()
		var expected []core.Outgoing
		for i := range 3 {
			body := fmt.Appendf(nil, "question %d", i)
			ctx, cancel := t.withTimeout()
			err := asking.Send(ctx, answering.queue, questionType.Of(body))
			cancel()
			if err != nil {
				t.stop("Endpoint.Send sends to a queue", "%v", err)
			}
			expected = append(expected, t.message(asking.queue, "re "+string(body)))
		}
		t.awaitCount("replies to 3 questions", 3, answers.messages)
		asking.end()
		answering.end()
		t.wantOnce(expected, answers)
		for _, queue := range []string{asking.queue, answering.queue, asking.errorQueue, answering.errorQueue} {
			t.wantLeft(queue, "after all questions were answered")
		}
	}},
	{rule: "C1", title: "a transport claims Browse and Take exactly if it has their methods", modes: inHighest, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		ctx, cancel := t.withTimeout()
		defer cancel()
		for _, c := range []struct {
			name    string
			claimed bool
			call    func() error
		}{
			{"Browse", t.caps.Browse, func() error {
				browser, ok := transport.(queues.Browser)
				if !ok {
					return errors.ErrUnsupported
				}
				_, err := browser.Browse(ctx, queues.Request{Queue: queue, Limit: 1})
				return err
			}},
			{"Take", t.caps.Take, func() error {
				taker, ok := transport.(queues.Taker)
				if !ok {
					return errors.ErrUnsupported
				}
				_, err := taker.Take(ctx, queue, nil)
				return err
			}},
		} {
			switch err := c.call(); {
			case c.claimed && err != nil:
				t.fail(fmt.Sprintf("a transport that claims %s has a method %s, which returns nil", c.name, c.name), "%v", err)
			case !c.claimed && !errors.Is(err, errors.ErrUnsupported):
				t.fail(fmt.Sprintf("a transport that does not claim %s has no method %s, or one that returns errors.ErrUnsupported", c.name, c.name), "%v", err)
			}
		}
	}},
	{rule: "C1", title: "Postpone is refused without GroupOrder", modes: withRedelivery, needs: []need{noGroupOrder}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		t.send(transport, t.groupMessage(queue, "one", "first"))
		t.notPostponed(t.receiver(transport, queue, 1))
		t.wantLeft(queue, "after it was completed")
	}},
}

// unclaimedSends: messages have an option that the transport does not claim.
var unclaimedSends = need{"DelayedDelivery, TimeToBeReceived and PublishSubscribe are all claimed", func(s *suite) bool {
	return !s.caps.DelayedDelivery || !s.caps.TimeToBeReceived || !s.caps.PublishSubscribe
}}

// method is a method of a delivery.
type method struct {
	name string
	call func(d core.Delivery) error
}

// unclaimedMethods returns the methods that the case's deliveries must refuse: those of
// unclaimed capabilities, and those of other modes. Messages given to CompleteWith and
// ReplaceWith go to the queue out.
func (t *caseT) unclaimedMethods(out string) (list []method) {
	add := func(name string, call func(d core.Delivery, ctx context.Context) error) {
		list = append(list, method{name, func(d core.Delivery) error {
			ctx, cancel := t.withTimeout()
			defer cancel()
			return call(d, ctx)
		}})
	}
	if t.mode != core.TransactionSendsAtomicWithReceive {
		for _, s := range []atomicSettle{completeWith, replaceWith} {
			add(s.name, func(d core.Delivery, ctx context.Context) error {
				return s.call(d, ctx, []core.Outgoing{t.message(out, "sent by "+s.name)})
			})
		}
		add("Reset", core.Delivery.Reset)
	}
	if t.mode != core.TransactionSendsAtomicWithReceive || !t.caps.Savepoints {
		add("Savepoint", func(d core.Delivery, ctx context.Context) error {
			_, err := d.Savepoint(ctx)
			return err
		})
	}
	if !t.caps.DeadLetter {
		add("DeadLetter", func(d core.Delivery, ctx context.Context) error {
			return d.DeadLetter(ctx, core.DeadLetter{Reason: "tried", Description: "by the conformance suite"})
		})
	}
	add("Renew of a lock that does not end", func(d core.Delivery, ctx context.Context) error {
		if !d.LockedUntil().IsZero() {
			return errors.ErrUnsupported // this lock ends, so Renew has to work
		}
		return d.Renew(ctx)
	})
	return list
}
