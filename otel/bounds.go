package otelreprise

import (
	"maps"
	"sync"
	"sync/atomic"
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
	messageTypes, destinations, errorTypes, policies bounded
}

// bounded passes the first values, and replaces all later ones by other.
type bounded struct {
	mu     sync.RWMutex
	values map[string]struct{}
}

func (b *bounded) value(text string, limit int) string {
	b.mu.RLock()
	_, known := b.values[text]
	full := len(b.values) >= limit
	b.mu.RUnlock()
	switch {
	case known:
		return text
	case full:
		return other
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, known := b.values[text]; !known && len(b.values) >= limit {
		return other
	}
	if b.values == nil {
		b.values = map[string]struct{}{}
	}
	b.values[text] = struct{}{}
	return text
}

func (b *bounds) messageType(name string) string { return b.messageTypes.value(name, maxMessageTypes) }
func (b *bounds) destination(name string) string { return b.destinations.value(name, maxDestinations) }
func (b *bounds) errorType(name string) string   { return b.errorTypes.value(name, maxErrorTypes) }

func (b *bounds) policy(name string) string { return b.policies.value(name, maxPolicies) }

// cache is a map that is read without a lock, and copied for each new entry. It has a few
// thousand entries at most: values beyond that are created anew each time.
type cache[K comparable, V any] struct {
	entries atomic.Pointer[map[K]V]
	mu      sync.Mutex
}

const maxCached = 2000

// get returns the entry. If there is none it returns, and stores, the result of create.
func (c *cache[K, V]) get(key K, create func() V) V {
	if entries := c.entries.Load(); entries != nil {
		if v, ok := (*entries)[key]; ok {
			return v
		}
	}
	return c.add(key, create)
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
