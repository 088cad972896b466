package rabbitmq

import (
	"context"
	"errors"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"
)

// A message is in the queue of unroutable messages because the second exchange had no
// binding for its queue when it was due. Either the queue was deleted, or the broker was
// starting: it begins to pass on due messages before it has restored all bindings, so that a
// message can miss its queue, or reach it and be here as well.
//
// An endpoint tells one from the other. A client is connected only when all bindings are
// there, so it publishes the message to the second exchange once more. Then it reaches its
// queue, or is here again, and the first word of its routing key says that it was published
// twice: it is rejected, and the broker moves it to the queue of undelivered messages. No
// message that is delivered by NServiceBus's binding alone is delivered twice by this.
//
// A message is acknowledged when the broker has confirmed the new one. An endpoint that ends
// in between repeats that, so that there may be two. Several endpoints may do it at the same
// time: each takes other messages.

const (
	// mostMoved is how many messages are moved at a time. A channel that has told a quorum
	// queue about 32 things keeps others for later, and forgets them when it is closed.
	mostMoved = 16

	// mostMovedBytes is how many bytes of bodies are taken at a time, and a message more.
	mostMovedBytes = 8 << 20
)

// secondTry returns the routing key with which an unroutable message is published once more:
// its first digit becomes a letter, which the binding of its queue matches as well. It reports
// false where that was done, and for a key that is not that of a delayed message.
func secondTry(key string) (string, bool) {
	if len(key) <= len(deliveryPattern) {
		return "", false
	}
	for i := range delayLevels {
		if digit := key[2*i]; digit != '0' && digit != '1' || key[2*i+1] != '.' {
			return "", false
		}
	}
	return string(key[0]-'0'+'a') + key[1:], true
}

// canRepeat reports whether a message can be published as it came. One whose headers the
// client library could not read would lose them, another user's is refused, and further
// routing keys would have it sent to other queues again.
func canRepeat(d *amqp.Delivery) bool {
	for _, key := range []string{undecodableHeader, "CC", "BCC"} {
		if _, has := d.Headers[key]; has {
			return false
		}
	}
	return d.UserId == ""
}

// repeated returns a message as it is published once more, without the headers that the
// broker has added.
func repeated(d *amqp.Delivery) amqp.Publishing {
	for key := range d.Headers {
		if key == deliveriesHeader || key == acquiredHeader || key == deathHeader ||
			strings.HasPrefix(key, firstDeathPrefix) || strings.HasPrefix(key, lastDeathPrefix) {
			delete(d.Headers, key)
		}
	}
	return amqp.Publishing{
		Headers: d.Headers, ContentType: d.ContentType, ContentEncoding: d.ContentEncoding, DeliveryMode: d.DeliveryMode,
		Priority: d.Priority, CorrelationId: d.CorrelationId, ReplyTo: d.ReplyTo, Expiration: d.Expiration, MessageId: d.MessageId,
		Timestamp: d.Timestamp, Type: d.Type, AppId: d.AppId, Body: d.Body,
	}
}

// moveUnroutable moves the messages of the queue of unroutable messages, until there are
// none, or one has to wait. While the broker blocks who sends, it does nothing.
func (t *Transport) moveUnroutable(ctx context.Context) error {
	n, err := t.countMessages(ctx, unroutable)
	for more := n > 0; more && err == nil && !t.blocked.active(); {
		err = within(ctx, func(ctx context.Context) (err error) {
			more, err = t.moveSome(ctx)
			return err
		})
	}
	return err
}

// moveSome moves some messages. It reports whether there may be more.
func (t *Transport) moveSome(ctx context.Context) (more bool, err error) {
	conn, err := t.sending.get(ctx)
	if err != nil {
		return false, err
	}
	result := make(chan bool, 1)
	err = t.admin(ctx, func(from *amqp.Channel) error {
		to, err := conn.Channel()
		if err != nil {
			return err
		}
		defer func() { _ = to.Close() }() // it has served
		m := move{
			from: from, to: to,
			returns: to.NotifyReturn(make(chan amqp.Return, mostMoved)),
			closes:  to.NotifyClose(make(chan *amqp.Error, 1)),
		}
		if err := to.Confirm(false); err != nil {
			return err
		}
		more, err := m.some(ctx)
		result <- more
		return err
	})
	if err != nil {
		return false, err
	}
	return <-result, nil
}

// move moves unroutable messages from one channel to another.
type move struct {
	from, to *amqp.Channel
	returns  chan amqp.Return
	closes   chan *amqp.Error // of the channel to publish on

	repeats []repeat
}

// repeat is a message that was published once more.
type repeat struct {
	tag     uint64 // of the unroutable message
	key     string
	confirm *amqp.DeferredConfirmation
}

func (m *move) some(ctx context.Context) (more bool, err error) {
	for n, bytes := 0, 0; n < mostMoved && bytes < mostMovedBytes; n++ {
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

// publish publishes a message once more, or rejects it where that was done.
func (m *move) publish(d *amqp.Delivery) error {
	key, ok := secondTry(d.RoutingKey)
	if !ok || !canRepeat(d) {
		return m.from.Reject(d.DeliveryTag, false)
	}
	confirm, err := m.to.PublishWithDeferredConfirm(secondExchange, key, true, false, repeated(d))
	if err == nil {
		m.repeats = append(m.repeats, repeat{d.DeliveryTag, key, confirm})
	}
	return err
}

// settle acknowledges messages whose repetition is confirmed, and releases the others. It
// reports whether there were such. A message that was returned is rejected: the exchange is
// not as Reprise declares it. Messages with the same key were all returned, or none was.
func (m *move) settle(ctx context.Context) (waits bool, err error) {
	for _, r := range m.repeats {
		if _, waitErr := r.confirm.WaitContext(ctx); waitErr != nil {
			return true, waitErr // the broker releases them with the channel
		}
	}
	select {
	case e := <-m.closes: // the messages that it had not confirmed are released below
		if e != nil {
			defer func() { err = errors.Join(e, err) }()
		}
	default:
	}
	returned := map[string]bool{}
	for len(m.returns) > 0 { // a message is returned before it is confirmed
		if r, ok := <-m.returns; ok {
			returned[r.RoutingKey] = true
		}
	}
	for _, r := range m.repeats {
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
