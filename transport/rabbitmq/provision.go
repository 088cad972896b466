package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/amqperror"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/delays"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/deliverylimit"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/names"
)

// Provision creates missing parts: first each queue and, except in the Direct topology, an
// exchange of the same name. Unless Config.NoDelays is set it also creates the parts for
// delayed messages: the delay levels and the queues "reprise.unroutable" and
// "reprise.undelivered" (for messages whose queue is deleted during their delay), which all
// endpoints of a virtual host share, and a binding of each queue.
//
// With QueueExpiry in topology (core.Config.QueueExpiry) the broker deletes the input queue,
// with its messages and its exchange, that long after its last receiver left. It is at least
// 1 s, at most 49 days, and in whole milliseconds.
//
// In the topology of NServiceBus queues have no x-delivery-limit, and a queue that was not
// declared as NServiceBus declares it is an error. From RabbitMQ 4.0 on the limit is a
// policy, which Provision makes through Config.ManagementURL if there is no limit. Another
// limit is an error for the InputQueue of topology, and a warning for the others.
//
// Provision changes nothing that exists. A queue of another type than Config.QueueType, a
// queue that is not durable, a queue with a delivery limit below Config.DeliveryLimit, and
// an input queue with another expiry than QueueExpiry are errors that name both values.
// Other arguments of a queue are its owner's responsibility. If the user has no right to
// configure an existing part, it is used as it is.
func (t *Transport) Provision(ctx context.Context, topology core.Topology) error {
	err := t.life.Err(ctx)
	if err == nil {
		err = t.provision(ctx, topology)
	}
	if err != nil {
		return fmt.Errorf("rabbitmq: provision: %w", transport.Unavailable(ctx, err, amqperror.IsTransient))
	}
	return nil
}

func (t *Transport) provision(ctx context.Context, topology core.Topology) error {
	if err := checkExpiry(topology.QueueExpiry); err != nil {
		return err
	}
	queues := make([]string, len(topology.Queues))
	for i, name := range topology.Queues {
		var err error
		if queues[i], err = names.Queue(name); err != nil {
			return err
		}
	}
	var errs []error
	var made []string
	expiries := map[string]time.Duration{}
	for i, queue := range queues {
		isInput := topology.Queues[i] == topology.InputQueue
		expiry := time.Duration(0)
		if isInput {
			expiry = topology.QueueExpiry
			expiries[queue] = expiry
		}
		created := false
		err := withTimeout(ctx, func(ctx context.Context) (err error) {
			created, err = t.provisionQueue(ctx, queue, expiry)
			return err
		})
		if expiry == 0 {
			if created {
				made = append(made, queue)
			}
			if err == nil {
				err = t.provisionLimit(ctx, queue, isInput)
			}
		}
		if err != nil {
			errs = append(errs, amqperror.Explain(err))
			if ctx.Err() != nil || amqperror.IsTransient(err) {
				break // each queue would only repeat it
			}
		}
	}
	_ = withTimeout(ctx, func(ctx context.Context) error { t.warnOfNServiceBus(ctx, made); return nil })
	if len(errs) == 0 && t.caps.DelayedDelivery {
		errs = append(errs, amqperror.Explain(t.provisionDelays(ctx, queues, expiries)))
	}
	return errors.Join(errs...)
}

// provisionDelays makes the parts for delayed messages, after the endpoint's queues: a limit
// of the virtual host may have no room for both.
func (t *Transport) provisionDelays(ctx context.Context, queues []string, expiries map[string]time.Duration) error {
	if err := t.ensureDelays(ctx); err != nil {
		if amqperror.QueueLimitReached(err) {
			return fmt.Errorf("delayed messages need %d queues, which the endpoints of a virtual host share: "+
				"raise the limit, or set Config.NoDelays and delete the empty queues %slevel-* that exist: %w", delays.Levels+2, delays.Prefix, err)
		}
		return err
	}
	for _, queue := range queues {
		err := withTimeout(ctx, func(ctx context.Context) error {
			return t.bindDelayed(ctx, queue, expiries[queue] == 0) // each queue that expires would leave a binding behind
		})
		if err != nil {
			return fmt.Errorf("bind the queue %q for delayed messages: %w", queue, err)
		}
	}
	return nil
}

// Limits of the argument x-expires.
const (
	minExpiry = time.Second
	maxExpiry = 49 * 24 * time.Hour // the broker's limit is 2^32 ms
)

// checkExpiry refuses a Topology.QueueExpiry that the broker would not accept.
func checkExpiry(expiry time.Duration) error {
	if expiry == 0 || expiry >= minExpiry && expiry <= maxExpiry && expiry%time.Millisecond == 0 {
		return nil
	}
	return transport.Permanent(fmt.Errorf("Config.QueueExpiry of the endpoint is %v, but RabbitMQ deletes a queue (%s) after %v to %v in whole milliseconds; set such a time, or remove it", expiry, expiryArgument, minExpiry, maxExpiry))
}

// provisionQueue creates a queue if it is missing, and its bindings. An expiry of 0 means
// none.
func (t *Transport) provisionQueue(ctx context.Context, queue string, expiry time.Duration) (created bool, err error) {
	err = t.checkQueueExists(ctx, queue)
	if amqperror.KindOf(err) == amqperror.NoQueue {
		created = true
		err = t.createQueue(ctx, queue, expiry)
	} else if err == nil {
		err = t.compare(ctx, queue, expiry)
	}
	if err != nil {
		return false, err
	}
	return created, t.provisionBindings(ctx, queue, expiry > 0)
}

// provisionBindings declares the exchange and the bindings through which a queue gets
// messages.
func (t *Transport) provisionBindings(ctx context.Context, queue string, expires bool) (err error) {
	if t.cfg.Topology != Direct {
		// The broker deletes an auto-delete exchange together with a queue that expires.
		if err := t.declareExchange(ctx, queue, expires); err != nil {
			return err
		}
		err = t.admin(ctx, func(ch *amqp.Channel) error { return ch.QueueBind(queue, "", queue, false, nil) })
	}
	if err != nil {
		return fmt.Errorf("bind the queue %q: %w", queue, err)
	}
	return nil
}

const (
	// declareRepeats is how often the declaration of queues is repeated after an internal
	// error: a quorum queue has to elect a leader, which may take too long on a busy node
	// ("cluster_not_formed"), and the broker then removes the queue again.
	declareRepeats = 5
	declarePause   = time.Second
)

// declareQueues is admin for an operation that declares queues, which may be repeated.
func (t *Transport) declareQueues(ctx context.Context, declare func(*amqp.Channel) error) error {
	err := t.admin(ctx, declare)
	for range declareRepeats {
		if !isInternal(err) || transport.Sleep(ctx, t.life.Context(), declarePause, nil) != nil {
			break
		}
		err = t.admin(ctx, declare)
	}
	return err
}

// isInternal reports whether the broker answered with an internal error.
func isInternal(err error) bool {
	said, ok := errors.AsType[*amqp.Error](err)
	return ok && said.Server && said.Code == amqp.InternalError
}

func (t *Transport) createQueue(ctx context.Context, queue string, expiry time.Duration) error {
	arguments := t.queueArguments(expiry > 0)
	if expiry > 0 {
		arguments[expiryArgument] = expiry.Milliseconds()
	}
	if t.isSingleActive(queue) {
		arguments[singleActiveArgument] = true
	}
	err := t.declareQueues(ctx, func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare(queue, true, false, false, false, arguments)
		return err
	})
	if amqperror.KindOf(err) == amqperror.Mismatch { // another process has created it in between
		if t.checkQueueExists(ctx, queue) == nil {
			return t.compare(ctx, queue, expiry)
		}
	}
	if err != nil {
		return fmt.Errorf("create the queue %q: %w", queue, err)
	}
	return nil
}

// compare returns an error if an existing queue differs from Provision's declaration in an
// essential property.
func (t *Transport) compare(ctx context.Context, queue string, expiry time.Duration) error {
	conn, err := t.adminConn.get(ctx)
	if err != nil {
		return err
	}
	info, err := t.probe(ctx, conn.Config.Vhost, queue)
	if err != nil {
		return err
	}
	if err := info.mismatch(queue, t.cfg.QueueType); err != nil {
		return err
	}
	if expiry > 0 && info.isKnown() && info.expiry != expiry {
		return info.otherExpiry(queue, expiry)
	}
	if t.isSingleActive(queue) && info.isKnown() && !info.singleActive {
		return transport.Permanent(fmt.Errorf("the queue %q was made without %s, but Config.SingleActiveConsumers names it: move its messages and delete it, so that Provision makes it anew, or remove the name",
			queue, singleActiveArgument))
	}
	if t.cfg.Topology == NServiceBus && expiry == 0 {
		return t.declareAsNServiceBus(ctx, queue)
	}
	if t.cfg.QueueType != Quorum || info.limit == nil || *info.limit >= t.cfg.DeliveryLimit {
		return nil
	}
	if v, _ := brokerVersion(conn); *info.limit < 0 && v.HasDefaultLimit() {
		return nil // no limit
	}
	return transport.Permanent(fmt.Errorf("the queue %q has the delivery limit (%s) %d, but Config.DeliveryLimit says %d: delete it, so that Provision makes it anew, or set Config.DeliveryLimit to %d or less",
		queue, deliverylimit.Argument, *info.limit, t.cfg.DeliveryLimit, max(*info.limit, 1)))
}

// isSingleActive reports whether Config.SingleActiveConsumers names a queue.
func (t *Transport) isSingleActive(queue string) bool {
	return slices.Contains(t.cfg.SingleActiveConsumers, queue)
}

// otherExpiry returns the error for a queue with another expiry than QueueExpiry says.
func (info *queueInfo) otherExpiry(queue string, want time.Duration) error {
	has, set := "none", "remove Config.QueueExpiry"
	if info.expiry > 0 {
		has, set = fmt.Sprintf("%v (%d)", info.expiry, info.expiry.Milliseconds()), fmt.Sprintf("set Config.QueueExpiry to %v", info.expiry)
	}
	return transport.Permanent(fmt.Errorf("the queue %q has the expiry (%s) %s, but Config.QueueExpiry of the endpoint says %v (%d): delete it, so that Provision makes it anew, or %s",
		queue, expiryArgument, has, want, want.Milliseconds(), set))
}
