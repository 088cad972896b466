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
		dst[i] = r.by.deliver(d)
	}
	return n, err
}

// interferingDelivery and interferingSends are what a delivery is made of:
// every delivery is the one, an AtomicDelivery both.
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

type interferingSends struct {
	sound core.AtomicDelivery
	by    *interfering
}

func (s interferingSends) BindContext(ctx context.Context) context.Context {
	return s.sound.BindContext(ctx)
}

func (s interferingSends) Reset(ctx context.Context) error { return s.sound.Reset(ctx) }

func (s interferingSends) CompleteWith(ctx context.Context, out []core.Outgoing) error {
	return s.by.sending(ctx, out, func(ctx context.Context) error { return s.sound.CompleteWith(ctx, out) })
}

func (s interferingSends) ReplaceWith(ctx context.Context, out []core.Outgoing) error {
	return s.by.sending(ctx, out, func(ctx context.Context) error { return s.sound.ReplaceWith(ctx, out) })
}

// deliver wraps a delivery, with the optional interfaces that it has.
func (i *interfering) deliver(sound core.Delivery) core.Delivery {
	type (
		sends   = interferingSends
		renewer = core.Renewer
		letter  = core.DeadLetterer
	)
	d := &interferingDelivery{sound, i}
	atomic, isAtomic := sound.(core.AtomicDelivery)
	r, renews := sound.(core.Renewer)
	l, buries := sound.(core.DeadLetterer)
	s := sends{atomic, i}
	switch {
	case isAtomic && renews && buries:
		return struct {
			*interferingDelivery
			sends
			renewer
			letter
		}{d, s, r, l}
	case isAtomic && renews:
		return struct {
			*interferingDelivery
			sends
			renewer
		}{d, s, r}
	case isAtomic && buries:
		return struct {
			*interferingDelivery
			sends
			letter
		}{d, s, l}
	case renews && buries:
		return struct {
			*interferingDelivery
			renewer
			letter
		}{d, r, l}
	case isAtomic:
		return struct {
			*interferingDelivery
			sends
		}{d, s}
	case renews:
		return struct {
			*interferingDelivery
			renewer
		}{d, r}
	case buries:
		return struct {
			*interferingDelivery
			letter
		}{d, l}
	default:
		return d
	}
}
