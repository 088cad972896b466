package transport

import (
	"sync"

	"github.com/reprise-go/reprise/internal/lru"
)

// Cache is a bounded map that evicts the least recently used entry. An adapter caches
// facts in it that it can look up again, by keys that come from outside, such as reply
// addresses. It is safe for concurrent use, and copies neither keys nor values: a text that
// is a part of a message keeps the memory of the larger text, so that the caller clones it
// (strings.Clone) before Put.
type Cache[K comparable, V any] struct {
	mu      sync.Mutex
	entries *lru.Cache[K, V]
}

// NewCache returns an empty cache of at most capacity entries. A capacity below 1 counts
// as 1.
func NewCache[K comparable, V any](capacity int) *Cache[K, V] {
	return &Cache[K, V]{entries: lru.New[K, V](capacity)}
}

// Get returns the value of key, if there is one, and marks the entry as used.
func (c *Cache[K, V]) Get(key K) (V, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.entries.Get(key)
}

// Put sets key to value, and evicts another entry if there are too many.
func (c *Cache[K, V]) Put(key K, value V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entries.Put(key, value)
}

// Delete removes key.
func (c *Cache[K, V]) Delete(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entries.Delete(key)
}

// Resize changes the capacity, and evicts the least recently used entries that no longer
// fit.
func (c *Cache[K, V]) Resize(capacity int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entries.Resize(capacity)
}

// Len returns the number of entries.
func (c *Cache[K, V]) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.entries.Len()
}
