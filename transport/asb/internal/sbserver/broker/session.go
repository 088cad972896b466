package broker

import (
	"container/list"
	"maps"
	"slices"
	"strings"
	"time"
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
	lockedUntil  instant
	due          event // end of the lock
	isWaiting    bool  // its holder waits for messages
	offer        *list.Element
	state        []byte // nil for none
	stateUpdated instant
	changed      bool // for the journal
}

// An acceptor is a receiver that waits for a session.
type acceptor struct {
	consumer *Consumer
	done     chan struct{} // closed when the consumer has a session, or err is set
	granted  bool
	err      *Error
}

// fireLocked ends the lock of a session.
func (n *session) fireLocked(*event) { n.store.loseSessionLocked(n) }

// sessionLocked returns the session with an id, and creates it if it does not exist.
func (s *store) sessionLocked(id string) *session {
	n := s.sessions[id]
	if n == nil {
		n = &session{store: s, id: id, locked: map[*message]struct{}{}}
		n.due.owner = n
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

// acceptLocked gives a session to a consumer, or returns an acceptor that waits for one.
// A named session need not have messages.
func (s *store) acceptLocked(c *Consumer) (*acceptor, error) {
	if id := c.cfg.Session; id != nil {
		if n := s.sessions[*id]; n != nil && n.holder != nil {
			return nil, errorf(CondSessionCannotLock, "The requested session '%s' cannot be accepted. It may be locked by another receiver.", *id)
		}
		s.grantLocked(s.sessionLocked(*id), c)
		return nil, nil
	}
	if first := s.offers.Front(); first != nil {
		s.grantLocked(first.Value.(*session), c)
		return nil, nil
	}
	a := &acceptor{consumer: c, done: make(chan struct{})}
	s.acceptors = append(s.acceptors, a)
	return a, nil
}

// stopAccepting returns the consumer if it has got a session, and otherwise refuses it.
func (b *Broker) stopAccepting(a *acceptor) (c *Consumer, err error) {
	b.lock()
	defer b.finish(&err)
	c = a.consumer
	switch {
	case a.granted:
		if !c.ended {
			c.waitLocked()
		}
		return c, nil
	case a.err != nil:
		return nil, a.err
	}
	c.store.acceptors = slices.DeleteFunc(c.store.acceptors, func(other *acceptor) bool { return other == a })
	c.endLocked()
	return nil, errorf(CondTimeout, "The operation did not complete within the allotted timeout: no session of '%s' is available.", c.store.path())
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
	n.lockedUntil = b.now.add(s.entity.settings.LockDuration)
	b.agenda.set(&n.due, n.lockedUntil)
}

// loseSessionLocked ends the expired lock of a session: "Session is accepted, but the
// session lock expires (due to timeout)": the delivery count of its locked messages is
// incremented (page message-sessions, "Impact of delivery count").
func (s *store) loseSessionLocked(n *session) {
	c := n.holder
	c.endLocked()
	s.entity.broker.endings = append(s.entity.broker.endings, ending{c, errorf(CondSessionLockLost,
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
// giveBack.
func (s *store) freeSessionLocked(n *session, giveBack func(*message)) {
	s.entity.broker.agenda.remove(&n.due)
	n.holder, n.lockedUntil, n.isWaiting = nil, 0, false
	messages := slices.SortedFunc(maps.Keys(n.locked), func(x, y *message) int { return int(x.sequence - y.sequence) })
	for _, m := range messages {
		s.unlockLocked(m)
	}
	for _, m := range messages {
		giveBack(m)
	}
	if len(n.available) > 0 {
		s.offerSessionLocked(n)
	}
	s.forgetSessionLocked(n)
}

// heldSessionLocked returns a session that has a receiver.
func (b *Broker) heldSessionLocked(path, id string) (*session, error) {
	s, err := b.storeLocked(path)
	if err != nil {
		return nil, err
	}
	n := s.sessions[id]
	if n == nil || n.holder == nil {
		return nil, errorf(CondSessionLockLost, "The session lock has expired on the MessageSession '%s' of '%s'. Accept a new MessageSession.", id, s.path())
	}
	return n, nil
}

// RenewSession extends the lock of a session: it lasts for the lock duration from now on.
func (b *Broker) RenewSession(path, id string) (until time.Time, err error) {
	b.lock()
	defer b.finish(&err)
	n, err := b.heldSessionLocked(path, id)
	if err != nil {
		return time.Time{}, err
	}
	n.store.lockSessionLocked(n)
	return n.lockedUntil.time(), nil
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
	if limit := b.maxMessageSize(n.store.entity); int64(len(state)) > limit {
		return errorf(CondMessageSize, "The state of session '%s' has %d bytes, but at most %d are allowed.", id, len(state), limit)
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
		if updatedAfter.Year() >= 9999 && (n.messages > 0 || n.state != nil) || n.state != nil && n.stateUpdated > instantOf(updatedAfter) {
			ids = append(ids, n.id)
		}
	}
	ids = ids[min(max(skip, 0), len(ids)):]
	return ids[:min(max(limit, 0), len(ids))], nil
}

// requireSessionsLocked turns a queue that was created by its first use into one with
// sessions, unless it has a receiver. Its messages without a session id belong to the
// session "".
func (e *entity) requireSessionsLocked() {
	s := e.main
	if !e.automatic || s.sessions != nil || len(s.consumers) > 0 {
		return
	}
	e.settings.RequiresSession = true
	e.changeLocked()
	messages := s.messages.all()
	for _, m := range messages {
		if m.state == locked {
			s.unlockLocked(m)
			s.returnLocked(m)
		}
	}
	s.sessions, s.available = map[string]*session{}, nil
	for _, m := range messages {
		if m.state == gone {
			continue
		}
		m.session = s.sessionLocked(m.content.session)
		m.session.messages++
		if m.state == available {
			s.offerLocked(m)
		}
	}
}
