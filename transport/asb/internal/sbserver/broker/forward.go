package broker

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

// resolveForwardLocked finds the entity to which a subscription forwards: "the 'Forward To' Queue or
// Topic for a Subscription is stored as a ResourceId", and one that is "removed and reinstated with
// the same name" gets nothing until a change of a property "updates the ResourceId" (azure-service-bus#693).
func (b *Broker) resolveForwardLocked(kind Kind, s *settings) {
	s.ForwardID = 0
	if kind == KindSubscription && s.ForwardTo != "" {
		if target := b.findLocked(parseAddress(s.ForwardTo)); target != nil {
			s.ForwardID = target.id
		}
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
	case target.size+int64(m.content.size) > target.maxSize():
		return "QuotaExceededException", "The maximum entity size has been reached or exceeded for '" + target.path + "'."
	case target.settings.RequiresSession && !m.content.inSession:
		return "Session ID is null.", "Session enabled entity doesn't allow a message whose session identifier is null."
	}
	b.useLocked(target)
	b.acceptLocked(target, a)
	return "", ""
}
