package broker

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// A Config configures a [Broker]. The zero value is a namespace of the Standard tier in memory.
type Config struct {
	// Clock is the source of time. Default: [SystemClock].
	Clock Clock
	// Dir is an existing directory, in which the broker keeps its journal: a broker of
	// another process that is started there after this one was killed has all entities,
	// messages and locks. Default: everything is in memory.
	Dir string
	// Tier is the tier of the namespace. Default: [Standard].
	Tier Tier
	// Namespace is the host name of the namespace, which may begin the addresses to which
	// entities forward. Default: "localhost".
	Namespace string
	// EmulatorLimits refuses the properties of entities that Microsoft's emulator refuses
	// (azure-service-bus-emulator-installer, Config-schema.json).
	EmulatorLimits bool
	// AutoCreate creates a queue when a sender, a receiver or a request names an entity
	// that does not exist. The queue becomes one with sessions when the first receiver
	// asks for a session; in Service Bus that is decided when the queue is created.
	AutoCreate bool
	// AutoQueue has the properties of queues that appear by AutoCreate.
	AutoQueue QueueProperties
}

// A Broker is a namespace of Service Bus. It is safe for concurrent use. It calls the functions
// of its consumers without holding a lock, so they may call the broker.
type Broker struct {
	cfg   Config
	clock Clock

	mu         sync.Mutex
	now        instant            // of the operation that holds mu
	entities   map[string]*entity // queues and topics, by name in lower case
	lastEntity uint64
	agenda     agenda
	armed      instant // when the timer calls tick; 0: it does not
	disarm     func() bool
	wakeUps    []*Consumer
	endings    []ending
	closed     bool
	log        *journal // nil without a directory
	created    instant
}

// An ending is the reason for which a consumer gets no more messages.
type ending struct {
	consumer *Consumer
	err      *Error
}

// New returns a broker with the entities of its directory, if it has one.
func New(cfg Config) (*Broker, error) {
	if cfg.Clock == nil {
		cfg.Clock = SystemClock{}
	}
	if cfg.Tier == "" {
		cfg.Tier = Standard
	}
	if cfg.Namespace == "" {
		cfg.Namespace = "localhost"
	}
	b := &Broker{cfg: cfg, clock: cfg.Clock, entities: map[string]*entity{}}
	b.now = instantOf(b.clock.Now())
	b.created = b.now
	if _, err := b.queueSettings(cfg.AutoQueue); err != nil {
		return nil, fmt.Errorf("broker: properties of queues that are created when first used: %w", err)
	}
	if cfg.Dir != "" {
		if err := b.open(); err != nil {
			return nil, fmt.Errorf("broker: %w", err)
		}
	}
	b.lock()
	err := b.unlock()
	return b, err
}

// Close ends all consumers and closes the journal. Later calls are refused.
func (b *Broker) Close() error {
	b.lock()
	if b.closed {
		return b.unlock()
	}
	for _, e := range b.allEntitiesLocked() {
		for _, s := range e.stores() {
			s.endConsumersLocked(errorf(CondDetachForced, "the broker is closed"))
		}
	}
	b.closed = true
	err := b.unlock()
	if b.log != nil {
		err = errors.Join(err, b.log.close())
	}
	return err
}

// Tier returns the tier of the namespace.
func (b *Broker) Tier() Tier { return b.cfg.Tier }

// Namespace returns the host name of the namespace.
func (b *Broker) Namespace() string { return b.cfg.Namespace }

// Now returns the time on the broker's clock.
func (b *Broker) Now() time.Time { return b.clock.Now() }

// Created returns the time at which the broker was made.
func (b *Broker) Created() time.Time { return b.created.time() }

// lock begins an operation: when it returns, all due events have been handled.
func (b *Broker) lock() {
	b.mu.Lock()
	b.now = max(b.now, instantOf(b.clock.Now()))
	for ev := b.agenda.pop(b.now); ev != nil; ev = b.agenda.pop(b.now) {
		ev.owner.fireLocked(ev)
	}
}

// unlock ends an operation: it writes the journal, then wakes up consumers. It returns
// the error of the journal.
func (b *Broker) unlock() error {
	wakeUps, endings := b.wakeUps, b.endings
	b.wakeUps, b.endings = nil, nil
	b.armLocked()
	b.collectLocked()
	b.mu.Unlock()
	err := b.flush()
	for _, c := range wakeUps {
		c.ready()
	}
	for _, e := range endings {
		if e.consumer.cfg.Ended != nil {
			e.consumer.cfg.Ended(e.err)
		}
	}
	return err
}

// finish is unlock for functions that return an error by name.
func (b *Broker) finish(err *error) {
	if failed := b.unlock(); *err == nil && failed != nil {
		*err = failed
	}
}

// armLocked makes the timer call tick at the next event. A timer that is early enough is
// kept.
func (b *Broker) armLocked() {
	if b.closed {
		if b.disarm != nil {
			b.disarm()
		}
		return
	}
	next := b.agenda.next()
	if next == 0 || b.armed != 0 && b.armed <= next {
		return
	}
	if b.disarm != nil {
		b.disarm()
	}
	b.armed = next
	// The clock's now may be within the millisecond before next.
	b.disarm = b.clock.AfterFunc(next.time().Sub(b.clock.Now()), func() { b.tick(next) })
}

// tick handles all due events.
func (b *Broker) tick(armed instant) {
	b.lock()
	if b.armed == armed {
		b.armed = 0
	}
	_ = b.unlock() // the journal keeps its error for the next operation
}

// allEntitiesLocked returns all entities, subscriptions included, in the order of their paths.
func (b *Broker) allEntitiesLocked() []*entity {
	var all []*entity
	for _, e := range b.entities {
		all = append(all, e)
		for _, s := range e.subscriptions {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(x, y *entity) int { return strings.Compare(x.path, y.path) })
	return all
}
