package sqlserver

import "sync"

// holders are the transactions that may hold connections of one pool at a time, those
// of all transports that share it. Each lasts as long as a handler, and handlers send:
// without connections left for that they would wait for each other for ever.
type holders struct {
	pool       any
	transports int
	free       chan struct{} // has one element for each transaction
}

var pools = struct {
	mu sync.Mutex
	by map[any]*holders
}{by: map[any]*holders{}}

// holdersOf returns those of a pool, for one more transport.
func holdersOf(pool any, most int) *holders {
	pools.mu.Lock()
	defer pools.mu.Unlock()
	h := pools.by[pool]
	if h == nil {
		h = &holders{pool: pool, free: make(chan struct{}, max(most, 0))}
		pools.by[pool] = h
	}
	h.transports++
	return h
}

// leave is called when a transport is closed.
func (h *holders) leave() {
	if h == nil {
		return
	}
	pools.mu.Lock()
	defer pools.mu.Unlock()
	if h.transports--; h.transports == 0 {
		delete(pools.by, h.pool)
	}
}
