package conformance

import (
	"context"

	"github.com/reprise-go/reprise/core"
)

// interfering is the transport under test with faults of the suite's own, which
// stand for those that a broker or a network has at the worst moment. What is
// not interfered with is the transport's own, its deliveries' abilities too; of
// the transport's optional interfaces it has none. Its queues are made before,
// with the transport itself.
type interfering struct {
	core.Transport
	// send is asked for every Send, CompleteWith and ReplaceWith that sends
	// something: next does it. It may be called by several goroutines at once,
	// as all of these.
	send func(ctx context.Context, out []core.Outgoing, next func(context.Context) error) error
	// complete is called instead of a delivery's Complete.
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

// interferingDelivery passes on what is not interfered with.
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
