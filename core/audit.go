package core

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/reprise-go/reprise/core/internal/backlog"
	"github.com/reprise-go/reprise/core/internal/ids"
	"github.com/reprise-go/reprise/core/internal/unreachable"
)

// This file is about the sends of the engine itself, beside those of handlers, when a
// message was handled: the audit copy, and the acknowledgement that an operator's retry
// requests. They are sent together with the handlers' sends, but never fail an attempt:
// the engine sends them later or gives them up.

// engineSends returns the engine's sends for a message that was handled, and a function
// to call after the try to send them (unreachable.Queues.Blocked).
func (r *runner) engineSends(a *attempt) (sends []Outgoing, endProbe func()) {
	in := a.delivery.Incoming()
	ackQueue := in.Headers.Get(HeaderRetryAckQueue)
	if ackQueue == "" && r.ep.auditAddress == "" {
		return nil, unreachable.NoProbe
	}
	endProbe = unreachable.NoProbe
	now := FormatTime(time.Now())
	audit := in.Headers
	if unique := in.Headers.Get(HeaderRetryUniqueMessageID); unique != "" && ackQueue != "" {
		id := ids.Derived(in.ID, r.ep.name+"/retry-acknowledgement", 1)
		sends = append(sends, Outgoing{ID: id, Queue: ackQueue, Reason: ReasonAcknowledgement, Headers: Headers{pairs: []header{
			{HeaderMessageID, id},
			{HeaderControlMessage, "True"},
			{HeaderRetrySuccessful, now},
			{HeaderRetryUniqueMessageID, unique},
			{HeaderMessageIntent, IntentSend},
			{HeaderOriginatingEndpoint, r.ep.name},
			{HeaderTimeSent, now},
		}}})
		audit.Set(HeaderRetryAckSent, "true")
	}
	if r.ep.auditAddress != "" {
		var copied Outgoing
		copied, endProbe = r.auditCopy(a, audit, now)
		sends = append(sends, copied)
	}
	return sends, endProbe
}

// auditCopy returns the message for the audit queue, or for the endpoint's own queue
// while the audit queue cannot be reached.
func (r *runner) auditCopy(a *attempt, audit Headers, now string) (out Outgoing, endProbe func()) {
	in := a.delivery.Incoming()
	in.writeID(&audit)
	audit.Set(HeaderProcessingEndpoint, r.ep.host.endpoint)
	audit.Set(HeaderProcessingMachine, r.ep.host.machine)
	audit.Set(HeaderHostID, r.ep.host.hostID)
	audit.Set(HeaderHostDisplayName, r.ep.host.instance)
	audit.Set(HeaderProcessingStarted, FormatTime(time.Unix(0, a.message.started)))
	audit.Set(HeaderProcessingEnded, now)
	// The copy must not fail a message that was handled. A message that itself exceeds the
	// limits was sent with other limits, and the broker accepts the headers too.
	caps := r.ep.caps.limitsForCopy(in)
	hasRoom := func(h Headers) bool { return fits(h, in.Body, caps) || !fits(in.Headers, in.Body, caps) }
	if audit = sanitizeHeaders(audit); !hasRoom(audit) {
		r.ep.log.endpoint.WarnContext(a.decisionContext(), "message is too large for the headers of its audit copy; the copy is sent without them",
			"message_id", in.ID, "message_type", a.message.handledAs().messageType)
		audit = sanitizeHeaders(in.Headers)
	}
	out = in.copyTo(r.ep.auditAddress, audit, ReasonAudit)
	if !r.ep.canStore(out.Queue) {
		return out, unreachable.NoProbe
	}
	endProbe, cause := r.ep.unreachable.Blocked(out.Queue)
	if cause == nil {
		return out, endProbe
	}
	if stored := r.ep.storedAudit(out); hasRoom(stored.Headers) {
		return stored, unreachable.NoProbe
	}
	return out, unreachable.NoProbe
}

// storedAudit returns an audit copy for the endpoint's own queue.
func (ep *Endpoint) storedAudit(out Outgoing) Outgoing {
	return ep.storedCopy(out, undeliveredNote{Queue: out.Queue, Audit: true, Tries: 1, Since: FormatTime(time.Now())})
}

// sendAll sends the messages that the handlers collected and the engine's sends. Its
// error is that of the handlers' sends.
func (r *runner) sendAll(a *attempt, out, engineSends []Outgoing) error {
	all := out
	if len(engineSends) > 0 {
		all = slices.Concat(out, engineSends)
	}
	if len(all) == 0 {
		return nil
	}
	err := r.ep.transportSend(a.settlementContext(r), all)
	if err == nil {
		r.engineSendsAccepted(a, engineSends)
		return nil
	}
	if len(engineSends) == 0 {
		return wrapSendError(err, out)
	}
	var left, engineLeft []Outgoing
	for i := range all {
		switch {
		case isAccepted(err, len(all), i):
		case i < len(out):
			left = append(left, all[i])
		default:
			engineLeft = append(engineLeft, all[i])
		}
	}
	if len(left) > 0 { // perhaps only because of the engine's sends
		if err := r.ep.transportSend(a.settlementContext(r), left); err != nil {
			return wrapSendError(err, left)
		}
	}
	r.sendEngineSendsLater(a, engineLeft, err)
	return nil
}

// completeWith commits the handlers' work and collected messages together with the
// engine's sends or, if those cannot be sent, without them. Its error is that of the
// handlers' work.
func (r *runner) completeWith(a *attempt, out, engineSends []Outgoing) error {
	commit := func(all []Outgoing) error {
		return r.ep.observedSend(a.settlementContext(r), all, func(ctx context.Context) error { return a.delivery.CompleteWith(ctx, all) })
	}
	if len(engineSends) == 0 {
		return wrapSendError(commit(out), out)
	}
	began := time.Now()
	err := commit(slices.Concat(out, engineSends))
	if err == nil {
		r.engineSendsAccepted(a, engineSends)
		return nil
	}
	// Nothing was sent, and the handlers' work is unchanged, unless the transaction broke:
	// then another try fails too.
	for _, try := range r.fewerEngineSends(engineSends) {
		if errors.Is(err, ErrLockLost) || errors.Is(err, ErrSettled) {
			break
		}
		tried := time.Now()
		retried := commit(slices.Concat(out, try.now))
		if retried == nil {
			if try.stored {
				r.reportUnreachable(r.ep.auditAddress, "", refusalOf(err, r.ep.auditAddress), began)
			}
			r.engineSendsAccepted(a, try.now)
			r.sendEngineSendsLater(a, try.later, err)
			return nil
		}
		err, began = retried, tried
	}
	if errors.Is(err, ErrSettled) { // the answer of an earlier commit was lost
		r.ep.log.endpoint.WarnContext(a.decisionContext(), "message was settled already, by a call of the transport that returned an error", "message_id", a.message.incoming.ID)
		return nil
	}
	return wrapSendError(err, out)
}

// engineSendsTry is one choice of the engine's sends to commit with the handlers' work.
type engineSendsTry struct {
	now, later []Outgoing
	stored     bool // audit copies go to the endpoint's own queue
}

// fewerEngineSends returns the choices that remain when a commit with all of them failed:
// without acknowledgements, whose queue any sender can name, then with stored audit
// copies, then without any.
func (r *runner) fewerEngineSends(sends []Outgoing) []engineSendsTry {
	var acks, audits, stored []Outgoing
	for _, o := range sends {
		switch {
		case o.Reason == ReasonAcknowledgement:
			acks = append(acks, o)
			continue
		case o.Reason == ReasonAudit && r.ep.canStore(o.Queue):
			stored = append(stored, r.ep.storedAudit(o))
		}
		audits = append(audits, o)
	}
	var tries []engineSendsTry
	if len(acks) > 0 && len(audits) > 0 {
		tries = append(tries, engineSendsTry{now: audits, later: acks})
	}
	if len(stored) > 0 {
		tries = append(tries, engineSendsTry{now: stored, later: acks, stored: true})
	}
	return append(tries, engineSendsTry{later: sends})
}

// engineSendsAccepted records that the engine's sends were accepted.
func (r *runner) engineSendsAccepted(ctx context.Context, sends []Outgoing) {
	for i := range sends {
		switch sends[i].Reason {
		case ReasonAudit:
			r.reportReached(sends[i].Queue)
		case ReasonUndelivered:
			note, _ := readNote(sends[i].Headers)
			r.reportStored(ctx, &sends[i], note)
		}
	}
}

// sendEngineSendsLater delivers the engine's sends that failed together with err. An
// audit copy is stored in the endpoint's own queue if possible, and otherwise kept in
// this process, as an acknowledgement is. None of them justifies failing a message.
func (r *runner) sendEngineSendsLater(a *attempt, sends []Outgoing, err error) {
	for _, out := range sends {
		cause := refusalOf(err, out.Queue)
		switch {
		case out.Reason == ReasonAcknowledgement && isRefusedPermanently(err, out.ID):
			r.ep.log.endpoint.LogAttrs(a.decisionContext(), slog.LevelWarn, "the acknowledgement that an operator's retry asks for was refused; it is given up",
				slog.String("message_id", a.delivery.Incoming().ID), slog.String("queue", out.Queue), slog.Any("error", cause))
			continue
		case out.Reason == ReasonAudit:
			began := time.Now()
			if !isRefusedPermanently(err, out.ID) { // perhaps another send was the cause
				if cause = r.ep.transportSend(a.settlementContext(r), []Outgoing{out}); cause == nil {
					r.engineSendsAccepted(a, []Outgoing{out})
					continue
				}
			}
			if failedByQueue(cause, out.ID) {
				r.reportUnreachable(out.Queue, "", cause, began)
			}
			if r.ep.canStore(out.Queue) {
				stored := []Outgoing{r.ep.storedAudit(out)}
				if r.ep.transportSend(a.settlementContext(r), stored) == nil {
					r.engineSendsAccepted(a, stored)
					continue
				}
			}
		}
		r.retrySendInProcess(out, cause)
	}
}

// refusalOf returns the error of the message to a queue.
func refusalOf(err error, queue string) error {
	if sent, ok := errors.AsType[*SendError](err); ok {
		for _, result := range sent.Results {
			if result.To == queue && result.Err != nil {
				return result.Err
			}
		}
	}
	return err
}

// retrySendInProcess repeats a send of the engine itself, which only this process knows
// of, and gives it up after maxAuditRetryTime or when the endpoint stops.
func (r *runner) retrySendInProcess(out Outgoing, err error) {
	began := time.Now()
	cancel := func() {
		r.raiseCritical(fmt.Errorf("%v of message %s to queue %q is given up: %w", out.Reason, out.ID, out.Queue, err))
	}
	r.ep.unfinished.kept.Add(&backlog.Entry{WithoutDelivery: true, Backoff: moveBackoff, Cancel: cancel, Try: func() bool {
		if err = r.ep.transportSend(r.settleCtx, []Outgoing{out}); err != nil && time.Since(began) > maxAuditRetryTime {
			cancel()
			return true
		}
		if err == nil {
			r.engineSendsAccepted(r.settleCtx, []Outgoing{out})
		}
		return err == nil
	}})
}
