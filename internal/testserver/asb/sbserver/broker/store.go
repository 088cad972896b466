package broker

import "container/list"

// A store has the messages of a queue, of a subscription or of one of their subqueues, and the
// scheduled messages of a topic. The broker's mutex guards it.
type store struct {
	entity    *entity
	subqueue  Subqueue
	messages  index
	locks     map[LockToken]*message
	available availableHeap       // outside sessions
	sessions  map[string]*session // nil if the store has none
	offers    list.List           // of *session: sessions with available messages and without a receiver
	acceptors []*acceptor         // receivers that wait for a session
	waiting   []*Consumer         // consumers that got fewer messages than they wanted
	consumers map[*Consumer]struct{}
	scheduled int // number of scheduled messages
}

func newStore(e *entity, subqueue Subqueue) *store {
	s := &store{entity: e, subqueue: subqueue, locks: map[LockToken]*message{}, consumers: map[*Consumer]struct{}{}}
	if e.settings.RequiresSession && subqueue == SubqueueNone && e.kind != KindTopic {
		s.sessions = map[string]*session{}
	}
	return s
}

// insertLocked puts a new message into the store in its state.
func (s *store) insertLocked(m *message, state messageState) {
	b := s.entity.broker
	m.store, m.state = s, state
	m.due.Owner, m.expiry.Owner = m, m
	s.messages.add(m)
	s.entity.size += int64(m.content.Size)
	if s.sessions != nil {
		m.session = s.sessionLocked(m.content.Session)
		m.session.messages++
	}
	b.changeLocked(m)
	switch state {
	case available:
		if m.expires != 0 {
			b.agenda.Set(&m.expiry, m.expires)
		}
		s.offerLocked(m)
	case scheduled:
		s.scheduled++
		b.agenda.Set(&m.due, m.content.Scheduled)
	case locked: // from the journal
		s.locks[m.lock] = m
		b.agenda.Set(&m.due, m.lockedUntil)
	}
}

// offerLocked makes a message available to receivers.
func (s *store) offerLocked(m *message) {
	m.state = available
	if m.session != nil {
		m.session.available.add(m)
		s.offerSessionLocked(m.session)
		return
	}
	s.available.add(m)
	s.wakeLocked()
}

// withdrawLocked makes an available message unavailable.
func (s *store) withdrawLocked(m *message) {
	if m.session != nil {
		m.session.available.remove(m)
		s.withdrawSessionLocked(m.session)
		return
	}
	s.available.remove(m)
}

// removeLocked removes a message in any state from the store.
func (s *store) removeLocked(m *message) {
	b := s.entity.broker
	switch m.state {
	case available:
		s.withdrawLocked(m)
	case locked:
		s.dropLockLocked(m)
	case scheduled:
		s.scheduled--
	}
	b.agenda.Remove(&m.due)
	b.agenda.Remove(&m.expiry)
	m.state = gone
	s.messages.remove()
	s.entity.size -= int64(m.content.Size)
	b.changeLocked(m)
	if m.session != nil {
		m.session.messages--
		s.forgetSessionLocked(m.session)
	}
}

// dropLockLocked forgets the lock of a message.
func (s *store) dropLockLocked(m *message) {
	delete(s.locks, m.lock)
	if m.session != nil {
		delete(m.session.locked, m)
	}
}
