package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/amqperror"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/declarations"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/delays"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/names"
)

const (
	// bindingTTL is how long a queue is assumed to exist and to be bound: the broker would
	// not return a delayed message to a missing queue.
	bindingTTL = time.Second

	// delaysTimeout bounds the declaration of all levels: 28 queues, the first time.
	delaysTimeout = 2 * time.Minute
)

// topicRoute returns the exchange and the routing key for messages to a topic.
func (t *Transport) topicRoute(topic string) (exchange, key string, err error) {
	switch t.cfg.Topology {
	case Direct:
		key, err = names.TopicKey(topic)
		return names.DirectExchange, key, err
	case NServiceBus:
		exchange, err = names.EventExchange(topic)
		return exchange, "", err
	}
	exchange, err = names.TopicExchange(topic)
	return exchange, "", err
}

// ensureTopic ensures that the exchange of a topic exists, so that publishing without
// subscribers is no error, and that it is bound to the exchanges of the base topics. The
// result is remembered until the Cache forgets it.
func (t *Transport) ensureTopic(ctx context.Context, topic string, bases []string) error {
	exchange, _, err := t.topicRoute(topic)
	if err != nil {
		return err
	}
	to := make([]string, 0, len(bases)+1)
	for _, base := range bases {
		name, _, err := t.topicRoute(base)
		if err != nil {
			return err
		}
		to = append(to, name)
	}
	if t.cfg.Topology == NServiceBus && exchange != names.EveryEvent && !slices.Contains(to, names.EveryEvent) {
		to = append(to, names.EveryEvent)
	}
	name := exchange
	if len(to) > 0 {
		name += "\n" + strings.Join(to, "\n") // a name cannot contain a line break
	}
	return t.declarations.Ensure(ctx, declarations.Part{Kind: declarations.Topic, Name: name}, 0, operationTimeout, func(ctx context.Context) error {
		return t.declareHierarchy(ctx, exchange, to)
	})
}

// declareHierarchy declares the exchange of a topic, and binds it to the exchanges in to.
func (t *Transport) declareHierarchy(ctx context.Context, exchange string, to []string) error {
	if err := t.declareExchange(ctx, exchange, false); err != nil {
		return err
	}
	for _, base := range to {
		if base == exchange { // of two nested types, or of a type and IEvent
			continue
		}
		if err := t.declareExchange(ctx, base, false); err != nil {
			return err
		}
		if err := t.admin(ctx, func(ch *amqp.Channel) error { return ch.ExchangeBind(base, "", exchange, false, nil) }); err != nil {
			return fmt.Errorf("bind the exchange %q to that of a base type, %q: %w", exchange, base, err)
		}
	}
	return nil
}

// lookUpExchange looks up the exchange of a queue's name. Without one it returns
// declarations.ErrNoExchange.
func (t *Transport) lookUpExchange(ctx context.Context, queue string) error {
	return t.declarations.Ensure(ctx, declarations.Part{Kind: declarations.Exchange, Name: queue}, 0, operationTimeout, func(ctx context.Context) error {
		err := t.checkExchangeExists(ctx, queue)
		if amqperror.KindOf(err) == amqperror.NoExchange {
			return transport.Permanent(declarations.ErrNoExchange)
		}
		return err
	})
}

// ensureDelayedBinding ensures that a delayed message to a queue will reach it. If there is
// no such queue, it is an error of kind amqperror.NoQueue.
func (t *Transport) ensureDelayedBinding(ctx context.Context, queue string) error {
	if err := t.ensureDelays(ctx); err != nil {
		return err
	}
	return t.declarations.Ensure(ctx, declarations.Part{Kind: declarations.Binding, Name: queue}, bindingTTL, operationTimeout, func(ctx context.Context) error {
		if err := t.bindDelayed(ctx, queue, true); err != nil {
			return fmt.Errorf("bind the queue %q for delayed messages: %w", queue, err)
		}
		return nil
	})
}

// ensureDelays ensures that the topology of delayed messages exists.
func (t *Transport) ensureDelays(ctx context.Context) error {
	if err := t.declarations.Ensure(ctx, declarations.Part{Kind: declarations.Delays}, 0, delaysTimeout, t.declareDelays); err != nil {
		return err
	}
	return t.declarations.Ensure(ctx, declarations.Part{Kind: declarations.Undelivered}, 0, operationTimeout, t.declareUndelivered)
}

// declareDelays declares the topology of delayed messages. If the user has no right to do
// so, an existing topology suffices.
func (t *Transport) declareDelays(ctx context.Context) error {
	err := t.declareQueues(ctx, delays.Declare)
	if amqperror.KindOf(err) != amqperror.Refused {
		return err
	}
	there := t.admin(ctx, delays.CheckExists)
	if there == nil {
		return nil
	}
	return errors.Join(err, there)
}

// declareExchange declares the exchange of a queue or of a topic, optionally one that is
// deleted with its last binding. If the user has no right to declare it, an existing
// exchange suffices.
func (t *Transport) declareExchange(ctx context.Context, name string, autoDelete bool) error {
	err := t.admin(ctx, func(ch *amqp.Channel) error {
		return ch.ExchangeDeclare(name, amqp.ExchangeFanout, true, autoDelete, false, false, nil)
	})
	switch amqperror.KindOf(err) {
	case amqperror.Refused:
		if t.checkExchangeExists(ctx, name) == nil {
			return nil
		}
	case amqperror.Mismatch:
		m, _ := parseMismatch(err, "exchange", name, "")
		switch m.name {
		case "auto_delete":
			if autoDelete { // the existing exchange only lasts longer
				return nil
			}
			return exchangeMismatch(name, err)
		case "type", "durable", "internal":
			return exchangeMismatch(name, err)
		}
		return nil // for example an alternate exchange
	}
	if err != nil {
		return fmt.Errorf("declare the exchange %q: %w", name, err)
	}
	return nil
}

func exchangeMismatch(name string, err error) error {
	return fmt.Errorf("the exchange %q is not as it must be, durable and of type fanout: delete it, or use another name for the queue or topic that needs it: %w", name, err)
}
