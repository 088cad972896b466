package sqlserver

import "sync"

// holders limits the transactions that hold connections of one pool at a time, for all
// transports that share it. Each transaction lasts as long as a handler, and handlers
// send: without connections reserved for that they would wait for each other for ever.
type holders struct {
	pool       any
	transports int
	free       chan struct{} // has one element for each transaction
}

var pools = struct {
	mu sync.Mutex
	by map[any]*holders
}{by: map[any]*holders{}}

// holdersOf returns the holders of a pool, for one more transport.
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
