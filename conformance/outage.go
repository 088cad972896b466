package conformance

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
)

// Cases with a broker that can be stopped.

var notDurable = unclaimed("Durable", func(c core.Capabilities) bool { return c.Durable })

// operator kills and starts the broker, for the goroutine of a case. In cases that need
// outages only, it cuts the harness's Network instead, if there is one.
type operator struct {
	t       *caseT
	down    bool
	restore func() // restores the network, if it was cut
}

func (t *caseT) operator() *operator { return &operator{t: t} }

// kill kills the broker. If the case does not start it again, the end of the case does.
func (o *operator) kill() {
	if n := o.t.suite.h.Network; n != nil && o.t.wants(outages) {
		o.restore = n.Cut(o.t)
	} else {
		o.t.suite.h.Broker.Kill(o.t)
	}
	o.down = true
	o.t.Cleanup(func() {
		if o.down {
			o.start()
		}
	})
}

func (o *operator) start() {
	o.down = false
	if o.restore != nil {
		o.restore()
	} else {
		o.t.suite.h.Broker.Start(o.t)
	}
}

func (o *operator) restart() {
	o.kill()
	o.start()
}

// partition cuts the network until heal is called or the case ends.
func (o *operator) partition() (heal func()) {
	var network interface {
		Partition(t testing.TB) (heal func())
	} = o.t.suite.h.Network
	if b := o.t.suite.h.Broker; b != nil {
		network = b
	}
	heal = sync.OnceFunc(network.Partition(o.t))
	o.t.Cleanup(heal)
	return heal
}

// sendEventually sends messages until they are accepted, once the transport is connected
// again. They may arrive more than once.
func (t *caseT) sendEventually(transport core.Transport, msgs ...core.Outgoing) {
	t.await("Send works again after the outage", func() bool { return t.trySend(transport, msgs...) == nil })
}

// withQuietPeriod returns a context that ends soon, for a call that is to end with it.
func (t *caseT) withQuietPeriod() (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.ctx, t.quietPeriod())
}

// returnsInTime reports whether a call returns within the time limit.
func (t *caseT) returnsInTime(call func()) bool {
	done := make(chan struct{})
	t.goGuarded(func() {
		defer close(done)
		call()
	})
	timer := time.NewTimer(t.timeout())
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// connections is an observer that records connection changes.
type connections struct {
	mu      sync.Mutex
	changes []core.ConnectionChange
}

// ConnectionChanged implements the observer of a core.ReceiverConfig.
func (c *connections) ConnectionChanged(change core.ConnectionChange) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes = append(c.changes, change)
}

// all returns the recorded changes, the oldest first.
func (c *connections) all() []core.ConnectionChange {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.changes)
}

// outages returns the recorded outages, without the first since changes.
func (c *connections) outages(since int) []core.ConnectionChange {
	return slices.DeleteFunc(c.all()[since:], func(change core.ConnectionChange) bool { return change.Connected })
}

// pauses returns the transport's pauses before its attempts to connect.
func pauses(told *connections) (list []time.Duration) {
	for _, c := range told.outages(0) {
		if c.RetryIn > 0 {
			list = append(list, c.RetryIn)
		}
	}
	return list
}

// observed opens a receiver with an observer.
func (t *caseT) observed(transport core.Transport, queue string) (*receiver, *connections) {
	told := &connections{}
	return t.openReceiver(transport, core.ReceiverConfig{Queue: queue, Mode: t.mode, MaxInFlight: 8, ConnectionChanged: told.ConnectionChanged}), told
}

// ledger records a case's messages over an outage.
type ledger struct {
	// deliveries counts by the messages' bodies.
	deliveries map[string]int
	// done has the bodies of messages for which Complete was called. They need not be
	// redelivered: if Complete returned an error, its outcome is unknown.
	done map[string]bool
	// copies has the NativeIDs of messages for which Complete returned nil, and again
	// counts later deliveries of these copies.
	copies map[string]bool
	again  int
}

func newLedger() *ledger {
	return &ledger{deliveries: map[string]int{}, done: map[string]bool{}, copies: map[string]bool{}}
}

// deliver records a delivery.
func (l *ledger) deliver(d core.Delivery) {
	l.deliveries[string(d.Incoming().Body)]++
	if l.copies[d.Incoming().NativeID] {
		l.again++
	}
}

// complete completes a delivery, as far as the outage allows.
func (l *ledger) complete(t *caseT, d core.Delivery) error {
	ctx, cancel := t.withTimeout()
	defer cancel()
	err := d.Complete(ctx)
	l.done[string(d.Incoming().Body)] = true
	if id := d.Incoming().NativeID; id != "" && err == nil {
		l.copies[id] = true
	}
	return err
}

// duplicates returns the number of surplus deliveries.
func (l *ledger) duplicates() (n int) {
	for _, deliveries := range l.deliveries {
		n += deliveries - 1
	}
	return n
}

// drain receives and completes until n messages have been completed, or until the time
// has passed in which messages lost in an outage are redelivered.
func (l *ledger) drain(r *receiver, n int) {
	if len(l.done) < n {
		r.forEach(r.t.redeliveryTimeout(), func(d core.Delivery) bool {
			l.deliver(d)
			_ = l.complete(r.t, d)
			return len(l.done) >= n
		})
	}
	r.forEach(r.t.quietPeriod(), func(d core.Delivery) bool { // messages with an unknown outcome
		l.deliver(d)
		_ = l.complete(r.t, d)
		return false
	})
}

// wantNoOutage checks that an error that does not end by waiting does not match
// core.ErrUnavailable.
func (t *caseT) wantNoOutage(what string, err error) {
	if errors.Is(err, core.ErrUnavailable) {
		t.fail(what+" is no core.ErrUnavailable: an endpoint that starts would wait for ever", "%v", err)
	}
}

// randomPause returns a random time to wait before the broker dies, so that it dies
// during an operation.
func (t *caseT) randomPause() time.Duration {
	return time.Duration(t.random.IntN(300)) * time.Microsecond
}

// dieBeforeSettling lets the broker die after the handler of a message has succeeded and
// before the message is settled. It returns how often the message was handled, and how
// often the handler's message arrived.
func (t *caseT) dieBeforeSettling() (handled, copies int) {
	o := t.operator()
	transport := t.open()
	forward := t.queue(transport)
	arrived, goOn := make(chan struct{}), make(chan struct{})
	let := sync.OnceFunc(func() { close(goOn) })
	reached := sync.OnceFunc(func() { close(arrived) })
	var settled atomic.Bool
	settling := func(settle func() error) error {
		reached()
		<-goOn
		err := settle()
		if err == nil {
			settled.Store(true)
		}
		return err
	}
	queue, errorQueue := t.queue(transport), t.queue(transport)
	through := &interfering{
		Transport: transport,
		complete: func(ctx context.Context, d core.Delivery) error {
			return settling(func() error { return d.Complete(ctx) })
		},
	}
	if t.mode == core.TransactionSendsAtomicWithReceive {
		through.send = func(ctx context.Context, _ []core.Outgoing, next func(context.Context) error) error {
			return settling(func() error { return next(ctx) })
		}
	}
	s := t.serviceOn(through, queue, errorQueue, func(c *core.Config) {
		c.Concurrency = 1
		c.Recoverability.Immediate = core.Immediate{Retries: 5}
	})
	var attempts tally
	s.handle(workType, func(_ context.Context, m *core.Message) error {
		attempts.add(m.ID)
		return m.Send(forward, workType, []byte("forwarded"))
	})
	s.run()
	t.Cleanup(let) // before the endpoint is stopped
	m := t.command(queue, workType, "work")
	t.send(transport, m)
	t.await("a message is handled", func() bool {
		select {
		case <-arrived:
			return true
		default:
			return false
		}
	})
	o.kill()
	t.sleep(t.quietPeriod())
	if t.mode != core.TransactionSendsAtomicWithReceive {
		let() // so that the endpoint has the result before the message is redelivered
	}
	o.start()
	t.sendEventually(transport, t.message(t.queue(t.open()), "connected again"))
	let()
	t.await("the message comes again and is settled", settled.Load)
	// At the end no message is left, neither available nor locked.
	t.sleep(t.lock())
	deadline := time.Now().Add(t.timeout())
	for time.Now().Before(deadline) {
		found := t.contents(forward, 0)
		copies += len(found)
		if len(found) == 0 && copies > 0 && attempts.of(m.ID) > 0 {
			break
		}
	}
	if err := s.stop(); err != nil {
		t.stop("an endpoint goes on after an outage", "Run returned %v", err)
	}
	if !t.caps.MayDuplicate {
		t.wantLeft(queue, "after the message was handled")
	}
	t.wantLeft(errorQueue, "the error queue, after the message was handled without a failure")
	return attempts.of(m.ID), copies
}
