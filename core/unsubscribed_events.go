package core

import (
	"context"
	"log/slog"
	"sync"

	"github.com/reprise-go/reprise/core/internal/calls"
	"github.com/reprise-go/reprise/internal/bounded"
)

// unsubscribedEvents counts the events that reached no queue and logs the first of each topic,
// and the copies of events that could not reach a subscriber and logs the first of each queue.
// All methods may be called concurrently.
type unsubscribedEvents struct {
	log       *slog.Logger
	observers *observers

	mu            sync.Mutex
	count         int64
	topics        map[string]bool // those that were logged
	unreachable   int64
	subscriptions map[subscription]bool // those that were logged
}

// subscription is one of a queue to a topic.
type subscription struct{ topic, queue string }

// maxLoggedTopics limits the topics that are logged, because a program may publish to any
// number of them, and the subscriptions.
const maxLoggedTopics = 1000

type unsubscribedKey struct{}

// context returns the context for a send by which [ReportNoSubscriber] and
// [ReportUnreachableSubscriber] find u.
func (u *unsubscribedEvents) context(ctx context.Context, out []Outgoing) context.Context {
	for i := range out {
		if out[i].Topic != "" {
			return context.WithValue(ctx, unsubscribedKey{}, u)
		}
	}
	return ctx
}

// report counts an event, and logs the first of its topic.
func (u *unsubscribedEvents) report(ctx context.Context, out *Outgoing) {
	topic := bounded.Key(out.Topic)
	u.mu.Lock()
	u.count++
	isNew := !u.topics[topic] && len(u.topics) < maxLoggedTopics
	if isNew {
		if u.topics == nil {
			u.topics = map[string]bool{}
		}
		u.topics[topic] = true
	}
	u.mu.Unlock()
	if isNew {
		u.log.WarnContext(ctx, "an event has no subscriber and reaches no queue (this is logged once for each type); to fix: start a subscriber, or set SendOptions.RequireSubscriber to get an error",
			"topic", out.Topic, "message_id", out.ID)
	}
}

// reportUnreachable counts an event that one subscriber does not get, logs the first of the
// subscription, and notifies observers.
func (u *unsubscribedEvents) reportUnreachable(ctx context.Context, out *Outgoing, queue string, err error) {
	is := subscription{bounded.Key(out.Topic), bounded.Key(queue)}
	u.mu.Lock()
	u.unreachable++
	isNew := !u.subscriptions[is] && len(u.subscriptions) < maxLoggedTopics
	if isNew {
		if u.subscriptions == nil {
			u.subscriptions = map[subscription]bool{}
		}
		u.subscriptions[is] = true
	}
	u.mu.Unlock()
	if isNew {
		u.log.ErrorContext(ctx, "a subscriber does not get an event, because its queue cannot be reached; the others get it (this is logged once for each subscription); to fix: make the queue reachable, or end the subscription",
			"topic", out.Topic, "queue", queue, "message_id", out.ID, "error", err)
	}
	for _, o := range u.observers.undeliverable {
		calls.Recover(u.observers.onPanic, func() {
			o.MessageUndeliverable(Undeliverable{MessageID: out.ID, Topic: out.Topic, Queue: queue, Err: err})
		})
	}
}

// totals returns the number of events that reached no queue, and of copies that could not
// reach a subscriber.
func (u *unsubscribedEvents) totals() (unsubscribed, unreachable int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.count, u.unreachable
}
