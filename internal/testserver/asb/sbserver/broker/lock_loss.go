package broker

import (
	"maps"
	"slices"

	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/clock"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/condition"
)

// FireLocked ends the lock of a session.
func (n *session) FireLocked(*clock.Event) { n.store.loseSessionLocked(n) }

// loseSessionLocked ends the expired lock of a session: "Session is accepted, but the
// session lock expires (due to timeout)": the delivery count of its locked messages is
// incremented (page message-sessions, "Impact of delivery count").
func (s *store) loseSessionLocked(n *session) {
	c := n.holder
	c.endLocked()
	s.entity.broker.endings = append(s.entity.broker.endings, ending{c, condition.Errorf(condition.SessionLockLost,
		"The session lock has expired on the MessageSession '%s' of '%s'. Accept a new MessageSession.", n.id, s.path())})
	s.freeSessionLocked(n, s.failLocked)
}

// releaseSessionLocked ends the lock of a session whose receiver has closed: "the messages within
// the session aren't completed (even if they are locked), and the session is closed": the delivery
// count is not incremented (page message-sessions, "Impact of delivery count").
func (s *store) releaseSessionLocked(n *session) {
	if n.holder != nil {
		s.freeSessionLocked(n, s.returnLocked)
	}
}

// freeSessionLocked ends the lock of a session, and passes its locked messages to
// release.
func (s *store) freeSessionLocked(n *session, release func(*message)) {
	s.entity.broker.agenda.Remove(&n.due)
	n.holder, n.lockedUntil, n.isWaiting = nil, 0, false
	messages := slices.SortedFunc(maps.Keys(n.locked), func(x, y *message) int { return int(x.sequence - y.sequence) })
	for _, m := range messages {
		s.unlockLocked(m)
	}
	for _, m := range messages {
		release(m)
	}
	if len(n.available) > 0 {
		s.offerSessionLocked(n)
	}
	s.forgetSessionLocked(n)
}

// loseLockLocked ends an expired lock. "The count is incremented when a message lock
// expires, or the message is explicitly abandoned by the receiver" (.NET reference,
// ServiceBusReceivedMessage.DeliveryCount).
func (s *store) loseLockLocked(m *message) {
	s.unlockLocked(m)
	s.failLocked(m)
}

// endConsumersLocked ends all consumers and acceptors of a store.
func (s *store) endConsumersLocked(err *condition.Error) {
	for c := range s.consumers {
		c.endLocked()
		if c.session != nil {
			s.releaseSessionLocked(c.session)
		}
		s.entity.broker.endings = append(s.entity.broker.endings, ending{c, err})
	}
	for _, a := range s.acceptors {
		a.err = err
		a.consumer.endLocked()
		close(a.done)
	}
	s.acceptors = nil
}
