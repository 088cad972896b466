package core

import (
	"errors"
	"fmt"
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
// sent regardless of the attempt's outcome: also if a later handler fails, a fallback
// answers, or the message is discarded, moved or taken over. If they cannot be sent, a
// message that is to be discarded is kept until they can, and a message that is taken
// over goes to the error queue, as does a message whose sends are refused permanently. A
// message that was to be discarded is then moved with the reason [headers.FailureCommitRefused], in
// [TransactionNone] after the first failed try. An operator can return it from there, and
// the middleware can send them again. If the message is given back, for an immediate retry for example, the middleware has to send
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
