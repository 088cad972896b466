package broker

import (
	"fmt"

	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/condition"
)

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
		return condition.Errorf(condition.NotFound, "The messaging entity '%s' could not be found.", s.path())
	}
	m, err := s.lockedMessage(t)
	if err != nil {
		return err
	}
	if how.Outcome == DeadLetter && s.subqueue != SubqueueNone {
		// "you can't dead-letter a message from a DLQ" (page service-bus-dead-letter-queues);
		// azure-sdk-for-js, batchReceiver.spec.ts, expects InvalidOperationError.
		return condition.Errorf(condition.NotAllowed, "A message cannot be dead-lettered in the dead-letter queue '%s'.", s.path())
	}
	if how.Outcome == Complete {
		s.removeLocked(m)
		return nil
	}
	if how.Outcome != Release {
		m.content = m.content.WithProperties(how.Properties)
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
