package rabbitmq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/transport"
)

// This file implements the topology of NServiceBus (Config.Topology): its conventional
// routing topology, in which all queues, exchanges and bindings are declared as NServiceBus
// does.

const (
	// everyEvent is the exchange to which NServiceBus binds the exchanges of all classes.
	everyEvent = "System:Object"

	// iEvent is the marker of events. NServiceBus treats a subscription to it as a
	// subscription to all events, whether or not their types have the marker.
	iEvent = "NServiceBus.IEvent"
)

// eventExchange returns the name of the exchange of an event in NServiceBus's topology: for
// the type "Shop.Billing.OrderPlaced" it is "Shop.Billing:OrderPlaced". Like NServiceBus it
// leaves out the classes that enclose a nested type.
func eventExchange(topic string) (string, error) {
	exchange := eventExchangeName(topic)
	err := checkName("topic", topic, maxShortString)
	switch {
	case err != nil:
	case strings.ContainsAny(topic, "`[]"):
		err = fmt.Errorf("the topology of NServiceBus has no topic for a generic type: %q; publish a type that is none", topic)
	case strings.Contains(topic, ":"):
		err = fmt.Errorf("in the topology of NServiceBus a topic is the full name of a .NET type, such as Shop.Billing.OrderPlaced, which has no colon: %q", topic)
	case strings.HasSuffix(exchange, ":"):
		err = fmt.Errorf("in the topology of NServiceBus a topic is the full name of a .NET type, such as Shop.Billing.OrderPlaced, and this one ends before the name: %q", topic)
	case strings.HasPrefix(exchange, brokersOwn):
		err = fmt.Errorf("the exchange of a topic cannot begin with %q, which is for the broker itself: %q", brokersOwn, topic)
	case len(exchange) > maxShortString:
		err = fmt.Errorf("the exchange of the topic %.40q... may have %d bytes, but has %d", topic, maxShortString, len(exchange))
	}
	if err != nil {
		return "", transport.Permanent(err)
	}
	return exchange, nil
}

func eventExchangeName(topic string) string {
	if topic == iEvent {
		return everyEvent
	}
	outer, nested, _ := strings.Cut(topic, "+")
	namespace, name := "", outer
	if at := strings.LastIndexByte(outer, '.'); at >= 0 {
		namespace, name = outer[:at], outer[at+1:]
	}
	if nested != "" {
		name = nested[strings.LastIndexByte(nested, '+')+1:]
	}
	return namespace + ":" + name
}

// declareAsNServiceBus declares a queue as NServiceBus's installer does. It fails if the
// queue was declared differently.
func (t *Transport) declareAsNServiceBus(ctx context.Context, queue string) error {
	err := t.admin(ctx, func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare(queue, true, false, false, false, t.declaration(false))
		return err
	})
	switch faultOf(err) {
	case faultRefused: // the queue is used as it is
		return nil
	case faultMismatch:
		return fmt.Errorf("the queue %q is not as NServiceBus declares it, and its installer would fail as this does: "+
			"move its messages to one that is (docs/transports/rabbitmq.md, \"Queues that Reprise made before\"), or set Config.Topology to Conventional: %w", queue, err)
	}
	return locked(queue, err)
}

// limitState is the state of the delivery limit of a queue in the topology of NServiceBus.
type limitState int

const (
	limitInForce   limitState = iota // 100,000, which NServiceBus demands
	limitNotNeeded                   // the broker has none by default
	limitMissing                     // the policy has to be made
)

// checkAsNServiceBus applies the rule that NServiceBus applies at its start: the limit in
// force must be exactly 100,000, from any source; if there is no limit, NServiceBus makes a
// policy, from RabbitMQ 4.0 on. The error says why NServiceBus would not start.
func (l *limited) checkAsNServiceBus() (limitState, error) {
	if !l.broker.limits() {
		return limitNotNeeded, nil
	}
	lowest := math.MaxInt
	var says, mends []string
	var user *policy
	set := func(limit int, who, mend string) {
		lowest = min(lowest, limit)
		if limit != defaultDeliveryLimit {
			says, mends = append(says, fmt.Sprintf("%s %d", who, limit)), append(mends, mend)
		}
	}
	if l.argument != nil {
		set(*l.argument, "its argument "+limitArgument+" is", "move its messages to a queue without the argument (docs/transports/rabbitmq.md, \"Queues that Reprise made before\")")
	}
	for _, p := range l.policies {
		if !p.operators {
			user = p
		}
		if n, ok := p.limit(); ok {
			set(n, fmt.Sprintf("%v says", p), "run "+p.mended(l.vhost, defaultDeliveryLimit))
		}
	}
	switch {
	case lowest == defaultDeliveryLimit:
		return limitInForce, nil
	case lowest != math.MaxInt:
		return 0, transport.Permanent(fmt.Errorf("the delivery limit of the queue %q must be %d beside NServiceBus, which does not start with another one, but %s. To fix: %s",
			l.queue, defaultDeliveryLimit, strings.Join(says, ", "), strings.Join(mends, "; and ")))
	case user != nil:
		return 0, transport.Permanent(fmt.Errorf("the delivery limit of the queue %q must be %d beside NServiceBus, but %v applies to it, which says none, and a queue has one policy at most. To fix: run %s",
			l.queue, defaultDeliveryLimit, user, user.mended(l.vhost, defaultDeliveryLimit)))
	}
	return limitMissing, nil
}

// limitOf asks the management API for the limits of a quorum queue.
func (t *Transport) limitOf(ctx context.Context, queue string) (*limited, error) {
	conn, err := t.asking.get(ctx)
	if err != nil {
		return nil, err
	}
	b, _ := brokerOf(conn)
	l := &limited{queue: queue, vhost: conn.Config.Vhost, broker: b, wanted: defaultDeliveryLimit}
	if !b.limits() {
		return l, nil
	}
	if t.cfg.ManagementURL == "" {
		return l, l.unverified(nil)
	}
	f, err := t.managed(ctx, conn.Config.Vhost, queue)
	if err != nil {
		return l, err
	}
	l.argument, l.policies = f.limit, f.policies
	return l, nil
}

// provisionLimit makes the policy for the delivery limit of a queue, if it is missing.
// Another limit is an error for a queue that an endpoint receives from. For other queues,
// whose limit NServiceBus does not read either, it is a warning.
func (t *Transport) provisionLimit(ctx context.Context, queue string, received bool) error {
	if t.cfg.Topology != NServiceBus || t.cfg.QueueType != Quorum || !received && t.cfg.ManagementURL == "" {
		return nil
	}
	err := within(ctx, func(ctx context.Context) error { return t.makeLimitPolicy(ctx, queue) })
	if err != nil && !received && transport.IsPermanent(err) {
		t.warnings.Add(err.Error())
		return nil
	}
	return err
}

func (t *Transport) makeLimitPolicy(ctx context.Context, queue string) error {
	l, err := t.limitOf(ctx, queue)
	if err != nil {
		if t.cfg.UnverifiedDeliveryLimit {
			return nil
		}
		return err
	}
	state, err := l.checkAsNServiceBus()
	if err != nil || state != limitMissing {
		return err
	}
	m, err := t.management()
	if err != nil {
		return err
	}
	p := limitPolicy(queue, l.broker)
	if err := m.setLimit(ctx, l.vhost, p, defaultDeliveryLimit); err != nil {
		return fmt.Errorf("make the policy %q for the delivery limit of the queue %q: %w", p.Name, queue, err)
	}
	for until := time.Now().Add(managementLag); ; {
		if l, err = t.limitOf(ctx, queue); err != nil {
			return err
		}
		if state, err = l.checkAsNServiceBus(); err == nil && state == limitInForce {
			return nil
		}
		if time.Now().After(until) {
			return fmt.Errorf("the policy %q was made, but does not apply to the queue %q: %w", p.Name, queue, cmp.Or(err, errNotInForce))
		}
		if err := pauseManagement(ctx); err != nil {
			return err
		}
	}
}

var errNotInForce = errors.New("the management API shows no delivery limit of it")

// warnOfNServiceBus adds a warning if queues were made in a virtual host in which
// NServiceBus publishes: its installer fails because of them.
func (t *Transport) warnOfNServiceBus(ctx context.Context, made []string) {
	if len(made) == 0 || t.cfg.Topology == NServiceBus || t.hasExchange(ctx, everyEvent) != nil {
		return
	}
	t.warnings.Add(fmt.Sprintf("endpoints of NServiceBus publish in this virtual host (there is the exchange %s), and the queues %q were not created as NServiceBus declares them: "+
		"its installer fails for each of them that it needs too, such as a shared error queue, and events of one side do not reach the other. "+
		"To fix: set Config.Topology to NServiceBus (docs/transports/rabbitmq.md)", everyEvent, made))
}
