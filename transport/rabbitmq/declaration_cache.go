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
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/amqperror"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/delays"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/names"
)

// declarationCache remembers the parts of the topology that sends need besides the queues.
// It is safe for concurrent use: of concurrent callers for the same part one declares it,
// and all wait for it.
type declarationCache struct {
	mu      sync.Mutex
	entries *transport.Cache[declaration, *cachedDeclaration]
}

// declaration is a part of the topology to declare.
type declaration struct {
	kind declarationKind
	name string
}

type declarationKind int

const (
	kindDelays      declarationKind = iota // the topology of delayed messages
	kindBinding                            // the binding of a queue to it
	kindTopic                              // the exchange of a topic
	kindUndelivered                        // the exchanges and queues for delayed messages whose queue is gone
	kindExchange                           // the exchange of a queue; it is looked up, not declared
)

// cachedDeclaration is a declaration that is made or in progress.
type cachedDeclaration struct {
	done    chan struct{} // closed when err and expires are set
	err     error
	expires time.Time // zero: until forget
}

const (
	// mostDeclarations is how many declarations are remembered.
	mostDeclarations = 10_000

	// bindingTTL is how long a queue is assumed to exist and to be bound: the broker would
	// not return a delayed message to a missing queue.
	bindingTTL = time.Second

	// absenceTTL is how long a queue is assumed to have no exchange.
	absenceTTL = time.Second

	// delaysTimeout bounds the declaration of all levels: 28 queues, the first time.
	delaysTimeout = 2 * time.Minute
)

func newDeclarationCache() *declarationCache {
	c := &declarationCache{}
	c.forget()
	return c
}

// ensureTopic ensures that the exchange of a topic exists, so that publishing without
// subscribers is no error, and that it is bound to the exchanges of the base topics. The
// result is remembered until forget.
func (c *declarationCache) ensureTopic(ctx context.Context, t *Transport, topic string, bases []string) error {
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
	if t.cfg.Topology == NServiceBus && exchange != names.EveryEvent && !slices.Contains(to, names.EveryEvent) {
		to = append(to, names.EveryEvent)
	}
	name := exchange
	if len(to) > 0 {
		name += "\n" + strings.Join(to, "\n") // a name cannot contain a line break
	}
	return c.ensure(ctx, t, declaration{kindTopic, name}, 0, operationTimeout, func(ctx context.Context) error {
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

// lookUpExchange looks up the exchange of a queue's name. Without one it returns
// errNoExchange.
func (c *declarationCache) lookUpExchange(ctx context.Context, t *Transport, queue string) error {
	return c.ensure(ctx, t, declaration{kindExchange, queue}, 0, operationTimeout, func(ctx context.Context) error {
		err := t.checkExchangeExists(ctx, queue)
		if amqperror.KindOf(err) == amqperror.NoExchange {
			return transport.Permanent(errNoExchange)
		}
		return err
	})
}

// ensureDelayedBinding ensures that a delayed message to a queue will reach it. If there is
// no such queue, it is an error of kind amqperror.NoQueue.
func (c *declarationCache) ensureDelayedBinding(ctx context.Context, t *Transport, queue string) error {
	if err := c.ensureDelays(ctx, t); err != nil {
		return err
	}
	return c.ensure(ctx, t, declaration{kindBinding, queue}, bindingTTL, operationTimeout, func(ctx context.Context) error {
		if err := t.bindDelayed(ctx, queue, true); err != nil {
			return fmt.Errorf("bind the queue %q for delayed messages: %w", queue, err)
		}
		return nil
	})
}

// ensureDelays ensures that the topology of delayed messages exists.
func (c *declarationCache) ensureDelays(ctx context.Context, t *Transport) error {
	if err := c.ensure(ctx, t, declaration{kind: kindDelays}, 0, delaysTimeout, t.declareDelays); err != nil {
		return err
	}
	return c.ensure(ctx, t, declaration{kind: kindUndelivered}, 0, operationTimeout, t.declareUndelivered)
}

// forget is called when a part that was remembered turned out to be missing.
func (c *declarationCache) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entries = transport.NewCache[declaration, *cachedDeclaration](mostDeclarations) // it has no declarations in progress
}

// ensure declares a part that is not remembered, and remembers it for ttl, or with 0 until
// forget. The end of ctx ends only the waiting, because other callers wait too.
func (c *declarationCache) ensure(ctx context.Context, t *Transport, key declaration, ttl, timeout time.Duration, declare func(context.Context) error) error {
	c.mu.Lock()
	entries := c.entries
	d, _ := entries.Get(key)
	if d == nil || d.expired() {
		d = &cachedDeclaration{done: make(chan struct{})}
		if !t.life.Go(func() { c.declare(t, d, entries, key, ttl, timeout, declare) }) {
			c.mu.Unlock()
			return core.ErrClosed
		}
		entries.Put(key, d)
	}
	c.mu.Unlock()
	select {
	case <-d.done:
		return d.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *declarationCache) declare(t *Transport, d *cachedDeclaration, entries *transport.Cache[declaration, *cachedDeclaration], key declaration, ttl, timeout time.Duration, declare func(context.Context) error) {
	ctx, cancel := context.WithTimeout(t.life.Context(), timeout)
	defer cancel()
	err := declare(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	d.err = err
	absent := errors.Is(err, errNoExchange)
	if absent {
		ttl = absenceTTL
	}
	if ttl > 0 {
		d.expires = time.Now().Add(ttl)
	}
	if entered, _ := entries.Get(key); err != nil && !absent && entered == d {
		entries.Delete(key)
	}
	close(d.done)
}

// expired reports whether the part has to be declared again.
func (d *cachedDeclaration) expired() bool {
	select {
	case <-d.done:
		return !d.expires.IsZero() && time.Now().After(d.expires)
	default:
		return false
	}
}

// declareDelays declares the topology of delayed messages. If the user has no right to do
// so, an existing topology suffices.
func (t *Transport) declareDelays(ctx context.Context) error {
	err := t.admin(ctx, delays.Declare)
	if amqperror.KindOf(err) != amqperror.Refused {
		return err
	}
	there := t.admin(ctx, delays.CheckExists)
	if there == nil {
		return nil
	}
	return errors.Join(err, there)
}
