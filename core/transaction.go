package core

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
func (m *Message) Resend(out ...Outgoing) error { return m.sends.resend(out) }

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
func (m *Message) Commit(out []Outgoing, sent func()) error { return m.sends.commit(out, sent) }
