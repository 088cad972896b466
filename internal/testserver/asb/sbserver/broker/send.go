package broker

import (
	"fmt"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/asb/amqp10"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/condition"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/content"
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
		if _, ok := m.AMQP.Annotations[content.AnnotationScheduledEnqueueTime].(time.Time); !ok {
			return nil, condition.Errorf(condition.Argument, "message %d has no annotation %s of the type timestamp", i, content.AnnotationScheduledEnqueueTime)
		}
	}
	return b.send(path, messages, true)
}

func (b *Broker) send(path string, messages []Message, schedule bool) (sequences []int64, err error) {
	contents := make([]*content.Content, len(messages))
	for i, m := range messages {
		size := len(m.Encoded)
		if m.Encoded == nil || b.log != nil {
			encoded := m.Encoded
			if encoded == nil {
				if encoded, err = amqp10.AppendMessage(nil, m.AMQP); err != nil {
					return nil, fmt.Errorf("broker: encode message %d for %s: %w", i, path, err)
				}
			}
			size = len(encoded)
			m.Encoded = encoded
		}
		contents[i] = content.New(m.AMQP, size)
		if b.log != nil {
			contents[i].Encoded = m.Encoded
		}
		if err := content.Check(contents[i]); err != nil {
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
		sequence := b.acceptLocked(s.entity, arrival{content: c, ttl: c.TTL})
		if schedule {
			sequences = append(sequences, sequence)
		}
	}
	return sequences, nil
}

// checkSendLocked returns an error if a store does not accept messages of a sender.
func (b *Broker) checkSendLocked(s *store, contents []*content.Content) error {
	e := s.entity
	switch {
	case s.subqueue != SubqueueNone:
		// "messages can only be submitted via the dead-letter operation of the parent entity"
		// (page service-bus-dead-letter-queues).
		return condition.Errorf(condition.NotAllowed, "Messages cannot be sent to the dead-letter queue '%s'.", s.path())
	case e.kind == KindSubscription:
		return condition.Errorf(condition.NotAllowed, "Messages cannot be sent to the subscription '%s', but to its topic.", e.path)
	}
	if err := e.sendRefusal(); err != nil {
		return err
	}
	if err := e.batchRefusal(contents); err != nil {
		return err
	}
	limit := b.limits.MaxMessageSize(&e.settings)
	total := int64(0)
	for _, c := range contents {
		if int64(c.Size) > limit {
			return condition.Errorf(condition.MessageSize, "The received message (size:%d bytes) exceeds the limit (%d bytes) currently allowed on the entity '%s'.", c.Size, limit, e.path)
		}
		// "All messages must be sent as part of a session (by setting the session id)" (page
		// message-sessions).
		if e.settings.RequiresSession && !c.InSession {
			return condition.Errorf(condition.NotAllowed, "The SessionId was not set on a message, and it cannot be sent to the entity '%s'. Entities that have session support enabled can only receive messages that have the SessionId set to a valid value.", e.path)
		}
		total += int64(c.Size)
	}
	if e.size+total > e.settings.MaxSize() {
		return condition.Errorf(condition.ResourceLimit, "The maximum entity size has been reached or exceeded for '%s': %d of %d bytes are used.", e.path, e.size, e.settings.MaxSize())
	}
	return nil
}

// batchRefusal returns an error if a partitioned entity does not accept messages of one
// request: "all messages included in a single send operation must have the same
// PartitionKey. If your entity is session-enabled, the same requirement holds true for
// the SessionId property" (azure-sdk-for-net, TROUBLESHOOTING.md of
// Azure.Messaging.ServiceBus). With duplicate detection the same applies to MessageId:
// the text and the condition are those of azure-sdk-for-python#21955.
func (e *entity) batchRefusal(contents []*content.Content) error {
	if !e.settings.EnablePartitioning {
		return nil
	}
	for _, c := range contents {
		first := contents[0]
		switch {
		case e.settings.RequiresDuplicateDetection && (c.ID != first.ID || c.Session != first.Session || c.Partition != first.Partition):
			return condition.Errorf(condition.NotAllowed, "Batching brokered messages with distinct SessionId, PartitionKey, or MessageId is not supported for an entity with partitioning and duplicate detection enabled.")
		case c.Session != first.Session || c.Partition != first.Partition:
			return condition.Errorf(condition.NotAllowed, "Batching brokered messages with distinct SessionId or PartitionKey is not supported for the partitioned entity '%s'.", e.path)
		}
	}
	return nil
}
