package core

// This file decides which messages may have killed their process (R35), and how
// often they are delivered. The pump attempts them when the process has no other message, so that no
// other message is counted with them.

// isolationRules decides which messages are suspects. With the zero value none is.
type isolationRules struct {
	// threshold is the number of deliveries after which a message is a suspect; 0 means
	// never.
	threshold int
	// explainedDeliveries is the number of deliveries of a copy that the immediate retries
	// in force explain.
	explainedDeliveries int
	// reserved is the part of MaxDeliveries for the new copy (R34); with 0 the copy may be
	// delivered MaxDeliveries times again.
	reserved int
}

const (
	// minIsolateAfter tolerates one lost connection, or one restart of all instances,
	// without isolation.
	minIsolateAfter = 2
	// minReserved is the lowest number of deliveries of a new copy. One of them may be lost
	// without a handler.
	minReserved = 3
)

// firstCopyLimit returns the number of deliveries after which a suspect becomes a new
// copy, if it does, or goes to the error queue.
func (i isolationRules) firstCopyLimit(maxDeliveries int) int {
	return max(maxDeliveries-i.reserved, i.explainedDeliveries)
}

// isNewCopy reports whether a message is the new copy of one that was delivered too
// often.
func (i isolationRules) isNewCopy(in *Incoming) bool {
	return i.reserved > 0 && in.Headers.Get(HeaderDeliveries) != ""
}

// isSuspect reports whether a message was delivered more often than its failures can
// explain, and the process is not known to have survived that. A new copy is a suspect
// from its second delivery on.
func (ep *Endpoint) isSuspect(in *Incoming) bool {
	i := ep.isolation
	switch {
	case i.threshold == 0 || in.DeliveryCount <= 1:
		return false
	case in.DeliveryCount <= i.threshold && !i.isNewCopy(in):
		return false
	case in.DeliveryCount <= i.explainedDeliveries && in.LastError != "":
		return false
	}
	return !ep.redeliveries.wasSurvived(in) && !ep.redeliveries.wasSettled(in.NativeID)
}

// recordSurvived records that a handler of the message returned, if that can matter.
func (ep *Endpoint) recordSurvived(in *Incoming) {
	if i := ep.isolation; i.threshold > 0 && (in.DeliveryCount >= i.threshold || i.isNewCopy(in)) {
		ep.redeliveries.rememberSurvived(in)
	}
}

// exceedsDeliveries reports whether a message was delivered too often for a handler.
func (ep *Endpoint) exceedsDeliveries(in *Incoming) bool {
	if ep.maxDeliveries == 0 {
		return false
	}
	return in.DeliveryCount > ep.maxDeliveries || in.DeliveryCount > ep.isolation.reserved && in.DeliveryCount > ep.maxDeliveriesOf(in)
}

// maxDeliveriesOf returns the limit of deliveries of a message to a handler. The
// deliveries of a suspect and of its new copy are MaxDeliveries together.
func (ep *Endpoint) maxDeliveriesOf(in *Incoming) int {
	i := ep.isolation
	switch {
	case i.reserved == 0 || !ep.isSuspect(in):
		return ep.maxDeliveries
	case i.isNewCopy(in):
		return i.reserved
	}
	return i.firstCopyLimit(ep.maxDeliveries)
}

// isSuspectDelivery is isSuspect for the pump, and totalDeliveries also counts the deliveries
// of the message that this one is a new copy of.
func (ep *Endpoint) isSuspectDelivery(d Delivery) bool {
	in := d.Incoming()
	return in.DeliveryCount > 1 && ep.isSuspect(in)
}

func totalDeliveries(d Delivery) int {
	in := d.Incoming()
	return in.DeliveryCount + intHeader(in.Headers, HeaderDeliveries)
}

// isolationChanged reports suspects, once while there are some.
func (r *runner) isolationChanged(isolating bool, suspect Delivery) {
	log := r.ep.log.recoverability
	if !isolating {
		r.hookCalls.Add(func() { log.Info("messages are attempted side by side again") })
		return
	}
	in := suspect.Incoming()
	id, deliveries := in.ID, in.DeliveryCount
	r.hookCalls.Add(func() {
		log.Warn("a message was delivered several times without a known end and may have killed its process: such messages are attempted one at a time, with nothing beside them",
			"message_id", id, "deliveries", deliveries, "isolate_after", r.ep.isolation.threshold)
	})
}
