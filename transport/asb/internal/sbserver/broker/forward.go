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
	if reason, description := b.transferLocked(e.settings.ForwardTo, m, ""); reason != "" {
		e.deadLetterLocked(m, reason, description)
	}
}

// forwardDeadLetterLocked forwards a dead-lettered message, and reports whether it could;
// if not, the message stays in the dead-letter queue, as does one that was forwarded too
// often (azure-service-bus#249). DeadLetterSource is "only set in messages that have been
// dead-lettered and later autoforwarded from the dead-letter queue to another entity"
// (page service-bus-messages-payloads).
func (e *entity) forwardDeadLetterLocked(m *message) bool {
	reason, _ := e.broker.transferLocked(e.settings.ForwardDeadLetteredMessagesTo, m, e.path)
	return reason == ""
}

// transferLocked puts a copy of a message into the entity with a path, or returns the
// reason why it did not.
func (b *Broker) transferLocked(path string, m *message, deadLetterSource string) (reason, description string) {
	target := b.findLocked(parseAddress(path))
	a := arrival{content: m.content, ttl: m.ttl, enqueuedSequence: m.original(), hops: m.hops + 1, deadLetterSource: deadLetterSource}
	switch {
	case a.hops > maxHops:
		return "MaxTransferHopCountExceeded", "The maximum number of allowed hops when forwarding between queues has been exceeded."
	case target == nil || target.kind == KindSubscription:
		return "MessagingEntityNotFoundException", "The messaging entity '" + path + "' could not be found."
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
