package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise/bridge"
	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/inbox"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// publish publishes n events with ids.
func (b *bed) publish(topic string, n int) (ids []string) {
	b.Helper()
	shop := b.endpoint("shop", b.near, core.Config{SendOnly: true})
	for i := range n {
		id := fmt.Sprintf("%s %04d", topic, i)
		ids = append(ids, id)
		b.noError(shop.Publish(b.Context(), core.NewEvent[[]byte](topic).Of(nil).With(core.SendOptions{ID: id})))
	}
	return ids
}

// sides are the ways in which brokers of the near side count deliveries.
var sides = map[string]inmemory.Config{
	"everything":               {},
	"each delivery is counted": able(func(c *core.Capabilities) { c.CountsReleases = true }),
	"no delayed delivery":      able(func(c *core.Capabilities) { c.DelayedDelivery = false }),
	"sends atomic with receive": able(func(c *core.Capabilities) {
		c.Transactions = []core.TransactionMode{core.TransactionSendsAtomicWithReceive}
	}),
}

// In an outage of the other side of 34 s 916 messages of a hand-written bridge had 10,621
// failed attempts and as many log lines.
func TestOutage_CostsNoAttempts(t *testing.T) {
	lists := map[string]struct{ topics, queues []string }{
		"one topic":      {[]string{orderPlaced}, nil},
		"several topics": {[]string{orderPlaced, orderPaid, "shop.Idle"}, nil},
		"a queue":        {nil, []string{orderPlaced}},
	}
	for name, near := range sides {
		for list, to := range lists {
			t.Run(name+", "+list, func(t *testing.T) {
				bubble(t, near, inmemory.Config{}, func(b *bed) {
					c := b.config(bridge.Side{Topics: to.topics}, bridge.Side{Queues: to.queues})
					var seen outcomes
					c.Endpoint.Observers = []core.Observer{seen.observer()}
					carrier := b.bridge("b", c)
					var got received
					billing := b.endpoint(orderPlaced, b.far, core.Config{})
					core.HandleDefault(billing, got.add)
					for _, topic := range to.topics {
						core.HandleEvent(billing, core.NewEvent[[]byte](topic), got.handle)
					}
					b.run(append(carrier.Endpoints(), billing)...)
					b.far.disconnect()
					const messages = 916
					if to.queues != nil {
						shop := b.endpoint("shop", b.near, core.Config{SendOnly: true})
						for i := range messages {
							b.noError(shop.Send(b.Context(), orderPlaced, xType.Of(nil).With(core.SendOptions{ID: fmt.Sprint(i)})))
						}
					} else {
						b.publish(to.topics[0], messages/2)
						b.publish(to.topics[len(to.topics)/2], messages/2)
					}
					b.pass(34 * time.Second)
					tries := b.far.sendTries()
					b.far.reachable()
					b.pass(2 * time.Minute)

					failed := seen.failed()
					logged := b.log.with("level=")
					b.Logf("%d sends, %d log lines in the outage", tries, len(logged))
					if len(failed) > 0 {
						b.Errorf("%d attempts are counted, such as %+v", len(failed), failed[0])
					}
					if len(logged) > 60 {
						b.Errorf("%d log lines:\n%s", len(logged), strings.Join(logged, ""))
					}
					if tries > 16*10 {
						b.Errorf("%d sends in an outage of 34 s", tries)
					}
					if n := len(got.ids()); n != messages {
						b.Errorf("%d messages arrived, want %d", n, messages)
					}
					if n := len(b.near.peek("error")); n != 0 {
						b.Errorf("%d messages in the error queue", n)
					}
				})
			})
		}
	}
}

// The messages of one or two destinations that cannot be reached, in front of all others,
// hold up none of these.
func TestOutage_OfOneDestination(t *testing.T) {
	missing, full := fmt.Errorf("declare: %w", core.ErrQueueNotFound), errors.New("the broker refused the message")
	tests := map[string]struct {
		near  string
		cause error
		bad   []string
	}{
		"one does not exist": {"everything", missing, []string{orderPlaced}},
		"two are full":       {"everything", full, []string{orderPlaced, orderPaid}},
		"two do not exist, each delivery is counted":   {"each delivery is counted", missing, []string{orderPlaced, orderPaid}},
		"one is full, sends are atomic with receiving": {"sends atomic with receive", full, []string{orderPlaced}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			bubble(t, sides[tt.near], inmemory.Config{}, func(b *bed) { outageOfTopics(b, tt.cause, tt.bad) })
		})
	}
}

func outageOfTopics(b *bed, cause error, bad []string) {
	const good = "shop.Good"
	topics := []string{orderPlaced, orderPaid, good}
	c := b.config(bridge.Side{Topics: topics}, bridge.Side{})
	var seen outcomes
	c.Endpoint.Observers = []core.Observer{seen.observer()}
	carrier := b.bridge("b", c)
	b.noError(carrier.Provision(b.Context()))
	b.noError(b.near.Subscribe(b.Context(), "b", topics...))
	var got received
	billing := b.endpoint("billing", b.far, core.Config{})
	for _, topic := range topics {
		core.HandleEvent(billing, core.NewEvent[[]byte](topic), got.handle)
	}
	b.run(billing)
	b.far.fail(func(out core.Outgoing) error {
		if slices.Contains(bad, out.Topic) {
			return cause
		}
		return nil
	})
	for _, topic := range bad {
		b.publish(topic, 1200)
	}
	b.publish(good, 1000)
	b.run(carrier.Endpoints()...)
	b.pass(time.Second)
	if n := len(got.messages()); n != 1000 {
		b.Errorf("%d messages for the other destination have arrived after a second, want 1000", n)
	}
	tries := b.far.sendTries()
	b.pass(2 * time.Minute)
	// After 1, 2, 4, 8 and 16 s, and each 30 s.
	if probes := b.far.sendTries() - tries; probes > 10*len(bad) {
		b.Errorf("%d probes in 2 minutes", probes)
	}
	states := fmt.Sprint(carrier.Endpoints()[0].Health().Middleware)
	if !strings.Contains(states, "open since") || !strings.Contains(states, "(1200 messages wait) ") || strings.Contains(states, cause.Error()) || !strings.Contains(states, "closed [shop.Good]") {
		b.Errorf("Health says %s", states)
	}
	b.far.reachable()
	b.pass(2 * time.Minute)
	if ids := got.ids(); len(ids) != 1000+1200*len(bad) {
		b.Errorf("%d messages have arrived in the end", len(ids))
	}
	if failed := seen.failed(); len(failed) > 0 {
		b.Errorf("%d attempts are counted, such as %+v", len(failed), failed[0])
	}
	if lines := b.log.with("logger=reprise.Bridge"); len(lines) != 2*len(bad) || !strings.Contains(strings.Join(lines, ""), "messages_waited=1200") {
		b.Errorf("log lines about the outage:\n%s", strings.Join(lines, ""))
	}
	if lines := b.log.with("level="); len(lines) > 60 {
		b.Errorf("%d log lines:\n%s", len(lines), strings.Join(lines, ""))
	}
	for _, state := range carrier.Endpoints()[0].Health().Middleware {
		if state.State != "closed" || !state.OpensCircuit {
			b.Errorf("Health says %+v, which metrics take for an open circuit, or none", state)
		}
	}
}

// A queue that cannot be reached holds up no topic and no other queue.
func TestOutage_OfAQueue(t *testing.T) {
	bubble(t, inmemory.Config{}, inmemory.Config{}, func(b *bed) {
		c := b.config(bridge.Side{Topics: []string{orderPlaced}}, bridge.Side{Queues: []string{"missing", "billing"}})
		carrier := b.bridge("b", c)
		b.far.queues("billing")
		b.noError(b.far.Subscribe(b.Context(), "billing", orderPlaced))
		b.run(carrier.Endpoints()...)
		shop := b.endpoint("shop", b.near, core.Config{SendOnly: true})
		for i := range 100 {
			b.noError(shop.Send(b.Context(), "missing", xType.Of(nil).With(core.SendOptions{ID: fmt.Sprint("missing ", i)})))
			b.noError(shop.Send(b.Context(), "billing", xType.Of(nil)))
		}
		b.publish(orderPlaced, 100)
		b.pass(time.Second)
		if n := len(b.far.peek("billing")); n != 200 {
			b.Errorf("%d messages have arrived, want 200", n)
		}
		b.far.queues("missing")
		b.pass(time.Minute)
		if n := len(b.far.peek("missing")); n != 100 {
			b.Errorf("%d messages have arrived in the queue that was missing, want 100", n)
		}
	})
}

// A destination that is away for too long sends its messages to the error queue, an outage of
// the whole side none.
func TestOutage_GiveUpAfter(t *testing.T) {
	bubble(t, inmemory.Config{}, inmemory.Config{}, func(b *bed) {
		c := b.config(bridge.Side{Topics: []string{orderPlaced, orderPaid}}, bridge.Side{Queues: []string{"missing"}})
		c.GiveUpAfter = 10 * time.Minute
		b.run(b.bridge("b", c).Endpoints()...)
		b.far.disconnect()
		b.publish(orderPlaced, 20)
		b.publish(orderPaid, 20)
		b.pass(time.Hour)
		if n := len(b.near.peek("error")); n != 0 {
			b.Errorf("%d messages were given up while the whole side is away", n)
		}
		b.far.fail(func(out core.Outgoing) error {
			if out.Topic == orderPlaced {
				return errUnreachable
			}
			return nil
		})
		b.near.must(core.Outgoing{ID: "m1", Queue: "missing"})
		b.pass(9 * time.Minute)
		if n := len(b.near.peek("missing")); n != 1 {
			b.Errorf("%d messages for the missing queue wait, want 1", n)
		}
		if n := len(b.near.peek("error")); n != 0 {
			b.Errorf("%d messages were given up early", n)
		}
		b.pass(10 * time.Minute)
		failed := b.near.peek("error")
		if len(failed) != 21 {
			b.Fatalf("%d messages in the error queue, want 21", len(failed))
		}
		if text := failed[len(failed)-1].Headers.Get(headers.ExceptionMessage); !strings.Contains(text, `bridge "b": send to `) || !strings.Contains(text, "given up because it cannot be reached since 2000-") {
			b.Errorf("the reason is %q", text)
		}
	})
}

// A message that the other side can never take goes to the error queue at once.
func TestOutage_MessageThatIsNotPossible(t *testing.T) {
	small := able(func(c *core.Capabilities) { c.MaxMessageBytes = 1000 })
	bubble(t, inmemory.Config{}, small, func(b *bed) {
		carrier := b.bridge("b", b.config(bridge.Side{}, bridge.Side{Queues: []string{"billing"}}))
		b.far.queues("billing")
		b.run(carrier.Endpoints()...)
		b.near.must(
			core.Outgoing{ID: "large", Queue: "billing", Body: make([]byte, 1001)},
			core.Outgoing{ID: "small", Queue: "billing"},
		)
		b.pass(time.Second)
		if failed := b.near.onlyMessage("error"); failed.ID != "large" || !strings.Contains(failed.Headers.Get(headers.ExceptionMessage), `bridge "b": the other side cannot take the message for queue billing: `) ||
			!strings.Contains(failed.Headers.Get(headers.ExceptionMessage), "MaxMessageBytes is 1000") {
			b.Errorf("%s failed: %s", failed.ID, failed.Headers.Get(headers.ExceptionMessage))
		}
		if got := b.far.onlyMessage("billing"); got.ID != "small" {
			b.Errorf("%s arrived", got.ID)
		}
		if n := b.far.sendTries(); n != 2 {
			b.Errorf("%d sends of 2 messages", n)
		}
	})
}

// A send that does not return is an outage too.
func TestOutage_SendHangs(t *testing.T) {
	bubble(t, inmemory.Config{}, inmemory.Config{}, func(b *bed) {
		c := b.config(bridge.Side{}, bridge.Side{Queues: []string{"billing"}})
		c.SendTimeout = 5 * time.Second
		var seen outcomes
		c.Endpoint.Observers = []core.Observer{seen.observer()}
		b.far.queues("billing")
		b.far.hang(all)
		b.run(b.bridge("b", c).Endpoints()...)
		b.near.must(core.Outgoing{ID: "m1", Queue: "billing"})
		b.pass(20 * time.Second)
		if n := b.far.sendTries(); n != 3 { // at 0, 6 and 13 s
			b.Errorf("%d sends in 20 s, want 3", n)
		}
		b.far.hang(nil)
		b.pass(time.Minute)
		b.far.onlyMessage("billing")
		if failed := seen.failed(); len(failed) > 0 {
			b.Errorf("%d attempts are counted, such as %+v", len(failed), failed[0])
		}
	})
}

// A topic whose sends nothing answers holds the others up for one SendTimeout, and then takes
// one slot at most.
func TestOutage_TopicThatDoesNotAnswer(t *testing.T) {
	bubble(t, inmemory.Config{}, inmemory.Config{}, func(b *bed) {
		c := b.config(bridge.Side{Topics: []string{orderPlaced, orderPaid}}, bridge.Side{})
		c.Endpoint.Concurrency = 4
		var seen outcomes
		c.Endpoint.Observers = []core.Observer{seen.observer()}
		carrier := b.bridge("b", c)
		b.noError(carrier.Provision(b.Context()))
		b.noError(b.near.Subscribe(b.Context(), "b", orderPlaced, orderPaid))
		var got received
		billing := b.endpoint("billing", b.far, core.Config{})
		core.HandleEvent(billing, orderPlacedEvent, got.handle)
		core.HandleEvent(billing, orderPaidEvent, got.handle)
		b.run(billing)
		b.far.hang(func(out core.Outgoing) bool { return out.Topic == orderPlaced })
		b.publish(orderPlaced, 200)
		b.run(carrier.Endpoints()...)
		b.pass(31 * time.Second) // a SendTimeout

		shop := b.endpoint("shop", b.near, core.Config{SendOnly: true})
		const minutes = 10
		for i := range 6 * minutes {
			b.noError(shop.Publish(b.Context(), orderPaidEvent.Of(nil)))
			b.pass(time.Second)
			if n := len(got.messages()); n != i+1 {
				b.Fatalf("%d messages for the other topic have arrived, want %d: the newest waits for longer than a second", n, i+1)
			}
			b.pass(9 * time.Second)
		}
		probes := b.far.sendTries() - 6*minutes - 4
		if limit := 60 * minutes / 30; probes > limit || probes < limit/3 {
			b.Errorf("%d probes in %d minutes, each of 30 s", probes, minutes)
		}
		b.far.hang(nil)
		b.pass(2 * time.Minute)
		if n := len(got.messages()); n != 200+6*minutes {
			b.Errorf("%d messages have arrived in the end", n)
		}
		if failed := seen.failed(); len(failed) > 0 {
			b.Errorf("%d attempts are counted, such as %+v", len(failed), failed[0])
		}
	})
}

// The messages of a group keep their order while their topic is away, and after it.
func TestOutage_KeepsTheOrderOfAGroup(t *testing.T) {
	for name, near := range sides {
		t.Run(name, func(t *testing.T) {
			bubble(t, near, inmemory.Config{}, func(b *bed) {
				topics := []string{orderPlaced, orderPaid}
				carrier := b.bridge("b", b.config(bridge.Side{Topics: topics}, bridge.Side{}))
				b.noError(b.far.Provision(b.Context(), core.Topology{Queues: []string{"billing"}}))
				b.noError(b.far.Subscribe(b.Context(), "billing", topics...))
				b.run(carrier.Endpoints()...)
				b.far.fail(func(out core.Outgoing) error {
					if out.Topic == orderPlaced {
						return errUnreachable
					}
					return nil
				})
				shop := b.endpoint("shop", b.near, core.Config{SendOnly: true})
				const groups, each = 5, 20
				for i := range each {
					for g := range groups {
						b.noError(shop.Publish(b.Context(), orderPlacedEvent.Of(nil).With(core.SendOptions{ID: fmt.Sprintf("%d %02d", g, i), GroupKey: fmt.Sprint(g)})))
					}
					b.noError(shop.Publish(b.Context(), orderPaidEvent.Of(nil)))
					b.pass(2 * time.Second)
				}
				b.far.reachable()
				b.pass(10 * time.Minute)
				newest := map[string]string{}
				n := 0
				for _, m := range b.far.carried() {
					if m.Topic == orderPaid {
						continue
					}
					n++
					if m.ID < newest[m.GroupKey] {
						b.Errorf("%s comes after %s", m.ID, newest[m.GroupKey])
					}
					newest[m.GroupKey] = m.ID
				}
				if n != groups*each {
					b.Errorf("%d messages have arrived, want %d", n, groups*each)
				}
			})
		})
	}
}

// A process that dies between the send and the end of the delivery sends the message twice,
// with one id, and an inbox on the other side handles it once.
func TestCrash_InboxDropsTheDuplicate(t *testing.T) {
	bubble(t, inmemory.Config{}, inmemory.Config{}, func(b *bed) {
		c := b.config(bridge.Side{Topics: []string{orderPlaced}}, bridge.Side{})
		duplicates, handled := 0, 0
		box, err := inbox.New(inbox.Config{Store: &inbox.Memory{}})
		b.noError(err)
		b.Cleanup(func() { _ = box.Close(context.Background()) })
		billing := b.endpoint("billing", b.far, core.Config{Middleware: []core.Middleware{box.Middleware()}, Observers: []core.Observer{{
			Succeeded: func(_ context.Context, s core.Handling) {
				if s.Duplicate {
					duplicates++
				}
			},
		}}})
		core.HandleEvent(billing, orderPlacedEvent, func(context.Context, *core.Message, []byte) error { handled++; return nil })
		b.run(billing)

		b.near.loseSettlements(true)
		stop := b.run(b.bridge("b", c).Endpoints()...)
		b.publish(orderPlaced, 1)
		b.pass(time.Second)
		stop()
		if handled != 1 || duplicates != 0 {
			b.Errorf("before the crash: handled %d times, %d duplicates", handled, duplicates)
		}
		b.near.loseSettlements(false)
		b.run(b.bridge("b", c).Endpoints()...) // another process
		b.pass(time.Minute)
		if carried := b.far.carried(); len(carried) != 2 || carried[0].ID != carried[1].ID {
			b.Errorf("carried %d times", len(carried))
		}
		if handled != 1 || duplicates != 1 {
			b.Errorf("in the end: handled %d times, %d duplicates", handled, duplicates)
		}
		if n := len(b.near.peek("b")); n != 0 {
			b.Errorf("%d messages are left", n)
		}
	})
}

// A process that dies while a destination is away leaves the messages for it in the queue, and
// the next one begins with a probe.
func TestCrash_WhileADestinationIsUnreachable(t *testing.T) {
	bubble(t, inmemory.Config{}, inmemory.Config{}, func(b *bed) {
		c := b.config(bridge.Side{Topics: []string{orderPlaced, orderPaid}}, bridge.Side{})
		var seen outcomes
		c.Endpoint.Observers = []core.Observer{seen.observer()}
		b.far.queues("billing")
		b.noError(b.far.Subscribe(b.Context(), "billing", orderPlaced, orderPaid))
		b.far.fail(func(out core.Outgoing) error {
			if out.Topic == orderPlaced {
				return errUnreachable
			}
			return nil
		})
		const each = 300
		stop := b.run(b.bridge("b", c).Endpoints()...)
		wait := b.publish(orderPlaced, each)
		b.pass(10*time.Second + time.Millisecond) // none of them is looked at now
		b.near.loseSettlements(true)
		pass := b.publish(orderPaid, each)
		b.pass(0)
		stop()
		b.near.loseSettlements(false)
		tries := b.far.sendTries()
		carrier := b.bridge("b", c) // another process
		b.run(carrier.Endpoints()...)
		b.pass(time.Minute)
		if probes := b.far.sendTries() - tries - each; probes < 1 || probes > 24 { // 16 slots at first
			b.Errorf("%d probes in a minute", probes)
		}
		b.far.reachable()
		b.pass(2 * time.Minute)
		times := map[string]int{}
		for _, out := range b.far.carried() {
			times[out.ID]++
		}
		for _, id := range wait {
			if times[id] != 1 {
				b.Errorf("%s was carried %d times, want once", id, times[id])
			}
		}
		for _, id := range pass { // the first process carried them, and did not consume them
			if times[id] != 2 {
				b.Errorf("%s was carried %d times, want twice", id, times[id])
			}
		}
		if n := len(b.near.peek("b")) + len(b.near.peek("error")); n != 0 || len(times) != 2*each {
			b.Errorf("%d messages are left, %d ids have arrived", n, len(times))
		}
		if failed := seen.failed(); len(failed) > 0 {
			b.Errorf("%d attempts are counted, such as %+v", len(failed), failed[0])
		}
	})
}

// A shutdown while a send is in progress counts nothing, and the next process sends.
func TestShutdown_WhileSending(t *testing.T) {
	bubble(t, inmemory.Config{}, inmemory.Config{}, func(b *bed) {
		c := b.config(bridge.Side{}, bridge.Side{Queues: []string{"billing"}})
		c.SendTimeout = time.Hour
		var seen outcomes
		c.Endpoint.Observers = []core.Observer{seen.observer()}
		b.far.queues("billing")
		b.far.hang(all)
		stop := b.run(b.bridge("b", c).Endpoints()...)
		b.near.must(core.Outgoing{ID: "m1", Queue: "billing"})
		b.pass(time.Second)
		stop()
		if lines := b.log.with("logger=reprise.Bridge"); len(lines) > 0 {
			b.Errorf("a shutdown is no outage: %s", lines)
		}
		b.far.hang(nil)
		b.run(b.bridge("b", c).Endpoints()...)
		b.far.onlyMessage("billing")
		if len(seen.all) > 0 {
			b.Errorf("%+v", seen.all)
		}
	})
}
