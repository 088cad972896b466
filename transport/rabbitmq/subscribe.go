package rabbitmq

import (
	"context"
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/amqperror"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/names"
)

// Subscribe lets a queue receive messages published to the topics from now on. Except in
// the Direct topology, it declares the exchange of each topic and binds it to the queue's
// exchange, or to the queue itself if that has no exchange.
func (t *Transport) Subscribe(ctx context.Context, queue string, topics ...string) error {
	if err := t.changeSubscriptions(ctx, queue, topics, t.subscribe); err != nil {
		return fmt.Errorf("rabbitmq: subscribe %q: %w", queue, transport.Unavailable(ctx, amqperror.Explain(err), amqperror.IsTransient))
	}
	return nil
}

// Unsubscribe ends the subscriptions. The exchange of a topic stays, because others may
// publish to it.
func (t *Transport) Unsubscribe(ctx context.Context, queue string, topics ...string) error {
	if err := t.changeSubscriptions(ctx, queue, topics, t.unsubscribe); err != nil {
		return fmt.Errorf("rabbitmq: unsubscribe %q: %w", queue, transport.Unavailable(ctx, amqperror.Explain(err), amqperror.IsTransient))
	}
	return nil
}

// CheckTopic implements core.Subscriber.
func (t *Transport) CheckTopic(topic string) error {
	_, _, err := t.topicRoute(topic)
	return err
}

// source is the exchange and the routing key of a topic.
type source struct{ topic, exchange, key string }

func (t *Transport) changeSubscriptions(ctx context.Context, queue string, topics []string, change func(context.Context, string, []source) error) error {
	if err := t.life.Err(ctx); err != nil {
		return err
	}
	queue, err := names.Queue(queue)
	if err != nil {
		return err
	}
	sources := make([]source, len(topics))
	for i, topic := range topics {
		exchange, key, err := t.topicRoute(topic)
		if err != nil {
			return err
		}
		sources[i] = source{topic, exchange, key}
	}
	return withTimeout(ctx, func(ctx context.Context) error {
		if err := t.checkQueueExists(ctx, queue); err != nil {
			return err
		}
		return change(ctx, queue, sources)
	})
}

func (t *Transport) subscribe(ctx context.Context, queue string, sources []source) error {
	direct := t.cfg.Topology == Direct
	if !direct {
		for _, s := range sources {
			if err := t.declareExchange(ctx, s.exchange, false); err != nil {
				return err
			}
		}
		err := t.checkExchangeExists(ctx, queue)
		if direct = amqperror.KindOf(err) == amqperror.NoExchange; !direct && err != nil {
			return err
		}
	}
	return t.admin(ctx, func(ch *amqp.Channel) error {
		for _, s := range sources {
			var err error
			if direct {
				err = ch.QueueBind(queue, s.key, s.exchange, false, nil)
			} else {
				err = ch.ExchangeBind(queue, s.key, s.exchange, false, nil)
			}
			if err != nil {
				return fmt.Errorf("bind it to the topic %q: %w", s.topic, err)
			}
		}
		return nil
	})
}

// unsubscribe removes both possible bindings. The broker accepts it if there is none, or if
// one end of it does not exist.
func (t *Transport) unsubscribe(ctx context.Context, queue string, sources []source) error {
	return t.admin(ctx, func(ch *amqp.Channel) error {
		for _, s := range sources {
			err := ch.QueueUnbind(queue, s.key, s.exchange, nil)
			if err == nil && t.cfg.Topology != Direct {
				err = ch.ExchangeUnbind(queue, s.key, s.exchange, false, nil)
			}
			if err != nil {
				return fmt.Errorf("remove its binding to the topic %q: %w", s.topic, err)
			}
		}
		return nil
	})
}
