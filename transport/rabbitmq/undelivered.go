package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/amqperror"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/delays"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/deliverylimit"
)

// A delayed message whose queue was deleted has no destination: the delivery exchange no
// longer has a binding for it. The last level in which the message waited keeps it and
// retries every 3 minutes. Because a level passes on 32 messages at a time, 32 such
// messages block it for all endpoints. An alternate exchange would take them, but the delay
// topology must be declared as NServiceBus declares it, without one.
//
// So each queue is bound to a second exchange, which belongs to Reprise and has an
// alternate exchange; the second exchange is bound to the delivery exchange, with the same
// key. The broker puts a message that arrives both ways into its queue once. When the queue
// is deleted, its bindings are deleted too, but not the one between the exchanges: a
// message for the queue takes that way, finds no binding, and goes to the alternate
// exchange and so to the queue of unroutable messages. From there an endpoint moves it,
// most often to the queue of undelivered messages (unroutable.go).
//
//	deliveries --key--> queue
//	deliveries --key--> second exchange --key--> queue
//	                    second exchange --no binding--> unroutable --> second exchange, once more
//	                                                    unroutable --the second time--> undelivered
const (
	secondExchange = "reprise.delay-delivery"
	// unroutable is the name of the queue of messages for which the second exchange had no
	// binding, and of the queue's exchange.
	unroutable = "reprise.unroutable"
	// undelivered is the name of the queue of undelivered messages, and of its exchange.
	undelivered = "reprise.undelivered"

	alternateArgument = "alternate-exchange"
)

// undeliveredPoll is the interval at which a transport that receives looks for unroutable
// and undelivered messages. It also looks after each reconnection.
const undeliveredPoll = time.Minute

// undeliveredArguments returns the arguments of that queue. They do not depend on Config,
// because endpoints with different configurations share it. The delivery limit is high, so
// that an operator can look at its messages many times.
func undeliveredArguments() amqp.Table {
	return amqp.Table{typeArgument: Quorum.argument(), deliverylimit.Argument: int64(deliverylimit.Default)}
}

// unroutableArguments returns the arguments of that queue. A message that an endpoint
// rejects, or that is returned too often, goes to the queue of undelivered messages.
func unroutableArguments() amqp.Table {
	return amqp.Table{
		typeArgument:             Quorum.argument(),
		deliverylimit.Argument:   int64(deliverylimit.Min),
		"x-dead-letter-exchange": undelivered,
		"x-dead-letter-strategy": "at-least-once",
		"x-overflow":             "reject-publish", // which at-least-once requires
	}
}

// declareUndelivered declares the second exchange and the queues of unroutable and
// undelivered messages. If the user has no right to do so, or they exist and differ, they
// are used as they are: without them, a deleted queue only does the harm described above.
func (t *Transport) declareUndelivered(ctx context.Context) error {
	complete := true
	var declarations []func(*amqp.Channel) error
	for _, q := range []struct {
		name      string
		arguments amqp.Table
	}{{undelivered, undeliveredArguments()}, {unroutable, unroutableArguments()}} {
		declarations = append(declarations,
			func(ch *amqp.Channel) error {
				return ch.ExchangeDeclare(q.name, amqp.ExchangeFanout, true, false, false, false, nil)
			},
			func(ch *amqp.Channel) error {
				_, err := ch.QueueDeclare(q.name, true, false, false, false, q.arguments)
				return err
			},
			func(ch *amqp.Channel) error { return ch.QueueBind(q.name, "", q.name, false, nil) })
	}
	for _, declare := range append(declarations, func(ch *amqp.Channel) error {
		return ch.ExchangeDeclare(secondExchange, amqp.ExchangeTopic, true, false, false, false, amqp.Table{alternateArgument: unroutable})
	}) {
		switch err := t.declareQueues(ctx, declare); amqperror.KindOf(err) {
		case amqperror.Refused, amqperror.Mismatch, amqperror.NoExchange, amqperror.NoQueue:
			complete = false
		default:
			if err != nil {
				return fmt.Errorf("declare the exchanges and the queue for undelivered messages (%s): %w", undelivered, err)
			}
		}
	}
	if complete {
		t.noSecondBinding.Store(false)
	}
	return nil
}

// bindDelayed binds a queue for delayed messages; with lasts, in both ways. It binds the
// queue to the second exchange before it binds that to the delivery exchange, so that no
// message becomes unroutable in between.
func (t *Transport) bindDelayed(ctx context.Context, queue string, lasts bool) error {
	key := delays.BindingKey(queue)
	err := t.admin(ctx, func(ch *amqp.Channel) error { return ch.QueueBind(queue, key, delays.DeliveryExchange, false, nil) })
	if err != nil || !lasts || t.noSecondBinding.Load() {
		return err
	}
	err = t.admin(ctx, func(ch *amqp.Channel) error {
		if err := ch.QueueBind(queue, key, secondExchange, false, nil); err != nil {
			return err
		}
		return ch.ExchangeBind(secondExchange, key, delays.DeliveryExchange, false, nil)
	})
	switch amqperror.KindOf(err) {
	case amqperror.Refused, amqperror.NoExchange: // each attempt would be an error in the broker's log
		t.noSecondBinding.Store(true)
		return nil
	}
	return err
}

// undeliveredWatcher moves unroutable messages, and reports messages that stay in the
// queues of undelivered and of unroutable messages. One goroutine does so for all receivers
// of the transport.
type undeliveredWatcher struct {
	mu      sync.Mutex // guards the fields below
	notify  func(core.Undeliverable)
	started bool
}

// watch reports to notify from now on, unless it is nil, and starts the goroutine. Messages
// are moved even if notify is nil.
func (w *undeliveredWatcher) watch(t *Transport, notify func(core.Undeliverable)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if notify != nil {
		w.notify = notify
	}
	if !w.started {
		w.started = t.life.Go(func() { w.run(t) })
	}
}

// The reasons for which messages stay in these queues.
var (
	errUndelivered = errors.New("the queues that delayed messages were for do not exist any more, or were made again by somebody else than Reprise; " +
		"each message's routing key has 28 words of one character, and after them the name of its queue")
	errUnroutable = errors.New("delayed messages wait to be moved, and this endpoint may not: it needs the rights to read the queue " +
		unroutable + " and to write to the exchange " + secondExchange + " (rabbitmqctl set_permissions)")
)

func (w *undeliveredWatcher) run(t *Transport) {
	moves := true
	reported := map[string]int{}
	report := func(ctx context.Context, queue string, why error) error {
		n, err := recount(reported[queue],
			func() (int, error) { return t.countMessages(ctx, queue) },
			func() error { return t.pause(ctx, recountPause) })
		if err == nil {
			if n > reported[queue] {
				w.report(core.Undeliverable{Messages: n - reported[queue], MovedTo: queue, Err: why})
			}
			reported[queue] = n
		}
		return err
	}
	for ctx := t.life.Context(); ctx.Err() == nil; {
		var err error
		if moves {
			err = t.moveUnroutable(ctx)
			moves = amqperror.KindOf(err) != amqperror.Refused
		} else {
			err = report(ctx, unroutable, errUnroutable)
		}
		if amqperror.KindOf(err) != amqperror.NoQueue {
			err = report(ctx, undelivered, errUndelivered)
		}
		if amqperror.KindOf(err) == amqperror.NoQueue { // another request would be one more error in the broker's log
			w.stop() // the next receiver starts it again
			return
		}
		if t.pause(ctx, t.undeliveredPoll) != nil {
			return
		}
	}
}

// A count that is lower than the one before is repeated after each recountPause, at most
// maxRecounts times.
const (
	recountPause = time.Second
	maxRecounts  = 3
)

// recount counts the messages of a queue. Of a quorum queue that does not answer within
// 250 ms the broker says that it is empty (rabbit_quorum_queue.erl, stat/1), and messages
// would be reported a second time after that. So a lower count than the known one is
// repeated.
func recount(known int, count func() (int, error), pause func() error) (n int, err error) {
	n, err = count()
	for tries := 0; err == nil && n < known && tries < maxRecounts; tries++ {
		if err = pause(); err == nil {
			n, err = count()
		}
	}
	return n, err
}

func (w *undeliveredWatcher) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.started = false
}

func (w *undeliveredWatcher) report(e core.Undeliverable) {
	w.mu.Lock()
	notify := w.notify
	w.mu.Unlock()
	if notify != nil {
		notify(e)
	}
}
