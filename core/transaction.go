package core

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
)

// This file is for middleware that keeps a handler's messages until they have been sent,
// an inbox for example: it stores the messages that Message.Outgoing returns, calls
// Commit, passes them to a later attempt with Resend, and deletes them when Commit
// reports that they have been sent.

// Resend collects messages that an earlier attempt at this message had collected
// ([Message.Outgoing]) and that may not have been sent: with their ids, headers and
// bodies, and without [SendMiddleware], which has run for them. They do not keep
// [SendOptions.DeliverAt]: Delay and TimeToBeReceived count from now. An error, as for a
// message without an ID or with neither or both of Queue and Topic, means that none of
// them was collected. m takes over the bodies.
func (m *Message) Resend(out ...Outgoing) error {
	fail := func(err error) error {
		return fmt.Errorf("core: resend %d messages while handling message %s: %w", len(out), m.incoming.ID, err)
	}
	for i := range out {
		if err := m.deps.composer.checkResent(&out[i]); err != nil {
			return fail(err)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.endedLocked() {
		return fail(ErrHandlingEnded)
	}
	m.outgoing = append(m.outgoing, out...)
	return nil
}

// checkResent refuses a message that cannot have come from Outgoing, or that the
// transport can no longer send.
func (c *composer) checkResent(out *Outgoing) error {
	switch {
	case out.ID == "":
		return errors.New("a message has no ID; set the one that it was first sent with")
	case out.Queue != "" && out.Topic != "":
		return fmt.Errorf("message %s has both queue %q and topic %q; empty one of them", out.ID, out.Queue, out.Topic)
	case out.Reason != ReasonApplication && out.Reason != ReasonForward:
		return fmt.Errorf("message %s is a %v, which handlers do not send", out.ID, out.Reason)
	}
	if err := c.checkRequest(out); err != nil {
		return fmt.Errorf("message %s: %w", out.ID, err)
	}
	return nil
}

// SetDuplicate marks the message as handled before, for middleware that does not run the
// handlers again: observers see the mark ([HandleEnd.Duplicate], [Success.Duplicate]),
// unless handlers have run in this attempt.
func (m *Message) SetDuplicate() {
	outermost := m.outermost()
	outermost.mu.Lock()
	defer outermost.mu.Unlock()
	outermost.duplicate = true
}

func (m *Message) isDuplicate() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.duplicate && !m.handlersChosen
}

// Commit marks messages that m has collected ([Message.Outgoing], or [Message.Resend]) as
// committed: middleware has stored them together with the work of their handler. They are
// sent regardless of the attempt's outcome: also if a later handler fails, a [Fallback]
// answers, or the message is discarded, moved or taken over. If they cannot be sent, a
// message that is to be discarded is kept until they can, and a message that is taken
// over goes to the error queue, as does a message whose sends are refused permanently. An
// operator can return it from there, and the middleware can send them again. If the
// message is given back, for an immediate retry for example, the middleware has to send
// them, too; before a delayed retry one try is made. In all these cases they are sent
// before the message is consumed, not atomically with that: a crash between the two sends
// them once more.
//
// sent, if it is not nil, is called when the transport has accepted these messages and
// all others that are sent with them, by the goroutine of the attempt, and before
// observers are notified of its success. It must be quick; several are called in the
// order of the calls of Commit. It is not called if the process ends before. A panic is
// logged.
//
// Messages that were committed in the attempt before, by an earlier run (see
// [Middleware]), are recognised by ID, queue and topic, and sent once. An error, as of
// Resend, means that nothing was committed. After the handler, or the middleware, has
// returned it is [ErrHandlingEnded]. With [Endpoint.Invoke] committed messages are sent
// even if it returns an error.
func (m *Message) Commit(out []Outgoing, sent func()) error {
	fail := func(err error) error {
		return fmt.Errorf("core: commit %d messages while handling message %s: %w", len(out), m.incoming.ID, err)
	}
	for i := range out {
		if err := m.deps.composer.checkResent(&out[i]); err != nil {
			return fail(err)
		}
	}
	if m.isEnded() {
		return fail(ErrHandlingEnded)
	}
	outermost := m.outermost()
	outermost.mu.Lock()
	defer outermost.mu.Unlock()
	if outermost.committed == nil {
		outermost.committed = &committedSends{}
	}
	c := outermost.committed
	c.messages = c.appendMissing(slices.Clone(c.messages), out)
	if sent != nil {
		c.callbacks = append(c.callbacks, sent)
	}
	return nil
}

// committedSends returns the committed messages to send, or nil.
func (m *Message) committedSends() *committedSends {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.committed
}

// sendCommitted sends the committed messages after a failed attempt.
func (r *runner) sendCommitted(a *attempt, d *decision) error {
	c := d.committedSends
	if c == nil {
		return nil
	}
	if r.lockLost(a) { // another delivery sends them
		return ErrLockLost
	}
	id := a.delivery.Incoming().ID
	if out := r.ep.redeliveries.withoutAccepted(id, c.messages); len(out) > 0 {
		if err := r.ep.transportSend(a.settlementContext(r), out); err != nil {
			r.ep.redeliveries.rememberAccepted(id, out, err)
			return wrapSendError(err, out)
		}
	}
	d.committedSends = nil
	c.notifySent(r.ep.observerPanicked)
	return nil
}

// sendCommittedBeforeMove sends as many of them as it can: the moved message still stands
// for the others.
func (r *runner) sendCommittedBeforeMove(a *attempt, f *failure, d *decision) {
	err := r.sendCommitted(a, d)
	if err == nil || endsDelivery(err) {
		return
	}
	r.ep.log.logFailure(a.decisionContext(), r.ep.log.moved, slog.LevelWarn, f, []slog.Attr{slog.Any("send_error", err)},
		"messages that a handler has committed could not be sent before the message is moved; they are sent when it is returned to its queue",
		"Messages that a handler of message '%s' has committed could not be sent; they are sent when it is returned to its queue.", f.MessageID)
}

// The rest of this file is about savepoints.

// Savepoint is a state of an attempt to which [Savepoint.Rollback] returns. See
// [Message.Savepoint].
type Savepoint struct {
	message *Message
	undo    func(ctx context.Context) error // of the transport's transaction, or nil

	// The messages collected before the savepoint.
	outgoing           []Outgoing
	adoptedAt, adopted int32
}

// Savepoint marks the state of this attempt, so that the work after it can be undone
// alone: a try of middleware that retries, or a step of a handler. Rollback drops the
// messages that were collected since. In SendsAtomicWithReceive it also undoes the work
// since then in the transport's transaction; if the transport cannot do that
// ([Capabilities.Savepoints]), the error matches errors.ErrUnsupported. In the other
// transaction modes, and outside of an endpoint, there is no transaction, and a savepoint
// only covers messages.
//
//	savepoint, err := m.Savepoint(ctx)
//	if err != nil {
//		return err
//	}
//	if err = next(ctx, m); err != nil {
//		if err := savepoint.Rollback(ctx); err != nil {
//			return err
//		}
//		err = next(ctx, m)
//	}
//	return err
//
// Other work of handlers, and [Message.SendNow], is not undone. A database transaction
// that a handler got from the context before the savepoint can also be used after a
// Rollback; a transaction that it got after the savepoint cannot. A savepoint need not be
// released. Savepoint and Rollback are called by one goroutine at a time, not while next
// or the transaction is in use.
func (m *Message) Savepoint(ctx context.Context) (*Savepoint, error) {
	s := &Savepoint{message: m}
	m.mu.Lock()
	ended := m.endedLocked()
	s.outgoing = slices.Clone(m.outgoing)
	s.adoptedAt, s.adopted = m.adoptedAt, m.adopted
	m.mu.Unlock()
	if ended {
		return nil, fmt.Errorf("core: savepoint for message %s: %w", m.ID, ErrHandlingEnded)
	}
	a := m.transaction()
	if a == nil {
		return s, nil
	}
	if !m.deps.composer.caps.Savepoints {
		return nil, fmt.Errorf("core: savepoint for message %s: the transport cannot undo a part of its transaction (Capabilities.Savepoints); "+
			"let the attempt fail, which undoes all of it, or use the transaction mode ReceiveOnly: %w", m.ID, errors.ErrUnsupported)
	}
	var err error
	if s.undo, err = a.delivery.Savepoint(ctx); err != nil {
		return nil, fmt.Errorf("core: savepoint for message %s: %w", m.ID, err)
	}
	return s, nil
}

// Rollback undoes the work since the savepoint. It may be called several times, until an
// earlier savepoint of the attempt is rolled back, or its run ends. If it returns an
// error, for example because ctx has ended, the attempt fails even if its handlers return
// nil, and all its work is undone. Later messages do not reuse the ids of the dropped
// ones.
func (s *Savepoint) Rollback(ctx context.Context) error {
	m := s.message
	if m.isEnded() {
		return fmt.Errorf("core: rollback to a savepoint of message %s: %w", m.ID, ErrHandlingEnded)
	}
	if s.undo != nil {
		if err := s.undo(ctx); err != nil {
			err = fmt.Errorf("core: rollback to a savepoint of message %s: %w", m.ID, err)
			if a := m.transaction(); a != nil {
				a.refuseCommit(err)
			}
			return err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.outgoing = slices.Clone(s.outgoing)
	m.adoptedAt, m.adopted = s.adoptedAt, s.adopted
	return nil
}

// transaction returns the attempt whose transaction m's handlers use, or nil if there is
// none.
func (m *Message) transaction() *attempt {
	if !m.deps.atomic {
		return nil
	}
	if a := m.attempt(); a != nil && a.delivery != nil {
		return a
	}
	return nil
}

// attempt returns the attempt that m belongs to, or nil outside of an endpoint.
func (m *Message) attempt() *attempt {
	ctx := m.outermost().ctx
	if ctx == nil {
		return nil
	}
	a, _ := ctx.Value(attemptKey{}).(*attempt)
	return a
}

// refuseCommit lets the attempt fail: a part of its work could not be undone.
func (a *attempt) refuseCommit(err error) {
	a.message.mu.Lock()
	defer a.message.mu.Unlock()
	if a.partialUndoErr == nil {
		a.partialUndoErr = err
	}
}

// allowCommit is called after a Reset.
func (a *attempt) allowCommit() {
	a.message.mu.Lock()
	defer a.message.mu.Unlock()
	a.partialUndoErr = nil
}

// commitError returns the reason why the work of the attempt must not be committed, or
// nil.
func (a *attempt) commitError() error {
	a.message.mu.Lock()
	defer a.message.mu.Unlock()
	return a.partialUndoErr
}
