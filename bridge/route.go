package bridge

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/core/messagekit"
)

// route carries messages to one destination: a queue or a topic of the other side.
type route struct {
	*direction
	queue, topic string // one is empty
	shared       bool   // messages for other destinations are in the same queue
}

// key returns the destination as text, for errors and as a map key.
func (r *route) key() string {
	if r.topic != "" {
		return "topic " + r.topic
	}
	return "queue " + r.queue
}

// options make Endpoint.Health, and metrics made of it, include the destination as a circuit.
func (r *route) options() core.HandleOptions {
	return core.HandleOptions{Middleware: []core.Middleware{circuit{r}}}
}

// circuit is middleware that describes a route, whose handler refuses messages itself.
type circuit struct{ *route }

func (c circuit) Describe(core.MiddlewareScope) ([]core.MiddlewareFacts, error) {
	return []core.MiddlewareFacts{{
		Kind: "bridge", Name: c.key(), Refusals: []error{core.Refuse(core.ErrCircuitOpen, 0)}, State: func() string { return c.reached.state(c.key()) },
	}}, nil
}

func (circuit) Wrap(_ core.MiddlewareScope, next core.HandlerFunc) core.HandlerFunc { return next }

// handle sends a copy of the message to the other side.
func (r *route) handle(ctx context.Context, m *core.Message) error {
	if r.topic != "" && crossed(m.Headers, r.bridge) {
		return nil // the bridge published it on this side
	}
	out, err := r.copy(m)
	if err != nil {
		return err
	}
	if r.shared {
		ended, pause, err := r.reached.blocked(r.key(), m.ID)
		if err != nil {
			return r.verdict(err, pause)
		}
		defer ended()
	}
	began := time.Now()
	err = r.send(ctx, out)
	switch {
	case err == nil:
		r.reached.accepted(r.key(), began)
		return nil
	case errors.Is(ctx.Err(), context.Canceled): // a shutdown, or a lost lock
		return err
	case concernsMessage(err):
		return core.GiveUp(fmt.Errorf("bridge %q: the other side cannot take the message for %s: %w", r.bridge, r.key(), err))
	}
	return r.verdict(err, r.reached.failed(r.key(), m.ID, err, began))
}

func (r *route) send(ctx context.Context, out core.Outgoing) error {
	ctx, cancel := context.WithTimeout(ctx, r.config.SendTimeout)
	defer cancel()
	return r.to.Send(ctx, out)
}

// verdict leaves a message in its queue, or gives it up. If all messages in the queue
// have the same destination, they wait with it, in their order.
func (r *route) verdict(err error, pause time.Duration) error {
	err = fmt.Errorf("bridge %q: send to %s: %w", r.bridge, r.key(), err)
	if since, given := r.reached.givenUp(r.key()); given {
		return core.GiveUp(fmt.Errorf("%w; given up because it cannot be reached since %s (Config.GiveUpAfter)", err, since.UTC().Format(time.RFC3339)))
	}
	if !r.shared {
		return core.PutBack(err, 0)
	}
	return core.Refuse(err, pause)
}

// concernsMessage reports whether a send failed because of the message itself, so that it
// will fail each time.
func concernsMessage(err error) bool {
	return errors.Is(err, core.ErrTooLarge) || errors.Is(err, core.ErrInvalidHeader) || errors.Is(err, errors.ErrUnsupported)
}

// copy returns the message to send to the other side, or a verdict.
func (r *route) copy(m *core.Message) (core.Outgoing, error) {
	out := messagekit.Copy(m)
	out.Queue, out.Topic = r.queue, r.topic
	if trace := m.Headers.Get(headers.Attempts); trace != "" && m.Headers.Get(headers.FailedQ) != "" {
		out.Headers.Set(headers.Attempts, trace) // of a failure on this side
	}
	if err := addHop(&out.Headers, r.bridge, r.topic == ""); err != nil {
		return out, core.GiveUp(fmt.Errorf("bridge %q: %w", r.bridge, err))
	}
	r.addresses.write(&out.Headers)
	if !r.caps.TimeToBeReceived {
		out.TimeToBeReceived = 0
	}
	return out, r.setDue(&out)
}

// setDue delays a message that is not due yet. Normally the broker that delivered the
// message has already waited, but a sender that only sets the header may not have
// requested a delay. If the other side cannot delay the message, it waits on this side.
func (r *route) setDue(out *core.Outgoing) error {
	due := dueTime(out.Headers)
	remaining := time.Until(due)
	if remaining <= 0 {
		return nil
	}
	canDelay := r.caps.DelayedDelivery && (r.caps.MaxDelay == 0 || remaining <= r.caps.MaxDelay)
	if out.Queue == "" || !canDelay {
		return core.Refuse(fmt.Errorf("bridge %q: the message is not due before %s", r.bridge, due.UTC().Format(time.RFC3339)), remaining)
	}
	out.Delay = remaining
	return nil
}

// dueTime returns the time in the header, or the zero time.
func dueTime(h core.Headers) time.Time {
	due, err := headers.ParseTime(h.Get(headers.DeliverAt))
	if err != nil {
		return time.Time{}
	}
	return due
}
