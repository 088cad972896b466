package core

import (
	"log/slog"
	"strings"
	"time"

	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/core/internal/backlog"
	"github.com/reprise-go/reprise/core/internal/ids"
	"github.com/reprise-go/reprise/core/internal/plan"
)

// This file tells an operator's tool the outcome of a message that it has returned with the option
// headers.ReplayReport (R65). The outcome of a message that was handled is in its acknowledgement
// (engineSends). Any other is reported when it has taken effect, and never decides about the
// message. Since any sender can ask for a report, it has no text of an error.

// acknowledgement returns the message to a queue that says that something became of the message
// with an id of its return.
func (ep *Endpoint) acknowledgement(in *Incoming, queue, unique, now string) Outgoing {
	id := ids.Derived(in.ID, ep.name+"/retry-acknowledgement", 1)
	return Outgoing{ID: id, Queue: queue, Reason: ReasonAcknowledgement, Headers: Headers{pairs: []header{
		{headers.MessageID, id},
		{headers.ControlMessage, "True"},
		{headers.RetryUniqueMessageID, unique},
		{headers.MessageIntent, headers.IntentSend},
		{headers.OriginatingEndpoint, ep.name},
		{headers.TimeSent, now},
	}}}
}

// setOutcome makes a report of an acknowledgement. Its id differs with each return of the message, so
// that no broker drops it as a duplicate.
func (ep *Endpoint) setOutcome(in *Incoming, out *Outgoing, outcome headers.Outcome) {
	out.ID = ids.Derived(in.ID, ep.name+"/outcome/"+out.Headers.Get(headers.RetryUniqueMessageID), 1)
	out.Headers.Set(headers.MessageID, out.ID)
	out.Headers.Set(headers.ReplayOutcome, string(outcome))
}

// reportOutcome reports the outcome of a work that has been carried out, if the message asks for
// it. The outcome of a stored message is reported by the endpoint that moves it.
func (c *carrier) reportOutcome(w *work, outcome headers.Outcome) {
	in := w.attempt.delivery.Incoming()
	wanted := w.note.Report
	if w.failure != nil {
		wanted = w.failure.replay.report
	}
	if !wanted || w.stored {
		return
	}
	queue, unique := in.Headers.Get(headers.RetryAckQueue), in.Headers.Get(headers.RetryUniqueMessageID)
	if !c.ep.mayAcknowledge(w.attempt, queue, unique) {
		return
	}
	out := c.ep.acknowledgement(in, strings.Clone(queue), strings.Clone(unique), headers.FormatTime(time.Now())) // without the memory of the message
	c.ep.setOutcome(in, &out, outcome)
	var cause, errorType string
	reason := w.decision.reason.kind
	if w.failure == nil { // the headers of a stored message, which a sender can write
		cause, errorType = in.Headers.Get(headers.Cause), in.Headers.Get(headers.ExceptionType)
		reason = headers.Failure(boundedText(in.Headers.Get(headers.FailureReason), maxTypeName))
	} else {
		description := describe(w.failure.Err)
		cause, errorType = description.cause(), description.exceptionType
	}
	out.Headers.Set(headers.Cause, strings.Clone(boundedText(cause, maxTypeName)))
	out.Headers.Set(headers.ExceptionType, strings.Clone(boundedText(errorType, maxTypeName)))
	if reason != "" {
		out.Headers.Set(headers.FailureReason, strings.Clone(string(reason)))
	}
	if outcome == headers.OutcomeFailed && w.arrived != plan.Here {
		out.Headers.Set(headers.ReplayQueue, w.destination())
	}
	c.sendReport(w.attempt, out)
}

// outcome returns the outcome of a failure.
func (w *work) outcome() headers.Outcome {
	switch {
	case w.takenOver:
		return headers.OutcomeTakenOver
	case w.decision.action.Kind == ActionDiscard:
		return headers.OutcomeDiscarded
	case w.decision.action.Kind != ActionMoveToError:
		return "" // the message will be delivered again
	case w.arrived == plan.BrokerQueue:
		return headers.OutcomeDeadLettered
	}
	return headers.OutcomeFailed
}

// destination returns the queue that has the message.
func (w *work) destination() string {
	if w.arrived == plan.ErrorQueue {
		return w.decision.errorQueue
	}
	return w.queueOf(w.arrived)
}

// sendReport sends a report. Later tries are made by a timer of this process, which keeps a bounded
// number of them, and give up when the report is refused, after maxAuditRetryTime, or when the
// endpoint stops.
func (c *carrier) sendReport(a *attempt, out Outgoing) {
	err := c.ep.sender.send(a.settlementContext(c.run), out)
	if err == nil {
		return
	}
	id := strings.Clone(a.delivery.Incoming().ID)
	giveUp := func() {
		c.ep.log.endpoint.LogAttrs(c.run.valuesCtx, slog.LevelWarn, "the report that an operator's retry asks for is given up",
			slog.String("message_id", id), slog.String("queue", out.Queue), slog.Any("error", refusalOf(err, out.Queue)))
	}
	if isRefusedPermanently(err, out.ID) {
		giveUp()
		return
	}
	began := time.Now()
	c.kept.Add(&backlog.Entry{WithoutDelivery: true, Backoff: moveBackoff, Cancel: giveUp, Try: func() bool {
		err = c.ep.sender.send(c.run.settleCtx, out)
		if err != nil && (isRefusedPermanently(err, out.ID) || time.Since(began) > maxAuditRetryTime) {
			giveUp()
			return true
		}
		return err == nil
	}})
}
