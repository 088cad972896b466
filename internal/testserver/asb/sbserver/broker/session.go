package broker

import (
	"container/list"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/clock"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/condition"
)

// A session has the messages of a store with one session id. It exists while it has messages, a
// receiver or a state.
type session struct {
	store        *store
	id           string
	messages     int // in any state
	available    availableHeap
	locked       map[*message]struct{}
	holder       *Consumer // nil unless a receiver has the session's lock
	lockedUntil  clock.Instant
	due          clock.Event // end of the lock
	isWaiting    bool        // its holder waits for messages
	offer        *list.Element
	state        []byte // nil for none
	stateUpdated clock.Instant
	changed      bool // for the journal
}

// sessionLocked returns the session with an id, and creates it if it does not exist.
func (s *store) sessionLocked(id string) *session {
	n := s.sessions[id]
	if n == nil {
		n = &session{store: s, id: id, locked: map[*message]struct{}{}}
		n.due.Owner = n
		s.sessions[id] = n
	}
	return n
}

// sortedSessions returns the sessions by id.
func (s *store) sortedSessions() []*session {
	return slices.SortedFunc(maps.Values(s.sessions), func(x, y *session) int { return strings.Compare(x.id, y.id) })
}

// forgetSessionLocked removes a session that has neither messages nor a receiver nor a state.
// "Session state remains as long as it isn't cleared up, even if all messages in a session are
// consumed" (page message-sessions).
func (s *store) forgetSessionLocked(n *session) {
	if n.messages == 0 && n.holder == nil && n.state == nil {
		delete(s.sessions, n.id)
	}
}

// offerSessionLocked offers a session with available messages to its holder, or else to a
// receiver that waits for any session. "Only one receiver can have a lock on a session"
// (page message-sessions). Service Bus documents no order of sessions; here the session
// that has waited longest is the next.
func (s *store) offerSessionLocked(n *session) {
	switch {
	case n.holder != nil:
		if n.isWaiting {
			n.isWaiting = false
			n.holder.wakeLocked()
		}
	case len(s.acceptors) > 0:
		a := s.acceptors[0]
		s.acceptors = slices.Delete(s.acceptors, 0, 1)
		s.grantLocked(n, a.consumer)
		a.granted = true
		close(a.done)
	case n.offer == nil:
		n.offer = s.offers.PushBack(n)
	}
}

// withdrawSessionLocked removes a session from the offers if it has no available messages
// or has a receiver.
func (s *store) withdrawSessionLocked(n *session) {
	if n.offer != nil && (n.holder != nil || len(n.available) == 0) {
		s.offers.Remove(n.offer)
		n.offer = nil
	}
}

// grantLocked gives the lock of a session to a consumer.
func (s *store) grantLocked(n *session, c *Consumer) {
	n.holder, c.session, c.sessionID = c, n, n.id
	s.withdrawSessionLocked(n)
	s.lockSessionLocked(n)
}

// lockSessionLocked begins the lock of a session now. It lasts for the lock duration of
// the entity, like that of a message (page message-sessions).
func (s *store) lockSessionLocked(n *session) {
	b := s.entity.broker
	n.lockedUntil = b.now.Add(s.entity.settings.LockDuration)
	b.agenda.Set(&n.due, n.lockedUntil)
}

// heldSessionLocked returns a session that has a receiver.
func (b *Broker) heldSessionLocked(path, id string) (*session, error) {
	s, err := b.storeLocked(path)
	if err != nil {
		return nil, err
	}
	n := s.sessions[id]
	if n == nil || n.holder == nil {
		return nil, condition.Errorf(condition.SessionLockLost, "The session lock has expired on the MessageSession '%s' of '%s'. Accept a new MessageSession.", id, s.path())
	}
	return n, nil
}

// RenewSession extends the lock of a session: it lasts for the lock duration from now on.
func (b *Broker) RenewSession(path, id string) (lockedUntil time.Time, err error) {
	b.lock()
	defer b.finish(&err)
	n, err := b.heldSessionLocked(path, id)
	if err != nil {
		return time.Time{}, err
	}
	n.store.lockSessionLocked(n)
	return n.lockedUntil.Time(), nil
}

// SessionState returns the state of a session that has a receiver, nil if it has none.
func (b *Broker) SessionState(path, id string) (state []byte, err error) {
	b.lock()
	defer b.finish(&err)
	n, err := b.heldSessionLocked(path, id)
	if err != nil {
		return nil, err
	}
	return slices.Clone(n.state), nil
}

// SetSessionState sets the state of a session that has a receiver; nil clears it. The state "can
// hold data of the size of one message" (page message-sessions).
func (b *Broker) SetSessionState(path, id string, state []byte) (err error) {
	b.lock()
	defer b.finish(&err)
	n, err := b.heldSessionLocked(path, id)
	if err != nil {
		return err
	}
	if limit := b.limits.MaxMessageSize(&n.store.entity.settings); int64(len(state)) > limit {
		return condition.Errorf(condition.MessageSize, "The state of session '%s' has %d bytes, but at most %d are allowed.", id, len(state), limit)
	}
	n.state, n.stateUpdated = slices.Clone(state), b.now
	b.changeSessionLocked(n)
	return nil
}

// Sessions returns the ids of sessions in order, at most limit after the first skip ones:
// sessions with a state that was set after a time, or all that have messages or a state
// if the time is in the year 9999 or later (azservicebus v1.11.0, GetMessageSessions).
func (b *Broker) Sessions(path string, updatedAfter time.Time, skip, limit int) (ids []string, err error) {
	b.lock()
	defer b.finish(&err)
	s, err := b.storeLocked(path)
	if err != nil {
		return nil, err
	}
	for _, n := range s.sortedSessions() {
		if updatedAfter.Year() >= 9999 && (n.messages > 0 || n.state != nil) || n.state != nil && n.stateUpdated > clock.At(updatedAfter) {
			ids = append(ids, n.id)
		}
	}
	ids = ids[min(max(skip, 0), len(ids)):]
	return ids[:min(max(limit, 0), len(ids))], nil
}
