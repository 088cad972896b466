package rabbitmq

import (
	"context"
	"errors"
	"fmt"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/amqperror"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/deliverylimit"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/names"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/version"
)

// Check reaches the broker and verifies that its version is 3.10 or later and that all
// queues of the topology exist. The queues that the endpoint receives from must have the
// type in Config and a known delivery limit.
//
// Check does not verify permissions, because AMQP reports a missing one only when it is
// used. The endpoint finds out before its first message (to subscribe and to receive) or
// with it (to send), and the message is not lost.
func (t *Transport) Check(ctx context.Context, topology core.Topology) error {
	err := t.life.Err(ctx)
	if err == nil {
		err = withTimeout(ctx, func(ctx context.Context) error { return t.check(ctx, topology) })
	}
	if err != nil {
		return fmt.Errorf("rabbitmq: check: %w", transport.Unavailable(ctx, err, amqperror.IsTransient))
	}
	return nil
}

func (t *Transport) check(ctx context.Context, topology core.Topology) error {
	conn, err := t.adminConn.get(ctx)
	if err != nil {
		return amqperror.Explain(err)
	}
	var errs []error
	if err := checkExpiry(topology.QueueExpiry); err != nil {
		errs = append(errs, err)
	}
	if v, err := brokerVersion(conn); err == nil && v.Before(version.Min) {
		errs = append(errs, transport.Permanent(fmt.Errorf("the broker is RabbitMQ %v, but must be %v or later", v, version.Min)))
	}
	for _, name := range topology.Queues {
		queue, err := names.Queue(name)
		switch {
		case err != nil:
		case name == topology.InputQueue:
			err = t.examine(ctx, queue, deliverylimit.AnyLimit)
		default:
			err = t.checkQueueExists(ctx, queue)
		}
		if err == nil {
			continue
		}
		if ctx.Err() != nil || amqperror.IsTransient(err) {
			return amqperror.Explain(err) // each queue would only repeat it
		}
		errs = append(errs, amqperror.Explain(err))
	}
	return errors.Join(errs...)
}
