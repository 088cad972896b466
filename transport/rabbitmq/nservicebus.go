package rabbitmq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/amqperror"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/deliverylimit"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/management"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/names"
)

// This file implements the topology of NServiceBus (Config.Topology): its conventional
// routing topology, in which all queues, exchanges and bindings are declared as NServiceBus
// does.

// declareAsNServiceBus declares a queue as NServiceBus's installer does. It fails if the
// queue was declared differently.
func (t *Transport) declareAsNServiceBus(ctx context.Context, queue string) error {
	err := t.declareQueues(ctx, func(ch *amqp.Channel) error {
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

// inspectLimit asks the management API for the limits of a quorum queue.
func (t *Transport) inspectLimit(ctx context.Context, queue string) (*deliverylimit.Queue, error) {
	conn, err := t.adminConn.get(ctx)
	if err != nil {
		return nil, err
	}
	v, _ := brokerVersion(conn)
	c := &deliverylimit.Queue{Name: queue, VHost: conn.Config.Vhost, Broker: v, Wanted: deliverylimit.Default}
	if !v.HasDefaultLimit() {
		return c, nil
	}
	if t.cfg.ManagementURL == "" {
		return c, c.Unverified(nil)
	}
	info, err := t.queryManagement(ctx, conn.Config.Vhost, queue)
	if err != nil {
		return c, err
	}
	c.Argument, c.Policies = info.limit, info.policies
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
	state, err := c.CheckAsNServiceBus()
	if err != nil || state != deliverylimit.Missing {
		return err
	}
	m, err := t.managementClient()
	if err != nil {
		return err
	}
	p := deliverylimit.NewPolicy(queue, c.Broker)
	if err := m.SetLimit(ctx, c.VHost, p, deliverylimit.Default); err != nil {
		return fmt.Errorf("make the policy %q for the delivery limit of the queue %q: %w", p.Name, queue, err)
	}
	for awaitTrue := time.Now().Add(management.Lag); ; {
		if c, err = t.inspectLimit(ctx, queue); err != nil {
			return err
		}
		if state, err = c.CheckAsNServiceBus(); err == nil && state == deliverylimit.InForce {
			return nil
		}
		if time.Now().After(awaitTrue) {
			return fmt.Errorf("the policy %q was made, but does not apply to the queue %q: %w", p.Name, queue, cmp.Or(err, errNotInForce))
		}
		if err := management.Pause(ctx); err != nil {
			return err
		}
	}
}

// removeLimit deletes the policy for the delivery limit of a queue that provisionLimit makes.
func (t *Transport) removeLimit(ctx context.Context, queue string) error {
	if t.cfg.Topology != NServiceBus || t.cfg.ManagementURL == "" {
		return nil
	}
	conn, err := t.adminConn.get(ctx)
	if err != nil {
		return err
	}
	m, err := t.managementClient()
	if err != nil {
		return err
	}
	v, _ := brokerVersion(conn)
	p, vhost := deliverylimit.NewPolicy(queue, v), conn.Config.Vhost
	policies, err := m.Policies(ctx, vhost)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(policies, func(other *deliverylimit.Policy) bool { return other.Name == p.Name && other.Pattern == p.Pattern }) {
		return nil
	}
	if err := m.DeletePolicy(ctx, vhost, p.Name); err != nil {
		return fmt.Errorf("delete the policy %q: %w", p.Name, err)
	}
	return nil
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
