package core

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// This file is about SendMiddleware, and about data that the engine keeps between
// composing and sending a message.

// SendFunc takes over one message that the application sends. SendMiddleware wraps it.
type SendFunc func(ctx context.Context, out *Outgoing) error

// SendMiddleware wraps every send of the application: Send and Publish of an endpoint;
// Send, Publish, Reply, SendNow and PublishNow of a handler, of Middleware and of
// HandleFailed. It runs once for each such call, inside it, after the body was encoded
// and before the message is transmitted. The call returns its error, and then neither
// sends nor collects a message; a panic reaches the caller.
//
// It may change everything in the message but Reason before it passes the message to
// next: the body, for encryption, compression or a claim check, headers, the destination,
// ID, Delay, TimeToBeReceived, GroupKey and Properties. Body must be replaced, not
// written to. Headers that depend on other fields (NServiceBus.MessageId, DeliverAt,
// TimeToBeReceived) follow their changes. The limits of the transport are checked
// afterwards, so that a claim check accepts a body of any size.
//
// next only takes over the message: it is sent after the outermost middleware has
// returned nil, in a handler after all handlers have succeeded. Observer.SendStart is
// called then. Middleware that returns nil without a call of next drops the message. To
// send several messages it calls next several times, with copies of its Outgoing that
// have different IDs.
//
// ctx is the handler's, from which MessageFromContext returns the message being handled,
// or that of the call if it has one. The middleware must be safe for concurrent use.
//
// It does not run for copies of a received message: delayed retries, deferrals, moves to
// error queues, audit copies, acknowledgements, Forward. These have the received content.
// It does not run for the message of Invoke either, which is not sent. Middleware with
// [Message.SetBody] is the counterpart on the receiving side.
type SendMiddleware func(next SendFunc) SendFunc

// sendOrigin is the engine's data about a send. It is not part of the message, and shared
// by all copies of the Outgoing.
type sendOrigin struct {
	due   time.Time     // SendOptions.DeliverAt, or zero
	body  []byte        // the body that SendMiddleware got; nil without SendMiddleware
	delay time.Duration // likewise
	ttbr  time.Duration
	next  *handover // nil without SendMiddleware
}

// handover collects the messages of one call that reach the end of SendMiddleware.
type handover struct {
	mu    sync.Mutex
	ended bool
	out   []Outgoing
}

func (h *handover) end() []Outgoing {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
	return h.out
}

// wrapSends puts middleware around the end of a send, the first outermost. Without
// middleware it returns nil.
func (c *composer) wrapSends(middleware []SendMiddleware) (chain SendFunc, err error) {
	if len(middleware) == 0 {
		return nil, nil
	}
	chain = c.takeOver
	for i, each := range slices.Backward(middleware) {
		if chain, err = applyToSends(each, chain); err != nil {
			return nil, fmt.Errorf("SendMiddleware[%d] %w", i, err)
		}
	}
	return chain, nil
}

// applyToSends returns an error for middleware that panics or returns nil.
func applyToSends(each SendMiddleware, next SendFunc) (wrapped SendFunc, err error) {
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

// handOver runs SendMiddleware for a composed message and returns the messages that
// reached its end.
func (c *composer) handOver(ctx context.Context, out Outgoing) ([]Outgoing, error) {
	if c.through == nil {
		return []Outgoing{out}, nil
	}
	return c.passThrough(ctx, out)
}

// passThrough runs SendMiddleware. It is separate from handOver because it allocates the
// message, whose address the middleware gets.
func (c *composer) passThrough(ctx context.Context, out Outgoing) ([]Outgoing, error) {
	if out.origin == nil {
		out.origin = &sendOrigin{}
	}
	h := &handover{}
	defer h.end() // also if the middleware panics
	out.origin.body, out.origin.delay, out.origin.ttbr, out.origin.next = out.Body, out.Delay, out.TimeToBeReceived, h
	if err := c.through(ctx, &out); err != nil {
		return nil, err
	}
	return h.end(), nil
}

// takeOver is the end of SendMiddleware: it checks a message as compose does.
func (c *composer) takeOver(_ context.Context, given *Outgoing) error {
	switch {
	case given == nil:
		return errors.New("a SendMiddleware passed no message to next; pass the one that it was given, or a copy")
	case given.origin == nil || given.origin.next == nil:
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
	out.Headers.Set(HeaderMessageID, out.ID)
	if origin := out.origin; out.Delay != origin.delay {
		out.origin = &sendOrigin{body: origin.body} // it is not due when it was
		out.Headers.Del(HeaderDeliverAt)
		if out.Delay > 0 {
			out.Headers.Set(HeaderDeliverAt, FormatTime(time.Now().Add(out.Delay)))
		}
	}
	if out.TimeToBeReceived != given.origin.ttbr {
		out.Headers.Del(HeaderTimeToBeReceived)
		if out.TimeToBeReceived > 0 {
			out.Headers.Set(HeaderTimeToBeReceived, formatTimeSpan(out.TimeToBeReceived))
		}
	}
	if err := c.checkSize(&out); err != nil {
		return err
	}
	h := given.origin.next
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended {
		return fmt.Errorf("a SendMiddleware called next for message %s after the call had returned; call it before", out.ID)
	}
	h.out = append(h.out, out)
	return nil
}

// keepDue recomputes the delays of messages with a due time when they are sent.
func keepDue(out []Outgoing) {
	for i := range out {
		if origin := out[i].origin; origin != nil && !origin.due.IsZero() {
			out[i].Delay = max(time.Until(origin.due), 0)
		}
	}
}
