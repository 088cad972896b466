package core

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
)

// This file is for middleware that keeps the messages which a handler sends until they
// have left, an inbox for example: it stores those that Message.Outgoing returns, says so
// with Commit, hands them to a later attempt with Resend, and forgets them when Commit tells
// that they have left.

// Resend collects messages that an earlier attempt at this message had collected
// (Outgoing) and that may not have left: with the ids, headers and bodies that they have,
// and without SendMiddleware, which has run for them. Of SendOptions.DeliverAt they know
// nothing: Delay and TimeToBeReceived count from now. An error, as for a message without an
// ID or with neither or both of Queue and Topic, means that none of them was collected.
// The message takes over the bodies.
func (m *Message) Resend(out ...Outgoing) error {
	fail := func(err error) error {
		return fmt.Errorf("core: resend %d messages while handling message %s: %w", len(out), m.incoming.ID, err)
	}
	for i := range out {
		if err := m.env.composer.checkStored(&out[i]); err != nil {
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

// checkStored refuses what no Outgoing was, or what the transport can no longer do.
func (c *composer) checkStored(out *Outgoing) error {
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

// SetDuplicate says that the message was handled before, for middleware that does not run
// the handlers again: observers are told so (HandleEnd.Duplicate, Success.Duplicate), unless
// handlers have run in this attempt.
func (m *Message) SetDuplicate() {
	outermost := m.outermost()
	outermost.mu.Lock()
	defer outermost.mu.Unlock()
	outermost.duplicate = true
}

func (m *Message) isDuplicate() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.duplicate && !m.chosen
}

// Commit says that messages which m has collected (Outgoing, or Resend) are committed:
// middleware has stored them together with the work of their handler. They leave whatever
// becomes of the attempt: also where a later handler fails, a Fallback answers, or the
// message is discarded, moved or taken over. Where they cannot be sent, a message that is to
// be discarded is kept until they can, and one that is taken over goes to the error queue, as
// does one whose sends are refused for good. From there an operator returns it, and the
// middleware can send them again. A message that is given back, for an immediate retry for
// example, leaves them to the middleware, too; before a delayed retry they are tried once.
// In all these cases they leave before the message is consumed, and not as one with that:
// a crash between the two sends them once more.
//
// sent, if it is not nil, is called when these messages, and all others that leave with them,
// have been accepted by the transport, by the goroutine of the attempt, and before observers
// are told of its success. It must be quick; several are called in the order of the calls of
// Commit. It is not called where the process ends before. A panic is logged.
//
// Messages that were committed in the attempt before, by an earlier run (see Middleware), are
// known by ID, queue and topic, and leave once. An error, as of Resend, means that nothing
// was noted. After the handler, or the middleware, has returned it is ErrHandlingEnded. With
// Invoke they leave also where it returns an error.
func (m *Message) Commit(out []Outgoing, sent func()) error {
	fail := func(err error) error {
		return fmt.Errorf("core: commit %d messages while handling message %s: %w", len(out), m.incoming.ID, err)
	}
	for i := range out {
		if err := m.env.composer.checkStored(&out[i]); err != nil {
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
		outermost.committed = &committed{}
	}
	c := outermost.committed
	c.out = c.missing(slices.Clone(c.out), out)
	if sent != nil {
		c.sent = append(c.sent, sent)
	}
	return nil
}

// committed is the messages that leave whatever becomes of an attempt.
type committed struct {
	out  []Outgoing
	sent []func() // called when they have left
}

// missing returns out with those of more that it does not have.
func (*committed) missing(out, more []Outgoing) []Outgoing {
	for i := range more {
		same := func(o Outgoing) bool {
			return o.ID == more[i].ID && o.Queue == more[i].Queue && o.Topic == more[i].Topic
		}
		if !slices.ContainsFunc(out, same) {
			out = append(out, more[i])
		}
	}
	return out
}

// with returns the messages that leave with a success that collected out.
func (c *committed) with(out []Outgoing) []Outgoing {
	if c == nil {
		return out
	}
	return c.missing(out, c.out)
}

// tell calls the functions of Commit. c may be nil.
func (c *committed) tell(panicked func(any)) {
	if c == nil {
		return
	}
	for _, f := range c.sent {
		guarded(panicked, f)
	}
}

// bytes is how much memory the messages take. c may be nil.
func (c *committed) bytes() int {
	size := 0
	if c != nil {
		for i := range c.out {
			size += len(c.out[i].Body) + c.out[i].Headers.Bytes()
		}
	}
	return size
}

// committedOut returns the messages that are to leave, or nil.
func (m *Message) committedOut() *committed {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.committed
}

// sendCommitted sends the messages that leave although the attempt failed.
func (r *runner) sendCommitted(a *attempt, d *decision) error {
	c := d.committed
	if c == nil {
		return nil
	}
	if r.lockLost(a) { // another delivery sends them
		return ErrLockLost
	}
	id := a.delivery.Incoming().ID
	if out := r.ep.memory.withoutAccepted(id, c.out); len(out) > 0 {
		if err := r.ep.transportSend(a.settling(r), out); err != nil {
			r.ep.memory.rememberAccepted(id, out, err)
			return failedSend(err, out)
		}
	}
	d.committed = nil
	c.tell(r.ep.observerPanicked)
	return nil
}

// discard consumes the message once its committed messages have left. Where they are
// refused for good it is moved to the error queue, with which they are not lost.
func (r *runner) discard(a *attempt, f *failure, d *decision) error {
	err := r.sendCommitted(a, d)
	switch {
	case err == nil:
		return r.replace(a, nil)
	case !errors.Is(err, ErrSendRefused):
		return err
	}
	d.fallback = fmt.Sprintf("%v was asked for, but messages that a handler has committed cannot be sent: %v", d.action, err)
	d.action = MoveToError(r.ep.rules.configFor(f.MessageType).Failed.ErrorQueue)
	d.verdict = false
	f.Err = err
	r.ep.log.logReasons(a.deciding(), f, d)
	return r.moveOrStore(a, f, d)
}

// sendCommittedBeforeMove sends what can be sent: the moved message still stands for the rest.
func (r *runner) sendCommittedBeforeMove(a *attempt, f *failure, d *decision) {
	err := r.sendCommitted(a, d)
	if err == nil || hasEnded(err) {
		return
	}
	r.ep.log.about(a.deciding(), r.ep.log.moved, slog.LevelWarn, f, []slog.Attr{slog.Any("send_error", err)},
		"messages that a handler has committed could not be sent before the message is moved; they are sent when it is returned to its queue",
		"Messages that a handler of message '%s' has committed could not be sent; they are sent when it is returned to its queue.", f.MessageID)
}
