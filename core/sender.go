package core

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprise-go/reprise/core/internal/calls"
	"github.com/reprise-go/reprise/core/internal/ids"
)

// sender sends messages through the transport, with observers around each call, and records
// whether the transport accepts them. The Endpoint owns it. Each goroutine that sends uses
// it: those of the application, of workers, and of timers that try again.
type sender struct {
	transport Transport
	composer  *composer
	observers *observers
	endpoint  ObservedEndpoint
	health    sendHealth
	log       *slog.Logger

	sentInHandler atomic.Bool // a message was sent with a handler's context

	unsubscribed unsubscribedEvents
}

// composeAndSend sends one message of the application, outside of handlers.
func (s *sender) composeAndSend(ctx context.Context, intent, queue string, d *Draft) error {
	if m, ok := MessageFromContext(ctx); ok && m.deps.composer == s.composer && !s.sentInHandler.Swap(true) {
		s.log.WarnContext(ctx, "Endpoint.Send or Publish was called with a handler's context: the message leaves at each attempt, even if the handler fails; "+
			"use Message.Send, or Message.SendNow where that is meant (this is logged once)", "message_id", m.ID, "message_type", m.Type, "sent_type", d.messageType)
	}
	composed, err := s.composer.compose(intent, queue, d, causation{}, ids.New)
	var out []Outgoing
	if err == nil {
		out, err = s.composer.runSendMiddleware(ctx, composed)
	}
	if err == nil && len(out) > 0 {
		err = s.send(ctx, out...)
	}
	if err != nil {
		return fmt.Errorf("core: endpoint %q: %s %q: %w", s.endpoint.Endpoint, sendVerb(intent), d.messageType, err)
	}
	return nil
}

// send sends messages that are not sent together with a settlement.
func (s *sender) send(ctx context.Context, out ...Outgoing) error {
	return s.observe(ctx, out, func(ctx context.Context) error {
		err := s.transport.Send(ctx, out...)
		s.health.record(ctx, err)
		return err
	})
}

// observe calls send, which sends out, with the observers around it if there is a message.
func (s *sender) observe(ctx context.Context, out []Outgoing, send func(ctx context.Context) error) error {
	recomputeDelays(out)
	ctx = s.unsubscribed.context(ctx, out)
	if len(s.observers.send) == 0 || len(out) == 0 {
		return send(ctx)
	}
	ctx = s.observers.sendStart(ctx, Sending{ObservedEndpoint: s.endpoint, Messages: out})
	start := time.Now()
	err := send(ctx)
	s.observers.sendEnd(ctx, Sending{s.endpoint, out, err, time.Since(start)})
	return err
}

// notifyConnectionChange notifies the observers of a send-only endpoint when its sends begin
// to fail, or are accepted again.
func (s *sender) notifyConnectionChange(e ConnectionChange) {
	e.ObservedEndpoint = s.endpoint
	for _, o := range s.observers.connection {
		calls.Recover(s.observers.onPanic, func() { o.ConnectionChanged(e) })
	}
}

// sendHealth records whether the newest Send of a transport was accepted, for Health. A
// Send that succeeds after a successful one costs two atomic loads.
type sendHealth struct {
	accepted atomic.Bool // whether a Send was ever accepted
	failing  atomic.Pointer[sendOutage]

	// notify notifies the observers of a send-only endpoint. It is nil on other endpoints,
	// whose receivers report their connection, and without observers.
	notify    func(ConnectionChange)
	mu        sync.Mutex
	notifying bool
	notified  *sendOutage // the outage that they know of
}

// sendOutage is a period in which every Send has failed.
type sendOutage struct {
	since time.Time
	err   error // of the newest
}

// record records the result of a Send.
func (h *sendHealth) record(ctx context.Context, err error) {
	switch {
	case err == nil:
		if h.failing.Load() != nil {
			h.failing.Store(nil)
			h.changed()
		}
		if !h.accepted.Load() {
			h.accepted.Store(true)
		}
	case !errors.Is(ctx.Err(), context.Canceled) && !concernsMessage(err):
		for { // other Sends may have failed at the same time
			before := h.failing.Load()
			now := sendOutage{since: time.Now(), err: err}
			if before != nil {
				now.since = before.since
			}
			if h.failing.CompareAndSwap(before, &now) {
				break
			}
		}
		h.changed()
	}
}

// changed starts a goroutine that notifies observers of the beginning or the end of an
// outage, so that they do not delay a Send, and may send themselves.
func (h *sendHealth) changed() {
	if h.notify == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.notifying && h.hasChangeLocked() {
		h.notifying = true
		go h.notifyAll()
	}
}

func (h *sendHealth) hasChangeLocked() bool { return (h.failing.Load() == nil) != (h.notified == nil) }

// notifyAll notifies observers until they know the newest state. Outages that begin and
// end while they are busy are left out. If an observer ends the goroutine
// (runtime.Goexit), another goroutine continues.
func (h *sendHealth) notifyAll() {
	finished := false
	defer func() {
		if !finished {
			go h.notifyAll()
		}
	}()
	for {
		change, ok := h.next()
		if !ok {
			break
		}
		h.notify(change)
	}
	finished = true
}

// next returns the change that observers do not know yet, if there is one.
func (h *sendHealth) next() (change ConnectionChange, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.hasChangeLocked() {
		h.notifying = false
		return change, false
	}
	before := h.notified
	if h.notified = h.failing.Load(); h.notified == nil {
		return ConnectionChange{Connected: true, Since: before.since}, true
	}
	return ConnectionChange{Err: h.notified.err, Since: h.notified.since}, true
}

// state returns the current failures of Sends, or nil, and whether the newest was
// accepted: nil and false before the first.
func (h *sendHealth) state() (failing *sendOutage, accepted bool) {
	failing = h.failing.Load()
	return failing, h.accepted.Load() && failing == nil
}

// concernsMessage reports whether a Send failed because of its messages and their
// destinations, which says nothing about the broker. Of several messages all that failed
// must have such a reason.
func concernsMessage(err error) bool {
	if several, ok := errors.AsType[*SendError](err); ok {
		for _, r := range several.Results {
			if r.State != SendAccepted && !concernsMessage(r.Err) {
				return false
			}
		}
		return true
	}
	return matchesAny(err, permanentErrors) || errors.Is(err, ErrMessageRefused)
}
