package sqlexec

import (
	"context"
	"sync"
)

// ConnectionLimit limits the transactions that hold connections of one pool at a time, for all
// transports that share it. Each transaction lasts as long as a handler, and handlers
// send: without connections reserved for that they would wait for each other for ever.
type ConnectionLimit struct {
	pool       any
	transports int
	free       chan struct{} // has one element for each transaction
}

var pools = struct {
	mu sync.Mutex
	by map[any]*ConnectionLimit
}{by: map[any]*ConnectionLimit{}}

// JoinConnectionLimit returns the limit of a pool, for one more transport.
func JoinConnectionLimit(pool any, limit int) *ConnectionLimit {
	pools.mu.Lock()
	defer pools.mu.Unlock()
	h := pools.by[pool]
	if h == nil {
		h = &ConnectionLimit{pool: pool, free: make(chan struct{}, max(limit, 0))}
		pools.by[pool] = h
	}
	h.transports++
	return h
}

// Reserve waits until one more transaction may hold a connection. It returns false if one
// of the contexts ends first.
func (h *ConnectionLimit) Reserve(ctx, closing context.Context) bool {
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

// Free frees the place that reserve took.
func (h *ConnectionLimit) Free() {
	if h != nil {
		<-h.free
	}
}

// Max returns how many transactions may hold a connection.
func (h *ConnectionLimit) Max() int { return cap(h.free) }

// Release is called when a transport is closed.
func (h *ConnectionLimit) Release() {
	if h == nil {
		return
	}
	pools.mu.Lock()
	defer pools.mu.Unlock()
	if h.transports--; h.transports == 0 {
		delete(pools.by, h.pool)
	}
}
