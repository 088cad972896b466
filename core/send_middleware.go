package core

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core/headers"
)

// This file is about SendMiddleware, and about data that the engine keeps between
// composing and sending a message.

// SendFunc takes over one message that the application sends. [SendMiddleware] wraps it.
type SendFunc func(ctx context.Context, out *Outgoing) error

// SendMiddleware wraps every send of the application, of endpoints and of handlers. It runs
// inside the call, after the body was encoded. The call returns its error, and then neither
// sends nor collects a message; a panic reaches the caller. It must be safe for concurrent
// use. ctx is the handler's, or that of the call.
//
// It may change everything in the message but Reason before it passes the message to next.
// Body must be replaced, not written to. Headers that depend on other fields follow their
// changes. The limits of the transport are checked afterwards.
//
// next takes over the message, which is sent after the outermost middleware has returned
// nil. Without a call of next it is dropped. Several calls, with copies of its [Outgoing]
// that have different IDs, send several messages. Copies of a received message, as of
// [Message.Forward], and the message of [Endpoint.Invoke] do not pass it. [Message.SetBody]
// is the counterpart on the receiving side.
type SendMiddleware func(next SendFunc) SendFunc

// sendMetadata is the engine's data about a send. It is not part of the message, and
// shared by all copies of the Outgoing.
type sendMetadata struct {
	due       time.Time     // SendOptions.DeliverAt, or zero
	delay     time.Duration // that SendMiddleware got
	ttbr      time.Duration
	collector *sendCollector // nil without SendMiddleware
}

// sendCollector collects the messages of one call that reach the end of SendMiddleware.
type sendCollector struct {
	mu       sync.Mutex
	ended    bool
	messages []Outgoing
}

func (s *sendCollector) end() []Outgoing {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	return s.messages
}

// wrapSends puts middleware around the end of a send, the first outermost. Without
// middleware it returns nil.
func (c *composer) wrapSends(middleware []SendMiddleware) (chain SendFunc, err error) {
	if len(middleware) == 0 {
		return nil, nil
	}
	chain = c.collectSend
	for i, each := range slices.Backward(middleware) {
		if chain, err = applyOneToSends(each, chain); err != nil {
			return nil, fmt.Errorf("SendMiddleware[%d] %w", i, err)
		}
	}
	return chain, nil
}

// applyOneToSends returns an error for middleware that panics or returns nil.
func applyOneToSends(each SendMiddleware, next SendFunc) (wrapped SendFunc, err error) {
	defer func() {
		if value := recover(); value != nil {
			err = fmt.Errorf("panicked when it was given the next function: %w", newPanicError(value))
		}
	}()
	if wrapped = each(next); wrapped == nil {
		return nil, errors.New("returned no function")
	}
	return wrapped, nil
}

// runSendMiddleware runs SendMiddleware for a composed message and returns the messages
// that reached its end.
func (c *composer) runSendMiddleware(ctx context.Context, out Outgoing) ([]Outgoing, error) {
	if c.sendChain == nil {
		return []Outgoing{out}, nil
	}
	return c.runSendChain(ctx, out)
}

// runSendChain runs SendMiddleware. It is separate from runSendMiddleware because it
// allocates the message, whose address the middleware gets.
func (c *composer) runSendChain(ctx context.Context, out Outgoing) ([]Outgoing, error) {
	if out.metadata == nil {
		out.metadata = &sendMetadata{}
	}
	s := &sendCollector{}
	defer s.end() // also if the middleware panics
	out.metadata.delay, out.metadata.ttbr, out.metadata.collector = out.Delay, out.TimeToBeReceived, s
	if err := c.sendChain(ctx, &out); err != nil {
		return nil, err
	}
	return s.end(), nil
}

// collectSend is the end of SendMiddleware: it checks a message as compose does.
func (c *composer) collectSend(_ context.Context, given *Outgoing) error {
	switch {
	case given == nil:
		return errors.New("a SendMiddleware passed no message to next; pass the one that it was given, or a copy")
	case given.metadata == nil || given.metadata.collector == nil:
		return errors.New("a SendMiddleware passed a new Outgoing to next; pass the one that it was given, or a copy of it with other fields")
	case given.ID == "":
		return errors.New("a SendMiddleware removed the ID of the message; set another one or leave it")
	case given.Queue != "" && given.Topic != "":
		return fmt.Errorf("a SendMiddleware gave the message both queue %q and topic %q; empty one of them", given.Queue, given.Topic)
	}
	out := *given
	out.Reason = ReasonApplication
	if out.Topic == "" { // it was published, and is sent to a queue
		out.BaseTopics = nil
	}
	if err := c.checkRequest(&out); err != nil {
		return err
	}
	out.Headers.Set(headers.MessageID, out.ID)
	if out.Delay != given.metadata.delay {
		out.metadata = nil // it is not due when it was
		out.Headers.Del(headers.DeliverAt)
		if out.Delay > 0 {
			out.Headers.Set(headers.DeliverAt, headers.FormatTime(time.Now().Add(out.Delay)))
		}
	}
	if out.TimeToBeReceived != given.metadata.ttbr {
		out.Headers.Del(headers.TimeToBeReceived)
		if out.TimeToBeReceived > 0 {
			out.Headers.Set(headers.TimeToBeReceived, headers.FormatSpan(out.TimeToBeReceived))
		}
	}
	if err := c.checkSize(&out); err != nil {
		return err
	}
	s := given.metadata.collector
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return fmt.Errorf("a SendMiddleware called next for message %s after the call had returned; call it before", out.ID)
	}
	s.messages = append(s.messages, out)
	return nil
}

// recomputeDelays recomputes the delays of messages with a due time when they are sent.
func recomputeDelays(out []Outgoing) {
	for i := range out {
		if meta := out[i].metadata; meta != nil && !meta.due.IsZero() {
			out[i].Delay = max(time.Until(meta.due), 0)
		}
	}
}
