package core

import (
	"crypto/sha256"
	"slices"
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
	accepted *lru.Cache[string, []fingerprint]    // by the id of the message that was handled
	survived *lru.Cache[string, int]              // R35; by NativeID, the DeliveryCount
	rounds   *lru.Cache[string, earlierRounds]    // R61; by NativeID
	// The lengths of pending and accepted, so that the usual case takes no lock.
	pendingCount  atomic.Int64
	acceptedCount atomic.Int64
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

func newRedeliveryState() *redeliveryState {
	return &redeliveryState{
		settled:  lru.New[string, struct{}](maxRememberedMessages),
		pending:  lru.New[string, *pendingDecision](maxRememberedMessages),
		accepted: lru.New[string, []fingerprint](maxRememberedMessages),
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

// rememberAccepted records the sends of a handler that the broker has accepted although
// the attempt failed: the next attempt sends only the others.
func (s *redeliveryState) rememberAccepted(incomingID string, out []Outgoing, err error) {
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
	s.mu.Lock()
	defer s.mu.Unlock()
	before, _ := s.accepted.Get(incomingID)
	s.accepted.Put(incomingID, append(slices.Clip(before), accepted...))
	s.acceptedCount.Store(int64(s.accepted.Len()))
}

// withoutAccepted returns the sends that the broker has not accepted from an earlier
// attempt at the same message. Two sends are the same if they have the same id,
// destination, type, body (before SendMiddleware), group key and delay; observers may
// have changed other headers.
func (s *redeliveryState) withoutAccepted(incomingID string, out []Outgoing) []Outgoing {
	if len(out) == 0 || s.acceptedCount.Load() == 0 {
		return out
	}
	s.mu.Lock()
	before, _ := s.accepted.Get(incomingID)
	s.mu.Unlock()
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

func (s *redeliveryState) forgetAccepted(incomingID string) {
	if s.acceptedCount.Load() == 0 {
		return
	}
	s.mu.Lock()
	s.accepted.Delete(incomingID)
	s.acceptedCount.Store(int64(s.accepted.Len()))
	s.mu.Unlock()
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
	if meta := out.metadata; meta != nil { // another attempt has another delay, and after encryption another body
		if !meta.due.IsZero() {
			delay = FormatTime(meta.due)
		}
		if meta.body != nil {
			body = meta.body
		}
	}
	part(delay)
	part(string(body))
	return fingerprint(h.Sum(nil))
}

// The rest of this file decides which messages may have killed their process (R35), and how
// often they are delivered. The pump attempts them when the process has no other message, so that no
// other message is counted with them.

// isolationRules decides which messages are suspects. With the zero value none is.
type isolationRules struct {
	// threshold is the number of deliveries after which a message is a suspect; 0 means
	// never.
	threshold int
	// explainedDeliveries is the number of deliveries of a copy that the immediate retries
	// in force explain.
	explainedDeliveries int
	// reserved is the part of MaxDeliveries for the new copy (R34); with 0 the copy may be
	// delivered MaxDeliveries times again.
	reserved int
}

const (
	// minIsolateAfter tolerates one lost connection, or one restart of all instances,
	// without isolation.
	minIsolateAfter = 2
	// minReserved is the lowest number of deliveries of a new copy. One of them may be lost
	// without a handler.
	minReserved = 3
)

// firstCopyLimit returns the number of deliveries after which a suspect becomes a new
// copy, if it does, or goes to the error queue.
func (i isolationRules) firstCopyLimit(maxDeliveries int) int {
	return max(maxDeliveries-i.reserved, i.explainedDeliveries)
}

// isNewCopy reports whether a message is the new copy of one that was delivered too
// often.
func (i isolationRules) isNewCopy(in *Incoming) bool {
	return i.reserved > 0 && in.Headers.Get(HeaderDeliveries) != ""
}

// isSuspect reports whether a message was delivered more often than its failures can
// explain, and the process is not known to have survived that. A new copy is a suspect
// from its second delivery on.
func (ep *Endpoint) isSuspect(in *Incoming) bool {
	i := ep.isolation
	switch {
	case i.threshold == 0 || in.DeliveryCount <= 1:
		return false
	case in.DeliveryCount <= i.threshold && !i.isNewCopy(in):
		return false
	case in.DeliveryCount <= i.explainedDeliveries && in.LastError != "":
		return false
	}
	return !ep.redeliveries.wasSurvived(in) && !ep.redeliveries.wasSettled(in.NativeID)
}

// recordSurvived records that a handler of the message returned, if that can matter.
func (ep *Endpoint) recordSurvived(in *Incoming) {
	if i := ep.isolation; i.threshold > 0 && (in.DeliveryCount >= i.threshold || i.isNewCopy(in)) {
		ep.redeliveries.rememberSurvived(in)
	}
}

// exceedsDeliveries reports whether a message was delivered too often for a handler.
func (ep *Endpoint) exceedsDeliveries(in *Incoming) bool {
	if ep.maxDeliveries == 0 {
		return false
	}
	return in.DeliveryCount > ep.maxDeliveries || in.DeliveryCount > ep.isolation.reserved && in.DeliveryCount > ep.maxDeliveriesOf(in)
}

// maxDeliveriesOf returns the limit of deliveries of a message to a handler. The
// deliveries of a suspect and of its new copy are MaxDeliveries together.
func (ep *Endpoint) maxDeliveriesOf(in *Incoming) int {
	i := ep.isolation
	switch {
	case i.reserved == 0 || !ep.isSuspect(in):
		return ep.maxDeliveries
	case i.isNewCopy(in):
		return i.reserved
	}
	return i.firstCopyLimit(ep.maxDeliveries)
}

// isSuspectDelivery is isSuspect for the pump, and totalDeliveries also counts the deliveries
// of the message that this one is a new copy of.
func (ep *Endpoint) isSuspectDelivery(d Delivery) bool {
	in := d.Incoming()
	return in.DeliveryCount > 1 && ep.isSuspect(in)
}

func totalDeliveries(d Delivery) int {
	in := d.Incoming()
	return in.DeliveryCount + intHeader(in.Headers, HeaderDeliveries)
}

// isolationChanged reports suspects, once while there are some.
func (r *runner) isolationChanged(isolating bool, suspect Delivery) {
	log := r.ep.log.recoverability
	if !isolating {
		r.hookCalls.Add(func() { log.Info("messages are attempted side by side again") })
		return
	}
	in := suspect.Incoming()
	id, deliveries := in.ID, in.DeliveryCount
	r.hookCalls.Add(func() {
		log.Warn("a message was delivered several times without a known end and may have killed its process: such messages are attempted one at a time, with nothing beside them",
			"message_id", id, "deliveries", deliveries, "isolate_after", r.ep.isolation.threshold)
	})
}
