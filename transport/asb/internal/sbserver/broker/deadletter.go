package broker

// deadLetterLocked moves a message that is in no list to the dead-letter queue, or to the entity
// to which dead-lettered messages are forwarded.
//
// Its sequence number stays: "The sequence number will only be changed once the message state
// changes to Active from scheduled state. For any other scenario there is no change"
// (azure-docs#97032). So does its delivery count.
func (s *store) deadLetterLocked(m *message, reason, description string) {
	s.removeLocked(m)
	s.entity.deadLetterLocked(m, reason, description)
}

// deadLetterLocked is the deadLetterLocked of a store, for a message that is in no store.
func (e *entity) deadLetterLocked(m *message, reason, description string) {
	dead := &message{
		sequence: m.sequence, enqueuedSequence: m.enqueuedSequence, count: m.count, hops: m.hops, enqueued: m.enqueued, ttl: m.ttl,
		content: m.content.withReason(reason, description),
	}
	if e.settings.ForwardDeadLetteredMessagesTo != "" && e.forwardDeadLetterLocked(dead) {
		return
	}
	// "time-to-live isn't observed" in the dead-letter queue (page service-bus-dead-letter-queues).
	e.dead.insertLocked(dead, available)
}

// withReason returns a content with the application properties that give the reason why a
// message was dead-lettered (page service-bus-dead-letter-queues, "Moving messages to the
// DLQ").
func (c *content) withReason(reason, description string) *content {
	properties := map[string]any{}
	if reason != "" {
		properties["DeadLetterReason"] = reason
	}
	if description != "" {
		properties["DeadLetterErrorDescription"] = description
	}
	return c.withProperties(properties)
}
