package suite

import (
	"maps"
	"sync"
)

// counter counts by key. Several goroutines may use it.
type counter struct {
	mu    sync.Mutex
	byKey map[string]int
}

// add counts one more and returns the count of the key.
func (c *counter) add(key string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byKey == nil {
		c.byKey = map[string]int{}
	}
	c.byKey[key]++
	return c.byKey[key]
}

func (c *counter) get(key string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byKey[key]
}

func (c *counter) total() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	total := 0
	for _, n := range c.byKey {
		total += n
	}
	return total
}

// counts returns all counts.
func (c *counter) counts() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.byKey)
}
