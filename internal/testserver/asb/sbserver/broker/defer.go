package broker

import "github.com/reprise-go/reprise/internal/testserver/asb/sbserver/condition"

// Deferral sets a message aside: it "remains in the queue or subscription", and "can only be
// retrieved by their sequence number" (page message-deferral).
//
// It raises the delivery count, as abandoning does: the tests of azure-sdk-for-js that run against
// the service (deferredMessage.spec.ts) find 1 after a deferral and 2 after two, and a queue with
// MaxDeliveryCount 1 moves a deferred message to the dead-letter queue with
// MaxDeliveryCountExceeded (azure-service-bus#375).

// ReceiveDeferred delivers deferred messages by their sequence numbers, in the order of the
// arguments. Without sessions nil is the session; a session must have a receiver. Service Bus
// refuses the request with [condition.MessageNotFound] if one of the messages is not deferred: "Either
// the message is already locked or does not exist" (azure-service-bus#415).
func (b *Broker) ReceiveDeferred(path string, mode ReceiveMode, session *string, sequences ...int64) (deliveries []Delivery, err error) {
	b.lock()
	taken, err := b.receiveDeferredLocked(path, mode, session, sequences)
	if failed := b.unlock(); err == nil {
		err = failed
	}
	if err != nil {
		return nil, err
	}
	for i := range taken {
		deliveries = append(deliveries, taken[i].delivery())
	}
	return deliveries, nil
}

func (b *Broker) receiveDeferredLocked(path string, mode ReceiveMode, id *string, sequences []int64) ([]snapshot, error) {
	s, err := b.storeLocked(path)
	if err != nil {
		return nil, err
	}
	if err := s.entity.receiveRefusal(s.subqueue); err != nil {
		return nil, err
	}
	var holder *Consumer
	if s.sessions != nil {
		if id == nil {
			return nil, condition.Errorf(condition.NotAllowed, "Deferred messages of '%s' can only be received in a session.", s.path())
		}
		n, err := b.heldSessionLocked(path, *id)
		if err != nil {
			return nil, err
		}
		holder = n.holder
	}
	messages := make([]*message, len(sequences))
	for i, sequence := range sequences {
		m := s.messages.get(sequence, deferred)
		if m == nil || m.session != nil && m.session.id != *id {
			return nil, condition.Errorf(condition.MessageNotFound, "Failed to lock one or more specified messages of '%s'. The message %d does not exist or is not deferred.", s.path(), sequence)
		}
		messages[i] = m
	}
	if err := s.expireDeferredLocked(messages); err != nil {
		return nil, err
	}
	taken := make([]snapshot, len(messages))
	for i, m := range messages {
		taken[i] = s.deliverLocked(m, holder, mode)
	}
	return taken, nil
}

// expireDeferredLocked refuses messages whose time to live has ended: "Deferred messages will not
// be automatically moved to the DLQ on expiry. However, once they are expired and you try to
// receive them, they will be moved to the DLQ at that time" (service team,
// azure-sdk-for-net#30252).
func (s *store) expireDeferredLocked(messages []*message) error {
	var err error
	for _, m := range messages {
		if m.expires != 0 && m.expires <= s.entity.broker.now && s.subqueue == SubqueueNone {
			err = condition.Errorf(condition.MessageNotFound, "Failed to lock one or more specified messages of '%s'. The message %d has expired.", s.path(), m.sequence)
			s.expireLocked(m)
		}
	}
	return err
}
