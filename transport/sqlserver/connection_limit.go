package sqlserver

import (
	"context"
	"sync"
)

// connectionLimit limits the transactions that hold connections of one pool at a time, for all
// transports that share it. Each transaction lasts as long as a handler, and handlers
// send: without connections reserved for that they would wait for each other for ever.
type connectionLimit struct {
	pool       any
	transports int
	free       chan struct{} // has one element for each transaction
}

var pools = struct {
	mu sync.Mutex
	by map[any]*connectionLimit
}{by: map[any]*connectionLimit{}}

// connectionLimitOf returns the limit of a pool, for one more transport.
func connectionLimitOf(pool any, most int) *connectionLimit {
	pools.mu.Lock()
	defer pools.mu.Unlock()
	h := pools.by[pool]
	if h == nil {
		h = &connectionLimit{pool: pool, free: make(chan struct{}, max(most, 0))}
		pools.by[pool] = h
	}
	h.transports++
	return h
}

// reserve waits until one more transaction may hold a connection. It returns false if one
// of the contexts ends first.
func (h *connectionLimit) reserve(ctx, closing context.Context) bool {
	if h == nil {
		return true
	}
	select {
	case h.free <- struct{}{}:
		return true
	case <-ctx.Done():
	case <-closing.Done():
	}
	return false
}

// giveBack frees the place that reserve took.
func (h *connectionLimit) giveBack() {
	if h != nil {
		<-h.free
	}
}

// most returns how many transactions may hold a connection.
func (h *connectionLimit) most() int { return cap(h.free) }

// release is called when a transport is closed.
func (h *connectionLimit) release() {
	if h == nil {
		return
	}
	pools.mu.Lock()
	defer pools.mu.Unlock()
	if h.transports--; h.transports == 0 {
		delete(pools.by, h.pool)
	}
}
