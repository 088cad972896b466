package broker

import "fmt"

// An Outcome ends a delivery.
type Outcome int

// The values of Outcome.
const (
	Complete   Outcome = iota + 1 // the message is removed
	Abandon                       // it becomes available again, and its delivery count rises
	Release                       // it becomes available again, and its delivery count stays
	Defer                         // it can only be received by its sequence number, and its delivery count rises
	DeadLetter                    // it moves to the dead-letter queue
)

// A Settlement says how a delivery ends.
type Settlement struct {
	Outcome Outcome
	// Reason and Description become the application properties DeadLetterReason and
	// DeadLetterErrorDescription of a dead-lettered message.
	Reason, Description string
	// Properties are application properties that are added or replaced when the message is
	// abandoned, deferred or dead-lettered.
	Properties map[string]any
}

// Settle ends the delivery with a lock in a queue, subscription or dead-letter queue.
func (b *Broker) Settle(path string, t LockToken, how Settlement) (err error) {
	b.lock()
	defer b.finish(&err)
	s, err := b.storeLocked(path)
	if err != nil {
		return err
	}
	return s.settleLocked(t, how)
}

// Settle ends a delivery with a lock in the consumer's entity; the consumer may be closed. It is
// [Broker.Settle] without a path to look up.
func (c *Consumer) Settle(t LockToken, how Settlement) (err error) {
	c.broker.lock()
	defer c.broker.finish(&err)
	return c.store.settleLocked(t, how)
}

func (s *store) settleLocked(t LockToken, how Settlement) error {
	if s.entity.deleted {
		return errorf(CondNotFound, "The messaging entity '%s' could not be found.", s.path())
	}
	m, err := s.lockedMessage(t)
	if err != nil {
		return err
	}
	if how.Outcome == DeadLetter && s.subqueue != SubqueueNone {
		// "you can't dead-letter a message from a DLQ" (page service-bus-dead-letter-queues);
		// azure-sdk-for-js, batchReceiver.spec.ts, expects InvalidOperationError.
		return errorf(CondNotAllowed, "A message cannot be dead-lettered in the dead-letter queue '%s'.", s.path())
	}
	if how.Outcome == Complete {
		s.removeLocked(m)
		return nil
	}
	if how.Outcome != Release {
		m.content = m.content.withProperties(how.Properties)
	}
	switch how.Outcome {
	case Abandon:
		// "Abandoning a message will increase the delivery count on the message" (.NET reference,
		// MessageReceiver.AbandonAsync).
		s.unlockLocked(m)
		s.failLocked(m)
	case Release:
		// "Service Bus processes Release outcome and it doesn't increment delivery count on
		// Release" (service team, amqpnetlite#342).
		s.unlockLocked(m)
		s.returnLocked(m)
	case Defer:
		s.unlockLocked(m)
		m.wasDeferred = true
		s.failLocked(m)
	case DeadLetter:
		s.deadLetterLocked(m, how.Reason, how.Description)
	default:
		return fmt.Errorf("broker: settle a message of %s: the outcome %d is none of Complete, Abandon, Release, Defer, DeadLetter", s.path(), how.Outcome)
	}
	return nil
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
		b.agenda.set(&m.expiry, m.expires)
	}
	s.offerLocked(m)
}
