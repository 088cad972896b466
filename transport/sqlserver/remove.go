package sqlserver

import (
	"context"
	"errors"
	"fmt"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/queues"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/sqlexec"
)

// Remove implements core.Remover. It drops the tables of queues, and deletes the
// subscriptions of the queues and to the topics, and the messages that wait for the queues in
// the table of delayed messages. It needs the rights of the queues' owner, and to delete from
// the other two tables. A table that is not that of a queue is not dropped: it is an error.
// Other transports send to the removed queues' subscriptions until Config.SubscriptionCache
// has passed. Tables of delayed messages that NServiceBus created stay as they are.
func (t *Transport) Remove(ctx context.Context, queues, topics []string) error {
	if err := t.remove(ctx, queues, topics); err != nil {
		return fmt.Errorf("sqlserver: remove: %w", t.server.Unavailable(ctx, t.server.Explained(err)))
	}
	return nil
}

func (t *Transport) remove(ctx context.Context, names, topics []string) error {
	if err := t.life.Err(ctx); err != nil {
		return err
	}
	for _, topic := range topics {
		if err := t.CheckTopic(topic); err != nil {
			return err
		}
	}
	all := make([]*queues.Queue, len(names))
	for i, name := range names {
		var err error
		if all[i], err = t.queues.Get(name); err != nil {
			return err
		}
	}
	ctx, done := t.server.Bound(ctx)
	defer done()
	for _, q := range all {
		if err := t.removeQueue(ctx, q); err != nil {
			return fmt.Errorf("queue %q: %w", q.Table.Address, err)
		}
	}
	return t.subscriptions.RemoveTopics(ctx, topics)
}

func (t *Transport) removeQueue(ctx context.Context, q *queues.Queue) error {
	if err := t.subscriptions.RemoveQueue(ctx, q.Table.Address); err != nil {
		return err
	}
	_, err := t.server.Examine(ctx, q)
	if err == nil {
		q.SetKind(queues.UnknownKind)
		err = t.db.Exec(ctx, sqlexec.Command("drop table if exists "+q.Table.Quoted))
	}
	if err != nil && !errors.Is(err, core.ErrQueueNotFound) {
		return err
	}
	return t.delayed.RemoveQueue(ctx, q.Table.Address)
}
