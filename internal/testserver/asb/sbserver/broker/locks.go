package broker

import (
	"fmt"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/clock"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/condition"
)

// endless is DateTime.MaxValue of .NET: 9999-12-31T23:59:59.999Z.
const endless clock.Instant = 253402300799999

// lockUntilLocked begins the lock of a message now. The lock of a session "is an umbrella
// for the message locks" of its messages (page message-sessions), which have no separate
// end: the service sends "a maximum value" instead (azure-sdk-for-net#27057).
func (s *store) lockUntilLocked(m *message) {
	b := s.entity.broker
	if m.session != nil {
		m.lockedUntil = endless
	} else {
		m.lockedUntil = b.now.Add(s.entity.settings.LockDuration)
		b.agenda.Set(&m.due, m.lockedUntil)
	}
	b.changeLocked(m)
}

// unlockLocked ends the lock of a message.
func (s *store) unlockLocked(m *message) {
	s.dropLockLocked(m)
	s.entity.broker.agenda.Remove(&m.due)
	m.lock, m.lockedUntil, m.holder = LockToken{}, 0, nil
	s.entity.broker.changeLocked(m)
}

// Renew extends locks: each lasts for the lock duration of the entity from now on. It renews all
// of them or none.
func (b *Broker) Renew(path string, tokens ...LockToken) (lockedUntil []time.Time, err error) {
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
			return nil, condition.Errorf(condition.NotAllowed, "The lock of a message in a session cannot be renewed, but that of its session.")
		}
	}
	for _, m := range messages {
		s.lockUntilLocked(m)
		lockedUntil = append(lockedUntil, m.lockedUntil.Time())
	}
	return lockedUntil, nil
}

// lockedMessage returns the message with a lock.
func (s *store) lockedMessage(t LockToken) (*message, error) {
	m := s.locks[t]
	if m != nil {
		return m, nil
	}
	if s.sessions != nil {
		return nil, condition.Errorf(condition.SessionLockLost, "The session lock has expired on the MessageSession, or the message has already been removed: '%s'. Accept a new MessageSession.", s.path())
	}
	return nil, condition.Errorf(condition.MessageLockLost, "The lock supplied is invalid. Either the lock expired, or the message has already been removed from the queue '%s'.", s.path())
}

// failLocked handles a delivery that failed: "Whenever a message has been delivered under a
// peek-lock, but has been either explicitly abandoned or the lock has expired, the delivery count
// on the message is incremented. When the delivery count exceeds the limit, the message is moved
// to the DLQ" (page service-bus-dead-letter-queues). Delivery number MaxDeliveryCount is the last.
func (s *store) failLocked(m *message) {
	// "DeliveryCount is not increased for messages received from a deadletter queue"
	// (azure-sdk-for-net#53437; azure-sdk-for-js, batchReceiver.spec.ts, "Abandon a message
	// received from dead letter queue"), and they stay there.
	if s.subqueue == SubqueueNone {
		m.count++
		if limit := s.entity.settings.MaxDeliveryCount; m.count >= uint32(limit) {
			s.deadLetterLocked(m, "MaxDeliveryCountExceeded", fmt.Sprintf("Message could not be consumed after %d delivery attempts.", limit))
			return
		}
	}
	s.returnLocked(m)
}

// returnLocked returns a message after its delivery: to its place in the list of
// available messages, or to the deferred ones.
func (s *store) returnLocked(m *message) {
	b := s.entity.broker
	b.changeLocked(m)
	if m.wasDeferred {
		// "The message remains deferred" (azure-sdk-for-go#17682).
		m.state = deferred
		return
	}
	// "If the lock expires or the message is abandoned, the expiration takes immediate effect"
	// (page message-expiration): an event in the past happens before the next operation.
	if m.expires != 0 {
		b.agenda.Set(&m.expiry, m.expires)
	}
	s.offerLocked(m)
}
