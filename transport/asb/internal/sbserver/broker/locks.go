package broker

import "time"

// endless is DateTime.MaxValue of .NET: 9999-12-31T23:59:59.999Z.
const endless instant = 253402300799999

// lockUntilLocked begins the lock of a message now. The lock of a session "is an umbrella
// for the message locks" of its messages (page message-sessions), which have no separate
// end: the service sends "a maximum value" instead (azure-sdk-for-net#27057).
func (s *store) lockUntilLocked(m *message) {
	b := s.entity.broker
	if m.session != nil {
		m.lockedUntil = endless
	} else {
		m.lockedUntil = b.now.add(s.entity.settings.LockDuration)
		b.agenda.set(&m.due, m.lockedUntil)
	}
	b.changeLocked(m)
}

// dropLockLocked forgets the lock of a message.
func (s *store) dropLockLocked(m *message) {
	delete(s.locks, m.lock)
	if m.session != nil {
		delete(m.session.locked, m)
	}
}

// unlockLocked ends the lock of a message.
func (s *store) unlockLocked(m *message) {
	s.dropLockLocked(m)
	s.entity.broker.agenda.remove(&m.due)
	m.lock, m.lockedUntil, m.holder = LockToken{}, 0, nil
	s.entity.broker.changeLocked(m)
}

// loseLockLocked ends an expired lock. "The count is incremented when a message lock
// expires, or the message is explicitly abandoned by the receiver" (.NET reference,
// ServiceBusReceivedMessage.DeliveryCount).
func (s *store) loseLockLocked(m *message) {
	s.unlockLocked(m)
	s.failLocked(m)
}

// Renew extends locks: each lasts for the lock duration of the entity from now on. It renews all
// of them or none.
func (b *Broker) Renew(path string, tokens ...LockToken) (until []time.Time, err error) {
	b.lock()
	defer b.finish(&err)
	s, err := b.storeLocked(path)
	if err != nil {
		return nil, err
	}
	messages := make([]*message, len(tokens))
	for i, t := range tokens {
		if messages[i], err = s.lockedMessage(t); err != nil {
			return nil, err
		}
		if messages[i].session != nil {
			// The SDKs have no renewal of a message's lock for session receivers; "the session
			// lock" is renewed instead (page message-sessions).
			return nil, errorf(CondNotAllowed, "The lock of a message in a session cannot be renewed, but that of its session.")
		}
	}
	for _, m := range messages {
		s.lockUntilLocked(m)
		until = append(until, m.lockedUntil.time())
	}
	return until, nil
}

// lockedMessage returns the message with a lock.
func (s *store) lockedMessage(t LockToken) (*message, error) {
	m := s.locks[t]
	if m != nil {
		return m, nil
	}
	if s.sessions != nil {
		return nil, errorf(CondSessionLockLost, "The session lock has expired on the MessageSession, or the message has already been removed: '%s'. Accept a new MessageSession.", s.path())
	}
	return nil, errorf(CondMessageLockLost, "The lock supplied is invalid. Either the lock expired, or the message has already been removed from the queue '%s'.", s.path())
}

// ExpireLock makes a lock expire now. It is for tests.
func (b *Broker) ExpireLock(path string, t LockToken) (err error) {
	b.lock()
	defer b.finish(&err)
	s, err := b.storeLocked(path)
	if err != nil {
		return err
	}
	m, err := s.lockedMessage(t)
	if err != nil {
		return err
	}
	s.loseLockLocked(m)
	return nil
}

// ExpireLocks makes all locks of messages and sessions of an entity expire now, and
// returns the number of messages. It is for tests.
func (b *Broker) ExpireLocks(path string) (n int, err error) {
	b.lock()
	defer b.finish(&err)
	s, err := b.storeLocked(path)
	if err != nil {
		return 0, err
	}
	for _, m := range s.messages.all() {
		if m.state == locked {
			n++
			if m.session == nil {
				s.loseLockLocked(m)
			}
		}
	}
	for _, session := range s.sortedSessions() {
		if session.holder != nil {
			s.loseSessionLocked(session)
		}
	}
	return n, nil
}
