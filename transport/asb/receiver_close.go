package asb

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
)

// Close implements core.Receiver. It closes the links first, since the service could send
// released messages to them again.
func (r *receiver) Close(ctx context.Context) error {
	r.mu.Lock()
	first := !r.closed
	r.closed = true
	r.mu.Unlock()
	if !first {
		select {
		case <-r.closedDone:
		case <-ctx.Done():
		}
		return nil
	}
	defer context.AfterFunc(ctx, r.abandon)()
	done := make(chan error, 1)
	go func() { done <- r.end(ctx) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	// The calls of the SDK end now. A call from which it does not return is given up after
	// half of closeGrace; another one may follow.
	select {
	case err := <-done:
		return err
	case <-time.After(closeGrace):
		return fmt.Errorf("asb: close the receiver of %q: the SDK does not return from its calls; the connection is closed later: %w", r.address, ctx.Err())
	}
}

// end releases all messages and closes the connection.
func (r *receiver) end(ctx context.Context) error {
	defer close(r.closedDone)
	r.close()
	r.pollers.Wait()
	transport.Await(ctx, &r.settlements) // messages that are not consumed are released afterwards
	r.mu.Lock()
	left := slices.Collect(maps.Keys(r.unsettled))
	r.unsettled, r.arrived = map[*delivery]struct{}{}, nil
	r.mu.Unlock()
	if r.mode == core.TransactionNone {
		r.resend(ctx, left)
	} else {
		r.releaseAll(ctx, left)
	}
	err := r.disconnect(ctx)
	r.abandon()
	r.t.life.Remove(r)
	return err
}

// resend sends the messages that the service has forgotten, and that no Receive has
// returned, to the queue again.
func (r *receiver) resend(ctx context.Context, left []*delivery) {
	name, sub := r.t.cfg.names().Source(r.address)
	if sub != 0 {
		return // messages cannot be sent to a dead-letter queue
	}
	reopened := &stream{to: destination{entity: name}}
	for i, d := range left {
		reopened.messages = append(reopened.messages, pendingSend{i, r.t.codec.Resent(&d.in, d.message)})
	}
	r.t.sendStream(ctx, reopened, nil, make([]error, len(left)))
}

// disconnect closes the connection.
func (r *receiver) disconnect(ctx context.Context) error {
	r.control.close(ctx)
	r.mu.Lock()
	r.ended = true
	c := r.client
	r.mu.Unlock()
	if err := c.Close(ctx); err != nil {
		return fmt.Errorf("asb: close the receiver of %q: %w", r.address, err)
	}
	return nil
}
