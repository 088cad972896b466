package suite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// subscriptions are the queues of each topic, as a mutant knows them.
type subscriptions struct {
	mu     sync.Mutex
	queues map[string][]string
}

func (s *subscriptions) add(queue string, topics []string) (had int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queues == nil {
		s.queues = map[string][]string{}
	}
	for _, topic := range topics {
		if slices.Contains(s.queues[topic], queue) {
			had++
		}
		s.queues[topic] = append(s.queues[topic], queue)
	}
	return had
}

func (s *subscriptions) remove(queue string, topics []string) (had int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, topic := range topics {
		if slices.Contains(s.queues[topic], queue) {
			had++
		}
		s.queues[topic] = slices.DeleteFunc(s.queues[topic], func(q string) bool { return q == queue })
	}
	return had
}

// changesEvents changes each event before it is sent.
func changesEvents(change func(event *core.Outgoing)) func() changes {
	return func() changes {
		return changes{send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			out = slices.Clone(out)
			for i := range out {
				change(&out[i])
			}
			return next(ctx, out...)
		}}
	}
}

// queuesFor returns the queues of the topics that fit.
func (s *subscriptions) queuesFor(fits func(topic string) bool) (queues []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for topic, subscribed := range s.queues {
		if fits(topic) {
			queues = append(queues, subscribed...)
		}
	}
	return queues
}

// topicsOf returns the topics of a queue.
func (s *subscriptions) topicsOf(queue string) (topics []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for topic, subscribed := range s.queues {
		if slices.Contains(subscribed, queue) {
			topics = append(topics, topic)
		}
	}
	return topics
}

// command makes a command of an event.
func command(event core.Outgoing, queue string) core.Outgoing {
	event.Queue, event.Topic = queue, ""
	return event
}

// onPublish makes changes of a function that replaces the publishing of events.
func onPublish(publish func(t *brokenTransport, event core.Outgoing, next func() error) error) func() changes {
	return func() changes {
		return changes{send: func(t *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			for _, o := range out {
				send := func() error { return next(ctx, o) }
				if o.Topic != "" {
					sound := send
					send = func() error { return publish(t, o, sound) }
				}
				if err := send(); err != nil {
					return err
				}
			}
			return nil
		}}
	}
}

// knowing adds functions to changes that keep subscriptions up to date.
func knowing(s *subscriptions, c changes) changes {
	c.subscribe = func(_ *brokenTransport, queue string, topics []string, next func() error) error {
		err := next()
		if err == nil {
			s.add(queue, topics)
		}
		return err
	}
	c.unsubscribe = func(_ *brokenTransport, queue string, topics []string, next func() error) error {
		s.remove(queue, topics)
		return next()
	}
	return c
}

// publishesToAll makes changes that send an event to each subscriber's queue. chosen gets an
// error, or nil, for each queue in the order of the subscriptions, and returns those of the queues
// that get the event, and the error of the publish.
func publishesToAll(chosen func(errs []error) ([]error, error)) func() changes {
	return func() changes {
		var s subscriptions
		return knowing(&s, onPublish(func(t *brokenTransport, event core.Outgoing, next func() error) error {
			existing := t.fixture.names()
			queues := s.queuesFor(func(topic string) bool { return topic == event.Topic })
			var errs []error
			gone := false
			for _, queue := range queues {
				var err error
				if !slices.Contains(existing, queue) {
					err, gone = fmt.Errorf("%w: %q", core.ErrQueueNotFound, queue), true
				}
				errs = append(errs, err)
			}
			if !gone {
				return next()
			}
			reached, err := chosen(errs)
			for i := range reached {
				if errs[i] == nil {
					err = errors.Join(err, t.base.Send(context.Background(), command(event, queues[i])))
				}
			}
			return err
		})())
	}
}

var publishMutants = []mutant{
	{rule: "C19", name: "publishes to one of the subscribed queues", breaks: func() changes {
		var s subscriptions
		return knowing(&s, onPublish(func(t *brokenTransport, event core.Outgoing, _ func() error) error {
			queues := s.queuesFor(func(topic string) bool { return topic == event.Topic })
			if len(queues) == 0 {
				return nil
			}
			return t.base.Send(context.Background(), command(event, queues[0]))
		})())
	}},
	{rule: "C19", name: "publishes again when it has no answer at once", breaks: onPublish(func(_ *brokenTransport, _ core.Outgoing, next func() error) error {
		return errors.Join(next(), next())
	})},
	{rule: "C19", name: "refuses an event for which the queue of a subscriber is gone", breaks: publishesToAll(func(errs []error) ([]error, error) {
		return nil, errors.Join(errs...)
	})},
	{rule: "C19", name: "returns the error of a subscriber whose queue is gone", breaks: publishesToAll(func(errs []error) ([]error, error) {
		return errs, errors.Join(errs...)
	})},
	{rule: "C19", name: "skips the subscribers of an event after one whose queue is gone", breaks: publishesToAll(func(errs []error) ([]error, error) {
		for i, err := range errs {
			if err != nil {
				return errs[:i], nil
			}
		}
		return errs, nil
	})},
	{rule: "C19", name: "refuses a settlement that publishes if the queue of a subscriber is gone", breaks: func() changes {
		var s subscriptions
		return knowing(&s, changes{settle: func(d *brokenDelivery, operation string, next func() error) error {
			if operation != "CompleteWith" {
				return next()
			}
			for _, queue := range s.queuesFor(func(string) bool { return true }) {
				if !slices.Contains(d.receiver.transport.fixture.names(), queue) {
					return core.ErrQueueNotFound
				}
			}
			return next()
		}})
	}},
	{rule: "C19", name: "does not publish to base topics", breaks: changesEvents(func(event *core.Outgoing) { event.BaseTopics = nil })},
	{rule: "C19", name: "requires no subscriber", breaks: changesEvents(func(event *core.Outgoing) { event.RequireSubscriber = false })},
	{rule: "C19", name: "refuses each event that requires a subscriber", breaks: onPublish(func(_ *brokenTransport, event core.Outgoing, next func() error) error {
		if event.RequireSubscriber {
			return core.ErrNoSubscriber
		}
		return next()
	})},
	{rule: "C19", name: "publishes once for each base topic", breaks: onPublish(func(t *brokenTransport, event core.Outgoing, next func() error) error {
		for _, topic := range event.BaseTopics {
			event.Topic, event.BaseTopics = topic, nil
			if err := t.base.Send(context.Background(), event); err != nil {
				return err
			}
		}
		return next()
	})},
	{rule: "C19", name: "adds the topic to the headers of an event", breaks: func() changes {
		return changes{send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			out = slices.Clone(out)
			for i := range out {
				if out[i].Topic != "" {
					out[i].Headers.Set("Topic", out[i].Topic)
				}
			}
			return next(ctx, out...)
		}}
	}},
	{rule: "C19", name: "stores one message for all the queues of an event", breaks: func() changes {
		return changes{settle: func(d *brokenDelivery, operation string, next func() error) error {
			err := next()
			if operation == "Complete" {
				fixture := d.receiver.transport.fixture
				for _, queue := range fixture.names() {
					fixture.purge(queue, func(in *core.Incoming) bool { return in.ID == d.in.ID })
				}
			}
			return err
		}}
	}},
	{rule: "C19", name: "replaces the subscriptions of a queue by newer ones", breaks: func() changes {
		var s subscriptions
		c := knowing(&s, changes{})
		add := c.subscribe
		c.subscribe = func(t *brokenTransport, queue string, topics []string, next func() error) error {
			old := s.topicsOf(queue)
			s.remove(queue, old)
			_ = t.base.Unsubscribe(context.Background(), queue, old...)
			return add(t, queue, topics, next)
		}
		return c
	}},
	{rule: "C19", name: "returns events without subscribers", breaks: func() changes {
		var s subscriptions
		return knowing(&s, onPublish(func(_ *brokenTransport, event core.Outgoing, next func() error) error {
			if len(s.queuesFor(func(topic string) bool { return topic == event.Topic })) == 0 {
				return errors.New("publish: 312 NO_ROUTE")
			}
			return next()
		})())
	}},
	{rule: "C19", name: "drops the rest of a Send after an event without subscribers", breaks: func() changes {
		var s subscriptions
		return knowing(&s, changes{send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			for i, o := range out {
				if o.Topic != "" && len(s.queuesFor(func(topic string) bool { return topic == o.Topic })) == 0 {
					return next(ctx, out[:i]...)
				}
			}
			return next(ctx, out...)
		}})
	}},
	{rule: "C19", name: "remembers the subscribers that a topic had first", breaks: func() changes {
		var s subscriptions
		var mu sync.Mutex
		routes := map[*brokenTransport]map[string][]string{}
		return knowing(&s, onPublish(func(t *brokenTransport, event core.Outgoing, _ func() error) error {
			mu.Lock()
			defer mu.Unlock()
			if routes[t] == nil {
				routes[t] = map[string][]string{}
			}
			queues, known := routes[t][event.Topic]
			if !known {
				queues = s.queuesFor(func(topic string) bool { return topic == event.Topic })
				routes[t][event.Topic] = queues
			}
			for _, queue := range queues {
				if err := t.base.Send(context.Background(), command(event, queue)); err != nil {
					return err
				}
			}
			return nil
		})())
	}},
	{rule: "C19", name: "does not unsubscribe", breaks: func() changes {
		return changes{unsubscribe: func(*brokenTransport, string, []string, func() error) error { return nil }}
	}},
	{rule: "C19", name: "ends all subscriptions of a queue with one", breaks: func() changes {
		var s subscriptions
		c := knowing(&s, changes{})
		c.unsubscribe = func(t *brokenTransport, queue string, _ []string, _ func() error) error {
			all := s.topicsOf(queue)
			s.remove(queue, all)
			return t.base.Unsubscribe(context.Background(), queue, all...)
		}
		return c
	}},
	{rule: "C19", name: "ends the subscriptions of all queues with one", breaks: func() changes {
		var s subscriptions
		c := knowing(&s, changes{})
		c.unsubscribe = func(t *brokenTransport, _ string, topics []string, _ func() error) error {
			for _, topic := range topics {
				for _, queue := range s.queuesFor(func(other string) bool { return other == topic }) {
					s.remove(queue, []string{topic})
					_ = t.base.Unsubscribe(context.Background(), queue, topic)
				}
			}
			return nil
		}
		return c
	}},
	{rule: "C19", name: "empties a queue that unsubscribes", breaks: func() changes {
		return changes{unsubscribe: func(t *brokenTransport, queue string, _ []string, next func() error) error {
			t.fixture.purge(queue, func(*core.Incoming) bool { return true })
			return next()
		}}
	}},
	{rule: "C19", name: "returns an error from Unsubscribe without a subscription", breaks: func() changes {
		var s subscriptions
		c := knowing(&s, changes{})
		c.unsubscribe = func(_ *brokenTransport, queue string, topics []string, next func() error) error {
			if s.remove(queue, topics) < len(topics) {
				return errors.New("unsubscribe: there is no such subscription")
			}
			return next()
		}
		return c
	}},
	{rule: "C19", name: "subscribes once for each Subscribe", breaks: func() changes {
		var s subscriptions
		return knowing(&s, onPublish(func(t *brokenTransport, event core.Outgoing, _ func() error) error {
			for _, queue := range s.queuesFor(func(topic string) bool { return topic == event.Topic }) {
				if err := t.base.Send(context.Background(), command(event, queue)); err != nil {
					return err
				}
			}
			return nil
		})())
	}},
	{rule: "C19", name: "fails when another instance subscribes at the same time", breaks: func() changes {
		var subscribing atomic.Int64
		return changes{subscribe: func(_ *brokenTransport, _ string, _ []string, next func() error) error {
			defer subscribing.Add(-1)
			subscribing.Add(1)
			time.Sleep(time.Millisecond) // in a bubble, until all instances are here
			if subscribing.Load() > 1 {
				return errors.New("subscribe: duplicate key value violates unique constraint")
			}
			return next()
		}}
	}},
	{rule: "C19", name: "hands an event to every instance", breaks: func() changes {
		var copied sync.Map
		return changes{deliver: func(r *brokenReceiver, d core.Delivery) core.Delivery {
			in := d.Incoming()
			if _, done := copied.LoadOrStore(in.ID, true); !done {
				_ = r.transport.base.Send(context.Background(), core.Outgoing{ID: in.ID, Queue: r.cfg.Queue, Headers: in.Headers, Body: in.Body})
			}
			return d
		}}
	}},
	{rule: "C19", name: "ends its subscriptions with its process", breaks: func() changes {
		var mu sync.Mutex
		mine := map[*brokenTransport]*subscriptions{}
		return changes{
			subscribe: func(t *brokenTransport, queue string, topics []string, next func() error) error {
				mu.Lock()
				defer mu.Unlock()
				if mine[t] == nil {
					mine[t] = &subscriptions{}
				}
				mine[t].add(queue, topics)
				return next()
			},
			close: func(t *brokenTransport, next func() error) error {
				mu.Lock()
				defer mu.Unlock()
				if s := mine[t]; s != nil {
					for topic, queues := range s.queues {
						for _, queue := range queues {
							_ = t.base.Unsubscribe(context.Background(), queue, topic)
						}
					}
				}
				return next()
			},
		}
	}},
	{rule: "C19", name: "subscribes a queue that does not exist", breaks: func() changes {
		return changes{subscribe: func(_ *brokenTransport, _ string, _ []string, next func() error) error {
			if err := next(); !errors.Is(err, core.ErrQueueNotFound) {
				return err
			}
			return nil
		}}
	}},
	{rule: "C19", name: "takes topics for patterns", breaks: func() changes {
		var s subscriptions
		return knowing(&s, onPublish(func(t *brokenTransport, event core.Outgoing, next func() error) error {
			for _, queue := range s.queuesFor(func(topic string) bool {
				prefix, pattern := strings.CutSuffix(topic, "#")
				return pattern && strings.HasPrefix(event.Topic, prefix) && topic != event.Topic
			}) {
				_ = t.base.Send(context.Background(), command(event, queue))
			}
			return next()
		})())
	}},
	{rule: "C19", name: "compares topics without their case", breaks: func() changes {
		var s subscriptions
		return knowing(&s, onPublish(func(t *brokenTransport, event core.Outgoing, next func() error) error {
			for _, queue := range s.queuesFor(func(topic string) bool { return strings.EqualFold(topic, event.Topic) && topic != event.Topic }) {
				_ = t.base.Send(context.Background(), command(event, queue))
			}
			return next()
		})())
	}},
	{rule: "C19", name: "sends the commands alone of a Send with both", breaks: func() changes {
		return changes{send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			commands := slices.DeleteFunc(slices.Clone(out), func(o core.Outgoing) bool { return o.Topic != "" })
			if len(commands) > 0 {
				return next(ctx, commands...)
			}
			return next(ctx, out...)
		}}
	}},
	{rule: "C19", name: "loses an event now and then", breaks: func() changes {
		var published callCounter
		return onPublish(func(_ *brokenTransport, _ core.Outgoing, next func() error) error {
			if published.isNth(31) {
				return nil
			}
			return next()
		})()
	}},
	{rule: "C19", name: "makes a subscription for each instance", breaks: func() changes {
		var mu sync.Mutex
		subscriptions := map[string][]string{} // queues by topic
		return changes{
			subscribe: func(_ *brokenTransport, queue string, topics []string, next func() error) error {
				mu.Lock()
				defer mu.Unlock()
				for _, topic := range topics {
					subscriptions[topic] = append(subscriptions[topic], queue)
				}
				return next()
			},
			send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
				mu.Lock()
				defer mu.Unlock()
				for _, o := range out {
					seen := map[string]bool{}
					for _, queue := range subscriptions[o.Topic] {
						if copied := o; seen[queue] {
							copied.Topic, copied.Queue = "", queue
							out = append(out, copied)
						}
						seen[queue] = true
					}
				}
				return next(ctx, out...)
			},
		}
	}},
	{rule: "C19", name: "ends the subscriptions of an endpoint when one of its instances stops", breaks: func() changes {
		var mu sync.Mutex
		subscriptions := map[string][]string{} // topics by queue
		return changes{
			subscribe: func(_ *brokenTransport, queue string, topics []string, next func() error) error {
				mu.Lock()
				defer mu.Unlock()
				subscriptions[queue] = append(subscriptions[queue], topics...)
				return next()
			},
			closeReceiver: func(r *brokenReceiver, next func() error) error {
				mu.Lock()
				defer mu.Unlock()
				if topics := subscriptions[r.cfg.Queue]; len(topics) > 0 {
					if err := r.transport.Unsubscribe(context.Background(), r.cfg.Queue, topics...); err != nil {
						return err
					}
				}
				return next()
			},
		}
	}},
	{rule: "C19", name: "keeps subscriptions in memory, and claims to be durable", onServer: true, breaks: func() changes {
		// The subscription is a copy that the subscriber's connection makes.
		return changes{subscribe: func(t *brokenTransport, queue string, topics []string, next func() error) error {
			err := next()
			lost := t.base.(*remote).lost()
			s := t.base.(*remote).server
			go func() {
				<-lost
				transport, err := inmemory.New(inmemory.Config{Broker: s.fixture.broker})
				if err == nil {
					_ = transport.Unsubscribe(ctxBackground, queue, topics...)
				}
			}()
			return err
		}}
	}},
}
