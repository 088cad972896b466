package bridge_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise/bridge"
	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/core/messagekit"
	"github.com/reprise-go/reprise/transport/inmemory"
)

const (
	orderPlaced = "shop.OrderPlaced"
	orderPaid   = "shop.OrderPaid"
)

// A message is on the other side what it was on this one: only its reply address is that of
// the other side, and it tells which bridges it has crossed.
func TestCarry_KeepsTheMessage(t *testing.T) {
	bubble(t, inmemory.Config{}, inmemory.Config{}, func(b *bed) {
		c := b.config(bridge.Side{Queues: []string{"shop"}, Topics: []string{orderPlaced}}, bridge.Side{Queues: []string{"billing"}})
		carrier := b.bridge("b", c)
		shop, billing := b.endpoint("shop", b.near, core.Config{}), b.endpoint("billing", b.far, core.Config{})
		var commands, events received
		core.HandleDefault(shop, (&received{}).add)
		core.Handle(billing, writeType, commands.handle)
		core.HandleEvent(billing, orderPlacedEvent, events.handle)
		b.run(append(carrier.Endpoints(), shop, billing)...)

		options := core.SendOptions{
			ID: "m1", ConversationID: "talk", CorrelationID: "order 1", GroupKey: "g", Properties: map[string]string{"p": "1"},
			Headers: map[string]string{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "Tenant": "é"},
		}
		b.noError(shop.Send(b.Context(), "billing", writeType.Of([]byte("write")).With(options)))
		options.ID = "m2"
		b.noError(shop.Publish(b.Context(), orderPlacedEvent.Of([]byte("placed")).With(options)))
		b.pass(time.Second)
		for id, got := range map[string]*received{"m1": &commands, "m2": &events} {
			if len(got.messages()) != 1 {
				b.Fatalf("%d messages of %s have arrived, want 1", len(got.messages()), id)
			}
			m := got.messages()[0]
			body := map[string]string{"m1": "write", "m2": "placed"}[id]
			if m.ID != id || string(m.RawBody()) != body || m.GroupKey() != "g" || messagekit.Copy(m).Properties["p"] != "1" {
				b.Errorf("%s arrived as %q, %q, group %q, properties %v", id, m.ID, m.RawBody(), m.GroupKey(), messagekit.Copy(m).Properties)
			}
			if _, known := messagekit.SentID(m); !known {
				b.Errorf("%s has an id that seems to be generated", id)
			}
			for key, want := range map[string]string{
				headers.MessageID: id, headers.ConversationID: "talk", headers.CorrelationID: "order 1",
				headers.ReplyToAddress: "shop@far", headers.OriginatingEndpoint: "shop", "Tenant": "é",
				"traceparent": options.Headers["traceparent"], "Reprise.Bridge.Hops": "b",
			} {
				if m.Headers.Get(key) != want {
					b.Errorf("%s: header %s is %q, want %q", id, key, m.Headers.Get(key), want)
				}
			}
		}
	})
}

// All headers but the two arrive as they were sent.
func TestCarry_ChangesNoOtherHeader(t *testing.T) {
	bubble(t, inmemory.Config{}, inmemory.Config{}, func(b *bed) {
		carrier := b.bridge("b", b.config(bridge.Side{}, bridge.Side{Queues: []string{"billing"}}))
		b.far.queues("billing")
		b.run(carrier.Endpoints()...)
		want := map[string]string{"A": "", "ü": "\x00", headers.MessageID: "m1", headers.RelatedTo: "m0", headers.TimeSent: headers.FormatTime(time.Now())}
		b.near.must(core.Outgoing{ID: "m1", Queue: "billing", Headers: core.HeadersFromMap(want), Body: []byte{0, 255}})
		b.pass(time.Second)
		got := b.far.onlyMessage("billing")
		want["Reprise.Bridge.Hops"] = "b"
		if !maps.Equal(got.Headers.Map(), want) {
			b.Errorf("headers are %q, want %q", got.Headers.Map(), want)
		}
		if string(got.Body) != "\x00\xff" {
			b.Errorf("the body is %q", got.Body)
		}
	})
}

// An id that the near adapter generated is not taken for one that the sender gave.
func TestCarry_GeneratedIDStaysOne(t *testing.T) {
	bubble(t, inmemory.Config{}, inmemory.Config{}, func(b *bed) {
		carrier := b.bridge("b", b.config(bridge.Side{}, bridge.Side{Queues: []string{"billing"}}))
		var got received
		billing := b.endpoint("billing", b.far, core.Config{})
		core.HandleDefault(billing, got.add)
		b.run(append(carrier.Endpoints(), billing)...)
		b.near.must(core.Outgoing{ID: "1", Queue: "billing", Headers: core.HeadersFromMap(map[string]string{headers.MessageTypes: "x", headers.GeneratedID: "True"})})
		b.pass(time.Second)
		if id, known := messagekit.SentID(got.messages()[0]); known {
			b.Errorf("the id %q seems to be the sender's, who gave none", id)
		}
	})
}

// A control message without a type is carried too: the engine would consume it.
func TestCarry_ControlMessage(t *testing.T) {
	bubble(t, inmemory.Config{}, inmemory.Config{}, func(b *bed) {
		carrier := b.bridge("b", b.config(bridge.Side{}, bridge.Side{Queues: []string{"control"}}))
		b.far.queues("control")
		b.run(carrier.Endpoints()...)
		b.near.must(core.Outgoing{ID: "m1", Queue: "control", Headers: core.HeadersFromMap(map[string]string{headers.MessageID: "m1", headers.ControlMessage: "True"})})
		b.pass(time.Second)
		if got := b.far.onlyMessage("control"); got.ID != "m1" {
			b.Errorf("%q arrived", got.ID)
		}
	})
}

// A delayed message arrives when it is due, and its header says so.
func TestCarry_DueTime(t *testing.T) {
	bubble(t, inmemory.Config{}, inmemory.Config{}, func(b *bed) {
		c := b.config(bridge.Side{Topics: []string{orderPlaced}}, bridge.Side{Queues: []string{"billing"}})
		carrier := b.bridge("b", c)
		shop, billing := b.endpoint("shop", b.near, core.Config{SendOnly: true}), b.endpoint("billing", b.far, core.Config{})
		var got received
		core.HandleEvent(billing, orderPlacedEvent, got.handle)
		core.HandleDefault(billing, got.add)
		b.run(append(carrier.Endpoints(), billing)...)
		due := time.Now().Add(time.Hour)
		b.noError(shop.Send(b.Context(), "billing", xType.Of(nil).With(core.SendOptions{DeliverAt: due})))
		b.noError(shop.Publish(b.Context(), orderPlacedEvent.Of(nil).With(core.SendOptions{DeliverAt: due})))
		b.pass(time.Hour - time.Millisecond)
		if n := len(got.messages()); n != 0 {
			b.Errorf("%d messages arrived early", n)
		}
		b.pass(time.Second)
		if n := len(got.messages()); n != 2 {
			b.Fatalf("%d messages arrived when they were due, want 2", n)
		}
		for _, m := range got.messages() {
			if at := m.Headers.Get(headers.DeliverAt); at != headers.FormatTime(due) {
				b.Errorf("the header says %s", at)
			}
		}
	})
}

// A program that writes the header alone has the delay of the other side or, where that has
// none, of this one.
func TestCarry_DueTimeInTheHeaderAlone(t *testing.T) {
	noDelays := able(func(c *core.Capabilities) { c.DelayedDelivery = false })
	shortDelays := able(func(c *core.Capabilities) { c.MaxDelay = time.Minute })
	tests := map[string]struct {
		near, far inmemory.Config
		delayed   time.Duration // by the other side
	}{
		"the other side waits":         {noDelays, inmemory.Config{}, time.Hour},
		"this side waits with a copy":  {inmemory.Config{}, noDelays, 0},
		"this side waits":              {noDelays, noDelays, 0},
		"longer than the longest time": {inmemory.Config{}, shortDelays, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			bubble(t, tt.near, tt.far, func(b *bed) {
				carrier := b.bridge("b", b.config(bridge.Side{}, bridge.Side{Queues: []string{"billing"}}))
				b.far.queues("billing")
				b.run(carrier.Endpoints()...)
				h := map[string]string{headers.MessageID: "m1", headers.DeliverAt: headers.FormatTime(time.Now().Add(time.Hour))}
				b.near.must(core.Outgoing{ID: "m1", Queue: "billing", Headers: core.HeadersFromMap(h)})
				b.pass(time.Hour - time.Millisecond)
				if depth, err := b.far.memory().Depth(b.Context(), "billing"); err != nil || depth.Ready != 0 {
					b.Errorf("it is there early: %+v, %v", depth, err)
				}
				b.pass(time.Second)
				if n := len(b.far.peek("billing")); n != 1 {
					b.Errorf("%d messages when it is due, want 1", n)
				}
				if out := b.far.carried()[0]; out.Delay != tt.delayed {
					b.Errorf("the other side delays it by %v, want %v", out.Delay, tt.delayed)
				}
			})
		})
	}
}

// A message that waits on this side until it is due lets the others pass.
func TestCarry_MessageThatIsNotDueBlocksNoOther(t *testing.T) {
	noDelays := able(func(c *core.Capabilities) { c.DelayedDelivery = false })
	bubble(t, inmemory.Config{}, noDelays, func(b *bed) {
		carrier := b.bridge("b", b.config(bridge.Side{}, bridge.Side{Queues: []string{"billing"}}))
		b.far.queues("billing")
		b.run(carrier.Endpoints()...)
		deferred := map[string]string{headers.MessageID: "early", headers.DeliverAt: headers.FormatTime(time.Now().Add(time.Hour))}
		b.near.must(core.Outgoing{ID: "early", Queue: "billing", Headers: core.HeadersFromMap(deferred)})
		b.pass(time.Second)
		b.near.must(core.Outgoing{ID: "other", Queue: "billing", Headers: core.HeadersFromMap(map[string]string{headers.MessageID: "other"})})
		b.pass(time.Millisecond)
		if got := b.far.onlyMessage("billing"); got.ID != "other" {
			b.Errorf("%q passed", got.ID)
		}
	})
}

// The remaining time to be received is that on the other side. The header alone, as on a message
// that an operator has returned from an error queue, limits nothing.
func TestCarry_TimeToBeReceived(t *testing.T) {
	bubble(t, inmemory.Config{}, inmemory.Config{}, func(b *bed) {
		carrier := b.bridge("b", b.config(bridge.Side{}, bridge.Side{Queues: []string{"billing"}}))
		b.far.queues("billing")
		b.noError(carrier.Provision(b.Context()))
		shop := b.endpoint("shop", b.near, core.Config{SendOnly: true})
		b.noError(shop.Send(b.Context(), "billing", xType.Of(nil).With(core.SendOptions{ID: "alive", TimeToBeReceived: time.Minute})))
		h := map[string]string{headers.MessageID: "returned", headers.TimeToBeReceived: "00:00:10", headers.TimeSent: headers.FormatTime(time.Now())}
		b.near.must(core.Outgoing{ID: "returned", Queue: "billing", Headers: core.HeadersFromMap(h)})
		b.pass(20 * time.Second)
		b.run(carrier.Endpoints()...)
		b.pass(time.Second)
		carried := b.far.carried()
		got := map[string]string{}
		for _, out := range carried {
			got[out.ID] = fmt.Sprint(out.TimeToBeReceived.Round(time.Second), " of ", out.Headers.Get(headers.TimeToBeReceived))
		}
		if want := map[string]string{"alive": "40s of 00:01:00", "returned": "0s of 00:00:10"}; !maps.Equal(got, want) {
			b.Errorf("carried %v, want %v", got, want)
		}
		b.pass(time.Minute)
		if left := b.far.onlyMessage("billing"); left.ID != "returned" {
			b.Errorf("%q is there after its time", left.ID)
		}
	})
}

// What a handler on the other side replies comes back to the endpoint that asked, wherever
// its queue has the bridge's help.
func TestCarry_Replies(t *testing.T) {
	bubble(t, inmemory.Config{}, inmemory.Config{}, func(b *bed) {
		carrier := b.bridge("b", b.config(bridge.Side{Queues: []string{"shop"}}, bridge.Side{Queues: []string{"billing"}}))
		shop, stock := b.endpoint("shop", b.near, core.Config{}), b.endpoint("stock", b.near, core.Config{SendOnly: true})
		billing := b.endpoint("billing", b.far, core.Config{})
		var replies received
		var unknown error
		core.Handle(shop, doneType, replies.handle)
		core.Handle(billing, writeType, func(_ context.Context, m *core.Message, _ []byte) error {
			err := m.Reply(doneType.Of(nil))
			if m.ID == "m2" {
				unknown = err
				if got := m.Headers.Get(bridge.HeaderReplyToAddress); got != "warehouse" {
					t.Errorf("the address on the other side is %q, want warehouse", got)
				}
				return nil
			}
			return err
		})
		b.run(append(carrier.Endpoints(), shop, billing)...)
		b.noError(shop.Send(b.Context(), "billing", writeType.Of(nil).With(core.SendOptions{ID: "m1"})))
		b.noError(stock.Send(b.Context(), "billing", writeType.Of(nil).With(core.SendOptions{ID: "m2", ReplyTo: "warehouse"})))
		b.pass(time.Second)
		if all := replies.messages(); len(all) != 1 || all[0].Headers.Get(headers.CorrelationID) != "m1" || all[0].Headers.Get(headers.ReplyToAddress) != "billing" {
			b.Errorf("%d replies", len(all))
		}
		if fmt.Sprint(unknown) == "<nil>" {
			b.Error("a reply to a queue that is not bridged was sent to a queue of the wrong side")
		}
	})
}

// A failed message in an error queue of the other side can be returned from here.
func TestCarry_ErrorQueue(t *testing.T) {
	bubble(t, inmemory.Config{}, inmemory.Config{}, func(b *bed) {
		c := b.config(bridge.Side{Queues: []string{"error", "shop"}}, bridge.Side{Queues: []string{"billing"}})
		c.Endpoint.Recoverability.ErrorQueue = "b.error"
		carrier := b.bridge("b", c)
		shop := b.endpoint("shop", b.near, core.Config{})
		core.HandleDefault(shop, (&received{}).add)
		billing := b.endpoint("billing", b.far, core.Config{})
		attempts := 0
		core.Handle(billing, writeType, func(_ context.Context, m *core.Message, _ []byte) error {
			if attempts++; attempts == 1 {
				return core.GiveUp(errUnreachable)
			}
			if at := m.Headers.Get(headers.ReplyToAddress); at != "shop@far" {
				b.Errorf("the reply address is %q in the end", at)
			}
			return nil
		})
		b.run(append(carrier.Endpoints(), shop, billing)...)
		b.noError(shop.Send(b.Context(), "billing", writeType.Of([]byte("write")).With(core.SendOptions{ID: "m1"})))
		b.pass(time.Second)
		failed := b.near.onlyMessage("error")
		for key, want := range map[string]string{
			headers.FailedQ: "billing", headers.ExceptionMessage: errUnreachable.Error(), headers.ReplyToAddress: "shop", "Reprise.Bridge.Hops": "b",
		} {
			if got := failed.Headers.Get(key); got != want {
				b.Errorf("header %s is %q, want %q", key, got, want)
			}
		}
		if failed.Headers.Get(headers.Attempts) == "" {
			b.Error("the error queue does not tell of the attempts")
		}
		b.near.must(core.Outgoing{ID: failed.ID, Queue: failed.Headers.Get(headers.FailedQ), Headers: failed.Headers, Body: failed.Body})
		b.pass(time.Second)
		if attempts != 2 {
			b.Errorf("%d attempts, want one more after the return", attempts)
		}
	})
}

// An event that is published on both sides is on each side once.
func TestLoop_EventOfBothSides(t *testing.T) {
	bubble(t, inmemory.Config{}, inmemory.Config{}, func(b *bed) {
		c := b.config(bridge.Side{Topics: []string{orderPlaced}}, bridge.Side{Topics: []string{orderPlaced}})
		carrier := b.bridge("b", c)
		var near, far received
		left, right := b.endpoint("left", b.near, core.Config{}), b.endpoint("right", b.far, core.Config{})
		core.HandleEvent(left, orderPlacedEvent, near.handle)
		core.HandleEvent(right, orderPlacedEvent, far.handle)
		b.run(append(carrier.Endpoints(), left, right)...)
		b.noError(left.Publish(b.Context(), orderPlacedEvent.Of(nil).With(core.SendOptions{ID: "m1"})))
		b.noError(right.Publish(b.Context(), orderPlacedEvent.Of(nil).With(core.SendOptions{ID: "m2"})))
		b.pass(time.Minute)
		for side, got := range map[string]*received{"near": &near, "far": &far} {
			if ids := fmt.Sprint(got.ids()); ids != "[m1 m2]" {
				b.Errorf("events on the %s side: %s, want each once", side, ids)
			}
		}
	})
}

// Bridges in a ring carry an event around once.
func TestLoop_EventInARing(t *testing.T) {
	bubble(t, inmemory.Config{}, inmemory.Config{}, func(b *bed) {
		third := newSide(b.T, inmemory.Config{})
		sides := []*side{b.near, b.far, third}
		var endpoints []*core.Endpoint
		var got [3]received
		for i, s := range sides {
			c := bridge.Config{
				Near: bridge.Side{Transport: s, Topics: []string{orderPlaced}}, Far: bridge.Side{Transport: sides[(i+1)%3]},
				Endpoint: core.Config{Logger: b.log.logger()},
			}
			endpoints = append(endpoints, b.bridge(fmt.Sprint("ring ", i), c).Endpoints()...)
			ep := b.endpoint("subscriber", s, core.Config{})
			core.HandleEvent(ep, orderPlacedEvent, got[i].handle)
			endpoints = append(endpoints, ep)
		}
		b.run(endpoints...)
		shop := b.endpoint("shop", b.near, core.Config{SendOnly: true})
		b.noError(shop.Publish(b.Context(), orderPlacedEvent.Of(nil).With(core.SendOptions{ID: "m1"})))
		b.pass(time.Minute)
		// On the first side it arrives as published and, with the same id, from the ring.
		if ids := fmt.Sprint(got[0].ids(), got[1].ids(), got[2].ids()); ids != "[m1 m1] [m1] [m1]" {
			b.Errorf("events on the three sides: %s", ids)
		}
	})
}

// Any sender can write the headers of a failed message. An event with them went round a ring
// of two bridges for ever.
func TestLoop_ForgedFailureOfAnEvent(t *testing.T) {
	bubble(t, inmemory.Config{}, inmemory.Config{}, func(b *bed) {
		b.limitSends()
		left, near, far := b.runEventRing()
		for id, forged := range forgedFailures("left") {
			b.noError(left.Publish(b.Context(), orderPlacedEvent.Of(nil).With(core.SendOptions{ID: id, Headers: forged})))
			b.pass(time.Minute)
			// On the near side it arrives as published and, with the same id, from the ring.
			if n, m := near.count(id), far.count(id); n != 2 || m != 1 {
				b.Errorf("%s: the event arrived %d times on its side and %d times on the other one, want 2 and 1", id, n, m)
			}
		}
	})
}

// runEventRing runs two bridges that carry an event in a ring, and an endpoint on each side
// that handles it. It returns the endpoint of the near side.
func (b *bed) runEventRing() (left *core.Endpoint, near, far *received) {
	topics := bridge.Side{Topics: []string{orderPlaced}}
	one, two := b.bridge("one", b.config(topics, bridge.Side{})), b.bridge("two", b.config(bridge.Side{}, topics))
	near, far = &received{}, &received{}
	left = b.endpoint("left", b.near, core.Config{})
	right := b.endpoint("right", b.far, core.Config{})
	core.HandleEvent(left, orderPlacedEvent, near.handle)
	core.HandleEvent(right, orderPlacedEvent, far.handle)
	b.run(slices.Concat(one.Endpoints(), two.Endpoints(), []*core.Endpoint{left, right})...)
	return left, near, far
}

// limitSends refuses the bridges' sends after the first 100 of each side, so that a message
// that goes round for ever fails a test.
func (b *bed) limitSends() {
	for _, s := range []*side{b.near, b.far} {
		s.fail(func(core.Outgoing) error {
			if s.sendTries() > 100 {
				return core.ErrTooLarge
			}
			return nil
		})
	}
}

// forgedFailures has the headers of failed messages, as a sender may write them.
func forgedFailures(queue string) map[string]map[string]string {
	failedAt := headers.FormatTime(time.Now())
	return map[string]map[string]string{
		"a queue":             {headers.FailedQ: queue},
		"a queue and a time":  {headers.FailedQ: queue, headers.TimeOfFailure: failedAt},
		"no time":             {headers.FailedQ: queue, headers.TimeOfFailure: "now"},
		"another list before": {headers.FailedQ: queue, headers.TimeOfFailure: failedAt, "Reprise.Bridge.HopsSince": "then"},
	}
}

func TestLoop_ForgedFailureInAQueueBetweenTwoBridges(t *testing.T) {
	bubble(t, inmemory.Config{}, inmemory.Config{}, func(b *bed) {
		one := b.bridge("one", b.config(bridge.Side{}, bridge.Side{Queues: []string{"billing"}}))
		two := b.bridge("two", b.config(bridge.Side{Queues: []string{"billing"}}, bridge.Side{}))
		b.limitSends()
		b.run(append(one.Endpoints(), two.Endpoints()...)...)
		for id, forged := range forgedFailures("billing") {
			before := b.near.sendTries() + b.far.sendTries()
			forged[headers.MessageID] = id
			b.near.must(core.Outgoing{ID: id, Queue: "billing", Headers: core.HeadersFromMap(forged)})
			b.pass(time.Minute)
			if n := b.near.sendTries() + b.far.sendTries() - before; n != 16 {
				b.Errorf("%s: it was carried %d times, want 16", id, n)
			}
		}
		for _, failed := range b.near.peek("error") {
			if text := failed.Headers.Get(headers.ExceptionMessage); !strings.Contains(text, "goes in circles") {
				b.Errorf("the reason is %q", text)
			}
		}
	})
}

// A message that fails and is returned crosses as often as it is returned.
func TestLoop_ReturnsDoNotCount(t *testing.T) {
	bubble(t, inmemory.Config{}, inmemory.Config{}, func(b *bed) {
		c := b.config(bridge.Side{Queues: []string{"error"}}, bridge.Side{Queues: []string{"billing"}})
		c.Endpoint.Recoverability.ErrorQueue = "b.error"
		carrier := b.bridge("b", c)
		billing := b.endpoint("billing", b.far, core.Config{})
		attempts := 0
		b.near.queues("error")
		core.Handle(billing, writeType, func(context.Context, *core.Message, []byte) error {
			attempts++
			return core.GiveUp(errUnreachable)
		})
		b.run(append(carrier.Endpoints(), billing)...)
		shop := b.endpoint("shop", b.near, core.Config{SendOnly: true})
		b.noError(shop.Send(b.Context(), "billing", writeType.Of([]byte("write")).With(core.SendOptions{ID: "m1"})))
		for n := range 40 { // 80 hops
			b.pass(time.Second)
			if attempts != n+1 {
				b.Fatalf("%d attempts after %d returns", attempts, n)
			}
			failed := b.near.onlyMessage("error")
			_, err := b.near.memory().Purge(b.Context(), "error")
			b.noError(err)
			b.near.must(core.Outgoing{ID: failed.ID, Queue: failed.Headers.Get(headers.FailedQ), Headers: failed.Headers, Body: failed.Body})
		}
		b.pass(time.Second)
		b.near.onlyMessage("error")
	})
}

// A bridge could not publish an event in a ring, and its operator returns the event.
func TestLoop_ReturnedEventIsNotCarriedBack(t *testing.T) {
	bubble(t, inmemory.Config{}, inmemory.Config{}, func(b *bed) {
		left, near, far := b.runEventRing()
		b.near.fail(func(core.Outgoing) error { return core.ErrTooLarge })
		b.noError(left.Publish(b.Context(), orderPlacedEvent.Of(nil).With(core.SendOptions{ID: "m1"})))
		b.pass(time.Minute)
		b.near.reachable()
		failed := b.far.onlyMessage("error")
		b.far.must(core.Outgoing{ID: failed.ID, Queue: b.far.name(failed.Headers.Get(headers.FailedQ)), Headers: failed.Headers, Body: failed.Body})
		b.pass(time.Minute)
		if n, m := near.count("m1"), far.count("m1"); n != 2 || m != 1 {
			b.Errorf("the event arrived %d times on its side and %d times on the other one, want 2 and 1", n, m)
		}
	})
}

// Two bridges that send a queue to each other are noticed.
func TestLoop_QueueBetweenTwoBridges(t *testing.T) {
	bubble(t, inmemory.Config{}, inmemory.Config{}, func(b *bed) {
		one := b.bridge("one", b.config(bridge.Side{}, bridge.Side{Queues: []string{"billing"}}))
		two := b.bridge("two", b.config(bridge.Side{Queues: []string{"billing"}}, bridge.Side{}))
		b.run(append(one.Endpoints(), two.Endpoints()...)...)
		b.near.must(core.Outgoing{ID: "m1", Queue: "billing", Headers: core.HeadersFromMap(map[string]string{headers.MessageID: "m1"})})
		b.pass(time.Minute)
		if n := b.near.sendTries() + b.far.sendTries(); n != 16 {
			b.Errorf("it was carried %d times, want 16", n)
		}
		failed := b.near.onlyMessage("error")
		if text := failed.Headers.Get(headers.ExceptionMessage); text != `bridge "one": message goes in circles between bridges: it has crossed 16 of them (one, two); to fix: let each queue be bridged in one direction alone` {
			b.Errorf("the reason is %q", text)
		}
	})
}
