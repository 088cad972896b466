package rabbitmq

import (
	"context"
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/amqperror"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/names"
)

// Purge removes the messages of a queue that no consumer has. Prefetched messages stay, and
// so do delayed messages, which are in other queues until they are due. The user needs the
// right to read the queue.
func (t *Transport) Purge(ctx context.Context, queue string) (int, error) {
	removed, err := t.purge(ctx, queue)
	if err != nil {
		return 0, fmt.Errorf("rabbitmq: purge %q: %w", queue, transport.Unavailable(ctx, amqperror.Explain(err), amqperror.IsTransient))
	}
	return removed, nil
}

func (t *Transport) purge(ctx context.Context, name string) (int, error) {
	if err := t.life.Err(ctx); err != nil {
		return 0, err
	}
	queue, err := names.Queue(name)
	if err != nil {
		return 0, err
	}
	return query(ctx, t, func(ch *amqp.Channel) (int, error) { return ch.QueuePurge(queue, false) })
}
