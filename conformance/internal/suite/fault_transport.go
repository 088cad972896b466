package suite

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/reprise-go/reprise/core"
)

// faultTransport is the transport under test with faults that the suite injects, in
// place of faults that a broker or a network has at the worst moment. All other calls go
// to the transport, and its deliveries keep their abilities, but it has none of the
// transport's optional interfaces. Its queues have to be created before, with the
// transport itself.
type faultTransport struct {
	core.Transport
	// send is called for every Send, and for every CompleteWith and ReplaceWith that
	// sends a message; next makes the call. All these functions may be called from
	// several goroutines at once.
	send func(ctx context.Context, out []core.Outgoing, next func(context.Context) error) error
	// complete is called in place of a delivery's Complete.
	complete func(ctx context.Context, d core.Delivery) error
}

func (f *faultTransport) Send(ctx context.Context, out ...core.Outgoing) error {
	return f.intercept(ctx, out, func(ctx context.Context) error { return f.Transport.Send(ctx, out...) })
}

func (f *faultTransport) intercept(ctx context.Context, out []core.Outgoing, next func(context.Context) error) error {
	if f.send == nil || len(out) == 0 {
		return next(ctx)
	}
	return f.send(ctx, out, next)
}

func (f *faultTransport) OpenReceiver(ctx context.Context, cfg core.ReceiverConfig) (core.Receiver, error) {
	r, err := f.Transport.OpenReceiver(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return &faultReceiver{r, f}, nil
}

type faultReceiver struct {
	core.Receiver
	faults *faultTransport
}

func (r *faultReceiver) Receive(ctx context.Context, dst []core.Delivery) (int, error) {
	n, err := r.Receiver.Receive(ctx, dst)
	for i, d := range dst[:max(n, 0)] {
		dst[i] = &faultDelivery{d, r.faults}
	}
	return n, err
}

// faultDelivery passes other calls on to the delivery.
type faultDelivery struct {
	core.Delivery
	faults *faultTransport
}

func (d *faultDelivery) Complete(ctx context.Context) error {
	if d.faults.complete == nil {
		return d.Delivery.Complete(ctx)
	}
	return d.faults.complete(ctx, d.Delivery)
}

func (d *faultDelivery) CompleteWith(ctx context.Context, out []core.Outgoing) error {
	return d.faults.intercept(ctx, out, func(ctx context.Context) error { return d.Delivery.CompleteWith(ctx, out) })
}

func (d *faultDelivery) ReplaceWith(ctx context.Context, out []core.Outgoing) error {
	return d.faults.intercept(ctx, out, func(ctx context.Context) error { return d.Delivery.ReplaceWith(ctx, out) })
}

var errInjected = errors.New("the connection was reset, as the case wants it")

// refusingTransport fails the first n sends of messages that pass the filter.
func refusingTransport(transport core.Transport, n int64, filter func(o core.Outgoing) bool) *faultTransport {
	var left atomic.Int64
	left.Store(n)
	return &faultTransport{Transport: transport, send: func(ctx context.Context, out []core.Outgoing, next func(context.Context) error) error {
		for _, o := range out {
			if filter(o) && left.Add(-1) >= 0 {
				failed := &core.SendError{}
				for _, o := range out {
					failed.Results = append(failed.Results, core.SendResult{ID: o.ID, To: o.Queue, State: core.SendUnknown, Err: errInjected})
				}
				return failed
			}
		}
		return next(ctx)
	}}
}
