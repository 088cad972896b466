package conformance

import (
	"maps"
	"sync"
)

// tally counts by key. Several goroutines may use it.
type tally struct {
	mu    sync.Mutex
	count map[string]int
}

// add counts one more and returns the count of the key.
func (c *tally) add(key string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.count == nil {
		c.count = map[string]int{}
	}
	c.count[key]++
	return c.count[key]
}

func (c *tally) of(key string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count[key]
}

func (c *tally) total() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	total := 0
	for _, n := range c.count {
		total += n
	}
	return total
}

// counts returns all counts.
func (c *tally) counts() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.count)
}
