// Package declarations remembers the parts of a topology that were declared or looked up.
package declarations

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
)

// Cache remembers the parts of the topology that sends need besides the queues. It is safe
// for concurrent use: of concurrent callers for the same part one declares it, and all wait
// for it.
type Cache struct {
	life *transport.Lifecycle

	mu      sync.Mutex
	entries *entries
}

type entries = transport.Cache[Part, *declaration]

// Part is a part of the topology.
type Part struct {
	Kind Kind
	Name string
}

// Kind is a kind of parts.
type Kind int

const (
	Delays      Kind = iota // the topology of delayed messages
	Binding                 // the binding of a queue to it
	Topic                   // the exchange of a topic
	Undelivered             // the exchanges and queues for delayed messages whose queue is gone
	Exchange                // the exchange of a queue; it is looked up, not declared
)

// ErrNoExchange says that a queue has no exchange of its name. A Cache remembers that too,
// for absenceTTL.
var ErrNoExchange = errors.New("the queue has no exchange of its name")

const (
	// limit is how many declarations are remembered.
	limit = 10_000

	// absenceTTL is how long a queue is assumed to have no exchange.
	absenceTTL = time.Second
)

// declaration is a declaration that is made or in progress.
type declaration struct {
	done    chan struct{} // closed when err and expires are set
	err     error
	expires time.Time // zero: until Forget
}

// New returns an empty Cache of a transport.
func New(life *transport.Lifecycle) *Cache {
	c := &Cache{life: life}
	c.Forget()
	return c
}

// Forget is called when a part that was remembered turned out to be missing.
func (c *Cache) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entries = transport.NewCache[Part, *declaration](limit) // it has no declarations in progress
}

// Ensure declares a part that is not remembered, within timeout, and remembers it for ttl,
// or with 0 until Forget. The end of ctx ends only the waiting, because other callers wait
// too.
func (c *Cache) Ensure(ctx context.Context, part Part, ttl, timeout time.Duration, declare func(context.Context) error) error {
	c.mu.Lock()
	entries := c.entries
	d, _ := entries.Get(part)
	if d == nil || d.expired() {
		d = &declaration{done: make(chan struct{})}
		kept := Part{part.Kind, strings.Clone(part.Name)} // the name may be a part of a message
		if !c.life.Go(func() { c.declare(d, entries, kept, ttl, timeout, declare) }) {
			c.mu.Unlock()
			return core.ErrClosed
		}
		entries.Put(kept, d)
	}
	c.mu.Unlock()
	select {
	case <-d.done:
		return d.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *Cache) declare(d *declaration, entries *entries, part Part, ttl, timeout time.Duration, declare func(context.Context) error) {
	ctx, cancel := context.WithTimeout(c.life.Context(), timeout)
	defer cancel()
	err := declare(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	d.err = err
	absent := errors.Is(err, ErrNoExchange)
	if absent {
		ttl = absenceTTL
	}
	if ttl > 0 {
		d.expires = time.Now().Add(ttl)
	}
	if entered, _ := entries.Get(part); err != nil && !absent && entered == d {
		entries.Delete(part)
	}
	close(d.done)
}

// expired reports whether the part has to be declared again.
func (d *declaration) expired() bool {
	select {
	case <-d.done:
		return !d.expires.IsZero() && time.Now().After(d.expires)
	default:
		return false
	}
}
