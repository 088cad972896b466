package sqlserver

import (
	"context"
	"fmt"

	"github.com/reprise-go/reprise/transport"
)

// CheckTopic implements core.Subscriber: a topic is UTF-8 without NUL, of 1 to 200
// characters.
func (t *Transport) CheckTopic(topic string) error { return t.subscriptions.CheckTopic(topic) }

// Subscribe lets queue receive messages that are published to the topics, each of at most
// 200 characters. For this transport's publishers the subscription takes effect at once,
// for other publishers after Config.SubscriptionCache.
//
// A subscription belongs to an endpoint, which is identified by the name of its queue, as
// in NServiceBus. So a queue that has moved, to another schema for example, takes its
// subscriptions along when it subscribes again. Another queue of the same name, of a
// transport with another schema and the same Config.SubscriptionTable, takes them over
// too: the endpoints need different names.
func (t *Transport) Subscribe(ctx context.Context, queue string, topics ...string) error {
	if err := t.changeSubscriptions(ctx, queue, topics, true); err != nil {
		return fmt.Errorf("sqlserver: subscribe %q: %w", queue, t.server.Unavailable(ctx, err))
	}
	return nil
}

// Unsubscribe ends subscriptions of Subscribe.
func (t *Transport) Unsubscribe(ctx context.Context, queue string, topics ...string) error {
	if err := t.changeSubscriptions(ctx, queue, topics, false); err != nil {
		return fmt.Errorf("sqlserver: unsubscribe %q: %w", queue, t.server.Unavailable(ctx, err))
	}
	return nil
}

func (t *Transport) changeSubscriptions(ctx context.Context, name string, topics []string, subscribe bool) error {
	if err := t.life.Err(ctx); err != nil {
		return err
	}
	ctx, done := t.server.Bound(ctx)
	defer done()
	q, err := t.queues.Get(name)
	if err != nil {
		return err
	}
	if _, err := t.server.Examine(ctx, q); err != nil {
		return err
	}
	endpoint := q.Table.Name
	if q.Table.Location != t.in { // two schemas may each have a queue of this name
		endpoint = q.Table.Address
	}
	s := t.subscriptions
	for _, topic := range topics {
		if err := transport.Permanent(t.CheckTopic(topic)); err != nil {
			return err
		}
	}
	for _, name := range []string{q.Table.Address, endpoint} {
		if err := s.CheckAddress(name); err != nil {
			return err
		}
	}
	if len(topics) == 0 {
		return nil
	}
	if subscribe {
		err = s.Add(ctx, q.Table.Address, endpoint, topics)
	} else {
		err = s.Remove(ctx, endpoint, topics)
	}
	s.Forget(topics) // after an error too: the server may have changed them
	return err
}
