package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/version"
)

// operationTimeout bounds each operation on the broker, except sends.
const operationTimeout = 30 * time.Second

// admin runs an operation on its own channel, because a refusal by the broker closes the
// channel. It returns when ctx ends, even if the operation has not ended.
func (t *Transport) admin(ctx context.Context, do func(*amqp.Channel) error) error {
	conn, err := t.adminConn.get(ctx)
	if err != nil {
		return err
	}
	return t.runWithContext(ctx, func() error {
		ch, err := conn.Channel()
		if err != nil {
			return err
		}
		defer func() { _ = ch.Close() }() // best effort
		return do(ch)
	})
}

// runWithContext waits until ctx ends for an operation without a context. The operation
// continues until it is done or its connection is lost.
func (t *Transport) runWithContext(ctx context.Context, do func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	done := make(chan error, 1)
	if !t.life.Go(func() { done <- do() }) {
		return core.ErrClosed
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// withTimeout bounds an operation on the broker by operationTimeout.
func withTimeout(ctx context.Context, do func(context.Context) error) error {
	bounded, cancel := context.WithTimeout(ctx, operationTimeout)
	defer cancel()
	err := do(bounded)
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("there was no answer within %v: %w", operationTimeout, err)
	}
	return err
}

// query returns the broker's answer to a question, within operationTimeout. If ctx ends
// first, the answer still arrives and is dropped.
func query[T any](ctx context.Context, t *Transport, question func(*amqp.Channel) (T, error)) (T, error) {
	answers := make(chan T, 1)
	err := withTimeout(ctx, func(ctx context.Context) error {
		return t.admin(ctx, func(ch *amqp.Channel) error {
			answer, err := question(ch)
			answers <- answer
			return err
		})
	})
	if err != nil {
		var none T
		return none, err
	}
	return <-answers, nil
}

// brokerVersion returns the version of the broker that conn leads to.
func brokerVersion(conn *connection) (version.Broker, error) {
	text, _ := conn.Properties["version"].(string)
	return version.Parse(text)
}

// checkQueueExists returns an error if a queue does not exist.
func (t *Transport) checkQueueExists(ctx context.Context, queue string) error {
	err := t.admin(ctx, func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		return err
	})
	return explainExclusive(queue, err)
}

// explainExclusive adds the remedy to the error for a queue that is exclusive to another
// connection.
func explainExclusive(queue string, err error) error {
	if said, ok := errors.AsType[*amqp.Error](err); ok && said.Code == amqp.ResourceLocked {
		return transport.Permanent(fmt.Errorf("the queue %q is exclusive, and ends with the connection that declared it: delete it, so that Provision makes it anew: %w", queue, err))
	}
	return err
}

// checkExchangeExists returns an error if an exchange does not exist.
func (t *Transport) checkExchangeExists(ctx context.Context, name string) error {
	return t.admin(ctx, func(ch *amqp.Channel) error {
		return ch.ExchangeDeclarePassive(name, amqp.ExchangeFanout, true, false, false, false, nil)
	})
}

// countMessages returns the number of messages of a queue that no consumer has.
func (t *Transport) countMessages(ctx context.Context, queue string) (int, error) {
	return query(ctx, t, func(ch *amqp.Channel) (int, error) {
		q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		return q.Messages, err
	})
}
