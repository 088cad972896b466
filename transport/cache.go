package transport

import (
	"sync"

	"github.com/reprise-go/reprise/internal/lru"
)

// Cache is a bounded map that forgets the least recently used entry. An adapter keeps facts
// in it that it can look up again, by names that come from outside, such as the addresses
// to reply to. It is safe for concurrent use, and does not copy values.
type Cache[K comparable, V any] struct {
	mu      sync.Mutex
	entries *lru.Cache[K, V]
}

// NewCache returns an empty cache of at most capacity entries; below 1 it is 1.
func NewCache[K comparable, V any](capacity int) *Cache[K, V] {
	return &Cache[K, V]{entries: lru.New[K, V](capacity)}
}

// Get returns the value of key, if there is one, and uses it.
func (c *Cache[K, V]) Get(key K) (V, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.entries.Get(key)
}

// Put sets key to value, and forgets another entry if there are too many.
func (c *Cache[K, V]) Put(key K, value V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entries.Put(key, value)
}

// Delete forgets key.
func (c *Cache[K, V]) Delete(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entries.Delete(key)
}

// Resize changes the capacity, and forgets the least recently used entries that no longer fit.
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
