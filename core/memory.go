package core

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprise-go/reprise/internal/lru"
)

// memory is what an endpoint remembers of messages beyond their settlement,
// bounded whatever the load. It survives Run, because messages do.
type memory struct {
	mu      sync.Mutex
	settled *lru.Cache[string, struct{}]     // R28
	pending *lru.Cache[string, *undelivered] // R25
	// waiting is pending's length, so that the usual case takes no lock.
	waiting atomic.Int64
}

// undelivered is a decision that could not be carried out yet.
type undelivered struct {
	failure  failure
	decision decision
	tries    int
	triedAt  time.Time
}

func newMemory() *memory {
	return &memory{
		settled: lru.New[string, struct{}](memoryEntries),
		pending: lru.New[string, *undelivered](memoryEntries),
	}
}

// rememberSettled notes that the message was dealt with, for the case that its
// settlement did not happen.
func (m *memory) rememberSettled(nativeID string) {
	if nativeID == "" {
		return
	}
	m.mu.Lock()
	m.settled.Put(nativeID, struct{}{})
	m.mu.Unlock()
}

// wasSettled reports whether the message was dealt with before.
func (m *memory) wasSettled(nativeID string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.settled.Get(nativeID)
	return ok
}

// rememberPending notes a decision that could not be carried out, and returns
// how often that was tried. It keeps neither the message, which the redelivery
// brings again, nor the error, which may be of any size.
func (m *memory) rememberPending(nativeID string, f *failure, d *decision) (tries int) {
	if nativeID == "" {
		return 1
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	u, ok := m.pending.Get(nativeID)
	if !ok {
		u = &undelivered{failure: *f}
		u.failure.Headers, u.failure.Body = Headers{}, nil
		u.failure.Err = recall(f.Err)
	}
	u.decision = *d
	u.tries++
	u.triedAt = time.Now()
	m.pending.Put(nativeID, u)
	m.waiting.Store(int64(m.pending.Len()))
	return u.tries
}

// pendingDecision returns a copy: whoever lost the message's lock may still be
// trying to carry out the same decision.
func (m *memory) pendingDecision(nativeID string) (u undelivered, ok bool) {
	if m.waiting.Load() == 0 {
		return undelivered{}, false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expire()
	p, ok := m.pending.Get(nativeID)
	if !ok {
		return undelivered{}, false
	}
	return *p, true
}

// expire forgets decisions about messages that have not come again for long:
// another instance has dealt with them. A message may have to wait for all the
// others to be tried and held, one after the other.
func (m *memory) expire() {
	for {
		id, u, ok := m.pending.Oldest()
		if !ok || time.Since(u.triedAt) < time.Duration(10+m.pending.Len())*longestUndeliveredHold {
			break
		}
		m.pending.Delete(id)
	}
	m.waiting.Store(int64(m.pending.Len()))
}

// undelivered returns how many decisions wait.
func (m *memory) undelivered() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expire()
	return m.pending.Len()
}

func (m *memory) forgetPending(nativeID string) {
	if m.waiting.Load() == 0 {
		return
	}
	m.mu.Lock()
	m.pending.Delete(nativeID)
	m.waiting.Store(int64(m.pending.Len()))
	m.mu.Unlock()
}
