package core

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/core/internal/backlog"
	"github.com/reprise-go/reprise/core/internal/plan"
	"github.com/reprise-go/reprise/internal/bounded"
)

// This file commits the work of handlers that succeeded.

// succeeded sends the messages that the handlers collected and consumes the message. An
// error means that it was not settled: the attempt failed after all (R20).
func (p *processor) succeeded(w *worker, a *attempt) error {
	out := a.message.sends.end()
	if a.isLockLost() {
		p.run.endLockLost(a)
		return nil
	}
	if err := a.commitError(); err != nil {
		return err
	}
	own, endProbe := p.engineSends(a)
	defer endProbe()
	atomic := p.ep.mode.isAtomic()
	var reports []Outgoing
	if !atomic && len(out) > 0 { // which may be refused, so that the attempt fails
		own, reports = withoutReports(own)
	}
	if atomic && !a.transactionBegun.Load() {
		w.ReleaseSlotEarly()
	}
	lost, err := p.commit(a, out, own)
	switch {
	case err != nil && atomic:
		w.ReacquireSlot()
		return fmt.Errorf("commit: %w", err)
	case err != nil:
		a.sendsFailed = true
		return err
	case lost:
		p.run.endLockLost(a)
		return nil
	case atomic:
		p.run.endAttempt(a)
	default:
		for _, report := range reports {
			p.carrier.sendReport(a, report)
		}
		w.ReleaseSlotEarly()
		p.carrier.complete(a)
	}
	a.dealtWith = true // observers may end the goroutine
	a.message.sends.committedSends().notifySent(p.ep.observers.onPanic)
	if len(p.ep.observers.success) > 0 {
		p.ep.observers.succeeded(a.settlementContext(p.run), Handling{ObservedEndpoint: p.ep.observed, Message: &a.message, Duplicate: a.message.isDuplicate()})
	}
	p.run.limiter.Succeeded()
	p.run.pauses.Reset()
	return nil
}

// commit sends the handlers' messages, with as many of the engine's own as possible, and in
// SendsAtomicWithReceive commits the handlers' work with them. Its error is that of the
// handlers' work. lost: the broker delivers the message again.
func (p *processor) commit(a *attempt, out, own []Outgoing) (lost bool, err error) {
	if len(out)+len(own) == 0 && !p.ep.mode.isAtomic() {
		return false, nil
	}
	var buf [4]plan.Step
	var cause error // why the step before failed
	var began time.Time
	for _, s := range plan.Succeeded(p.ep.mode.isAtomic(), p.factsOf(own), buf[:0]) {
		now, later := p.choose(s.With, own)
		tried := time.Now()
		err = p.try(a, s, out, now)
		switch result, _ := classOf(err); plan.After(s, result) {
		case plan.Done:
			p.committed(a, s, now, cause, began)
			p.sendLater(a, later, cause)
			p.logSettled(a, err)
			return false, nil
		case plan.Gone:
			return true, nil
		}
		if !s.Atomic { // else nothing was sent
			out, own = notAccepted(err, out, own)
		}
		cause, began = err, tried
	}
	return false, wrapSendError(err, out)
}

// withoutReports separates reports of outcomes from the engine's other sends.
func withoutReports(own []Outgoing) (others, reports []Outgoing) {
	for _, o := range own {
		if o.Headers.Get(headers.ReplayOutcome) != "" {
			reports = append(reports, o)
		} else {
			others = append(others, o)
		}
	}
	return others, reports
}

// factsOf returns the facts about the engine's sends.
func (p *processor) factsOf(own []Outgoing) (f plan.Sends) {
	for i := range own {
		switch own[i].Reason {
		case ReasonAcknowledgement:
			f.Acks = true
		default: // an audit copy, or a stored one
			f.Audits = true
			f.Storable = own[i].Reason == ReasonAudit && p.ep.resolved.canStore(own[i].Queue)
		}
	}
	return f
}

// choose returns the engine's sends to send now and later.
func (p *processor) choose(with plan.With, own []Outgoing) (now, later []Outgoing) {
	switch with {
	case plan.AllSends:
		return own, nil
	case plan.NoSends:
		return nil, own
	}
	for _, o := range own {
		switch {
		case o.Reason == ReasonAcknowledgement:
			later = append(later, o)
		case with == plan.StoredCopies:
			now = append(now, p.storedAudit(o))
		default:
			now = append(now, o)
		}
	}
	return now, later
}

// try sends the messages of handlers and the engine's, or commits them with the delivery.
func (p *processor) try(a *attempt, s plan.Step, out, own []Outgoing) error {
	if len(own) > 0 {
		out = slices.Concat(out, own)
	}
	ctx := a.settlementContext(p.run)
	switch {
	case s.Atomic:
		return p.ep.sender.observe(ctx, out, func(ctx context.Context) error { return a.delivery.CompleteWith(ctx, out) })
	case len(out) == 0:
		return nil
	}
	return p.ep.sender.send(ctx, out...)
}

// notAccepted returns the messages that were not accepted by a call that failed with err.
func notAccepted(err error, out, own []Outgoing) (outLeft, ownLeft []Outgoing) {
	n := len(out) + len(own)
	for i, o := range out {
		if !isAccepted(err, n, i) {
			outLeft = append(outLeft, o)
		}
	}
	for i, o := range own {
		if !isAccepted(err, n, len(out)+i) {
			ownLeft = append(ownLeft, o)
		}
	}
	return outLeft, ownLeft
}

// committed records the engine's sends that have left. cause is the error of the step before.
func (p *processor) committed(a *attempt, s plan.Step, sent []Outgoing, cause error, began time.Time) {
	if s.With == plan.StoredCopies {
		p.run.reportUnreachable(p.ep.auditAddress, "", refusalOf(cause, p.ep.auditAddress), began)
	}
	p.accepted(a, sent)
}

// logSettled logs that the answer of an earlier commit was lost.
func (p *processor) logSettled(a *attempt, err error) {
	if errors.Is(err, ErrSettled) {
		p.ep.log.endpoint.WarnContext(a.decisionContext(), "message was settled already, by a call of the transport that returned an error", "message_id", a.message.incoming.ID)
	}
}

// accepted records that the engine's sends were accepted.
func (p *processor) accepted(ctx context.Context, sends []Outgoing) {
	for i := range sends {
		switch sends[i].Reason {
		case ReasonAudit:
			p.run.reportReached(sends[i].Queue)
		case ReasonUndelivered:
			note, _ := readNote(sends[i].Headers)
			p.run.reportStored(ctx, &sends[i], note)
		}
	}
}

// sendLater delivers the engine's sends that failed together with err. An
// audit copy is stored in the endpoint's own queue if possible, and otherwise kept in
// this process, as an acknowledgement is. None of them justifies failing a message.
func (p *processor) sendLater(a *attempt, sends []Outgoing, err error) {
	for _, out := range sends {
		cause := refusalOf(err, out.Queue)
		switch {
		case out.Reason == ReasonAcknowledgement && isRefusedPermanently(err, out.ID):
			p.ep.log.endpoint.LogAttrs(a.decisionContext(), slog.LevelWarn, "the acknowledgement that an operator's retry asks for was refused; it is given up",
				slog.String("message_id", a.delivery.Incoming().ID), slog.String("queue", out.Queue), slog.Any("error", cause))
			continue
		case out.Reason == ReasonAudit, out.Reason == ReasonUndelivered:
			began := time.Now()
			if cause = p.sendAudit(a, &out, err); cause == nil {
				p.accepted(a, []Outgoing{out})
				continue
			}
			if !failedByQueue(cause, out.ID) {
				p.giveUpSend(out, cause)
				continue
			}
			if out.Reason == ReasonUndelivered { // the endpoint's own queue cannot be reached
				break
			}
			p.run.reportUnreachable(out.Queue, "", cause, began)
			if p.ep.resolved.canStore(out.Queue) {
				stored := p.storedAudit(out)
				if p.sendAudit(a, &stored, nil) == nil {
					p.accepted(a, []Outgoing{stored})
					continue
				}
			}
		}
		p.retrySendInProcess(out, cause)
	}
}

// sendAudit sends an audit copy that could not be sent together with other messages, because
// of one of them. If the audit queue refuses it, it leaves without the headers of its sender,
// any of which may be the reason.
func (p *processor) sendAudit(a *attempt, out *Outgoing, err error) error {
	if !isRefusedPermanently(err, out.ID) { // perhaps another send was the cause
		err = p.ep.sender.send(a.settlementContext(p.run), *out)
	}
	if err == nil || failedByQueue(err, out.ID) {
		return refusalOf(err, out.Queue)
	}
	out.strip(a.delivery.Incoming())
	refused := refusalOf(err, out.Queue)
	if err = p.ep.sender.send(a.settlementContext(p.run), *out); err != nil {
		return refusalOf(err, out.Queue)
	}
	p.ep.log.endpoint.LogAttrs(a.decisionContext(), slog.LevelWarn, "audit copy was sent without headers of its sender, which the transport refused",
		slog.String("message_id", out.ID), slog.String("queue", out.Queue), slog.Any("error", refused))
	return nil
}

// giveUpSend reports a send of the engine itself that is not tried further.
func (p *processor) giveUpSend(out Outgoing, err error) {
	p.run.raiseCritical(fmt.Errorf("%v of message %s to queue %q is given up: %w", out.Reason, bounded.Name(out.ID), out.Queue, err))
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
// of, and gives it up if it is refused, after maxAuditRetryTime or when the endpoint stops.
func (p *processor) retrySendInProcess(out Outgoing, err error) {
	began := time.Now()
	cancel := func() { p.giveUpSend(out, err) }
	p.carrier.kept.Add(&backlog.Entry{WithoutDelivery: true, Backoff: moveBackoff, Cancel: cancel, Try: func() bool {
		err = p.ep.sender.send(p.run.settleCtx, out)
		if err != nil && (!failedByQueue(err, out.ID) || time.Since(began) > maxAuditRetryTime) {
			cancel()
			return true
		}
		if err == nil {
			p.accepted(p.run.settleCtx, []Outgoing{out})
		}
		return err == nil
	}})
}
