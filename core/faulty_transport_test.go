package core_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// faultyTransport is the in-memory transport with faults on request, and a record of
// what the engine asked of it. Its deliveries also have a native transaction,
// in which handlers can do work that commits or rolls back with the message.
type faultyTransport struct {
	*inmemory.Transport
	caps core.Capabilities

	settled      recorder[string]   // "Abandon m1": the operations that succeeded
	attempted    recorder[string]   // the same, and those that failed
	inFlight     recorder[int]      // MaxInFlight as it was set
	receiveBytes recorder[int]      // MaxReceiveBytes of each receiver
	opened       recorder[string]   // queues that receivers were opened for
	sent         recorder[[]string] // the queues or topics of every successful send
	committed    recorder[string]   // work of native transactions

	receivers recorder[core.ReceiverConfig] // that were opened
	closed    atomic.Int64                  // receivers that were

	mu      sync.Mutex
	faults  faults
	renewed int
}

// faults are asked before the real call; an error means that it is not made.
// nil is none.
type faults struct {
	// send is asked by Send, CompleteWith and ReplaceWith.
	send func(out []core.Outgoing) error
	// settle is asked by every settlement, Reset and Renew, by its name.
	settle func(operation string, in *core.Incoming) error
	// afterSettle is asked after a settlement that succeeded: a reply that was lost.
	afterSettle func(operation string, in *core.Incoming) error
	// receive may answer instead of Receive.
	receive func(ctx context.Context) (replaced bool, n int, err error)
	// receiveFrom is asked by Receive for its queue.
	receiveFrom func(queue string) error
	// onReceive may change received messages.
	onReceive func(in *core.Incoming)
	// lockedUntil may answer for LockedUntil; the zero time leaves it the real one.
	lockedUntil func(in *core.Incoming) time.Time
	// open is asked by OpenReceiver.
	open func(ctx context.Context) error
}

// reportConnection tells of a change as the newest receiver does.
func (f *faultyTransport) reportConnection(e core.ConnectionChange) {
	all := f.receivers.all()
	all[len(all)-1].ConnectionChanged(e)
}

// setFaults replaces the faults.
func (f *faultyTransport) setFaults(faults faults) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = faults
}

func (f *faultyTransport) currentFaults() faults {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.faults
}

func (f *faultyTransport) Capabilities() core.Capabilities { return f.caps }

func (f *faultyTransport) Send(ctx context.Context, out ...core.Outgoing) error {
	return f.sendWithFaults(out, func() error { return f.Transport.Send(ctx, out...) })
}

func (f *faultyTransport) sendWithFaults(out []core.Outgoing, send func() error) error {
	if len(out) == 0 {
		return send()
	}
	if fault := f.currentFaults().send; fault != nil {
		if err := fault(out); err != nil {
			return err
		}
	}
	if err := send(); err != nil {
		return err
	}
	var to []string
	for _, o := range out {
		to = append(to, o.Queue+o.Topic)
	}
	f.sent.add(to)
	return nil
}

func (f *faultyTransport) OpenReceiver(ctx context.Context, cfg core.ReceiverConfig) (core.Receiver, error) {
	if fault := f.currentFaults().open; fault != nil {
		if err := fault(ctx); err != nil {
			return nil, err
		}
	}
	r, err := f.Transport.OpenReceiver(ctx, cfg)
	if err != nil {
		return nil, err
	}
	f.opened.add(cfg.Queue)
	f.receivers.add(cfg)
	f.inFlight.add(cfg.MaxInFlight)
	f.receiveBytes.add(cfg.MaxReceiveBytes)
	return &faultyReceiver{r, f, cfg.Queue}, nil
}

type faultyReceiver struct {
	core.Receiver
	broker *faultyTransport
	queue  string
}

func (r *faultyReceiver) Close(ctx context.Context) error {
	r.broker.closed.Add(1)
	return r.Receiver.Close(ctx)
}

func (r *faultyReceiver) SetMaxInFlight(n int) {
	r.broker.inFlight.add(n)
	r.Receiver.SetMaxInFlight(n)
}

func (r *faultyReceiver) Receive(ctx context.Context, dst []core.Delivery) (int, error) {
	if fault := r.broker.currentFaults().receive; fault != nil {
		if replaced, n, err := fault(ctx); replaced {
			return n, err
		}
	}
	if fault := r.broker.currentFaults().receiveFrom; fault != nil {
		if err := fault(r.queue); err != nil {
			return 0, err
		}
	}
	n, err := r.Receiver.Receive(ctx, dst)
	for i, d := range dst[:n] {
		f := &faultyDelivery{Delivery: d, broker: r.broker, in: *d.Incoming()}
		if change := r.broker.currentFaults().onReceive; change != nil {
			change(&f.in)
		}
		dst[i] = f
	}
	return n, err
}

// faultyDelivery has a native transaction: a list of the work done in it.
type faultyDelivery struct {
	core.Delivery
	broker *faultyTransport
	in     core.Incoming

	mu   sync.Mutex
	work []string
}

func (d *faultyDelivery) Incoming() *core.Incoming { return &d.in }

func (d *faultyDelivery) Complete(ctx context.Context) error {
	return d.settle("Complete", func() error { return d.Delivery.Complete(ctx) })
}

func (d *faultyDelivery) Abandon(ctx context.Context, cause error) error {
	return d.settle("Abandon", func() error { return d.Delivery.Abandon(ctx, cause) })
}

func (d *faultyDelivery) Release(ctx context.Context) error {
	return d.settle("Release", func() error { return d.Delivery.Release(ctx) })
}

func (d *faultyDelivery) Postpone(ctx context.Context, delay time.Duration, cause error) error {
	return d.settle("Postpone", func() error { return d.Delivery.Postpone(ctx, delay, cause) })
}

func (d *faultyDelivery) DeadLetter(ctx context.Context, letter core.DeadLetter) error {
	return d.settle("DeadLetter", func() error {
		return d.Delivery.DeadLetter(ctx, letter)
	})
}

func (d *faultyDelivery) settle(operation string, settle func() error) error {
	faults := d.broker.currentFaults()
	d.broker.attempted.add(operation + " " + d.in.ID)
	if faults.settle != nil {
		if err := faults.settle(operation, &d.in); err != nil {
			return err
		}
	}
	if err := settle(); err != nil {
		return err
	}
	d.broker.settled.add(operation + " " + d.in.ID)
	if faults.afterSettle != nil {
		return faults.afterSettle(operation, &d.in)
	}
	return nil
}

func (d *faultyDelivery) LockedUntil() time.Time {
	if locked := d.broker.currentFaults().lockedUntil; locked != nil {
		if lockedUntil := locked(&d.in); !lockedUntil.IsZero() {
			return lockedUntil
		}
	}
	return d.Delivery.LockedUntil()
}

func (d *faultyDelivery) Renew(ctx context.Context) error {
	if fault := d.broker.currentFaults().settle; fault != nil {
		if err := fault("Renew", &d.in); err != nil {
			return err
		}
	}
	d.broker.mu.Lock()
	d.broker.renewed++
	d.broker.mu.Unlock()
	return d.Delivery.Renew(ctx)
}

func (f *faultyTransport) renewals() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.renewed
}

type transactionKey struct{}

// doWork does something in the native transaction, if ctx carries one.
func doWork(ctx context.Context, work string) {
	if d, ok := ctx.Value(transactionKey{}).(*faultyDelivery); ok {
		d.mu.Lock()
		d.work = append(d.work, work)
		d.mu.Unlock()
	}
}

func (d *faultyDelivery) BindContext(ctx context.Context) context.Context {
	return context.WithValue(d.Delivery.BindContext(ctx), transactionKey{}, d)
}

func (d *faultyDelivery) CompleteWith(ctx context.Context, out []core.Outgoing) error {
	return d.settle("CompleteWith", func() error {
		err := d.broker.sendWithFaults(out, func() error { return d.Delivery.CompleteWith(ctx, out) })
		if err == nil {
			for _, done := range d.undo() {
				d.broker.committed.add(done)
			}
		}
		return err
	})
}

func (d *faultyDelivery) ReplaceWith(ctx context.Context, out []core.Outgoing) error {
	return d.settle("ReplaceWith", func() error {
		d.undo()
		return d.broker.sendWithFaults(out, func() error { return d.Delivery.ReplaceWith(ctx, out) })
	})
}

func (d *faultyDelivery) Reset(ctx context.Context) error {
	return d.settle("Reset", func() error {
		d.undo()
		return d.Delivery.Reset(ctx)
	})
}

// Savepoint asks faults.settle for "Savepoint", and its rollback for "Rollback".
func (d *faultyDelivery) Savepoint(ctx context.Context) (func(context.Context) error, error) {
	var rollback func(context.Context) error
	n := 0
	err := d.settle("Savepoint", func() (err error) {
		rollback, err = d.Delivery.Savepoint(ctx)
		d.mu.Lock()
		defer d.mu.Unlock()
		n = len(d.work)
		return err
	})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		return d.settle("Rollback", func() error {
			if err := rollback(ctx); err != nil {
				return err
			}
			d.mu.Lock()
			defer d.mu.Unlock()
			d.work = d.work[:n]
			return nil
		})
	}, nil
}

func (d *faultyDelivery) undo() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	work := d.work
	d.work = nil
	return work
}

// countSettled counts settlements of one kind.
func (f *faultyTransport) countSettled(operation, id string) int {
	n := 0
	for _, s := range f.settled.all() {
		if s == operation+" "+id {
			n++
		}
	}
	return n
}

// sendsTo reports whether one of the messages goes to a queue.
func sendsTo(out []core.Outgoing, queue string) bool {
	return slices.ContainsFunc(out, func(o core.Outgoing) bool { return o.Queue == queue })
}
