package core

import (
	"time"

	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/core/internal/unreachable"
)

// This file is about the sends of the engine itself, beside those of handlers, when a
// message was handled: the audit copy, and the acknowledgement that an operator's retry
// requests. They are sent together with the handlers' sends, but never fail an attempt:
// the engine sends them later or gives them up.

// engineSends returns the engine's sends for a message that was handled, and a function
// to call after the try to send them (unreachable.Queues.Blocked).
func (p *processor) engineSends(a *attempt) (sends []Outgoing, endProbe func()) {
	in := a.delivery.Incoming()
	ackQueue := in.Headers.Get(headers.RetryAckQueue)
	if ackQueue == "" && p.ep.auditAddress == "" {
		return nil, unreachable.NoProbe
	}
	endProbe = unreachable.NoProbe
	now := headers.FormatTime(time.Now())
	audit := in.Headers
	if unique := in.Headers.Get(headers.RetryUniqueMessageID); p.ep.mayAcknowledge(a, ackQueue, unique) {
		ack := p.ep.acknowledgement(in, ackQueue, unique, now)
		ack.Headers.Set(headers.RetrySuccessful, now)
		if replayOf(in.Headers).report {
			outcome := headers.OutcomeSucceeded
			if a.message.isDuplicate() {
				outcome = headers.OutcomeDuplicate
			}
			p.ep.setOutcome(in, &ack, outcome)
		}
		sends = append(sends, ack)
		audit.Set(headers.RetryAckSent, "true")
	}
	if p.ep.auditAddress != "" {
		var copied Outgoing
		copied, endProbe = p.auditCopy(a, audit, now)
		sends = append(sends, copied)
	}
	return sends, endProbe
}

// maxRetryUniqueID limits the id that an acknowledgement repeats, in bytes. Those of
// ServiceControl have 36.
const maxRetryUniqueID = 255

// mayAcknowledge reports whether a message is acknowledged. Any sender may have written the
// two headers: they choose neither another queue than Config.RetryAckQueues has, nor the
// content of a message there. A request that is refused is logged.
func (ep *Endpoint) mayAcknowledge(a *attempt, queue, unique string) bool {
	log, id := ep.log.endpoint, a.delivery.Incoming().ID
	switch {
	case queue == "" || unique == "":
		return false
	case len(unique) > maxRetryUniqueID:
		log.WarnContext(a.decisionContext(), "the acknowledgement that a message asks for is not sent: its "+headers.RetryUniqueMessageID+" is too long",
			"message_id", id, "queue", queue, "bytes", len(unique), "limit", maxRetryUniqueID)
		return false
	case !ep.resolved.allowsRetryAck(queue):
		log.WarnContext(a.decisionContext(), "the acknowledgement that a message asks for is not sent: its queue is not in Config.RetryAckQueues; list it there if a tool of yours receives from it",
			"message_id", id, "queue", queue)
		return false
	}
	return true
}

// auditCopy returns the message for the audit queue, or for the endpoint's own queue
// while the audit queue cannot be reached.
func (p *processor) auditCopy(a *attempt, audit Headers, now string) (out Outgoing, endProbe func()) {
	in := a.delivery.Incoming()
	in.writeID(&audit)
	audit.Del(headers.Undelivered, headers.Replay)
	p.ep.host.write(&audit)
	audit.Set(headers.ProcessingStarted, headers.FormatTime(time.Unix(0, a.message.started)))
	audit.Set(headers.ProcessingEnded, now)
	// The copy must not fail a message that was handled. A message that itself exceeds the
	// limits was sent with other limits, and the broker accepts the headers too.
	caps := p.ep.caps.limitsForCopy(in)
	hasRoom := func(h Headers) bool { return fits(h, in.Body, caps) || !fits(in.Headers, in.Body, caps) }
	if audit = sanitizeHeaders(audit); !hasRoom(audit) {
		p.ep.log.endpoint.WarnContext(a.decisionContext(), "message is too large for the headers of its audit copy; the copy is sent without them",
			"message_id", in.ID, "message_type", a.message.handledAs().messageType)
		audit = in.Headers
		audit.Del(headers.Undelivered, headers.Replay, headers.ProcessingEndpoint, headers.ProcessingMachine, headers.HostID, headers.HostDisplayName,
			headers.ProcessingStarted, headers.ProcessingEnded) // the sender's
		audit = sanitizeHeaders(audit)
	}
	out = in.copyTo(p.ep.auditAddress, audit, ReasonAudit)
	if !p.ep.resolved.canStore(out.Queue) {
		return out, unreachable.NoProbe
	}
	endProbe, cause := p.ep.unreachable.Blocked(out.Queue)
	if cause == nil {
		return out, endProbe
	}
	if stored := p.storedAudit(out); hasRoom(stored.Headers) {
		return stored, unreachable.NoProbe
	}
	return out, unreachable.NoProbe
}

// storedAudit returns an audit copy for the endpoint's own queue. It always names the endpoint
// (storedNote).
func (p *processor) storedAudit(out Outgoing) Outgoing {
	out.Headers.Set(headers.ProcessingEndpoint, p.ep.host.endpoint)
	note := undeliveredNote{Queue: out.Queue, Audit: true, Tries: 1, Since: headers.FormatTime(time.Now())}
	return note.storedCopy(out, p.ep.rules, p.ep.unreachable)
}
