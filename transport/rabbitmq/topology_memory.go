package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
)

// topologyMemory remembers the parts of the topology that sends need besides the queues. It
// is safe for concurrent use: of concurrent callers with the same need one declares the
// part, and all wait for it.
type topologyMemory struct {
	mu    sync.Mutex
	known *transport.Cache[need, *declared]
}

// need is a part of the topology to declare.
type need struct {
	kind kindOfNeed
	name string
}

type kindOfNeed int

const (
	needsDelays      kindOfNeed = iota // the topology of delayed messages
	needsBinding                       // the binding of a queue to it
	needsTopic                         // the exchange of a topic
	needsUndelivered                   // the exchanges and queues for delayed messages whose queue is gone
	needsExchange                      // the exchange of a queue; it is looked up, not declared
)

// declared is a need that is fulfilled or being fulfilled.
type declared struct {
	done  chan struct{} // closed when err and until are set
	err   error
	until time.Time // zero: until forget
}

const (
	// manyNeeds is how many needs are remembered.
	manyNeeds = 10_000

	// bindingKnown is how long a queue is assumed to exist and to be bound: the broker
	// would not return a delayed message to a missing queue.
	bindingKnown = time.Second

	// absenceKnown is how long a queue is assumed to have no exchange.
	absenceKnown = time.Second

	// delaysTimeout bounds the declaration of all levels: 28 queues, the first time.
	delaysTimeout = 2 * time.Minute
)

func newTopologyMemory() *topologyMemory {
	m := &topologyMemory{}
	m.forget()
	return m
}

// declareTopic ensures that the exchange of a topic exists, so that publishing without
// subscribers is no error, and that it is bound to the exchanges of the base topics. The
// result is remembered until forget.
func (m *topologyMemory) declareTopic(ctx context.Context, t *Transport, topic string, bases []string) error {
	exchange, _, err := t.topicRoute(topic)
	if err != nil {
		return err
	}
	to := make([]string, 0, len(bases)+1)
	for _, base := range bases {
		name, _, err := t.topicRoute(base)
		if err != nil {
			return err
		}
		to = append(to, name)
	}
	if t.cfg.Topology == NServiceBus && exchange != everyEvent && !slices.Contains(to, everyEvent) {
		to = append(to, everyEvent)
	}
	name := exchange
	if len(to) > 0 {
		name += "\n" + strings.Join(to, "\n") // a name cannot contain a line break
	}
	return m.fulfil(ctx, t, need{needsTopic, name}, 0, operationTimeout, func(ctx context.Context) error {
		return t.declareHierarchy(ctx, exchange, to)
	})
}

// declareHierarchy declares the exchange of a topic, and binds it to the exchanges in to.
func (t *Transport) declareHierarchy(ctx context.Context, exchange string, to []string) error {
	if err := t.declareExchange(ctx, exchange, false); err != nil {
		return err
	}
	for _, base := range to {
		if base == exchange { // of two nested types, or of a type and IEvent
			continue
		}
		if err := t.declareExchange(ctx, base, false); err != nil {
			return err
		}
		if err := t.admin(ctx, func(ch *amqp.Channel) error { return ch.ExchangeBind(base, "", exchange, false, nil) }); err != nil {
			return fmt.Errorf("bind the exchange %q to that of a base type, %q: %w", exchange, base, err)
		}
	}
	return nil
}

// errNoExchange: a queue has no exchange of its name.
var errNoExchange = errors.New("the queue has no exchange of its name")

// exchangeOf looks up the exchange of a queue's name. Without one it returns errNoExchange.
func (m *topologyMemory) exchangeOf(ctx context.Context, t *Transport, queue string) error {
	return m.fulfil(ctx, t, need{needsExchange, queue}, 0, operationTimeout, func(ctx context.Context) error {
		err := t.hasExchange(ctx, queue)
		if faultOf(err) == faultNoTarget {
			return transport.Permanent(errNoExchange)
		}
		return err
	})
}

// bindDelayed ensures that a delayed message to a queue will reach it. If there is no such
// queue, the error is faultNoQueue.
func (m *topologyMemory) bindDelayed(ctx context.Context, t *Transport, queue string) error {
	if err := m.delays(ctx, t); err != nil {
		return err
	}
	return m.fulfil(ctx, t, need{needsBinding, queue}, bindingKnown, operationTimeout, func(ctx context.Context) error {
		if err := t.bindDelayed(ctx, queue, true); err != nil {
			return fmt.Errorf("bind the queue %q for delayed messages: %w", queue, err)
		}
		return nil
	})
}

// delays ensures that the topology of delayed messages exists.
func (m *topologyMemory) delays(ctx context.Context, t *Transport) error {
	if err := m.fulfil(ctx, t, need{kind: needsDelays}, 0, delaysTimeout, t.declareDelays); err != nil {
		return err
	}
	return m.fulfil(ctx, t, need{kind: needsUndelivered}, 0, operationTimeout, t.declareUndelivered)
}

// forget is called when a part that was remembered turned out to be missing.
func (m *topologyMemory) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.known = transport.NewCache[need, *declared](manyNeeds) // it has no declarations in progress
}

// fulfil declares a part that is not remembered, and remembers it for known, or with 0
// until forget. The end of ctx ends only the waiting, because other callers wait too.
func (m *topologyMemory) fulfil(ctx context.Context, t *Transport, n need, known, timeout time.Duration, declare func(context.Context) error) error {
	m.mu.Lock()
	in := m.known
	d, _ := in.Get(n)
	if d == nil || d.expired() {
		d = &declared{done: make(chan struct{})}
		if !t.life.Go(func() { m.declare(t, d, in, n, known, timeout, declare) }) {
			m.mu.Unlock()
			return core.ErrClosed
		}
		in.Put(n, d)
	}
	m.mu.Unlock()
	select {
	case <-d.done:
		return d.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (m *topologyMemory) declare(t *Transport, d *declared, in *transport.Cache[need, *declared], n need, known, timeout time.Duration, declare func(context.Context) error) {
	ctx, cancel := context.WithTimeout(t.life.Context(), timeout)
	defer cancel()
	err := declare(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	d.err = err
	absent := errors.Is(err, errNoExchange)
	if absent {
		known = absenceKnown
	}
	if known > 0 {
		d.until = time.Now().Add(known)
	}
	if entered, _ := in.Get(n); err != nil && !absent && entered == d {
		in.Delete(n)
	}
	close(d.done)
}

// expired reports whether the part has to be declared again.
func (d *declared) expired() bool {
	select {
	case <-d.done:
		return !d.until.IsZero() && time.Now().After(d.until)
	default:
		return false
	}
}

// declareDelays declares the topology of delayed messages. If the user has no right to do
// so, an existing topology suffices.
func (t *Transport) declareDelays(ctx context.Context) error {
	err := t.admin(ctx, declareDelays)
	if faultOf(err) != faultRefused {
		return err
	}
	there := t.admin(ctx, func(ch *amqp.Channel) error {
		if err := ch.ExchangeDeclarePassive(deliveryExchange, amqp.ExchangeTopic, true, false, false, false, nil); err != nil {
			return err
		}
		for level := range delayLevels {
			name := delayLevel(level)
			if err := ch.ExchangeDeclarePassive(name, amqp.ExchangeTopic, true, false, false, false, nil); err != nil {
				return err
			}
			if _, err := ch.QueueDeclarePassive(name, true, false, false, false, nil); err != nil {
				return err
			}
		}
		return nil
	})
	if there == nil {
		return nil
	}
	return errors.Join(err, there)
}
