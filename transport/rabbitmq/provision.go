package rabbitmq

import (
	"context"
	"errors"
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
)

// Provision creates what is missing: the topology of delayed messages, which all
// endpoints of a virtual host share, each queue, and what messages come to it by: in the
// Conventional topology an exchange of the same name, and a binding for delayed messages.
//
// It changes nothing that exists. A queue of another type than Config says, one that
// does not last, or one with a delivery limit below Config.DeliveryLimit is an error
// that names both values (C18). What else a queue was declared with is its owner's
// affair. Where the user may not configure something that exists, it is taken as it is.
func (t *Transport) Provision(ctx context.Context, topology core.Topology) error {
	err := t.life.Err(ctx)
	if err == nil {
		err = t.provision(ctx, topology)
	}
	if err != nil {
		return fmt.Errorf("rabbitmq: provision: %w", err)
	}
	return nil
}

func (t *Transport) provision(ctx context.Context, topology core.Topology) error {
	queues := make([]string, len(topology.Queues))
	for i, name := range topology.Queues {
		var err error
		if queues[i], err = queueName(name); err != nil {
			return err
		}
	}
	if err := t.known.delays(ctx, t); err != nil {
		return explained(err)
	}
	var errs []error
	for _, queue := range queues {
		if err := within(ctx, func(ctx context.Context) error { return t.provisionQueue(ctx, queue) }); err != nil {
			errs = append(errs, explained(err))
			if ctx.Err() != nil || transient(err) {
				break // each queue would only repeat it
			}
		}
	}
	return errors.Join(errs...)
}

func (t *Transport) provisionQueue(ctx context.Context, queue string) error {
	err := t.find(ctx, queue)
	if faultOf(err) == faultNoQueue {
		err = t.createQueue(ctx, queue)
	} else if err == nil {
		err = t.compare(ctx, queue)
	}
	if err != nil {
		return err
	}
	if t.cfg.Topology == Conventional {
		if err := t.declareExchange(ctx, queue); err != nil {
			return err
		}
	}
	err = t.admin(ctx, func(ch *amqp.Channel) error {
		if t.cfg.Topology == Conventional {
			if err := ch.QueueBind(queue, "", queue, false, nil); err != nil {
				return err
			}
		}
		return ch.QueueBind(queue, deliveryBinding(queue), deliveryExchange, false, nil)
	})
	if err != nil {
		return fmt.Errorf("bind the queue %q: %w", queue, err)
	}
	return nil
}

func (t *Transport) createQueue(ctx context.Context, queue string) error {
	err := t.admin(ctx, func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare(queue, true, false, false, false, t.declaration())
		return err
	})
	if faultOf(err) == faultMismatch { // somebody else has made it meanwhile
		if t.find(ctx, queue) == nil {
			return t.compare(ctx, queue)
		}
	}
	if err != nil {
		return fmt.Errorf("create the queue %q: %w", queue, err)
	}
	return nil
}

// compare returns an error if a queue that exists is not one that Provision would have
// created, in what matters.
func (t *Transport) compare(ctx context.Context, queue string) error {
	conn, err := t.asking.get(ctx)
	if err != nil {
		return err
	}
	f, err := t.probe(ctx, conn.Config.Vhost, queue)
	if err != nil {
		return err
	}
	if err := f.mismatch(queue, t.cfg.QueueType); err != nil {
		return err
	}
	if t.cfg.QueueType != Quorum || f.limit == nil || *f.limit >= t.cfg.DeliveryLimit {
		return nil
	}
	if b, _ := brokerOf(conn); *f.limit < 0 && b.limits() {
		return nil // which is none
	}
	return transport.Permanent(fmt.Errorf("the queue %q has the delivery limit (%s) %d, but Config.DeliveryLimit says %d: delete it, so that Provision makes it anew, or set Config.DeliveryLimit to %d or less",
		queue, limitArgument, *f.limit, t.cfg.DeliveryLimit, max(*f.limit, 1)))
}

// declareExchange declares the exchange of a queue or of a topic. If the user may not,
// but it is there, that will do.
func (t *Transport) declareExchange(ctx context.Context, name string) error {
	err := t.admin(ctx, func(ch *amqp.Channel) error {
		return ch.ExchangeDeclare(name, amqp.ExchangeFanout, true, false, false, false, nil)
	})
	switch faultOf(err) {
	case faultRefused:
		if t.hasExchange(ctx, name) == nil {
			return nil
		}
	case faultMismatch:
		d, _ := readDifference(err, "exchange", name, "")
		switch d.name {
		case "type", "durable", "auto_delete", "internal":
			return fmt.Errorf("the exchange %q is not as it must be, durable and of type fanout: delete it, or give what needs it another name: %w", name, err)
		}
		return nil // an alternate exchange, say
	}
	if err != nil {
		return fmt.Errorf("declare the exchange %q: %w", name, err)
	}
	return nil
}

// hasExchange returns an error if an exchange does not exist.
func (t *Transport) hasExchange(ctx context.Context, name string) error {
	return t.admin(ctx, func(ch *amqp.Channel) error {
		return ch.ExchangeDeclarePassive(name, amqp.ExchangeFanout, true, false, false, false, nil)
	})
}
