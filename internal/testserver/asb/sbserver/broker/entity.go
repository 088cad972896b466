package broker

import (
	"maps"
	"slices"
	"strings"

	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/clock"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/history"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/properties"
)

// A Kind distinguishes queues, topics and subscriptions.
type Kind int

// The values of Kind.
const (
	KindQueue Kind = iota + 1
	KindTopic
	KindSubscription
)

// A Subqueue is a queue that belongs to an entity.
type Subqueue int

// The values of Subqueue.
const (
	SubqueueNone Subqueue = iota
	SubqueueDeadLetter
	SubqueueTransferDeadLetter
)

// An Entity describes an address: a queue, a topic, a subscription, or a dead-letter queue of one.
type Entity struct {
	Path            string // as it was created, with the subqueue
	Kind            Kind
	Subqueue        Subqueue
	RequiresSession bool
	MaxMessageSize  int64 // in bytes
}

// An entity is a queue, a topic or a subscription. The broker's mutex guards it.
type entity struct {
	broker        *Broker
	id            uint64
	kind          Kind
	path          string // of a subscription topic/Subscriptions/name
	name          string
	settings      properties.Settings
	topic         *entity            // of a subscription
	subscriptions map[string]*entity // of a topic, by name in lower case
	rules         []*rule            // of a subscription
	main          *store             // of a topic: scheduled messages only
	dead          *store             // nil of a topic
	transfer      *store             // transfer dead-letter queue, nil of a topic
	sequence      int64              // the last one that was assigned
	size          int64              // of all messages, in bytes
	history       history.History
	automatic     bool // created by its first use
	created       clock.Instant
	updated       clock.Instant
	accessed      clock.Instant
	idle          clock.Event // deletes it when it is idle
	deleted       bool
	changed       bool // for the journal
	numbered      bool // for the journal: has a new sequence number
}

func (b *Broker) newEntity(kind Kind, topic *entity, name string, s properties.Settings) *entity {
	b.lastEntity++
	e := &entity{broker: b, id: b.lastEntity, kind: kind, name: name, path: name, settings: s, topic: topic, created: b.now, updated: b.now, accessed: b.now}
	if kind == KindSubscription {
		e.path = topic.path + "/Subscriptions/" + name
	}
	e.idle.Owner = e
	e.main = newStore(e, SubqueueNone)
	if kind == KindTopic {
		e.subscriptions = map[string]*entity{}
	} else {
		e.dead, e.transfer = newStore(e, SubqueueDeadLetter), newStore(e, SubqueueTransferDeadLetter)
	}
	return e
}

// stores returns the stores of an entity.
func (e *entity) stores() []*store {
	if e.kind == KindTopic {
		return []*store{e.main}
	}
	return []*store{e.main, e.dead, e.transfer}
}

// sortedSubscriptions returns the subscriptions of a topic by name.
func (e *entity) sortedSubscriptions() []*entity {
	names := slices.Sorted(maps.Keys(e.subscriptions))
	all := make([]*entity, len(names))
	for i, name := range names {
		all[i] = e.subscriptions[name]
	}
	return all
}

// An address is a parsed path.
type address struct {
	name         string // of a queue or topic
	subscription string
	subqueue     Subqueue
}

// parseAddress parses a path: q, q/$DeadLetterQueue, q/$Transfer/$DeadLetterQueue,
// t/Subscriptions/s and so on, in any case ("Path to the dead-letter queue" on page
// service-bus-dead-letter-queues). It may begin with the address of a namespace.
func parseAddress(path string) address {
	if _, after, ok := strings.Cut(path, "://"); ok {
		_, path, _ = strings.Cut(after, "/")
	}
	path = strings.Trim(path, "/")
	var a address
	if rest, ok := cutSuffixFold(path, "/$DeadLetterQueue"); ok {
		path, a.subqueue = rest, SubqueueDeadLetter
		if rest, ok := cutSuffixFold(path, "/$Transfer"); ok {
			path, a.subqueue = rest, SubqueueTransferDeadLetter
		}
	}
	parts := strings.Split(path, "/")
	if n := len(parts); n > 2 && strings.EqualFold(parts[n-2], "Subscriptions") {
		a.subscription = parts[n-1]
		path = strings.Join(parts[:n-2], "/")
	}
	a.name = path
	return a
}

func cutSuffixFold(s, suffix string) (string, bool) {
	n := len(s) - len(suffix)
	if n < 0 || !strings.EqualFold(s[n:], suffix) {
		return s, false
	}
	return s[:n], true
}

// subqueueSuffix returns the end of the path of a subqueue.
func subqueueSuffix(s Subqueue) string {
	switch s {
	case SubqueueDeadLetter:
		return "/$DeadLetterQueue"
	case SubqueueTransferDeadLetter:
		return "/$Transfer/$DeadLetterQueue"
	}
	return ""
}

// findLocked returns the entity of an address without a subqueue, nil if there is none. Names of
// entities are "case-insensitive" (page service-bus-quotas, "entity path").
func (b *Broker) findLocked(a address) *entity {
	e := b.entities[strings.ToLower(a.name)]
	if e == nil || a.subscription == "" {
		return e
	}
	return e.subscriptions[strings.ToLower(a.subscription)]
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

func (s *store) path() string { return s.entity.path + subqueueSuffix(s.subqueue) }

// useLocked records that a sender or a receiver uses an entity, or that it is changed.
// "Idleness" on page message-expiration: a queue without sends, receives, updates,
// scheduled messages and browsing; a topic without sends, updates and scheduled messages;
// a subscription without receives, updates, new rules and browsing.
func (b *Broker) useLocked(e *entity) {
	e.accessed = b.now
	if e.settings.AutoDeleteOnIdle < properties.MaxTimeToLive && !e.idle.IsSet() {
		b.agenda.Set(&e.idle, b.now.Add(e.settings.AutoDeleteOnIdle))
	}
}
