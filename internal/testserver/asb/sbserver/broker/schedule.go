package broker

import "github.com/reprise-go/reprise/internal/testserver/asb/sbserver/condition"

// activateLocked activates a scheduled message when it is due. "The SequenceNumber for a
// scheduled message is only valid while the message is in this state. As the message
// transitions to the active state, the message is appended to the queue as if had been
// enqueued at the current instant, which includes assigning a new SequenceNumber" (page
// message-sequencing, "Scheduled messages"). Its time to live begins then.
func (s *store) activateLocked(m *message) {
	e, b := s.entity, s.entity.broker
	s.removeLocked(m)
	b.enqueueLocked(e, &message{sequence: e.nextSequenceLocked(), content: m.content, enqueued: b.now, ttl: m.ttl})
}

// CancelScheduled removes scheduled messages by their sequence numbers, all or none of
// them. A message that is no longer scheduled is refused with [condition.MessageNotFound].
func (b *Broker) CancelScheduled(path string, sequences ...int64) (err error) {
	b.lock()
	defer b.finish(&err)
	s, err := b.storeLocked(path)
	if err != nil {
		return err
	}
	messages := make([]*message, len(sequences))
	for i, sequence := range sequences {
		m := s.messages.get(sequence, scheduled)
		if m == nil {
			return condition.Errorf(condition.MessageNotFound, "The scheduled message with sequence number %d was not found in '%s'.", sequence, s.path())
		}
		messages[i] = m
	}
	for _, m := range messages {
		s.removeLocked(m)
	}
	return nil
}
