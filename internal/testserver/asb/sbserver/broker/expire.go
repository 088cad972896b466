package broker

// expireLocked removes a message whose time to live has ended: "all expiring messages are moved to
// the DLQ" with the reason TTLExpiredException if the entity is configured so (page
// service-bus-dead-letter-queues, "Time to live"); else they are dropped.
//
// Service Bus may do so later, when "there are clients actively listening" (page
// message-expiration); here it happens at the time.
func (s *store) expireLocked(m *message) {
	if s.entity.settings.DeadLetteringOnMessageExpiration {
		s.deadLetterLocked(m, "TTLExpiredException", "The message expired and was dead lettered.")
		return
	}
	s.removeLocked(m)
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
