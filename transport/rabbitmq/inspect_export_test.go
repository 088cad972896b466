package rabbitmq

import "context"

// Probe finds out how a queue was declared, even if it has gone in the meantime.
func Probe(ctx context.Context, t *Transport, vhost, queue string) error {
	_, err := t.probe(ctx, vhost, queue)
	return err
}

// CreateQueue creates a queue that was missing before, even if it is there by now.
func CreateQueue(ctx context.Context, t *Transport, queue string) error {
	return t.createQueue(ctx, queue, 0)
}
