package rabbitmq

import (
	"context"
	"errors"
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/amqperror"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/names"
)

// Remove implements core.Remover. It deletes queues with their exchanges, and the exchanges of
// topics. A delayed message to a removed queue goes to the queue "reprise.undelivered" when it
// is due, or to its queue if that exists again by then: the binding between the exchanges of
// delayed messages stays, because messages without it block those to other queues.
//
// In the topology of NServiceBus it deletes the policy with the delivery limit of a queue, if
// Config.ManagementURL is set. In the Direct topology a topic is a routing key, whose bindings
// AMQP does not list: topics are refused with an error matching errors.ErrUnsupported before
// anything is removed; to fix: remove the queues, or Unsubscribe each. In the others, restart
// the publishers of events with a removed base type, those of NServiceBus too, before a queue
// subscribes to it again: they bind the exchanges of the types once for each connection.
//
// The user needs the right to configure everything that is removed.
func (t *Transport) Remove(ctx context.Context, queues, topics []string) error {
	if err := t.remove(ctx, queues, topics); err != nil {
		return fmt.Errorf("rabbitmq: remove: %w", transport.Unavailable(ctx, amqperror.Explain(err), amqperror.IsTransient))
	}
	return nil
}

func (t *Transport) remove(ctx context.Context, queues, topics []string) error {
	if err := t.life.Err(ctx); err != nil {
		return err
	}
	all := make([]string, len(queues))
	for i, queue := range queues {
		var err error
		if all[i], err = names.Queue(queue); err != nil {
			return err
		}
	}
	exchanges := make([]string, len(topics))
	for i, topic := range topics {
		exchange, _, err := t.topicRoute(topic)
		if err != nil {
			return err
		}
		if t.cfg.Topology == Direct {
			return transport.Permanent(fmt.Errorf("the topic %q is a routing key in the Direct topology, whose bindings AMQP does not list; Unsubscribe each queue: %w", topic, errors.ErrUnsupported))
		}
		exchanges[i] = exchange
	}
	defer t.declarations.Forget()
	for _, queue := range all {
		if err := withTimeout(ctx, func(ctx context.Context) error { return t.removeQueue(ctx, queue) }); err != nil {
			return fmt.Errorf("delete the queue %q: %w", queue, err)
		}
	}
	for i, exchange := range exchanges {
		err := withTimeout(ctx, func(ctx context.Context) error {
			return t.admin(ctx, func(ch *amqp.Channel) error { return ch.ExchangeDelete(exchange, false, false) })
		})
		if err != nil && amqperror.KindOf(err) != amqperror.NoExchange {
			return fmt.Errorf("delete the exchange of the topic %q: %w", topics[i], err)
		}
	}
	return nil
}

// removeQueue deletes a queue, its exchange, and the policy with its delivery limit.
func (t *Transport) removeQueue(ctx context.Context, queue string) error {
	err := t.admin(ctx, func(ch *amqp.Channel) error {
		_, err := ch.QueueDelete(queue, false, false, false)
		return err
	})
	if err != nil && amqperror.KindOf(err) != amqperror.NoQueue {
		return err
	}
	if t.cfg.Topology != Direct {
		err := t.admin(ctx, func(ch *amqp.Channel) error { return ch.ExchangeDelete(queue, false, false) })
		if err != nil && amqperror.KindOf(err) != amqperror.NoExchange {
			return fmt.Errorf("its exchange: %w", err)
		}
	}
	return t.removeLimit(ctx, queue)
}
