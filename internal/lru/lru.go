// Package lru is a bounded map that evicts the least recently used entries.
package lru

import "container/list"

// Cache holds at most its capacity of entries. It is not safe for concurrent
// use.
type Cache[K comparable, V any] struct {
	capacity int
	order    *list.List // front = most recently used
	entries  map[K]*list.Element
}

type entry[K comparable, V any] struct {
	key   K
	value V
}

// New returns an empty cache. A capacity below 1 counts as 1.
func New[K comparable, V any](capacity int) *Cache[K, V] {
	return &Cache[K, V]{capacity: max(capacity, 1), order: list.New(), entries: map[K]*list.Element{}}
}

// Get returns the value of key and makes it the most recently used.
func (c *Cache[K, V]) Get(key K) (V, bool) {
	e, ok := c.entries[key]
	if !ok {
		var zero V
		return zero, false
	}
	c.order.MoveToFront(e)
	return e.Value.(*entry[K, V]).value, true
}

// Put sets key to value and makes it the most recently used. If there are too many
// entries, it evicts the least recently used one.
func (c *Cache[K, V]) Put(key K, value V) {
	if e, ok := c.entries[key]; ok {
		e.Value.(*entry[K, V]).value = value
		c.order.MoveToFront(e)
		return
	}
	c.entries[key] = c.order.PushFront(&entry[K, V]{key, value})
	c.shrink()
}

// Oldest returns the least recently used entry, and false if there is none. It does not
// change the order.
func (c *Cache[K, V]) Oldest() (key K, value V, ok bool) {
	last := c.order.Back()
	if last == nil {
		return key, value, false
	}
	e := last.Value.(*entry[K, V])
	return e.key, e.value, true
}

// Delete removes key.
func (c *Cache[K, V]) Delete(key K) {
	if e, ok := c.entries[key]; ok {
		c.order.Remove(e)
		delete(c.entries, key)
	}
}

// Resize changes the capacity and evicts entries that no longer fit.
func (c *Cache[K, V]) Resize(capacity int) {
	c.capacity = max(capacity, 1)
	c.shrink()
}

// Len returns the number of entries.
func (c *Cache[K, V]) Len() int { return len(c.entries) }

func (c *Cache[K, V]) shrink() {
	for len(c.entries) > c.capacity {
		last := c.order.Back()
		c.order.Remove(last)
		delete(c.entries, last.Value.(*entry[K, V]).key)
	}
}
