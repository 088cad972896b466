package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/core"
)

// A delayed message whose queue was deleted arrives nowhere: the exchange of deliveries has
// no binding for it any more. The level that it waited in last keeps it and tries again
// every 3 minutes, and because a level passes on 32 messages at a time, 32 of these stop
// it for everybody. An alternate exchange would take them, but the topology of delays
// must be declared as NServiceBus declares it, without one.
//
// So each queue is bound to a second exchange, which is Reprise's and has an alternate
// exchange, and that one to the exchange of deliveries, with the same key. The broker
// puts a message that comes both ways into its queue once. When the queue is gone, so are
// its bindings, but not the one between the exchanges: what was for it takes that way,
// finds nothing, and goes to the alternate exchange, and so to the queue of undelivered
// messages.
//
//	deliveries --key--> queue
//	deliveries --key--> second exchange --key--> queue
//	                    second exchange --no binding--> undelivered
const (
	secondExchange = "reprise.delay-delivery"
	// undelivered is the name of the queue of undelivered messages, and of its exchange.
	undelivered = "reprise.undelivered"

	alternateArgument = "alternate-exchange"
)

// undeliveredPoll is how often a transport that receives looks whether messages have come
// to the queue of undelivered messages.
const undeliveredPoll = time.Minute

// undeliveredArguments are those of the queue, whatever Config says: endpoints with
// different ones share it. An operator who looks at its messages again and again should
// not use them up.
func undeliveredArguments() amqp.Table {
	return amqp.Table{typeArgument: Quorum.argument(), limitArgument: int64(defaultDeliveryLimit)}
}

// declareUndelivered declares the second exchange and the queue of undelivered messages.
// Where the user may not, or they are there and differ, they are taken as they are: without
// them a queue that is deleted does as much harm as it ever did.
func (t *Transport) declareUndelivered(ctx context.Context) error {
	complete := true
	for _, declare := range []func(*amqp.Channel) error{
		func(ch *amqp.Channel) error {
			return ch.ExchangeDeclare(undelivered, amqp.ExchangeFanout, true, false, false, false, nil)
		},
		func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclare(undelivered, true, false, false, false, undeliveredArguments())
			return err
		},
		func(ch *amqp.Channel) error { return ch.QueueBind(undelivered, "", undelivered, false, nil) },
		func(ch *amqp.Channel) error {
			return ch.ExchangeDeclare(secondExchange, amqp.ExchangeTopic, true, false, false, false, amqp.Table{alternateArgument: undelivered})
		},
	} {
		switch err := t.admin(ctx, declare); faultOf(err) {
		case faultRefused, faultMismatch, faultNoTarget, faultNoQueue:
			complete = false
		default:
			if err != nil {
				return fmt.Errorf("declare what takes undelivered messages (%s): %w", undelivered, err)
			}
		}
	}
	if complete {
		t.noSecondWay.Store(false)
	}
	return nil
}

// bindDelayed binds a queue for delayed messages, with lasts in both ways: to the second
// exchange first, so that no message is taken for undelivered in between.
func (t *Transport) bindDelayed(ctx context.Context, queue string, lasts bool) error {
	key := deliveryBinding(queue)
	err := t.admin(ctx, func(ch *amqp.Channel) error { return ch.QueueBind(queue, key, deliveryExchange, false, nil) })
	if err != nil || !lasts || t.noSecondWay.Load() {
		return err
	}
	err = t.admin(ctx, func(ch *amqp.Channel) error {
		if err := ch.QueueBind(queue, key, secondExchange, false, nil); err != nil {
			return err
		}
		return ch.ExchangeBind(secondExchange, key, deliveryExchange, false, nil)
	})
	switch faultOf(err) {
	case faultRefused, faultNoTarget: // each attempt would be an error in the broker's log
		t.noSecondWay.Store(true)
		return nil
	}
	return err
}

// watchUndelivered tells of messages that come to the queue of undelivered messages. One
// goroutine does so for all receivers of the transport.
type watchUndelivered struct {
	mu       sync.Mutex // guards what follows
	observer core.UndeliverableObserver
	started  bool
}

// watch begins to tell an observer, where it is one for that: the newest is told.
func (w *watchUndelivered) watch(t *Transport, observer any) {
	o, ok := observer.(core.UndeliverableObserver)
	if !ok {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.observer = o
	if !w.started {
		w.started = t.life.Go(func() { w.run(t) })
	}
}

func (w *watchUndelivered) run(t *Transport) {
	told := 0
	for ctx := t.life.Context(); ctx.Err() == nil; {
		n, err := t.countUndelivered(ctx)
		switch {
		case err == nil:
			if n > told {
				w.tell(n - told)
			}
			told = n
		case faultOf(err) == faultNoQueue: // to ask again would be one more error in the broker's log
			w.stop() // the next receiver asks again
			return
		}
		if t.pause(ctx, t.undeliveredPoll) != nil {
			return
		}
	}
}

func (w *watchUndelivered) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.started = false
}

// errUndelivered is why messages are in that queue.
var errUndelivered = errors.New("the queues that delayed messages were for do not exist any more, or were not bound yet when the broker started; the last word of each message's routing key is its queue, after 28 digits")

func (w *watchUndelivered) tell(messages int) {
	w.mu.Lock()
	o := w.observer
	w.mu.Unlock()
	o.MessageUndeliverable(core.Undeliverable{Messages: messages, MovedTo: undelivered, Err: errUndelivered})
}

// countUndelivered returns how many messages are in the queue.
func (t *Transport) countUndelivered(ctx context.Context) (int, error) {
	return ask(ctx, t, func(ch *amqp.Channel) (int, error) {
		q, err := ch.QueueDeclarePassive(undelivered, true, false, false, false, nil)
		return q.Messages, err
	})
}
