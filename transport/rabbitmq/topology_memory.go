package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
)

// topologyMemory is what sends need beside the queues, and what is known to be there. It
// is safe for concurrent use: of those who need the same at the same time one declares
// it, and all wait for that.
type topologyMemory struct {
	mu    sync.Mutex
	known *transport.Cache[need, *declared]
}

// need is something to declare.
type need struct {
	kind kindOfNeed
	name string
}

type kindOfNeed int

const (
	needsDelays      kindOfNeed = iota // the topology of delayed messages
	needsBinding                       // of a queue to it
	needsTopic                         // the exchange of a topic
	needsUndelivered                   // what takes delayed messages whose queue is gone
)

// declared is a need, fulfilled or about to be.
type declared struct {
	done  chan struct{} // closed when what follows is there
	err   error
	until time.Time // zero: for as long as nobody is told otherwise
}

const (
	// manyNeeds is how many are remembered.
	manyNeeds = 10_000

	// bindingKnown is how long a queue is taken to exist, and to be bound: a delayed
	// message to one that does not would not come back.
	bindingKnown = time.Second

	// delaysTimeout bounds the declaration of all levels: 28 queues, the first time.
	delaysTimeout = 2 * time.Minute
)

func newTopologyMemory() *topologyMemory {
	m := &topologyMemory{}
	m.forget()
	return m
}

// declareTopic makes sure that the exchange of a topic exists, so that publishing to it
// without subscribers is no error. It is remembered until forget.
func (m *topologyMemory) declareTopic(ctx context.Context, t *Transport, topic string) error {
	exchange, err := topicExchange(topic)
	if err != nil {
		return err
	}
	return m.fulfil(ctx, t, need{needsTopic, exchange}, 0, operationTimeout, func(ctx context.Context) error {
		return t.declareExchange(ctx, exchange, false)
	})
}

// bindDelayed makes sure that a delayed message to a queue gets there. Where there is no
// such queue, that is the fault of its error.
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

// delays makes sure that the topology of delayed messages is there.
func (m *topologyMemory) delays(ctx context.Context, t *Transport) error {
	if err := m.fulfil(ctx, t, need{kind: needsDelays}, 0, delaysTimeout, t.declareDelays); err != nil {
		return err
	}
	return m.fulfil(ctx, t, need{kind: needsUndelivered}, 0, operationTimeout, t.declareUndelivered)
}

// forget is called when something that was known turned out not to be there.
func (m *topologyMemory) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.known = transport.NewCache[need, *declared](manyNeeds) // declarations in progress are not in it
}

// fulfil declares something that is not known to be there, and remembers it for some
// time, 0 for ever. The end of ctx ends only the waiting: others wait too.
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
	if known > 0 {
		d.until = time.Now().Add(known)
	}
	if entered, _ := in.Get(n); err != nil && entered == d {
		in.Delete(n)
	}
	close(d.done)
}

// expired reports whether it has to be declared again.
func (d *declared) expired() bool {
	select {
	case <-d.done:
		return !d.until.IsZero() && time.Now().After(d.until)
	default:
		return false
	}
}

// declareDelays declares the topology of delayed messages. If the user may not, but it is
// there, that will do.
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
