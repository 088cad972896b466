// Package broker has the entities of a Service Bus namespace without a network protocol:
// queues, topics and subscriptions with peek-locks, delivery counts, dead-letter queues,
// sessions, schedules and expirations. The server in package sbserver connects it to AMQP
// 1.0, package admin to the administration API.
//
// Each behaviour follows a statement of the vendor, which the comment next to it cites: a
// page of the documentation (learn.microsoft.com/azure/service-bus-messaging/...) or an
// issue of an SDK with a statement of the service team or an experiment.
package broker

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/clock"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/condition"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/properties"
)

// A Config configures a [Broker]. The zero value is a namespace of the Standard tier in memory.
type Config struct {
	// Clock is the source of time. Default: [clock.System].
	Clock clock.Clock
	// Dir is an existing directory, in which the broker keeps its journal: a broker of
	// another process that is started there after this one was killed has all entities,
	// messages and locks. Default: everything is in memory.
	Dir string
	// Tier is the tier of the namespace. Default: [properties.Standard].
	Tier properties.Tier
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
	AutoQueue properties.Queue
}

// A Broker is a namespace of Service Bus. It is safe for concurrent use. It calls the functions
// of its consumers without holding a lock, so they may call the broker.
type Broker struct {
	cfg    Config
	limits properties.Limits
	clock  clock.Clock

	mu         sync.Mutex
	now        clock.Instant      // of the operation that holds mu
	entities   map[string]*entity // queues and topics, by name in lower case
	lastEntity uint64
	agenda     clock.Agenda
	armed      clock.Instant // when the timer calls tick; 0: it does not
	disarm     func() bool
	wakeUps    []*Consumer
	endings    []ending
	closed     bool
	log        *changeLog // nil without a directory
	created    clock.Instant
}

// New returns a broker with the entities of its directory, if it has one.
func New(cfg Config) (*Broker, error) {
	if cfg.Clock == nil {
		cfg.Clock = clock.System{}
	}
	if cfg.Tier == "" {
		cfg.Tier = properties.Standard
	}
	if cfg.Namespace == "" {
		cfg.Namespace = "localhost"
	}
	b := &Broker{cfg: cfg, limits: properties.Limits{Tier: cfg.Tier, Emulator: cfg.EmulatorLimits}, clock: cfg.Clock, entities: map[string]*entity{}}
	b.now = clock.At(b.clock.Now())
	b.created = b.now
	if _, err := b.limits.Queue(cfg.AutoQueue); err != nil {
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
			s.endConsumersLocked(condition.Errorf(condition.DetachForced, "the broker is closed"))
		}
	}
	b.closed = true
	err := b.unlock()
	if b.log != nil {
		err = errors.Join(err, b.log.file.Close())
	}
	return err
}

// Tier returns the tier of the namespace.
func (b *Broker) Tier() properties.Tier { return b.cfg.Tier }

// Namespace returns the host name of the namespace.
func (b *Broker) Namespace() string { return b.cfg.Namespace }

// Now returns the time on the broker's clock.
func (b *Broker) Now() time.Time { return b.clock.Now() }

// Created returns the time at which the broker was made.
func (b *Broker) Created() time.Time { return b.created.Time() }
