package core

import (
	"errors"
	"fmt"
)

// This file is for middleware that keeps the messages which a handler sends until they
// have left, an inbox for example: it stores what Message.Outgoing returns, hands it to a
// later attempt with Resend, and forgets it when OnSent tells that it has left.

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

// OnSent lets f be called when the messages that were collected have left: after the
// transport has accepted them and before observers are told of the success, also with
// Invoke. It is never called for an attempt, or a run of it (see Middleware), that fails,
// nor where the process ends before. f is called once, by the goroutine of the attempt,
// and must be quick; several run in the order in which they were registered. A panic is
// logged. After the handler, or the middleware, has returned it is ErrHandlingEnded.
func (m *Message) OnSent(f func()) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.endedLocked() {
		return fmt.Errorf("core: OnSent for message %s: %w", m.incoming.ID, ErrHandlingEnded)
	}
	m.addOnSentLocked(f)
	return nil
}

func (m *Message) addOnSentLocked(f func()) {
	switch before := m.onSent; {
	case f == nil:
	case before == nil:
		m.onSent = f
	default:
		m.onSent = func() {
			defer f() // also where before panics
			before()
		}
	}
}

// tellSent calls what OnSent has registered.
func (ep *Endpoint) tellSent(a *attempt) {
	if f := a.message.onSent; f != nil { // nobody writes it after end
		guarded(ep.observerPanicked, f)
	}
}
