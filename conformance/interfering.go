package conformance

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/reprise-go/reprise/core"
)

// interfering is the transport under test with faults that the suite injects, in place of
// faults that a broker or a network has at the worst moment. All other calls go to the
// transport, and its deliveries keep their abilities, but it has none of the transport's
// optional interfaces. Its queues have to be created before, with the transport itself.
type interfering struct {
	core.Transport
	// send is called for every Send, and for every CompleteWith and ReplaceWith that
	// sends a message; next makes the call. All these functions may be called from
	// several goroutines at once.
	send func(ctx context.Context, out []core.Outgoing, next func(context.Context) error) error
	// complete is called in place of a delivery's Complete.
	complete func(ctx context.Context, d core.Delivery) error
}

func (i *interfering) Send(ctx context.Context, out ...core.Outgoing) error {
	return i.sending(ctx, out, func(ctx context.Context) error { return i.Transport.Send(ctx, out...) })
}

func (i *interfering) sending(ctx context.Context, out []core.Outgoing, next func(context.Context) error) error {
	if i.send == nil || len(out) == 0 {
		return next(ctx)
	}
	return i.send(ctx, out, next)
}

func (i *interfering) OpenReceiver(ctx context.Context, cfg core.ReceiverConfig) (core.Receiver, error) {
	r, err := i.Transport.OpenReceiver(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return &interferingReceiver{r, i}, nil
}

type interferingReceiver struct {
	core.Receiver
	by *interfering
}

func (r *interferingReceiver) Receive(ctx context.Context, dst []core.Delivery) (int, error) {
	n, err := r.Receiver.Receive(ctx, dst)
	for i, d := range dst[:max(n, 0)] {
		dst[i] = &interferingDelivery{d, r.by}
	}
	return n, err
}

// interferingDelivery passes other calls on to the delivery.
type interferingDelivery struct {
	core.Delivery
	by *interfering
}

func (d *interferingDelivery) Complete(ctx context.Context) error {
	if d.by.complete == nil {
		return d.Delivery.Complete(ctx)
	}
	return d.by.complete(ctx, d.Delivery)
}

func (d *interferingDelivery) CompleteWith(ctx context.Context, out []core.Outgoing) error {
	return d.by.sending(ctx, out, func(ctx context.Context) error { return d.Delivery.CompleteWith(ctx, out) })
}

func (d *interferingDelivery) ReplaceWith(ctx context.Context, out []core.Outgoing) error {
	return d.by.sending(ctx, out, func(ctx context.Context) error { return d.Delivery.ReplaceWith(ctx, out) })
}

var errInterfered = errors.New("the connection was reset, as the case wants it")

// refusing fails the first n sends of messages that pass the filter.
func refusing(transport core.Transport, n int64, filter func(o core.Outgoing) bool) *interfering {
	var left atomic.Int64
	left.Store(n)
	return &interfering{Transport: transport, send: func(ctx context.Context, out []core.Outgoing, next func(context.Context) error) error {
		for _, o := range out {
			if filter(o) && left.Add(-1) >= 0 {
				failed := &core.SendError{}
				for _, o := range out {
					failed.Results = append(failed.Results, core.SendResult{ID: o.ID, To: o.Queue, State: core.SendUnknown, Err: errInterfered})
				}
				return failed
			}
		}
		return next(ctx)
	}}
}
