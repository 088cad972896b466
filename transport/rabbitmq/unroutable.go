package rabbitmq

import (
	"context"
	"errors"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/transport/rabbitmq/internal/delays"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/header"
)

// A message is in the queue of unroutable messages because the second exchange had no
// binding for its queue when it was due. Either the queue was deleted, or the broker was
// starting: it passes on due messages before it has restored all bindings, so that a
// message can miss its queue, or reach both its queue and this one.
//
// An endpoint tells the two cases apart. A client can connect only when all bindings are
// restored, so the endpoint publishes the message to the second exchange once more. Either
// the message reaches its queue, or it is unroutable again, and the first word of its
// routing key shows that it was published twice. The endpoint rejects such a message, and
// the broker moves it to the queue of undelivered messages. This never delivers a message
// twice that is delivered through NServiceBus's binding alone.
//
// The endpoint acknowledges a message when the broker has confirmed the new one. If it ends
// in between, the message is moved again later, so there may be two copies. Several
// endpoints may move messages at the same time: each takes different ones.

const (
	// maxMoved is how many messages are moved at a time. A channel that has sent a quorum
	// queue about 32 commands keeps further ones for later, and drops them when it is
	// closed.
	maxMoved = 16

	// maxMovedBytes bounds the bodies taken at a time, except that the last message may
	// exceed it.
	maxMovedBytes = 8 << 20
)

// secondKey returns the routing key with which an unroutable message is published once
// more: its first digit becomes a letter, which the binding of its queue matches as well.
// It returns false if the message was already published twice, and for a key that is not of
// a delayed message.
func secondKey(key string) (string, bool) {
	if len(key) <= len(delays.BindingPattern) {
		return "", false
	}
	for i := range delays.Levels {
		if digit := key[2*i]; digit != '0' && digit != '1' || key[2*i+1] != '.' {
			return "", false
		}
	}
	return string(key[0]-'0'+'a') + key[1:], true
}

// canRepublish reports whether a message can be published unchanged. A message whose
// headers the client library could not read would lose them, the broker refuses a message
// of another user, and further routing keys would send it to other queues again.
func canRepublish(d *amqp.Delivery) bool {
	for _, key := range []string{header.Undecodable, "CC", "BCC"} {
		if _, has := d.Headers[key]; has {
			return false
		}
	}
	return d.UserId == ""
}

// republishing returns a message to publish once more, without the headers that the broker
// has added.
func republishing(d *amqp.Delivery) amqp.Publishing {
	for key := range d.Headers {
		if key == header.Deliveries || key == header.Acquired || key == header.Death ||
			strings.HasPrefix(key, header.FirstDeathPrefix) || strings.HasPrefix(key, header.LastDeathPrefix) {
			delete(d.Headers, key)
		}
	}
	return amqp.Publishing{
		Headers: d.Headers, ContentType: d.ContentType, ContentEncoding: d.ContentEncoding, DeliveryMode: d.DeliveryMode,
		Priority: d.Priority, CorrelationId: d.CorrelationId, ReplyTo: d.ReplyTo, Expiration: d.Expiration, MessageId: d.MessageId,
		Timestamp: d.Timestamp, Type: d.Type, AppId: d.AppId, Body: d.Body,
	}
}

// moveUnroutable moves the messages of the queue of unroutable messages until none is left
// or one has to wait. It does nothing while the broker blocks publishing connections.
func (t *Transport) moveUnroutable(ctx context.Context) error {
	n, err := t.countMessages(ctx, unroutable)
	for more := n > 0; more && err == nil && !t.blocked.isBlocked(); {
		err = withTimeout(ctx, func(ctx context.Context) (err error) {
			more, err = t.moveBatch(ctx)
			return err
		})
	}
	return err
}

// moveBatch moves some messages. It reports whether there may be more.
func (t *Transport) moveBatch(ctx context.Context) (more bool, err error) {
	conn, err := t.sendConn.get(ctx)
	if err != nil {
		return false, err
	}
	result := make(chan bool, 1)
	err = t.admin(ctx, func(from *amqp.Channel) error {
		to, err := conn.Channel()
		if err != nil {
			return err
		}
		defer func() { _ = to.Close() }() // best effort
		m := mover{
			from: from, to: to,
			returns: to.NotifyReturn(make(chan amqp.Return, maxMoved)),
			closes:  to.NotifyClose(make(chan *amqp.Error, 1)),
		}
		if err := to.Confirm(false); err != nil {
			return err
		}
		more, err := m.run(ctx)
		result <- more
		return err
	})
	if err != nil {
		return false, err
	}
	return <-result, nil
}

// mover moves unroutable messages from one channel to another.
type mover struct {
	from, to *amqp.Channel
	returns  chan amqp.Return
	closes   chan *amqp.Error // of the publishing channel

	republished []republished
}

// republished is a message that was published once more.
type republished struct {
	tag     uint64 // of the unroutable message
	key     string
	confirm *amqp.DeferredConfirmation
}

func (m *mover) run(ctx context.Context) (more bool, err error) {
	for n, bytes := 0, 0; n < maxMoved && bytes < maxMovedBytes; n++ {
		var d amqp.Delivery
		if d, more, err = m.from.Get(unroutable, false); err != nil || !more {
			break
		}
		bytes += len(d.Body)
		if err = m.publish(&d); err != nil {
			break
		}
	}
	waits, settleErr := m.settle(ctx)
	return more && !waits, errors.Join(settleErr, err) // the broker's reason comes first
}

// publish publishes a message once more, or rejects it if it was already published twice.
func (m *mover) publish(d *amqp.Delivery) error {
	key, ok := secondKey(d.RoutingKey)
	if !ok || !canRepublish(d) {
		return m.from.Reject(d.DeliveryTag, false)
	}
	confirm, err := m.to.PublishWithDeferredConfirm(secondExchange, key, true, false, republishing(d))
	if err == nil {
		m.republished = append(m.republished, republished{d.DeliveryTag, key, confirm})
	}
	return err
}

// settle acknowledges messages whose repetition is confirmed, and releases the others. It
// reports whether there were others. A returned message is rejected, because the exchange
// is not as Reprise declares it. The broker returns either all messages with the same key
// or none.
func (m *mover) settle(ctx context.Context) (waits bool, err error) {
	for _, r := range m.republished {
		if _, waitErr := r.confirm.WaitContext(ctx); waitErr != nil {
			return true, waitErr // the broker releases them with the channel
		}
	}
	select {
	case e := <-m.closes: // the messages that the channel had not confirmed are released below
		if e != nil {
			defer func() { err = errors.Join(e, err) }()
		}
	default:
	}
	returned := map[string]bool{}
	for len(m.returns) > 0 { // the broker returns a message before it confirms it
		if r, ok := <-m.returns; ok {
			returned[r.RoutingKey] = true
		}
	}
	for _, r := range m.republished {
		switch {
		case returned[r.key]:
			err = m.from.Reject(r.tag, false)
		case r.confirm.Acked():
			err = m.from.Ack(r.tag, false)
		default:
			waits = true
			err = m.from.Nack(r.tag, false, true)
		}
		if err != nil {
			return waits, err
		}
	}
	return waits, nil
}
