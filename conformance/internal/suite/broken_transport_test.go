package suite

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/queues"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// changes are the differences between a mutant and a sound transport. Each is
// given the sound call, and the transport, receiver or delivery that it belongs
// to; nil changes nothing. One changes value serves all transports of a harness,
// so what is to be remembered over a restart of a process stands beside it in
// the mutant's function, and what is not, in the transport's memory.
type changes struct {
	capabilities  func(c core.Capabilities) core.Capabilities
	address       func(queue string, next func(string) (string, error)) (string, error)
	checkTopic    func(topic string, next func(string) error) error
	send          func(t *brokenTransport, ctx context.Context, out []core.Outgoing, next func(ctx context.Context, out ...core.Outgoing) error) error
	provision     func(t *brokenTransport, topology core.Topology, next func() error) error
	check         func(t *brokenTransport, topology core.Topology, next func() error) error
	purge         func(t *brokenTransport, queue string, next func(queue string) (int, error)) (int, error)
	remove        func(t *brokenTransport, queues, topics []string, next func(queues, topics []string) error) error
	subscribe     func(t *brokenTransport, queue string, topics []string, next func() error) error
	unsubscribe   func(t *brokenTransport, queue string, topics []string, next func() error) error
	browse        func(t *brokenTransport, r queues.Request, next func(r queues.Request) (queues.Page, error)) (queues.Page, error)
	take          func(t *brokenTransport, ctx context.Context, queue string, takes []queues.Take, next func(takes ...queues.Take) ([]queues.TakeResult, error)) ([]queues.TakeResult, error)
	depth         func(t *brokenTransport, queue string, next func() (queues.Depth, error)) (queues.Depth, error)
	list          func(t *brokenTransport, next func() ([]string, error)) ([]string, error)
	open          func(t *brokenTransport, ctx context.Context, cfg core.ReceiverConfig, next func(core.ReceiverConfig) (core.Receiver, error)) (core.Receiver, error)
	close         func(t *brokenTransport, next func() error) error
	receive       func(r *brokenReceiver, ctx context.Context, dst []core.Delivery, next func(ctx context.Context, dst []core.Delivery) (int, error)) (int, error)
	arrive        func(r *brokenReceiver, in *core.Incoming) // may change received messages
	maxInFlight   func(r *brokenReceiver, n int, next func(int))
	closeReceiver func(r *brokenReceiver, next func() error) error
	// settle is asked by Complete, Abandon, Release, Postpone, CompleteWith,
	// ReplaceWith, Reset, Savepoint, the rollback to a savepoint (as "Rollback"),
	// DeadLetter and Renew, by that name. It may write to d.out, what is sent with the
	// settlement, d.cause, d.delay and d.letter.
	settle      func(d *brokenDelivery, operation string, next func() error) error
	lockedUntil func(d *brokenDelivery, next func() time.Time) time.Time
	bind        func(d *brokenDelivery, ctx context.Context, next func(context.Context) context.Context) context.Context
	// deduplicationID returns the id by which queues drop duplicates; nil: as they should.
	deduplicationID func(o *core.Outgoing) string
	// deliver may hand out another value than the sound delivery.
	deliver func(r *brokenReceiver, d core.Delivery) core.Delivery
}

// base has the capabilities of a sound transport of the suite's own tests.
type base interface {
	core.Transport
	core.Provisioner
	core.Subscriber
	core.Checker
	core.Remover
	core.Describer
	queues.Browser
	queues.Taker
	queues.DepthReader
	queues.Lister
}

// brokenTransport is a sound transport with changes.
type brokenTransport struct {
	base
	changes *changes
	memory  map[string]int // for the changes, which guard it
	fixture *suiteFixture  // nil: the base has the native transactions
	// login returns the password. A field would be shown by fmt.
	login func() string
	leave func() // ends the connection, once
}

func (t *brokenTransport) Capabilities() core.Capabilities {
	c := t.base.Capabilities()
	if t.changes.capabilities != nil {
		c = t.changes.capabilities(c)
	}
	return c
}

func (t *brokenTransport) Address(queue string) (string, error) {
	if t.changes.address != nil {
		return t.changes.address(queue, t.base.Address)
	}
	return t.base.Address(queue)
}

func (t *brokenTransport) CheckTopic(topic string) error {
	if t.changes.checkTopic != nil {
		return t.changes.checkTopic(topic, t.base.CheckTopic)
	}
	return t.base.CheckTopic(topic)
}

func (t *brokenTransport) Send(ctx context.Context, out ...core.Outgoing) error {
	next := func(ctx context.Context, out ...core.Outgoing) error {
		return t.base.Send(ctx, withNative(t.fixture.withoutDuplicates(out, t.changes.deduplicationID))...)
	}
	if t.changes.send != nil {
		return t.changes.send(t, ctx, out, next)
	}
	return next(ctx, out...)
}

func (t *brokenTransport) Provision(ctx context.Context, topology core.Topology) error {
	next := func() error {
		if err := t.fixture.compare(topology.Queues); err != nil {
			return err
		}
		return t.base.Provision(ctx, topology)
	}
	if t.changes.provision != nil {
		return t.changes.provision(t, topology, next)
	}
	return next()
}

func (t *brokenTransport) Check(ctx context.Context, topology core.Topology) error {
	next := func() error { return t.base.Check(ctx, topology) }
	if t.changes.check != nil {
		return t.changes.check(t, topology, next)
	}
	return next()
}

func (t *brokenTransport) Remove(ctx context.Context, queues, topics []string) error {
	next := func(queues, topics []string) error { return t.base.Remove(ctx, queues, topics) }
	if t.changes.remove != nil {
		return t.changes.remove(t, queues, topics, next)
	}
	return next(queues, topics)
}

func (t *brokenTransport) Purge(ctx context.Context, queue string) (int, error) {
	next := func(queue string) (int, error) { return t.base.Purge(ctx, queue) }
	if t.changes.purge != nil {
		return t.changes.purge(t, queue, next)
	}
	return next(queue)
}

func (t *brokenTransport) Subscribe(ctx context.Context, queue string, topics ...string) error {
	next := func() error { return t.base.Subscribe(ctx, queue, topics...) }
	if t.changes.subscribe != nil {
		return t.changes.subscribe(t, queue, topics, next)
	}
	return next()
}

func (t *brokenTransport) Unsubscribe(ctx context.Context, queue string, topics ...string) error {
	next := func() error { return t.base.Unsubscribe(ctx, queue, topics...) }
	if t.changes.unsubscribe != nil {
		return t.changes.unsubscribe(t, queue, topics, next)
	}
	return next()
}

func (t *brokenTransport) Browse(ctx context.Context, r queues.Request) (queues.Page, error) {
	next := func(r queues.Request) (queues.Page, error) {
		page, err := t.base.Browse(ctx, r)
		for i := range page.Messages {
			unparsed(&page.Messages[i].Incoming)
			readNative(&page.Messages[i].Incoming)
		}
		return page, err
	}
	if t.changes.browse != nil {
		return t.changes.browse(t, r, next)
	}
	return next(r)
}

func (t *brokenTransport) Take(ctx context.Context, queue string, takes []queues.Take) ([]queues.TakeResult, error) {
	next := func(takes ...queues.Take) ([]queues.TakeResult, error) {
		takes = slices.Clone(takes)
		for i := range takes {
			takes[i].Out = withNative(takes[i].Out)
		}
		return t.base.Take(ctx, queue, takes)
	}
	if t.changes.take != nil {
		return t.changes.take(t, ctx, queue, takes, next)
	}
	return next(takes...)
}

func (t *brokenTransport) Depth(ctx context.Context, queue string) (queues.Depth, error) {
	next := func() (queues.Depth, error) { return t.base.Depth(ctx, queue) }
	if t.changes.depth != nil {
		return t.changes.depth(t, queue, next)
	}
	return next()
}

func (t *brokenTransport) ListQueues(ctx context.Context) ([]string, error) {
	next := func() ([]string, error) { return t.base.ListQueues(ctx) }
	if t.changes.list != nil {
		return t.changes.list(t, next)
	}
	return next()
}

func (t *brokenTransport) OpenReceiver(ctx context.Context, cfg core.ReceiverConfig) (core.Receiver, error) {
	next := func(cfg core.ReceiverConfig) (core.Receiver, error) { return t.base.OpenReceiver(ctx, cfg) }
	var r core.Receiver
	var err error
	if t.changes.open != nil {
		r, err = t.changes.open(t, ctx, cfg, next)
	} else {
		r, err = next(cfg)
	}
	if err != nil {
		return nil, err
	}
	return &brokenReceiver{r, t, cfg}, nil
}

func (t *brokenTransport) Close(ctx context.Context) error {
	next := func() error {
		t.leave()
		return t.base.Close(ctx)
	}
	if t.changes.close != nil {
		return t.changes.close(t, next)
	}
	return next()
}

type brokenReceiver struct {
	core.Receiver
	transport *brokenTransport
	cfg       core.ReceiverConfig
}

func (r *brokenReceiver) Receive(ctx context.Context, dst []core.Delivery) (int, error) {
	next := func(ctx context.Context, dst []core.Delivery) (int, error) {
		n, err := r.Receiver.Receive(ctx, dst)
		for i, d := range dst[:n] {
			dst[i] = r.deliver(d)
		}
		return n, err
	}
	if r.transport.changes.receive != nil {
		return r.transport.changes.receive(r, ctx, dst, next)
	}
	return next(ctx, dst)
}

func (r *brokenReceiver) SetMaxInFlight(n int) {
	if r.transport.changes.maxInFlight != nil {
		r.transport.changes.maxInFlight(r, n, r.Receiver.SetMaxInFlight)
		return
	}
	r.Receiver.SetMaxInFlight(n)
}

func (r *brokenReceiver) Close(ctx context.Context) error {
	next := func() error { return r.Receiver.Close(ctx) }
	if r.transport.changes.closeReceiver != nil {
		return r.transport.changes.closeReceiver(r, next)
	}
	return next()
}

// deliver wraps a delivery.
func (r *brokenReceiver) deliver(sound core.Delivery) core.Delivery {
	if r.transport.changes.deliver != nil {
		sound = r.transport.changes.deliver(r, sound)
	}
	d := &brokenDelivery{Delivery: sound, receiver: r, in: *sound.Incoming()}
	unparsed(&d.in)
	readNative(&d.in)
	if r.transport.changes.arrive != nil {
		r.transport.changes.arrive(r, &d.in)
	}
	if r.cfg.Mode == core.TransactionSendsAtomicWithReceive && r.transport.fixture != nil {
		d.work = &transaction{db: &r.transport.fixture.database}
	}
	return d
}

type brokenDelivery struct {
	core.Delivery
	receiver *brokenReceiver
	in       core.Incoming
	out      []core.Outgoing // of CompleteWith and ReplaceWith
	cause    error           // of Abandon and Postpone
	delay    time.Duration   // of Postpone
	work     *transaction    // the work that was done through BindContext; nil unless atomic

	ctx    context.Context // of the settlement
	mark   savedWork       // to which Rollback returns
	letter core.DeadLetter // of DeadLetter
}

func (d *brokenDelivery) Incoming() *core.Incoming { return &d.in }

func (d *brokenDelivery) settle(operation string, next func() error) error {
	if d.receiver.transport.changes.settle != nil {
		return d.receiver.transport.changes.settle(d, operation, next)
	}
	return next()
}

func (d *brokenDelivery) Complete(ctx context.Context) error {
	d.ctx = ctx
	return d.settle("Complete", func() error {
		return d.work.commits(func() error { return d.Delivery.Complete(ctx) })
	})
}

func (d *brokenDelivery) Abandon(ctx context.Context, cause error) error {
	d.ctx = ctx
	d.cause = cause
	return d.settle("Abandon", func() error {
		return d.work.undoes(func() error { return d.Delivery.Abandon(ctx, d.cause) })
	})
}

func (d *brokenDelivery) Release(ctx context.Context) error {
	d.ctx = ctx
	return d.settle("Release", func() error {
		return d.work.undoes(func() error { return d.Delivery.Release(ctx) })
	})
}

func (d *brokenDelivery) Postpone(ctx context.Context, delay time.Duration, cause error) error {
	d.ctx = ctx
	d.delay, d.cause = delay, cause
	return d.settle("Postpone", func() error {
		return d.work.undoes(func() error { return d.Delivery.Postpone(ctx, d.delay, d.cause) })
	})
}

func (d *brokenDelivery) BindContext(ctx context.Context) context.Context {
	next := func(ctx context.Context) context.Context {
		if ctx = d.Delivery.BindContext(ctx); d.work == nil {
			return ctx
		}
		return d.work.bind(ctx)
	}
	if bind := d.receiver.transport.changes.bind; bind != nil {
		return bind(d, ctx, next)
	}
	return next(ctx)
}

func (d *brokenDelivery) CompleteWith(ctx context.Context, out []core.Outgoing) error {
	d.ctx = ctx
	d.out = out
	return d.settle("CompleteWith", func() error {
		return d.work.commits(func() error { return d.Delivery.CompleteWith(ctx, withNative(d.out)) })
	})
}

func (d *brokenDelivery) Reset(ctx context.Context) error {
	return d.settle("Reset", func() error {
		return d.work.undoes(func() error { return d.Delivery.Reset(ctx) })
	})
}

func (d *brokenDelivery) Savepoint(ctx context.Context) (func(context.Context) error, error) {
	var mark savedWork
	var rollback func(context.Context) error
	err := d.settle("Savepoint", func() (err error) {
		rollback, err = d.Delivery.Savepoint(ctx)
		mark = d.work.mark()
		return err
	})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		d.mark = mark
		return d.settle("Rollback", func() error {
			if err := rollback(ctx); err != nil {
				return err
			}
			d.work.rollBackTo(mark)
			return nil
		})
	}, nil
}

func (d *brokenDelivery) ReplaceWith(ctx context.Context, out []core.Outgoing) error {
	d.ctx = ctx
	d.out = out
	return d.settle("ReplaceWith", func() error {
		return d.work.undoes(func() error { return d.Delivery.ReplaceWith(ctx, withNative(d.out)) })
	})
}

func (d *brokenDelivery) LockedUntil() time.Time {
	if lockedUntil := d.receiver.transport.changes.lockedUntil; lockedUntil != nil {
		return lockedUntil(d, d.Delivery.LockedUntil)
	}
	return d.Delivery.LockedUntil()
}

func (d *brokenDelivery) Renew(ctx context.Context) error {
	return d.settle("Renew", func() error { return d.Delivery.Renew(ctx) })
}

func (d *brokenDelivery) DeadLetter(ctx context.Context, letter core.DeadLetter) error {
	d.ctx = ctx
	d.letter = letter
	return d.settle("DeadLetter", func() error {
		return d.work.commits(func() error { return d.Delivery.DeadLetter(ctx, d.letter) })
	})
}

// limitedTo returns the configuration with another MaxMessageBytes.
func limitedTo(cfg inmemory.Config, maxMessageBytes int) inmemory.Config {
	caps := inmemory.Everything()
	if cfg.Capabilities != nil {
		caps = *cfg.Capabilities
	}
	caps.MaxMessageBytes = maxMessageBytes
	cfg.Capabilities = &caps
	return cfg
}

// harnessOn returns a harness for the changes over transports of the
// configuration, with everything that a harness can have but a Broker.
func harnessOn(cfg inmemory.Config, c changes) Harness {
	fixture := &suiteFixture{broker: inmemory.NewBroker()}
	cfg.Broker = fixture.broker
	open := func(t testing.TB, cfg inmemory.Config) core.Transport {
		transport, err := inmemory.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		fixture.connections.Add(1)
		return &brokenTransport{
			base: transport, changes: &c, memory: map[string]int{}, fixture: fixture,
			login: func() string { return password },
			leave: sync.OnceFunc(func() { fixture.connections.Add(-1) }),
		}
	}
	h := Harness{
		Synctest: true,
		Open:     func(t testing.TB) core.Transport { return open(t, cfg) },
		OpenLimited: func(t testing.TB, maxMessageBytes int) core.Transport {
			return open(t, limitedTo(cfg, maxMessageBytes))
		},
	}
	fixture.equip(&h)
	h.UniqueQueue = fixture.uniqueQueue
	return h
}
