package broker

import "github.com/reprise-go/reprise/internal/testserver/asb/amqp10"

// Peek returns messages in the order of their sequence numbers, beginning at from, at
// most limit, in any state: "Peek returns all messages, regardless of their state":
// active, locked, deferred and scheduled ones (page message-browsing). A session limits
// it to its messages.
func (b *Broker) Peek(path string, from int64, limit int, session *string) (messages []*amqp10.Message, err error) {
	b.lock()
	snapshots, err := b.peekLocked(path, from, limit, session)
	if failed := b.unlock(); err == nil {
		err = failed
	}
	if err != nil {
		return nil, err
	}
	for i := range snapshots {
		messages = append(messages, snapshots[i].message())
	}
	return messages, nil
}

func (b *Broker) peekLocked(path string, from int64, limit int, session *string) ([]snapshot, error) {
	s, err := b.storeLocked(path)
	if err != nil {
		return nil, err
	}
	var snapshots []snapshot
	s.messages.each(from, func(m *message) bool {
		if len(snapshots) >= limit {
			return false
		}
		if session == nil || m.session != nil && m.session.id == *session {
			// "the lock state of a message cannot be observed on peeked messages" (same page).
			snapshot := m.snapshot()
			snapshot.lock, snapshot.lockedUntil = LockToken{}, 0
			snapshots = append(snapshots, snapshot)
		}
		return true
	})
	return snapshots, nil
}
