package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
)

// Provision creates what is missing: the topology of delayed messages and the queues
// "reprise.unroutable" and "reprise.undelivered" for those whose queue is deleted while
// they wait, which all endpoints of a virtual host share (unless Config.NoDelays), each queue, and what messages come to it by: in the
// Conventional topology an exchange of the same name, and a binding for delayed messages.
//
// The broker deletes the queue of an instance Config.InstanceQueueExpiry after its last
// receiver left, and its exchange with it.
//
// In the topology of NServiceBus queues have no x-delivery-limit, and one that was declared in
// another way than NServiceBus declares it is an error. From RabbitMQ 4.0 on the limit is a
// policy, which Provision makes by Config.ManagementURL if there is no limit. Another limit is an
// error for the InputQueue of topology, and a warning for the others.
//
// It changes nothing that exists. A queue of another type than Config says, one that
// does not last, or one with a delivery limit below Config.DeliveryLimit is an error
// that names both values (C18), and so is the queue of an instance with another expiry. Other arguments of a queue are its owner's
// responsibility. Where the user may not configure something that exists, it is taken as it is.
func (t *Transport) Provision(ctx context.Context, topology core.Topology) error {
	err := t.life.Err(ctx)
	if err == nil {
		err = t.provision(ctx, topology)
	}
	if err != nil {
		return fmt.Errorf("rabbitmq: provision: %w", transport.Unavailable(ctx, err, transient))
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
	if t.caps.DelayedDelivery {
		if err := t.known.delays(ctx, t); err != nil {
			return explained(err)
		}
	}
	var errs []error
	var made []string
	for i, queue := range queues {
		instance := queue == topology.InstanceQueue
		created := false
		err := within(ctx, func(ctx context.Context) (err error) {
			created, err = t.provisionQueue(ctx, queue, instance)
			return err
		})
		if created && !instance {
			made = append(made, queue)
		}
		if err == nil && !instance {
			err = t.provisionLimit(ctx, queue, topology.Queues[i] == topology.InputQueue)
		}
		if err != nil {
			errs = append(errs, explained(err))
			if ctx.Err() != nil || transient(err) {
				break // each queue would only repeat it
			}
		}
	}
	_ = within(ctx, func(ctx context.Context) error { t.warnOfNServiceBus(ctx, made); return nil })
	return errors.Join(errs...)
}

func (t *Transport) provisionQueue(ctx context.Context, queue string, instance bool) (created bool, err error) {
	err = t.find(ctx, queue)
	if faultOf(err) == faultNoQueue {
		created = true
		err = t.createQueue(ctx, queue, instance)
	} else if err == nil {
		err = t.compare(ctx, queue, instance)
	}
	if err != nil {
		return false, err
	}
	return created, t.provisionBindings(ctx, queue, instance)
}

// provisionBindings makes what messages come to a queue by.
func (t *Transport) provisionBindings(ctx context.Context, queue string, instance bool) (err error) {
	if t.cfg.Topology != Direct {
		// One that the broker deletes with its last binding goes with an instance's queue.
		if err := t.declareExchange(ctx, queue, instance && t.cfg.InstanceQueueExpiry > 0); err != nil {
			return err
		}
		err = t.admin(ctx, func(ch *amqp.Channel) error { return ch.QueueBind(queue, "", queue, false, nil) })
	}
	if err == nil && t.caps.DelayedDelivery {
		// Each queue of an instance would leave a binding behind when it expires.
		err = t.bindDelayed(ctx, queue, !instance)
	}
	if err != nil {
		return fmt.Errorf("bind the queue %q: %w", queue, err)
	}
	return nil
}

func (t *Transport) createQueue(ctx context.Context, queue string, instance bool) error {
	arguments := t.declaration(instance)
	if instance && t.cfg.InstanceQueueExpiry > 0 {
		arguments[expiryArgument] = t.cfg.InstanceQueueExpiry.Milliseconds()
	}
	err := t.admin(ctx, func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare(queue, true, false, false, false, arguments)
		return err
	})
	if faultOf(err) == faultMismatch { // somebody else has made it meanwhile
		if t.find(ctx, queue) == nil {
			return t.compare(ctx, queue, instance)
		}
	}
	if err != nil {
		return fmt.Errorf("create the queue %q: %w", queue, err)
	}
	return nil
}

// compare returns an error if a queue that exists is not one that Provision would have
// created, in what matters.
func (t *Transport) compare(ctx context.Context, queue string, instance bool) error {
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
	if instance && f.known() {
		if err := f.otherExpiry(queue, t.cfg.InstanceQueueExpiry); err != nil {
			return err
		}
	}
	if t.cfg.Topology == NServiceBus && !instance {
		return t.declareAsNServiceBus(ctx, queue)
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

// otherExpiry returns an error if an instance's queue is not deleted when it has to be.
func (f *facts) otherExpiry(queue string, want time.Duration) error {
	has := max(f.expiry, 0)
	if has == max(want, 0) {
		return nil
	}
	shown := func(d time.Duration) string {
		if d <= 0 {
			return "none"
		}
		return fmt.Sprintf("%v (%d)", d, d.Milliseconds())
	}
	set := "to " + has.String()
	if has == 0 {
		set = "to core.Off"
	}
	return transport.Permanent(fmt.Errorf("the queue %q of an instance has the expiry (%s) %s, but Config.InstanceQueueExpiry says %s: delete it, so that Provision makes it anew, or set Config.InstanceQueueExpiry %s",
		queue, expiryArgument, shown(has), shown(want), set))
}

// declareExchange declares the exchange of a queue or of a topic, perhaps as one that is
// deleted with its last binding. If the user may not, but it is there, that will do.
func (t *Transport) declareExchange(ctx context.Context, name string, autoDelete bool) error {
	err := t.admin(ctx, func(ch *amqp.Channel) error {
		return ch.ExchangeDeclare(name, amqp.ExchangeFanout, true, autoDelete, false, false, nil)
	})
	switch faultOf(err) {
	case faultRefused:
		if t.hasExchange(ctx, name) == nil {
			return nil
		}
	case faultMismatch:
		d, _ := readDifference(err, "exchange", name, "")
		switch d.name {
		case "auto_delete":
			if autoDelete { // it only stays for longer
				return nil
			}
			return exchangeMismatch(name, err)
		case "type", "durable", "internal":
			return exchangeMismatch(name, err)
		}
		return nil // an alternate exchange, say
	}
	if err != nil {
		return fmt.Errorf("declare the exchange %q: %w", name, err)
	}
	return nil
}

func exchangeMismatch(name string, err error) error {
	return fmt.Errorf("the exchange %q is not as it must be, durable and of type fanout: delete it, or give what needs it another name: %w", name, err)
}

// hasExchange returns an error if an exchange does not exist.
func (t *Transport) hasExchange(ctx context.Context, name string) error {
	return t.admin(ctx, func(ch *amqp.Channel) error {
		return ch.ExchangeDeclarePassive(name, amqp.ExchangeFanout, true, false, false, false, nil)
	})
}
