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
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/amqperror"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/names"
)

// This file implements the topology of NServiceBus (Config.Topology): its conventional
// routing topology, in which all queues, exchanges and bindings are declared as NServiceBus
// does.

// declareAsNServiceBus declares a queue as NServiceBus's installer does. It fails if the
// queue was declared differently.
func (t *Transport) declareAsNServiceBus(ctx context.Context, queue string) error {
	err := t.admin(ctx, func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare(queue, true, false, false, false, t.queueArguments(false))
		return err
	})
	switch amqperror.KindOf(err) {
	case amqperror.Refused: // the queue is used as it is
		return nil
	case amqperror.Mismatch:
		return fmt.Errorf("the queue %q is not as NServiceBus declares it, and its installer would fail as this does: "+
			"move its messages to one that is (docs/transports/rabbitmq.md, \"Queues that Reprise made before\"), or set Config.Topology to Conventional: %w", queue, err)
	}
	return explainExclusive(queue, err)
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
func (c *limitCheck) checkAsNServiceBus() (limitState, error) {
	if !c.broker.hasDefaultLimit() {
		return limitNotNeeded, nil
	}
	lowest := math.MaxInt
	var descriptions, fixes []string
	var user *policy
	set := func(limit int, source, fix string) {
		lowest = min(lowest, limit)
		if limit != defaultDeliveryLimit {
			descriptions, fixes = append(descriptions, fmt.Sprintf("%s %d", source, limit)), append(fixes, fix)
		}
	}
	if c.argument != nil {
		set(*c.argument, "its argument "+limitArgument+" is", "move its messages to a queue without the argument (docs/transports/rabbitmq.md, \"Queues that Reprise made before\")")
	}
	for _, p := range c.policies {
		if !p.isOperator {
			user = p
		}
		if n, ok := p.limit(); ok {
			set(n, fmt.Sprintf("%v says", p), "run "+p.fixCommand(c.vhost, defaultDeliveryLimit))
		}
	}
	switch {
	case lowest == defaultDeliveryLimit:
		return limitInForce, nil
	case lowest != math.MaxInt:
		return 0, transport.Permanent(fmt.Errorf("the delivery limit of the queue %q must be %d beside NServiceBus, which does not start with another one, but %s. To fix: %s",
			c.queue, defaultDeliveryLimit, strings.Join(descriptions, ", "), strings.Join(fixes, "; and ")))
	case user != nil:
		return 0, transport.Permanent(fmt.Errorf("the delivery limit of the queue %q must be %d beside NServiceBus, but %v applies to it, which says none, and a queue has one policy at most. To fix: run %s",
			c.queue, defaultDeliveryLimit, user, user.fixCommand(c.vhost, defaultDeliveryLimit)))
	}
	return limitMissing, nil
}

// inspectLimit asks the management API for the limits of a quorum queue.
func (t *Transport) inspectLimit(ctx context.Context, queue string) (*limitCheck, error) {
	conn, err := t.adminConn.get(ctx)
	if err != nil {
		return nil, err
	}
	v, _ := brokerVersion(conn)
	c := &limitCheck{queue: queue, vhost: conn.Config.Vhost, broker: v, wanted: defaultDeliveryLimit}
	if !v.hasDefaultLimit() {
		return c, nil
	}
	if t.cfg.ManagementURL == "" {
		return c, c.unverified(nil)
	}
	info, err := t.queryManagement(ctx, conn.Config.Vhost, queue)
	if err != nil {
		return c, err
	}
	c.argument, c.policies = info.limit, info.policies
	return c, nil
}

// provisionLimit makes the policy for the delivery limit of a queue, if it is missing.
// Another limit is an error for a queue that an endpoint receives from. For other queues,
// whose limit NServiceBus does not read either, it is a warning.
func (t *Transport) provisionLimit(ctx context.Context, queue string, received bool) error {
	if t.cfg.Topology != NServiceBus || t.cfg.QueueType != Quorum || !received && t.cfg.ManagementURL == "" {
		return nil
	}
	err := withTimeout(ctx, func(ctx context.Context) error { return t.makeLimitPolicy(ctx, queue) })
	if err != nil && !received && transport.IsPermanent(err) {
		t.warnings.Add(err.Error())
		return nil
	}
	return err
}

func (t *Transport) makeLimitPolicy(ctx context.Context, queue string) error {
	c, err := t.inspectLimit(ctx, queue)
	if err != nil {
		if t.cfg.UnverifiedDeliveryLimit {
			return nil
		}
		return err
	}
	state, err := c.checkAsNServiceBus()
	if err != nil || state != limitMissing {
		return err
	}
	m, err := t.managementClient()
	if err != nil {
		return err
	}
	p := limitPolicy(queue, c.broker)
	if err := m.setLimit(ctx, c.vhost, p, defaultDeliveryLimit); err != nil {
		return fmt.Errorf("make the policy %q for the delivery limit of the queue %q: %w", p.Name, queue, err)
	}
	for until := time.Now().Add(managementLag); ; {
		if c, err = t.inspectLimit(ctx, queue); err != nil {
			return err
		}
		if state, err = c.checkAsNServiceBus(); err == nil && state == limitInForce {
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
	if len(made) == 0 || t.cfg.Topology == NServiceBus || t.checkExchangeExists(ctx, names.EveryEvent) != nil {
		return
	}
	t.warnings.Add(fmt.Sprintf("endpoints of NServiceBus publish in this virtual host (there is the exchange %s), and the queues %q were not created as NServiceBus declares them: "+
		"its installer fails for each of them that it needs too, such as a shared error queue, and events of one side do not reach the other. "+
		"To fix: set Config.Topology to NServiceBus (docs/transports/rabbitmq.md)", names.EveryEvent, made))
}
