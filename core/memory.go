package core

import (
	"crypto/sha256"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprise-go/reprise/internal/lru"
)

// memory is the endpoint's memory of messages beyond their settlement, bounded under any
// load. It survives Run, because messages do.
type memory struct {
	mu       sync.Mutex
	settled  *lru.Cache[string, struct{}]         // R28; by NativeID
	pending  *lru.Cache[string, *pendingDecision] // R25; by pendingKey
	accepted *lru.Cache[string, []fingerprint]    // by the id of the message that was handled
	survived *lru.Cache[string, int]              // R35; by NativeID, the DeliveryCount
	rounds   *lru.Cache[string, earlierRounds]    // R61; by NativeID
	// The lengths of pending and accepted, so that the usual case takes no lock.
	waiting  atomic.Int64
	partials atomic.Int64
}

// pendingDecision is a decision that could not be carried out yet.
type pendingDecision struct {
	failure  failure
	decision decision
	tries    int
	triedAt  time.Time
}

// fingerprint distinguishes the messages that one handler sends.
type fingerprint [sha256.Size]byte

func newMemory() *memory {
	return &memory{
		settled:  lru.New[string, struct{}](memoryEntries),
		pending:  lru.New[string, *pendingDecision](memoryEntries),
		accepted: lru.New[string, []fingerprint](memoryEntries),
		survived: lru.New[string, int](memoryEntries),
		rounds:   lru.New[string, earlierRounds](memoryEntries),
	}
}

// rememberSettled records that the message was handled, in case its settlement did not
// take effect.
func (m *memory) rememberSettled(nativeID string) {
	if nativeID == "" {
		return
	}
	m.mu.Lock()
	m.settled.Put(nativeID, struct{}{})
	m.mu.Unlock()
}

// wasSettled reports whether the message was handled before.
func (m *memory) wasSettled(nativeID string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.settled.Get(nativeID)
	return ok
}

// rememberSurvived records that the process survived a handler of the message.
func (m *memory) rememberSurvived(in *Incoming) {
	if in.NativeID == "" {
		return
	}
	m.mu.Lock()
	m.survived.Put(in.NativeID, in.DeliveryCount)
	m.mu.Unlock()
}

// wasSurvived reports whether this process survived the previous delivery of the message.
func (m *memory) wasSurvived(in *Incoming) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	count, ok := m.survived.Get(in.NativeID)
	return ok && count == in.DeliveryCount-1
}

// rememberRounds records the rounds of a message, which its next delivery does not have.
func (m *memory) rememberRounds(nativeID string, e earlierRounds) {
	if nativeID == "" {
		return
	}
	m.mu.Lock()
	m.rounds.Put(nativeID, e)
	m.mu.Unlock()
}

// roundsOf returns the rounds that were recorded last.
func (m *memory) roundsOf(nativeID string) earlierRounds {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, _ := m.rounds.Get(nativeID)
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

// mayBeRemembered reports whether a delivery may be of a copy that was delivered before.
func mayBeRemembered(in *Incoming) bool {
	return in.NativeID != "" || in.Redelivered || in.DeliveryCount > 1
}

// mostRemembered limits the remembered sends of a decision, in bytes: those of
// HandleFailed, and committed messages of handlers.
const mostRemembered = 64 << 10

// rememberPending records a decision that could not be carried out, in case the message
// is redelivered before that. It keeps neither the message, which the redelivery has, nor
// the error, which may be of any size. It does not keep a decision with too many sends:
// then the handler runs again.
func (m *memory) rememberPending(in *Incoming, f *failure, d *decision) {
	size := d.committed.bytes()
	for _, out := range d.extra {
		size += len(out.Body) + out.Headers.Bytes()
	}
	if size > mostRemembered {
		m.forgetPending(in)
		return
	}
	key := pendingKey(in)
	m.mu.Lock()
	defer m.mu.Unlock()
	u, ok := m.pending.Get(key)
	if !ok {
		u = &pendingDecision{failure: *f}
		u.failure.setMessage(&Incoming{})
		u.failure.noted = nil
		u.failure.Err = recall(f.Err)
	}
	u.decision = *d
	u.tries++
	u.triedAt = time.Now()
	m.pending.Put(key, u)
	m.waiting.Store(int64(m.pending.Len()))
}

// decisionFor returns a copy of the decision about a redelivered message, or nil. The
// goroutine with the message's earlier delivery may still be trying to carry out the same
// decision.
func (m *memory) decisionFor(in *Incoming) *pendingDecision {
	if m.waiting.Load() == 0 || !mayBeRemembered(in) {
		return nil
	}
	key := pendingKey(in)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expire()
	p, ok := m.pending.Get(key)
	if !ok {
		return nil
	}
	u := *p
	return &u
}

// expire forgets decisions about messages that have not been redelivered for long:
// another instance has handled them.
func (m *memory) expire() {
	for {
		key, u, ok := m.pending.Oldest()
		if !ok || time.Since(u.triedAt) < pendingExpiry {
			break
		}
		m.pending.Delete(key)
	}
	m.waiting.Store(int64(m.pending.Len()))
}

// undelivered returns the number of waiting decisions.
func (m *memory) undelivered() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expire()
	return m.pending.Len()
}

func (m *memory) forgetPending(in *Incoming) {
	if m.waiting.Load() == 0 {
		return
	}
	key := pendingKey(in)
	m.mu.Lock()
	m.pending.Delete(key)
	m.waiting.Store(int64(m.pending.Len()))
	m.mu.Unlock()
}

// rememberAccepted records the sends of a handler that the broker has accepted although
// the attempt failed: the next attempt sends only the others.
func (m *memory) rememberAccepted(incomingID string, out []Outgoing, err error) {
	sent, ok := asSendError(err, len(out))
	if !ok {
		return
	}
	var accepted []fingerprint
	for i := range out {
		if sent.Results[i].State == SendAccepted {
			accepted = append(accepted, fingerprintOf(&out[i]))
		}
	}
	if len(accepted) == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	before, _ := m.accepted.Get(incomingID)
	m.accepted.Put(incomingID, append(slices.Clip(before), accepted...))
	m.partials.Store(int64(m.accepted.Len()))
}

// withoutAccepted returns the sends that the broker has not accepted from an earlier
// attempt at the same message. Two sends are the same if they have the same id,
// destination, type, body (before SendMiddleware), group key and delay; observers may
// have changed other headers.
func (m *memory) withoutAccepted(incomingID string, out []Outgoing) []Outgoing {
	if len(out) == 0 || m.partials.Load() == 0 {
		return out
	}
	m.mu.Lock()
	before, _ := m.accepted.Get(incomingID)
	m.mu.Unlock()
	if len(before) == 0 {
		return out
	}
	left := make([]Outgoing, 0, len(out))
	for i := range out {
		if !slices.Contains(before, fingerprintOf(&out[i])) {
			left = append(left, out[i])
		}
	}
	return left
}

func (m *memory) forgetAccepted(incomingID string) {
	if m.partials.Load() == 0 {
		return
	}
	m.mu.Lock()
	m.accepted.Delete(incomingID)
	m.partials.Store(int64(m.accepted.Len()))
	m.mu.Unlock()
}

func fingerprintOf(out *Outgoing) fingerprint {
	h := sha256.New()
	part := func(text string) {
		var length [8]byte
		for i, n := 0, uint64(len(text)); i < len(length); i++ {
			length[i] = byte(n >> (8 * i))
		}
		h.Write(length[:])
		h.Write([]byte(text))
	}
	part(out.ID)
	part(out.Queue)
	part(out.Topic)
	part(out.GroupKey)
	part(out.Headers.Get(HeaderMessageTypes))
	delay, body := out.Delay.String(), out.Body
	if origin := out.origin; origin != nil { // another attempt has another delay, and after encryption another body
		if !origin.due.IsZero() {
			delay = FormatTime(origin.due)
		}
		if origin.body != nil {
			body = origin.body
		}
	}
	part(delay)
	part(string(body))
	return fingerprint(h.Sum(nil))
}
