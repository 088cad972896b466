package core

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"
)

// This file is about the sends of the engine beside those of handlers, when a message was
// handled: the audit copy, and the acknowledgement that an operator's retry requests.
// They are sent together with the handlers' sends, but never fail an attempt: the engine
// sends them later or gives them up.

// ownSends returns the engine's sends for a message that was handled, and a function to call
// after the try to send them (destinations.blocked).
func (r *runner) ownSends(a *attempt) (own []Outgoing, probed func()) {
	in := a.delivery.Incoming()
	ackQueue := in.Headers.Get(HeaderRetryAckQueue)
	if ackQueue == "" && r.ep.auditAddress == "" {
		return nil, noProbe
	}
	probed = noProbe
	now := FormatTime(time.Now())
	audit := in.Headers
	if unique := in.Headers.Get(HeaderRetryUniqueMessageID); unique != "" && ackQueue != "" {
		id := derivedID(in.ID, r.ep.name+"/retry-acknowledgement", 1)
		own = append(own, Outgoing{ID: id, Queue: ackQueue, Reason: ReasonAcknowledgement, Headers: Headers{pairs: []header{
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
		copied, probed = r.auditCopy(a, audit, now)
		own = append(own, copied)
	}
	return own, probed
}

// auditCopy returns the message for the audit queue, or for the endpoint's own queue
// while the audit queue cannot be reached.
func (r *runner) auditCopy(a *attempt, audit Headers, now string) (out Outgoing, probed func()) {
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
	caps := r.ep.caps.beside(in)
	hasRoom := func(h Headers) bool { return fits(h, in.Body, caps) || !fits(in.Headers, in.Body, caps) }
	if audit = legible(audit); !hasRoom(audit) {
		r.ep.log.endpoint.WarnContext(a.deciding(), "message is too large for the headers of its audit copy; the copy is sent without them",
			"message_id", in.ID, "message_type", a.message.handledAs().messageType)
		audit = legible(in.Headers)
	}
	out = in.copyTo(r.ep.auditAddress, audit, ReasonAudit)
	if !r.ep.storable(out.Queue) {
		return out, noProbe
	}
	probed, away := r.ep.destinations.blocked(out.Queue)
	if away == nil {
		return out, probed
	}
	if stored := r.ep.storedAudit(out); hasRoom(stored.Headers) {
		return stored, noProbe
	}
	return out, noProbe
}

// storedAudit returns an audit copy for the endpoint's own queue.
func (ep *Endpoint) storedAudit(out Outgoing) Outgoing {
	return ep.storedCopy(out, undeliveredNote{Queue: out.Queue, Audit: true, Tries: 1, Since: FormatTime(time.Now())})
}

// sendAll sends the messages that the handlers collected and the engine's own sends. Its
// error is that of the handlers' sends.
func (r *runner) sendAll(a *attempt, out, own []Outgoing) error {
	id := a.delivery.Incoming().ID
	out = r.ep.memory.withoutAccepted(id, out)
	all := out
	if len(own) > 0 {
		all = slices.Concat(out, own)
	}
	if len(all) == 0 {
		return nil
	}
	err := r.ep.transportSend(a.settling(r), all)
	if err == nil {
		r.ownSent(a, own)
		return nil
	}
	r.ep.memory.rememberAccepted(id, all, err)
	if len(own) == 0 {
		return failedSend(err, out)
	}
	if left := r.ep.memory.withoutAccepted(id, out); len(left) > 0 { // perhaps only because of the engine's own sends
		if err := r.ep.transportSend(a.settling(r), left); err != nil {
			r.ep.memory.rememberAccepted(id, left, err)
			return failedSend(err, left)
		}
	}
	r.sendOwnLater(a, r.ep.memory.withoutAccepted(id, own), err)
	return nil
}

// completeWith commits the handlers' work and collected messages together with the
// engine's own sends or, if those cannot be sent, without them. Its error is that of the
// handlers' work.
func (r *runner) completeWith(a *attempt, out, own []Outgoing) error {
	commit := func(all []Outgoing) error {
		return r.ep.observedSend(a.settling(r), all, func(ctx context.Context) error { return a.delivery.CompleteWith(ctx, all) })
	}
	if len(own) == 0 {
		return failedSend(commit(out), out)
	}
	began := time.Now()
	err := commit(slices.Concat(out, own))
	if err == nil {
		r.ownSent(a, own)
		return nil
	}
	// Nothing was sent, and the handlers' work is unchanged, unless the transaction broke:
	// then another try fails too.
	for _, try := range r.fewerOwnSends(own) {
		if hasEnded(err) {
			break
		}
		tried := time.Now()
		retried := commit(slices.Concat(out, try.now))
		if retried == nil {
			if try.stored {
				r.unreachable(r.ep.auditAddress, refusalOf(err, r.ep.auditAddress), began)
			}
			r.ownSent(a, try.now)
			r.sendOwnLater(a, try.later, err)
			return nil
		}
		err, began = retried, tried
	}
	if errors.Is(err, ErrSettled) { // the answer of an earlier commit was lost
		r.ep.log.endpoint.WarnContext(a.deciding(), "message was settled already, by a call of the transport that returned an error", "message_id", a.message.incoming.ID)
		return nil
	}
	return failedSend(err, out)
}

// ownSendsTry is one choice of the engine's own sends to commit with the handlers' work.
type ownSendsTry struct {
	now, later []Outgoing
	stored     bool // audit copies go to the endpoint's own queue
}

// fewerOwnSends returns the choices that remain when a commit with all of them failed:
// without acknowledgements, whose queue any sender can name, then with stored audit
// copies, then without any.
func (r *runner) fewerOwnSends(own []Outgoing) []ownSendsTry {
	var acks, audits, stored []Outgoing
	for _, o := range own {
		switch {
		case o.Reason == ReasonAcknowledgement:
			acks = append(acks, o)
			continue
		case o.Reason == ReasonAudit && r.ep.storable(o.Queue):
			stored = append(stored, r.ep.storedAudit(o))
		}
		audits = append(audits, o)
	}
	var tries []ownSendsTry
	if len(acks) > 0 && len(audits) > 0 {
		tries = append(tries, ownSendsTry{now: audits, later: acks})
	}
	if len(stored) > 0 {
		tries = append(tries, ownSendsTry{now: stored, later: acks, stored: true})
	}
	return append(tries, ownSendsTry{later: own})
}

// failedSend returns the error of an attempt whose sends failed with err.
func failedSend(err error, out []Outgoing) error {
	if err == nil {
		return nil
	}
	if slices.ContainsFunc(out, func(o Outgoing) bool { return refusedForGood(err, o.ID) }) {
		return fmt.Errorf("%w: %w", ErrSendRefused, err)
	}
	return err
}

// ownSent records that the engine's own sends were accepted.
func (r *runner) ownSent(ctx context.Context, own []Outgoing) {
	for i := range own {
		switch own[i].Reason {
		case ReasonAudit:
			r.reached(own[i].Queue)
		case ReasonUndelivered:
			note, _ := readNote(own[i].Headers)
			r.tellStored(ctx, &own[i], note)
		}
	}
}

// sendOwnLater delivers the engine's own sends that failed together with err. An audit
// copy is stored in the endpoint's own queue if possible, and otherwise kept in this
// process, as an acknowledgement is. None of them justifies failing a message.
func (r *runner) sendOwnLater(a *attempt, own []Outgoing, err error) {
	for _, out := range own {
		cause := refusalOf(err, out.Queue)
		switch {
		case out.Reason == ReasonAcknowledgement && refusedForGood(err, out.ID):
			r.ep.log.endpoint.LogAttrs(a.deciding(), slog.LevelWarn, "the acknowledgement that an operator's retry asks for was refused; it is given up",
				slog.String("message_id", a.delivery.Incoming().ID), slog.String("queue", out.Queue), slog.Any("error", cause))
			continue
		case out.Reason == ReasonAudit:
			began := time.Now()
			if !refusedForGood(err, out.ID) { // perhaps another send was the cause
				if cause = r.ep.transportSend(a.settling(r), []Outgoing{out}); cause == nil {
					r.ownSent(a, []Outgoing{out})
					continue
				}
			}
			if isAway(cause, out.ID) {
				r.unreachable(out.Queue, cause, began)
			}
			if r.ep.storable(out.Queue) {
				stored := []Outgoing{r.ep.storedAudit(out)}
				if r.ep.transportSend(a.settling(r), stored) == nil {
					r.ownSent(a, stored)
					continue
				}
			}
		}
		r.sendFromMemory(out, cause)
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

// sendFromMemory repeats a send of the engine itself, which only this process knows of,
// and gives it up after auditPatience or when the endpoint stops.
func (r *runner) sendFromMemory(out Outgoing, err error) {
	began := time.Now()
	giveUp := func() {
		r.critical(fmt.Errorf("%v of message %s to queue %q is given up: %w", out.Reason, out.ID, out.Queue, err))
	}
	r.backlog.add(&unfinished{owed: true, pause: movePauses, giveUp: giveUp, try: func() bool {
		if err = r.ep.transportSend(r.settle, []Outgoing{out}); err != nil && time.Since(began) > auditPatience {
			giveUp()
			return true
		}
		if err == nil {
			r.ownSent(r.settle, []Outgoing{out})
		}
		return err == nil
	}})
}

// asSendError returns the SendError in err, if it has this number of messages.
func asSendError(err error, messages int) (*SendError, bool) {
	sent, ok := errors.AsType[*SendError](err)
	return sent, ok && len(sent.Results) == messages
}
