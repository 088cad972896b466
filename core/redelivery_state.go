package core

import (
	"crypto/sha256"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprise-go/reprise/internal/lru"
)

// redeliveryState is the memory of the endpoint for messages that may be redelivered,
// bounded under any load. It survives Run, because messages do.
type redeliveryState struct {
	mu       sync.Mutex
	settled  *lru.Cache[string, struct{}]         // R28; by NativeID
	pending  *lru.Cache[string, *pendingDecision] // R25; by pendingKey
	survived *lru.Cache[string, int]              // R35; by NativeID, the DeliveryCount
	rounds   *lru.Cache[string, earlierRounds]    // R61; by NativeID
	// The length of pending, so that the usual case takes no lock.
	pendingCount atomic.Int64
}

// pendingDecision is a decision that could not be carried out yet.
type pendingDecision struct {
	failure  failure
	decision decision
	tries    int
	triedAt  time.Time
}

func newRedeliveryState() *redeliveryState {
	return &redeliveryState{
		settled:  lru.New[string, struct{}](maxRememberedMessages),
		pending:  lru.New[string, *pendingDecision](maxRememberedMessages),
		survived: lru.New[string, int](maxRememberedMessages),
		rounds:   lru.New[string, earlierRounds](maxRememberedMessages),
	}
}

// rememberSettled records that the message was handled, in case its settlement did not
// take effect.
func (s *redeliveryState) rememberSettled(nativeID string) {
	if nativeID == "" {
		return
	}
	s.mu.Lock()
	s.settled.Put(nativeID, struct{}{})
	s.mu.Unlock()
}

// wasSettled reports whether the message was handled before.
func (s *redeliveryState) wasSettled(nativeID string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.settled.Get(nativeID)
	return ok
}

// rememberSurvived records that the process survived a handler of the message.
func (s *redeliveryState) rememberSurvived(in *Incoming) {
	if in.NativeID == "" {
		return
	}
	s.mu.Lock()
	s.survived.Put(in.NativeID, in.DeliveryCount)
	s.mu.Unlock()
}

// wasSurvived reports whether this process survived the previous delivery of the message.
func (s *redeliveryState) wasSurvived(in *Incoming) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	count, ok := s.survived.Get(in.NativeID)
	return ok && count == in.DeliveryCount-1
}

// rememberRounds records the rounds of a message, which its next delivery does not have.
func (s *redeliveryState) rememberRounds(nativeID string, e earlierRounds) {
	if nativeID == "" {
		return
	}
	s.mu.Lock()
	s.rounds.Put(nativeID, e)
	s.mu.Unlock()
}

// roundsOf returns the rounds that were recorded last.
func (s *redeliveryState) roundsOf(nativeID string) earlierRounds {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, _ := s.rounds.Get(nativeID)
	return e
}

// pendingKey identifies a stored copy. A foreign message without NativeID is identified
// by its id and body. Two messages with equal ids and bodies share a decision, which is
// then executed for each.
func pendingKey(in *Incoming) string {
	if in.NativeID != "" {
		return in.NativeID
	}
	body := sha256.Sum256(in.Body)
	return "foreign\x00" + in.ID + "\x00" + string(body[:])
}

// mayBeRedelivery reports whether a delivery may be of a copy that was delivered before.
func mayBeRedelivery(in *Incoming) bool {
	return in.NativeID != "" || in.Redelivered || in.DeliveryCount > 1
}

// maxRememberedBytes limits the remembered sends of a decision, in bytes: those of
// HandleFailed, and committed messages of handlers.
const maxRememberedBytes = 64 << 10

// rememberPending records a decision that could not be carried out, in case the message
// is redelivered before that. It keeps neither the message, which the redelivery has, nor
// the error, which may be of any size. It does not keep a decision with too many sends:
// then the handler runs again.
func (s *redeliveryState) rememberPending(in *Incoming, f *failure, d *decision) {
	size := d.committedSends.bytes()
	for _, out := range d.handleFailedSends {
		size += len(out.Body) + out.Headers.Bytes()
	}
	if size > maxRememberedBytes {
		s.forgetPending(in)
		return
	}
	key := pendingKey(in)
	s.mu.Lock()
	defer s.mu.Unlock()
	u, ok := s.pending.Get(key)
	if !ok {
		u = &pendingDecision{failure: *f}
		u.failure.setMessage(&Incoming{})
		u.failure.attemptValues = nil
		u.failure.Err = snapshotError(f.Err)
	}
	u.decision = *d
	u.tries++
	u.triedAt = time.Now()
	s.pending.Put(key, u)
	s.pendingCount.Store(int64(s.pending.Len()))
}

// decisionFor returns a copy of the decision about a redelivered message, or nil. The
// goroutine with the message's earlier delivery may still be trying to carry out the same
// decision.
func (s *redeliveryState) decisionFor(in *Incoming) *pendingDecision {
	if s.pendingCount.Load() == 0 || !mayBeRedelivery(in) {
		return nil
	}
	key := pendingKey(in)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expireLocked()
	p, ok := s.pending.Get(key)
	if !ok {
		return nil
	}
	u := *p
	return &u
}

// expireLocked forgets decisions about messages that have not been redelivered for long:
// another instance has handled them.
func (s *redeliveryState) expireLocked() {
	for {
		key, u, ok := s.pending.Oldest()
		if !ok || time.Since(u.triedAt) < pendingExpiry {
			break
		}
		s.pending.Delete(key)
	}
	s.pendingCount.Store(int64(s.pending.Len()))
}

// pendingDecisions returns the number of waiting decisions.
func (s *redeliveryState) pendingDecisions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expireLocked()
	return s.pending.Len()
}

func (s *redeliveryState) forgetPending(in *Incoming) {
	if s.pendingCount.Load() == 0 {
		return
	}
	key := pendingKey(in)
	s.mu.Lock()
	s.pending.Delete(key)
	s.pendingCount.Store(int64(s.pending.Len()))
	s.mu.Unlock()
}
