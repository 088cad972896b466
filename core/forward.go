package core

import (
	"context"
	"errors"
	"fmt"
)

// Forward collects a copy of the message for another queue: the message id, the body, all
// headers, group key and properties as they were received, without changes by middleware,
// and without [SendMiddleware]. Only the headers of its retries here are left out, and
// those with which an operator's tool waits for this endpoint's answer; the reply address
// is still that of the first sender. Like the messages of [Message.Send], the copy is
// sent when all handlers have succeeded. An empty queue, and a message that has no room
// for failure headers ([ErrTooLarge]), are errors.
func (m *Message) Forward(queue string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	out, err := m.forwardLocked(queue)
	if err != nil {
		return err
	}
	m.outgoing = append(m.outgoing, out)
	return nil
}

// ForwardNow forwards the message at once, as [Message.SendNow] does: the copy is sent
// even if the handler fails, and once more at every attempt.
func (m *Message) ForwardNow(ctx context.Context, queue string) error {
	m.mu.Lock()
	out, err := m.forwardLocked(queue)
	m.mu.Unlock()
	if err != nil {
		return err
	}
	return m.deps.send(ctx, out)
}

func (m *Message) forwardLocked(queue string) (Outgoing, error) {
	out := m.Copy()
	out.Queue = queue
	err := m.deps.composer.checkSize(&out)
	switch {
	case m.endedLocked():
		err = ErrHandlingEnded
	case queue == "":
		err = errors.New("no destination queue was given")
	}
	if err != nil {
		return Outgoing{}, fmt.Errorf("core: forward message %s to %q: %w", m.incoming.ID, queue, err)
	}
	return out, nil
}

// Copy returns the copy of the message that [Message.Forward] collects, without a
// destination: for code that sends it through another transport, as package bridge does.
// It shares the body and Properties with the message, so neither must be written to. It
// does not have the time to be received.
func (m *Message) Copy() Outgoing {
	in := m.incoming
	out := in.copyTo("", in.Headers, ReasonForward)
	in.writeID(&out.Headers)
	out.Headers.Del(HeaderAttempts, HeaderUndelivered, HeaderTimeToBeReceived, HeaderRetryUniqueMessageID, HeaderRetryAckQueue, HeaderRetryAckSent)
	out.Headers.Del(retryHeaders...)
	return out
}
