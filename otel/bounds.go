package otelreprise

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/internal/bounded"
)

// These are the most values that an attribute of a metric has.
const (
	maxMessageTypes = 200
	maxDestinations = 200
	maxErrorTypes   = 100
	maxPolicies     = 200
)

// bounds limits the values of metric attributes, regardless of the names in messages.
type bounds struct {
	// Those of received messages, and of copies of them, which the endpoint sends.
	messageTypes, destinations limitedValues
	// Those of messages that the application sends.
	sentTypes, sentDestinations limitedValues
	errorTypes, policies        limitedValues
}

// limitedValues passes the reserved values and the first others, and replaces all later ones
// by other. It keeps copies, because a value may be a part of a large message.
type limitedValues struct {
	mu       sync.RWMutex
	known    map[string]string
	reserved int // of known
}

// value returns a text of at most bounded.MaxName bytes and some more, or other.
func (v *limitedValues) value(text string, limit int) string {
	text = bounded.Name(text)
	if known, ok := v.find(text); ok {
		return known
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if known, ok := v.known[text]; ok {
		return known
	}
	if len(v.known)-v.reserved >= limit {
		return other
	}
	return v.addLocked(text)
}

func (v *limitedValues) find(text string) (known string, ok bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	known, ok = v.known[text]
	return known, ok
}

func (v *limitedValues) addLocked(text string) string {
	if v.known == nil {
		v.known = map[string]string{}
	}
	text = strings.Clone(text)
	v.known[text] = text
	return text
}

// reserve lets values pass always. They do not count.
func (v *limitedValues) reserve(texts ...string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, text := range texts {
		text = bounded.Name(text)
		if _, ok := v.known[text]; !ok {
			v.addLocked(text)
			v.reserved++
		}
	}
}

func (b *bounds) messageType(name string) string { return b.messageTypes.value(name, maxMessageTypes) }
func (b *bounds) destination(name string) string { return b.destinations.value(name, maxDestinations) }
func (b *bounds) errorType(name string) string   { return b.errorTypes.value(name, maxErrorTypes) }

func (b *bounds) policy(name string) string { return b.policies.value(name, maxPolicies) }

// sent returns the destination and the type of a message that is sent for a reason. The
// application chooses those of its sends. Copies of received messages have the types of
// their senders, which must not use up the values for others. header is the one with the
// message's types.
func (b *bounds) sent(destination, header string, reason core.SendReason) (boundedDestination, boundedType string) {
	if reason == core.ReasonApplication || reason == core.ReasonForward {
		destination = b.sentDestinations.value(destination, maxDestinations)
	} else {
		destination = b.destination(destination)
	}
	if reason == core.ReasonApplication {
		return destination, b.sentTypes.value(header, maxMessageTypes)
	}
	messageType := b.messageType(header)
	if messageType == other { // the first type may be one that has handlers
		first, _, _ := strings.Cut(header, ";")
		first, _, _ = strings.Cut(first, ",")
		if known, ok := b.messageTypes.find(strings.TrimSpace(first)); ok {
			return destination, known
		}
	}
	return destination, messageType
}

// cache is a map that is read without a lock, and copied for each new entry. It has a few
// thousand entries at most: values beyond that are created anew each time.
type cache[K comparable, V any] struct {
	entries atomic.Pointer[map[K]V]
	mu      sync.Mutex
}

const maxCached = 2000

// get returns the entry. If there is none it returns, and stores, the result of create.
func (c *cache[K, V]) get(key K, create func() V) V {
	if v, ok := c.find(key); ok {
		return v
	}
	return c.add(key, create)
}

func (c *cache[K, V]) find(key K) (v V, ok bool) {
	if entries := c.entries.Load(); entries != nil {
		v, ok = (*entries)[key]
	}
	return v, ok
}

func (c *cache[K, V]) add(key K, create func() V) V {
	c.mu.Lock()
	defer c.mu.Unlock()
	entries := map[K]V{}
	if old := c.entries.Load(); old != nil {
		if v, ok := (*old)[key]; ok {
			return v
		}
		if len(*old) >= maxCached {
			return create()
		}
		entries = maps.Clone(*old)
	}
	v := create()
	entries[key] = v
	c.entries.Store(&entries)
	return v
}
