package core

import (
	"math"
	"sync"

	"github.com/reprise-go/reprise/internal/lru"
)

// This file decides which messages may have killed their process (R35), and how
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
	// newCopyAfter is the number of deliveries after which a message can become a new copy; 0
	// means never.
	newCopyAfter int
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
	return i.reserved > 0 && in.earlierDeliveries(i.newCopyAfter) > 0
}

// suspects knows which messages may have killed their process, and how often each may be
// delivered. It survives Run, because messages do. All methods may be called concurrently.
type suspects struct {
	isolationRules
	maxDeliveries int // of one copy; 0 = no limit
	unfinished    *unfinished

	mu       sync.Mutex
	survived *lru.Cache[string, int] // by NativeID, the DeliveryCount
}

func newSuspects(rules isolationRules, maxDeliveries int, u *unfinished) *suspects {
	return &suspects{isolationRules: rules, maxDeliveries: maxDeliveries, unfinished: u, survived: lru.New[string, int](maxRememberedMessages)}
}

// isSuspect reports whether a message was delivered more often than its failures can
// explain, and the process is not known to have survived that. A new copy is a suspect
// from its second delivery on.
func (s *suspects) isSuspect(in *Incoming) bool {
	switch {
	case s.threshold == 0 || in.DeliveryCount <= 1:
		return false
	case in.DeliveryCount <= s.threshold && !s.isNewCopy(in):
		return false
	case in.DeliveryCount <= s.explainedDeliveries && in.LastError != "":
		return false
	}
	return !s.wasSurvived(in) && !s.unfinished.wasSettled(in.NativeID)
}

// wasSurvived reports whether this process survived the previous delivery of the message.
func (s *suspects) wasSurvived(in *Incoming) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	count, ok := s.survived.Get(nativeKey(in.NativeID))
	return ok && count == in.DeliveryCount-1
}

// recordSurvived records that a handler of the message returned, if that can matter.
func (s *suspects) recordSurvived(in *Incoming) {
	if s.threshold == 0 || in.DeliveryCount < s.threshold && !s.isNewCopy(in) {
		return
	}
	s.mu.Lock()
	s.survived.Put(nativeKey(in.NativeID), in.DeliveryCount)
	s.mu.Unlock()
}

// exceedsDeliveries reports whether a message was delivered too often for a handler.
func (s *suspects) exceedsDeliveries(in *Incoming) bool {
	if s.maxDeliveries == 0 {
		return false
	}
	return in.DeliveryCount > s.maxDeliveries || in.DeliveryCount > s.reserved && in.DeliveryCount > s.maxDeliveriesOf(in)
}

// maxDeliveriesOf returns the limit of deliveries of a message to a handler. The
// deliveries of a suspect and of its new copy are MaxDeliveries together.
func (s *suspects) maxDeliveriesOf(in *Incoming) int {
	switch {
	case s.reserved == 0 || !s.isSuspect(in):
		return s.maxDeliveries
	case s.isNewCopy(in):
		return s.reserved
	}
	return s.firstCopyLimit(s.maxDeliveries)
}

// isSuspectDelivery is isSuspect for the pump, and totalDeliveries also counts the deliveries
// of the message that this one is a new copy of.
func (s *suspects) isSuspectDelivery(d Delivery) bool {
	in := d.Incoming()
	return in.DeliveryCount > 1 && s.isSuspect(in)
}

func (s *suspects) totalDeliveries(d Delivery) int {
	in := d.Incoming()
	return min(in.DeliveryCount, math.MaxInt32-maxCount) + in.earlierDeliveries(s.newCopyAfter)
}
