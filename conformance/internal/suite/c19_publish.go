package suite

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/reprise-go/reprise/core"
)

var publishCases = []testCase{
	{rule: "C19", title: "an event reaches each subscribed queue once", modes: inHighest, needs: []need{publishing}, run: func(t *caseT) {
		transport := t.open()
		first, second, third := t.queue(transport), t.queue(transport), t.queue(transport)
		event := t.event("event")
		t.subscribe(transport, first, event.Topic)
		t.subscribe(transport, second, event.Topic)
		t.send(transport, event)
		t.wantLeft(first, "a subscribed queue", "event")
		t.wantLeft(second, "another subscribed queue", "event")
		t.wantLeft(third, "a queue that did not subscribe")
	}},
	{rule: "C19", title: "an event arrives as it was published", modes: inHighest, needs: []need{publishing}, run: func(t *caseT) {
		transport := t.open()
		first, second := t.queue(transport), t.queue(transport)
		event := t.event("event \x00\xff")
		event.Headers.Set("Empty", "")
		t.subscribe(transport, first, event.Topic)
		t.subscribe(transport, second, event.Topic)
		t.send(transport, event)
		natives := map[string]bool{}
		for _, queue := range []string{first, second} {
			r := t.receiver(transport, queue, 1)
			d := r.next()
			in := d.Incoming()
			t.wantSame(in, event)
			if in.DeliveryCount != 1 {
				t.fail("each copy of an event is delivered for the first time, with DeliveryCount 1", "%d", in.DeliveryCount)
			}
			natives[in.NativeID] = true
			t.complete(d)
			r.close()
			t.wantLeft(queue, "after the event was completed")
		}
		if len(natives) != 2 || natives[""] {
			t.fail("the copies of an event are messages of their own, with different NativeIDs", "the NativeIDs of two copies are %s", sample(slices.Sorted(maps.Keys(natives))))
		}
	}},
	{rule: "C19", title: "an event that is completed in one queue stays in the others", modes: inHighest, needs: []need{publishing}, run: func(t *caseT) {
		transport := t.open()
		first, second := t.queue(transport), t.queue(transport)
		event := t.event("event")
		t.subscribe(transport, first, event.Topic)
		t.subscribe(transport, second, event.Topic)
		t.send(transport, event)
		r := t.receiver(transport, first, 1)
		t.complete(r.next())
		r.close()
		t.wantLeft(first, "after the event was completed there")
		t.wantLeft(second, "after the event was completed in another queue", "event")
	}},
	{rule: "C19", title: "a queue may subscribe to several topics", modes: inHighest, needs: []need{publishing}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		a, b, c, d := t.event("a"), t.event("b"), t.event("c"), t.event("d")
		t.subscribe(transport, queue, a.Topic, b.Topic)
		t.subscribe(transport, queue, c.Topic)
		t.send(transport, a, b, c, d)
		t.wantLeft(queue, "subscribed to a, b and c but not to d", "a", "b", "c")
	}},
	{rule: "C19", title: "an event with base topics reaches the subscribers to each of them once", modes: inHighest, needs: []need{publishing, baseTopics}, run: func(t *caseT) {
		transport := t.open()
		derived, base, all, other := t.queue(transport), t.queue(transport), t.queue(transport), t.queue(transport)
		event := t.event("event")
		event.BaseTopics = []string{t.uniqueName() + ".Changed", t.uniqueName() + ".Event"}
		alone := t.message("", "alone")
		alone.Topic = event.BaseTopics[0]
		t.subscribe(transport, derived, event.Topic)
		t.subscribe(transport, base, event.BaseTopics[1])
		t.subscribe(transport, all, event.Topic, event.BaseTopics[0], event.BaseTopics[1])
		t.subscribe(transport, other, t.uniqueName())
		t.send(t.open(), event, alone, t.message(derived, "command"))
		t.wantLeft(derived, "subscribed to the topic", "event", "command")
		t.wantLeft(base, "subscribed to one base topic", "event")
		t.wantLeft(all, "subscribed to the topic and both base topics", "event", "alone")
		t.wantLeft(other, "subscribed to another topic")
	}},
	{rule: "C19", title: "publishing without subscribers is nil", modes: inHighest, needs: []need{publishing}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		event := t.event("no subscriber")
		t.send(transport, event)
		t.send(transport, t.message(queue, "before"), event, t.message(queue, "after"))
		t.wantLeft(queue, "after an event without subscribers was sent between two commands", "before", "after")
	}},
	{rule: "C19", title: "an event that requires a subscriber is refused without one", modes: inHighest, needs: []need{publishing}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		event := t.event("required")
		event.RequireSubscriber = true
		if err := transport.Send(t.Context(), event); !errors.Is(err, core.ErrNoSubscriber) {
			t.fail("an event that requires a subscriber is refused with ErrNoSubscriber without one", "%v", err)
		}
		t.subscribe(transport, queue, event.Topic)
		t.send(transport, event)
		t.wantLeft(queue, "subscribed between the refused event and another one", "required")
	}},
	{rule: "C19", title: "a topic may be published to before its first subscription", modes: inHighest, needs: []need{publishing}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		event := t.event("too soon")
		t.send(transport, event)
		t.subscribe(transport, queue, event.Topic)
		event.Body = []byte("in time")
		t.send(transport, event)
		t.send(t.open(), event)
		t.wantLeft(queue, "subscribed between the first event and two others", "in time", "in time")
	}},
	{rule: "C19", title: "Unsubscribe ends the subscription of that queue to that topic only", modes: inHighest, needs: []need{publishing}, run: func(t *caseT) {
		transport := t.open()
		leaving, staying := t.queue(transport), t.queue(transport)
		kept, ended := t.event("kept"), t.event("ended")
		t.subscribe(transport, leaving, kept.Topic, ended.Topic)
		t.subscribe(transport, staying, kept.Topic, ended.Topic)
		t.send(transport, kept)
		t.unsubscribe(t.open(), leaving, ended.Topic)
		t.send(transport, kept, ended)
		t.wantLeft(leaving, "after it unsubscribed from one of two topics", "kept", "kept")
		t.wantLeft(staying, "after another queue unsubscribed", "kept", "kept", "ended")
	}},
	{rule: "C19", title: "Unsubscribe keeps events that have arrived, and the queue may subscribe again", modes: withRedelivery, needs: []need{publishing}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		first, second, third := t.event("first"), t.event("second"), t.event("third")
		second.Topic, third.Topic = first.Topic, first.Topic
		t.subscribe(transport, queue, first.Topic)
		t.send(transport, first)
		t.await("the event is in the queue", func() bool { return t.waiting(queue) })
		t.unsubscribe(transport, queue, first.Topic)
		t.send(transport, second)
		t.subscribe(transport, queue, first.Topic)
		t.send(transport, third)
		t.wantLeft(queue, "unsubscribed while the second of three events was published", "first", "third")
	}},
	{rule: "C19", title: "Unsubscribe without a subscription is nil", modes: inHighest, needs: []need{publishing}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		event := t.event("event")
		t.unsubscribe(transport, queue, event.Topic)
		t.subscribe(transport, queue, event.Topic)
		t.unsubscribe(transport, queue, event.Topic, t.uniqueName())
		t.unsubscribe(transport, queue, event.Topic)
		t.send(transport, event)
		t.wantLeft(queue, "after it unsubscribed twice")
	}},
	{rule: "C19", title: "a queue that subscribes twice gets an event once", modes: inHighest, needs: []need{publishing}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		event := t.event("event")
		t.subscribe(transport, queue, event.Topic)
		t.subscribe(transport, queue, event.Topic, event.Topic)
		t.subscribe(t.open(), queue, event.Topic) // another instance of the endpoint
		t.send(transport, event)
		t.wantLeft(queue, "subscribed four times, by two instances", "event")
	}},
	{rule: "C19", title: "eight instances may subscribe concurrently", modes: inHighest, needs: []need{publishing}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		event := t.event("event")
		var all sync.WaitGroup
		for range 8 {
			instance := t.subscriber(t.open())
			t.goInGroup(&all, func() {
				ctx, cancel := t.withTimeout()
				defer cancel()
				if err := instance.Subscribe(ctx, queue, event.Topic); err != nil {
					t.fail("Subscribe returns nil to each of 8 instances that subscribe one queue at once", "%v", err)
				}
			})
		}
		all.Wait()
		t.sleep(t.caps.SubscriptionDelay)
		t.send(transport, event)
		t.wantLeft(queue, "subscribed by 8 instances", "event")
	}},
	{rule: "C19", title: "an event goes to one of the instances that share a queue", modes: inHighest, needs: []need{publishing}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		event := t.event("event")
		t.subscribe(transport, queue, event.Topic)
		t.send(transport, event)
		first := t.receiver(transport, queue, 1)
		d := first.next()
		second := t.receiver(t.open(), queue, 1)
		second.wantSilence("an event is one message in a subscribed queue, however many instances receive from it")
		t.complete(d)
		first.close()
		second.close()
		t.wantLeft(queue, "after the event was completed")
	}},
	{rule: "C19", title: "a subscription outlives the process that created it", modes: inHighest, needs: []need{publishing}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		event := t.event("event")
		t.subscribe(transport, queue, event.Topic)
		t.close(transport)
		t.send(t.open(), event)
		t.wantLeft(queue, "after the transport that subscribed it was closed", "event")
	}},
	{rule: "C19", title: "another process's Unsubscribe and Subscribe are known at once", modes: inHighest, needs: []need{publishing}, run: func(t *caseT) {
		publisher, subscriber := t.open(), t.open()
		queue := t.queue(subscriber)
		first, second, third := t.event("first"), t.event("second"), t.event("third")
		second.Topic, third.Topic = first.Topic, first.Topic
		t.send(publisher, first)
		t.subscribe(subscriber, queue, first.Topic)
		t.send(publisher, second)
		r := t.receiver(subscriber, queue, 1)
		d := r.next()
		t.wantSame(d.Incoming(), second)
		t.complete(d)
		t.unsubscribe(subscriber, queue, first.Topic)
		t.send(publisher, third)
		r.wantSilence("an event that any transport publishes after Unsubscribe does not arrive")
		r.close()
		t.wantLeft(queue, "subscribed and unsubscribed by another process than the one that publishes")
	}},
	{rule: "C19", title: "Subscribe of a queue that does not exist is an error", modes: inHighest, needs: []need{publishing}, run: func(t *caseT) {
		ctx, cancel := t.withTimeout()
		defer cancel()
		err := t.subscriber(t.open()).Subscribe(ctx, t.uniqueName(), t.uniqueName())
		t.wantNoOutage("Subscribe of a queue that does not exist", err)
		if !errors.Is(err, core.ErrQueueNotFound) {
			t.fail("Subscribe of a queue that does not exist returns core.ErrQueueNotFound", "%v", err)
		}
	}},
	{rule: "C19", title: "a subscriber whose queue is deleted stops no event for the others", modes: inHighest, needs: []need{publishing, deletion}, run: func(t *caseT) {
		transport, publisher := t.open(), t.open()
		gone, staying := t.queue(transport), t.queue(transport)
		event := t.event("before")
		t.subscribe(transport, gone, event.Topic)
		t.subscribe(transport, staying, event.Topic)
		t.send(publisher, event) // it may cache the subscribers
		t.suite.h.DeleteQueue(t, gone)
		for _, from := range []core.Transport{publisher, t.open()} {
			event.Body = []byte("after")
			t.publishes(from, event)
			event.Body = []byte("in a list")
			t.publishes(from, event, t.message(staying, "command"), event)
		}
		t.wantLeft(staying, "after the queue of the other subscriber was deleted", "before", "after", "after", "in a list", "in a list", "in a list", "in a list", "command", "command")
		t.suite.h.DeleteQueue(t, staying)
		t.publishes(publisher, event)
		t.publishes(t.open(), event)
	}},
	{rule: "C19", title: "a subscriber whose queue is deleted stops no settlement that publishes", modes: inAtomic, needs: []need{publishing, deletion}, run: func(t *caseT) {
		f := t.atomicFixture()
		transport := t.open()
		gone := t.queue(transport)
		event := t.event("event")
		t.subscribe(transport, gone, event.Topic)
		t.subscribe(transport, f.to, event.Topic)
		t.suite.h.DeleteQueue(t, gone)
		ctx, cancel := t.withTimeout()
		defer cancel()
		if err := f.delivery.CompleteWith(ctx, []core.Outgoing{event, t.message(f.to, "command")}); err != nil {
			t.stop("CompleteWith of an event returns nil, though the queue of one subscriber was deleted: the others get it", "%v", err)
		}
		t.wantQueues(f, "after CompleteWith of an event with a subscriber whose queue was deleted", nil, []string{"event", "command"})
	}},
	{rule: "C19", title: "a topic is no pattern: another topic's events do not arrive", modes: inHighest, needs: []need{publishing}, run: similarTopics},
	{rule: "C19", title: "one Send may have events and commands", modes: inHighest, needs: []need{publishing}, run: func(t *caseT) {
		transport := t.open()
		subscribed, commanded := t.queue(transport), t.queue(transport)
		event := t.event("event")
		t.subscribe(transport, subscribed, event.Topic)
		t.send(transport, t.message(commanded, "one"), event, t.message(subscribed, "two"), t.message(commanded, "three"))
		t.wantLeft(subscribed, "after an event and a command", "event", "two")
		t.wantLeft(commanded, "after two commands", "one", "three")
	}},
	{rule: "C19", title: "a hundred events published concurrently arrive once each", modes: inHighest, needs: []need{publishing}, run: publishConcurrently},
	{rule: "C19", title: "each endpoint handles an event once, with any number of instances", needs: []need{publishing}, run: func(t *caseT) {
		topic := t.uniqueName()
		transport := t.open()
		firstEvents, secondEvents, otherEvents := t.blockingHandler(), t.blockingHandler(), t.blockingHandler()
		first := t.service(transport, nil)
		second := t.serviceOn(t.open(), first.queue, first.errorQueue, nil)
		other := t.service(t.open(), nil)
		for s, events := range map[*service]*blockingHandler{first: firstEvents, second: secondEvents, other: otherEvents} {
			s.handleEvent(topic, events.handle)
			events.releaseAll()
			s.run()
		}
		t.sleep(t.caps.SubscriptionDelay)
		msgs := t.publish(transport, topic, "event", 6)
		t.awaitCount("events handled by an endpoint of two instances", 6, func() int { return firstEvents.messages() + secondEvents.messages() })
		t.awaitCount("events handled by another endpoint", 6, otherEvents.messages)
		t.sleep(t.quietPeriod())
		for _, s := range []*service{first, second, other} {
			s.end()
		}
		t.wantOnce(msgs, firstEvents, secondEvents)
		t.wantOnce(msgs, otherEvents)
		for _, queue := range []string{first.queue, first.errorQueue, other.queue, other.errorQueue} {
			t.wantLeft(queue, "after all was handled")
		}
	}},
	{rule: "C19", title: "an event waits for an endpoint that has no running instance", needs: []need{publishing}, run: func(t *caseT) {
		topic := t.uniqueName()
		transport := t.open()
		firstEvents, secondEvents := t.blockingHandler(), t.blockingHandler()
		firstEvents.releaseAll()
		secondEvents.releaseAll()
		first := t.service(transport, nil)
		second := t.serviceOn(t.open(), first.queue, first.errorQueue, nil)
		first.handleEvent(topic, firstEvents.handle)
		second.handleEvent(topic, secondEvents.handle)
		first.run()
		second.run()
		t.sleep(t.caps.SubscriptionDelay)
		second.end()
		before := t.publish(transport, topic, "early", 2)
		t.awaitCount("events handled by the instance that still runs", 2, firstEvents.messages)
		first.end()
		after := t.publish(transport, topic, "late", 2)
		t.wantSteady("the number of events handled by an endpoint that is stopped", 2, firstEvents.messages)
		second.run()
		t.awaitCount("events that were published while no instance ran, and are handled when one runs again", 2, secondEvents.messages)
		second.end()
		t.wantOnce(append(before, after...), firstEvents, secondEvents)
		t.wantLeft(first.queue, "after all was handled")
	}},
	{rule: "C19", title: "a subscription survives a restart of the broker", modes: inHighest, exclusive: true, needs: []need{brokerControl, durable, publishing}, run: func(t *caseT) {
		broker := t.brokerController()
		transport := t.open()
		queue, topic := t.queue(transport), t.uniqueName()
		ctx, cancel := t.withTimeout()
		defer cancel()
		if err := t.subscriber(transport).Subscribe(ctx, queue, topic); err != nil {
			t.stop("Subscribe subscribes a queue to a topic", "%v", err)
		}
		t.sleep(t.caps.SubscriptionDelay)
		broker.restart()
		event := t.message("", "event")
		event.Topic = topic
		publisher := t.open()
		t.sendEventually(publisher, event)
		if !t.receiver(publisher, queue, 1).collect(t.timeout(), func(in *core.Incoming) bool { return in.ID == event.ID }) {
			t.fail("Durable is claimed, so a queue that was subscribed before a restart of the broker gets the events that are published afterwards", "it does not within %v", t.timeout())
		}
	}},
}

func (t *caseT) unsubscribe(transport core.Transport, queue string, topics ...string) {
	ctx, cancel := t.withTimeout()
	defer cancel()
	if err := t.subscriber(transport).Unsubscribe(ctx, queue, topics...); err != nil {
		t.stop(fmt.Sprintf("Unsubscribe ends the subscription to %q, if there is one", topics), "%v", err)
	}
	t.sleep(t.caps.SubscriptionDelay)
}

// publishes sends events to a topic with a subscriber whose queue was deleted.
func (t *caseT) publishes(transport core.Transport, out ...core.Outgoing) {
	if err := t.trySend(transport, out...); err != nil {
		t.stop("Send of an event returns nil, though the queue of a subscriber was deleted: the others get it, and an error would let the sender repeat it for them", "%v", err)
	}
}

// waiting reports whether a queue has a message that can be received, and leaves it
// there.
func (t *caseT) waiting(queue string) bool {
	transport := t.open()
	defer t.close(transport)
	r := t.receiver(transport, queue, 1)
	defer r.close()
	got := r.takeFor(t.quietPeriod())
	return len(got) > 0
}

// similarTopics publishes to topics that differ little, or that a broker could take for
// patterns. Each topic that can be subscribed to is subscribed to by its own queue.
func similarTopics(t *caseT) {
	transport := t.open()
	base := t.uniqueName() + ".Order"
	// Names of types have these forms, and every transport must carry them.
	plain := []string{base, base + ".Placed", base + "Placed", base + ".Placed.V2", base[:len(base)-1]}
	// Some brokers refuse these topics.
	odd := []string{
		base + ".*", base + ".#", base + "*", base + ".%", base + "%", base + "_Placed", base + "?",
		base + ">", base + " ", base + "Örder ✓", base + "/Placed", base + "[int]", base + "$", base + "\"'", lowered(base),
	}
	subscribed := map[string]string{} // queues by topic
	subscriber := t.subscriber(transport)
	for _, topic := range slices.Concat(plain, odd) {
		queue := t.queue(transport)
		ctx, cancel := t.withTimeout()
		err := subscriber.Subscribe(ctx, queue, topic)
		cancel()
		switch {
		case err == nil:
			subscribed[topic] = queue
		case slices.Contains(plain, topic):
			t.fail(fmt.Sprintf("Subscribe takes the topic %q, the name of a type", topic), "%v", err)
		default:
			t.note("the topic %q cannot be subscribed to: %v", topic, err)
			t.wantNoOutage(fmt.Sprintf("Subscribe of the topic %q, which the transport does not take,", topic), err)
		}
	}
	t.sleep(t.caps.SubscriptionDelay)
	published := map[string]bool{}
	for topic := range subscribed {
		event := t.message("", topic)
		event.Topic = topic
		if err := t.trySend(transport, event); err != nil {
			t.fail(fmt.Sprintf("the topic %q can be published to, as it can be subscribed to", topic), "%v", err)
			continue
		}
		published[topic] = true
	}
	// Each queue is read until no more messages arrive, all at the same time. A failure
	// in one goroutine does not stop the others, and the case ends after them.
	var all sync.WaitGroup
	for topic := range published {
		t.goInGroup(&all, func() { t.wantLeft(subscribed[topic], fmt.Sprintf("subscribed to the topic %q alone", topic), topic) })
	}
	all.Wait()
}

// lowered returns a name that differs only in its case.
func lowered(name string) string {
	i := slices.Index([]byte(name), 'O')
	return name[:i] + "o" + name[i+1:]
}

func publishConcurrently(t *caseT) {
	const n = 100
	transports := []core.Transport{t.open(), t.open()}
	first, second := t.queue(transports[0]), t.queue(transports[0])
	topic := t.event("").Topic
	t.subscribe(transports[0], first, topic)
	t.subscribe(transports[0], second, topic)
	events := t.messages("", n)
	want := make([]string, n)
	slots := make(chan struct{}, 16)
	var all sync.WaitGroup
	for i := range events {
		events[i].Topic = topic
		want[i] = string(events[i].Body)
		slots <- struct{}{}
		t.goInGroup(&all, func() {
			defer func() { <-slots }()
			if err := t.trySend(transports[i%len(transports)], events[i]); err != nil {
				t.fail("events are published concurrently", "%v", err)
			}
		})
	}
	all.Wait()
	t.wantLeft(first, "after 100 events", want...)
	t.wantLeft(second, "after 100 events", slices.Clone(want)...)
}

// publish publishes n events through a send-only endpoint.
func (t *caseT) publish(transport core.Transport, topic, name string, n int) []core.Outgoing {
	ep, err := core.New(t.uniqueName(), transport, core.Config{SendOnly: true})
	if err != nil {
		t.stop("core.New makes a send-only endpoint", "%v", err)
	}
	ctx, cancel := t.withTimeout()
	defer cancel()
	var sent []core.Outgoing
	for i := range n {
		body := fmt.Sprintf("%s %d", name, i)
		if err := ep.Publish(ctx, core.NewEvent[[]byte](topic).Of([]byte(body))); err != nil {
			t.stop("Endpoint.Publish publishes", "%v", err)
		}
		sent = append(sent, core.Outgoing{ID: t.id(), Topic: topic, Body: []byte(body)})
	}
	return sent
}
