package asb

import (
	"context"
	"sync"
)

// usage counts the settlements that wait for an answer on a link.
type usage struct {
	alive context.Context // ends when the link or its connection is lost
	end   context.CancelFunc

	mu       sync.Mutex // guards closing, and the growth of settling
	closing  bool
	settling sync.WaitGroup
}

// newUsage returns the usage of a link on a connection.
func newUsage(connection context.Context) *usage {
	u := &usage{}
	u.alive, u.end = context.WithCancel(connection)
	return u
}

// begin reports whether a settlement may use the link. If it may, settling.Done must
// follow.
func (u *usage) begin() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closing || u.alive.Err() != nil {
		return false
	}
	u.settling.Add(1)
	return true
}

// close refuses further settlements, and waits for those in progress.
func (u *usage) close() {
	u.mu.Lock()
	u.closing = true
	u.mu.Unlock()
	u.settling.Wait()
}
