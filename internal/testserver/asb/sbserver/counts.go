//go:build darwin || linux

package sbserver

import (
	"maps"
	"strings"
	"sync"
)

// Operation identifies operations that are counted together.
type Operation struct {
	Op     Op
	Entity string // path, as the entity was created; "" for OpConnect and OpToken
}

// counts has the numbers of operations.
type counts struct {
	mu          sync.Mutex
	byOperation map[Operation]int
}

func (c *counts) add(op Op, entity string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byOperation == nil {
		c.byOperation = map[Operation]int{}
	}
	c.byOperation[Operation{op, entity}]++
}

// Count returns the number of operations of a kind since the start, with an entity, or
// with any if entity is "". Operations that a fault made fail count too.
func (s *Server) Count(op Op, entity string) int {
	s.counts.mu.Lock()
	defer s.counts.mu.Unlock()
	n := 0
	for o, count := range s.counts.byOperation {
		if o.Op == op && (entity == "" || strings.EqualFold(o.Entity, entity)) {
			n += count
		}
	}
	return n
}

// Counts returns the numbers of operations since the start.
func (s *Server) Counts() map[Operation]int {
	s.counts.mu.Lock()
	defer s.counts.mu.Unlock()
	return maps.Clone(s.counts.byOperation)
}
