package broker

import (
	"fmt"
	"time"
)

// Send puts messages into a queue or topic, all or none of them. A message with the annotation
// x-opt-scheduled-enqueue-time in the future is scheduled.
func (b *Broker) Send(path string, messages ...Message) error {
	_, err := b.send(path, messages, false)
	return err
}

// Schedule is [Broker.Send] for messages with the annotation x-opt-scheduled-enqueue-time, and
// returns the sequence numbers by which [Broker.CancelScheduled] cancels them.
func (b *Broker) Schedule(path string, messages ...Message) ([]int64, error) {
	for i, m := range messages {
		if _, ok := m.AMQP.Annotations[annotationScheduledEnqueueTime].(time.Time); !ok {
			return nil, errorf(CondArgument, "message %d has no annotation %s of the type timestamp", i, annotationScheduledEnqueueTime)
		}
	}
	return b.send(path, messages, true)
}

func (b *Broker) send(path string, messages []Message, schedule bool) (sequences []int64, err error) {
	contents := make([]*content, len(messages))
	for i, m := range messages {
		size := len(m.Encoded)
		if m.Encoded == nil || b.log != nil {
			encoded := m.Encoded
			if encoded == nil {
				if encoded, err = m.AMQP.MarshalBinary(); err != nil {
					return nil, fmt.Errorf("broker: encode message %d for %s: %w", i, path, err)
				}
			}
			size = len(encoded)
			m.Encoded = encoded
		}
		contents[i] = newContent(m.AMQP, size)
		if b.log != nil {
			contents[i].encoded = m.Encoded
		}
		if err := checkProperties(contents[i]); err != nil {
			return nil, err
		}
	}
	b.lock()
	defer b.finish(&err)
	s, err := b.storeLocked(path)
	if err != nil {
		return nil, err
	}
	if err := b.checkSendLocked(s, contents); err != nil {
		return nil, err
	}
	if schedule {
		sequences = make([]int64, 0, len(contents))
	}
	for _, c := range contents {
		sequence := b.acceptLocked(s.entity, arrival{content: c, ttl: c.ttl})
		if schedule {
			sequences = append(sequences, sequence)
		}
	}
	return sequences, nil
}

// checkSendLocked returns an error if a store does not accept messages of a sender.
func (b *Broker) checkSendLocked(s *store, contents []*content) error {
	e := s.entity
	switch {
	case s.subqueue != SubqueueNone:
		// "messages can only be submitted via the dead-letter operation of the parent entity"
		// (page service-bus-dead-letter-queues).
		return errorf(CondNotAllowed, "Messages cannot be sent to the dead-letter queue '%s'.", s.path())
	case e.kind == KindSubscription:
		return errorf(CondNotAllowed, "Messages cannot be sent to the subscription '%s', but to its topic.", e.path)
	}
	if err := e.sendRefusal(); err != nil {
		return err
	}
	if err := e.batchRefusal(contents); err != nil {
		return err
	}
	limit := b.maxMessageSize(e)
	total := int64(0)
	for _, c := range contents {
		if int64(c.size) > limit {
			return errorf(CondMessageSize, "The received message (size:%d bytes) exceeds the limit (%d bytes) currently allowed on the entity '%s'.", c.size, limit, e.path)
		}
		// "All messages must be sent as part of a session (by setting the session id)" (page
		// message-sessions).
		if e.settings.RequiresSession && !c.inSession {
			return errorf(CondNotAllowed, "The SessionId was not set on a message, and it cannot be sent to the entity '%s'. Entities that have session support enabled can only receive messages that have the SessionId set to a valid value.", e.path)
		}
		total += int64(c.size)
	}
	if e.size+total > e.maxSize() {
		return errorf(CondResourceLimit, "The maximum entity size has been reached or exceeded for '%s': %d of %d bytes are used.", e.path, e.size, e.maxSize())
	}
	return nil
}

// batchRefusal returns an error if a partitioned entity does not accept messages of one
// request: "all messages included in a single send operation must have the same
// PartitionKey. If your entity is session-enabled, the same requirement holds true for
// the SessionId property" (azure-sdk-for-net, TROUBLESHOOTING.md of
// Azure.Messaging.ServiceBus). With duplicate detection the same applies to MessageId:
// the text and the condition are those of azure-sdk-for-python#21955.
func (e *entity) batchRefusal(contents []*content) error {
	if !e.settings.EnablePartitioning {
		return nil
	}
	for _, c := range contents {
		first := contents[0]
		switch {
		case e.settings.RequiresDuplicateDetection && (c.id != first.id || c.session != first.session || c.partition != first.partition):
			return errorf(CondNotAllowed, "Batching brokered messages with distinct SessionId, PartitionKey, or MessageId is not supported for an entity with partitioning and duplicate detection enabled.")
		case c.session != first.session || c.partition != first.partition:
			return errorf(CondNotAllowed, "Batching brokered messages with distinct SessionId or PartitionKey is not supported for the partitioned entity '%s'.", e.path)
		}
	}
	return nil
}

// An arrival is a message that is being put into an entity.
type arrival struct {
	content          *content
	ttl              time.Duration
	enqueuedSequence int64 // of the entity that it was sent to, 0 there
	hops             uint8
	deadLetterSource string
}

// acceptLocked puts a message into an entity and returns its sequence number there.
func (b *Broker) acceptLocked(e *entity, a arrival) int64 {
	sequence := e.nextSequenceLocked()
	if e.rememberLocked(a.content) {
		return sequence
	}
	m := &message{
		sequence: sequence, enqueuedSequence: a.enqueuedSequence, content: a.content, enqueued: b.now, ttl: a.ttl, hops: a.hops,
		deadLetterSource: a.deadLetterSource,
	}
	// "The message materializes in the queue at the time"; a time that has passed does not delay
	// it (page message-sequencing, "Scheduled messages").
	if a.content.scheduled > b.now && a.hops == 0 {
		e.main.insertLocked(m, scheduled)
		return sequence
	}
	b.enqueueLocked(e, m)
	return sequence
}

// enqueueLocked makes a message available in an entity, or forwards it to the entities
// that get it from there.
func (b *Broker) enqueueLocked(e *entity, m *message) {
	m.ttl = e.limitTTL(m.ttl)
	if m.ttl < MaxTimeToLive {
		m.expires = m.enqueued.add(m.ttl)
	}
	switch {
	case e.kind == KindTopic:
		b.publishLocked(e, m)
	case e.settings.ForwardTo != "":
		b.forwardLocked(e, m)
	default:
		e.main.insertLocked(m, available)
	}
}
