package core

import (
	"context"
	"log/slog"
	"sync"
)

// unsubscribedEvents counts the events that reached no queue, and logs the first of each
// topic. All methods may be called concurrently.
type unsubscribedEvents struct {
	log *slog.Logger

	mu     sync.Mutex
	count  int64
	topics map[string]bool // those that were logged
}

// maxLoggedTopics limits the topics that are logged, because a program may publish to any
// number of them.
const maxLoggedTopics = 1000

type unsubscribedKey struct{}

// context returns the context for a send by which [ReportNoSubscriber] finds u.
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
	u.mu.Lock()
	u.count++
	isNew := !u.topics[out.Topic] && len(u.topics) < maxLoggedTopics
	if isNew {
		if u.topics == nil {
			u.topics = map[string]bool{}
		}
		u.topics[out.Topic] = true
	}
	u.mu.Unlock()
	if isNew {
		u.log.WarnContext(ctx, "an event has no subscriber and reaches no queue (this is logged once for each type); to fix: start a subscriber, or set SendOptions.RequireSubscriber to get an error",
			"topic", out.Topic, "message_id", out.ID)
	}
}

// total returns the number of events that reached no queue.
func (u *unsubscribedEvents) total() int64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.count
}
