package broker

import (
	"fmt"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/content"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/properties"
)

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
		content: m.content.WithReason(reason, description),
	}
	if e.settings.ForwardDeadLetteredMessagesTo != "" && e.forwardDeadLetterLocked(dead) {
		return
	}
	// "time-to-live isn't observed" in the dead-letter queue (page service-bus-dead-letter-queues).
	e.dead.insertLocked(dead, available)
}

// maxHops is the number of entities through which a message may be forwarded (page
// service-bus-dead-letter-queues: MaxTransferHopCountExceeded, "This value is set to 4").
const maxHops = 4

// forwardLocked sends a message that arrived in an entity on to the one to which it forwards. The
// copy keeps its content, MessageId included, and gets a sequence number of the target;
// EnqueuedSequenceNumber is "the original sequence number assigned to a message, before it was
// auto-forwarded" (azservicebus v1.11.0, ReceivedMessage).
//
// A message that cannot be forwarded goes to the dead-letter queue: when it "passes through more
// than four queues or topics", when "the destination queue or topic is disabled or deleted" or
// "exceeds the maximum entity size" (page service-bus-dead-letter-queues, "Dead-lettering in auto
// forward scenarios"; page service-bus-auto-forwarding). Older versions of the page named the
// transfer dead-letter queue, which is wrong (azure-service-bus#33, azure-docs#111251): that one
// has messages of transactions, which the Go SDK does not have.
func (b *Broker) forwardLocked(e *entity, m *message) {
	if reason, description := b.transferLocked(e.settings.ForwardTo, e.settings.ForwardID, m, ""); reason != "" {
		e.deadLetterLocked(m, reason, description)
	}
}

// forwardDeadLetterLocked forwards a dead-lettered message, and reports whether it could;
// if not, the message stays in the dead-letter queue, as does one that was forwarded too
// often (azure-service-bus#249). DeadLetterSource is "only set in messages that have been
// dead-lettered and later autoforwarded from the dead-letter queue to another entity"
// (page service-bus-messages-payloads).
func (e *entity) forwardDeadLetterLocked(m *message) bool {
	reason, _ := e.broker.transferLocked(e.settings.ForwardDeadLetteredMessagesTo, 0, m, e.path)
	return reason == ""
}

// transferLocked puts a copy of a message into the entity with a path, and with an id unless that is 0, or returns the reason for
// which it did not.
func (b *Broker) transferLocked(path string, id uint64, m *message, deadLetterSource string) (reason, description string) {
	target := b.findLocked(parseAddress(path))
	a := arrival{content: m.content, ttl: m.ttl, enqueuedSequence: m.original(), hops: m.hops + 1, deadLetterSource: deadLetterSource}
	switch {
	case a.hops > maxHops:
		return "MaxTransferHopCountExceeded", "The maximum number of allowed hops when forwarding between queues has been exceeded."
	case target == nil || target.kind == KindSubscription:
		return "MessagingEntityNotFoundException", "The messaging entity '" + path + "' could not be found."
	case id != 0 && target.id != id:
		return "MessagingEntityNotFoundException", "The transfer destination entity does not exist."
	case target.sendRefusal() != nil:
		return "MessagingEntityDisabledException", target.sendRefusal().Description
	case target.size+int64(m.content.Size) > target.settings.MaxSize():
		return "QuotaExceededException", "The maximum entity size has been reached or exceeded for '" + target.path + "'."
	case target.settings.RequiresSession && !m.content.InSession:
		return "Session ID is null.", "Session enabled entity doesn't allow a message whose session identifier is null."
	}
	b.useLocked(target)
	b.acceptLocked(target, a)
	return "", ""
}

// publishLocked copies a message that arrived in a topic to its subscriptions.
func (b *Broker) publishLocked(topic *entity, m *message) {
	for _, sub := range topic.sortedSubscriptions() {
		b.selectLocked(sub, m)
	}
}

// selectLocked copies a message to a subscription if a rule selects it: "All rules without
// actions are combined using an OR condition and result in a single message on the subscription
// even if you have multiple matching rules. Each rule with an action produces a copy of the
// message. This message has a property called RuleName where the value is the name of the matching
// rule" (page topic-filters).
func (b *Broker) selectLocked(sub *entity, m *message) {
	selected := false
	for _, r := range sub.rules {
		if selected && r.Action == nil {
			continue
		}
		c, ok, err := r.Select(m.content)
		switch {
		case err != nil:
			b.filterErrorLocked(sub, m, r, err)
		case ok:
			selected = selected || r.Action == nil
			b.enqueueLocked(sub, sub.copyLocked(m, c))
		}
	}
}

// copyLocked returns a copy of a topic's message for a subscription. "For topics and
// subscriptions, the sequence number for every subscription starts at 1" (.NET reference,
// BrokeredMessage.SequenceNumber).
func (e *entity) copyLocked(m *message, c *content.Content) *message {
	return &message{
		sequence: e.nextSequenceLocked(), enqueuedSequence: m.original(), content: c, enqueued: m.enqueued, ttl: m.ttl, hops: m.hops,
		deadLetterSource: m.deadLetterSource,
	}
}

// filterErrorLocked handles a rule that failed for a message: "If you enable dead-lettering on
// filter evaluation exceptions, any errors that occur while a subscription's SQL filter rule
// executes are captured in the DLQ along with the offending message" (page
// service-bus-dead-letter-queues).
func (b *Broker) filterErrorLocked(sub *entity, m *message, r *rule, err error) {
	if !sub.settings.DropOnFilterErrors {
		sub.deadLetterLocked(sub.copyLocked(m, m.content), "FilterEvaluationException", fmt.Sprintf("Rule '%s': %v.", r.Name, err))
	}
}

// An arrival is a message that is being put into an entity.
type arrival struct {
	content          *content.Content
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
	if a.content.Scheduled > b.now && a.hops == 0 {
		e.main.insertLocked(m, scheduled)
		return sequence
	}
	b.enqueueLocked(e, m)
	return sequence
}

// enqueueLocked makes a message available in an entity, or forwards it to the entities
// that get it from there.
func (b *Broker) enqueueLocked(e *entity, m *message) {
	m.ttl = e.settings.LimitTTL(m.ttl)
	if m.ttl < properties.MaxTimeToLive {
		m.expires = m.enqueued.Add(m.ttl)
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

// rememberLocked tells whether a message is a duplicate, and remembers it if not: "If any new
// message is sent with MessageId that was logged during the time window, the message is reported
// as accepted (the send operation succeeds), but the newly sent message is instantly ignored and
// dropped. No other parts of the message other than the MessageId are considered" (page
// duplicate-detection). "In the case of a partitioned entity the combination of MessageId and
// PartitionKey is used to determine uniqueness"; "When sessions are enabled, partition key and
// session ID must be the same" (same page). A scheduled message counts when it is sent.
func (e *entity) rememberLocked(c *content.Content) bool {
	if !e.settings.RequiresDuplicateDetection || !c.HasID {
		return false
	}
	key := c.ID
	if e.settings.EnablePartitioning {
		partition := c.Partition
		if c.InSession {
			partition = c.Session
		}
		key += "\x00" + partition
	}
	now := e.broker.now
	e.history.Forget(now, e.settings.DuplicateDetectionWindow)
	if e.history.Has(key) {
		return true
	}
	e.history.Add(key, now)
	e.broker.rememberedLocked(e, key)
	return false
}
