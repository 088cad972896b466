package suite

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

// brokerController kills and starts the broker, for the goroutine of a case. In cases
// that need outages only, it cuts the harness's Network instead, if there is one.
type brokerController struct {
	t       *caseT
	down    bool
	restore func() // restores the network, if it was cut
}

func (t *caseT) brokerController() *brokerController { return &brokerController{t: t} }

// kill kills the broker. If the case does not start it again, the end of the case does.
func (broker *brokerController) kill() {
	if n := broker.t.suite.h.Network; n != nil && broker.t.hasNeed(outages) {
		broker.restore = n.Cut(broker.t)
	} else {
		broker.t.suite.h.Broker.Kill(broker.t)
	}
	broker.down = true
	broker.t.Cleanup(func() {
		if broker.down {
			broker.start()
		}
	})
}

func (broker *brokerController) start() {
	broker.down = false
	if broker.restore != nil {
		broker.restore()
	} else {
		broker.t.suite.h.Broker.Start(broker.t)
	}
}

func (broker *brokerController) restart() {
	broker.kill()
	broker.start()
}

// partition cuts the network until heal is called or the case ends.
func (broker *brokerController) partition() (heal func()) {
	var network interface {
		Partition(t testing.TB) (heal func())
	} = broker.t.suite.h.Network
	if b := broker.t.suite.h.Broker; b != nil {
		network = b
	}
	heal = sync.OnceFunc(network.Partition(broker.t))
	broker.t.Cleanup(heal)
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

// connectionLog is an observer that records connection changes.
type connectionLog struct {
	mu      sync.Mutex
	changes []core.ConnectionChange
}

// ConnectionChanged implements the observer of a core.ReceiverConfig.
func (c *connectionLog) ConnectionChanged(change core.ConnectionChange) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes = append(c.changes, change)
}

// all returns the recorded changes, the oldest first.
func (c *connectionLog) all() []core.ConnectionChange {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.changes)
}

// outages returns the recorded outages, without the first since changes.
func (c *connectionLog) outages(since int) []core.ConnectionChange {
	return slices.DeleteFunc(c.all()[since:], func(change core.ConnectionChange) bool { return change.Connected })
}

// pauses returns the transport's pauses before its attempts to connect.
func pauses(told *connectionLog) (list []time.Duration) {
	for _, c := range told.outages(0) {
		if c.RetryIn > 0 {
			list = append(list, c.RetryIn)
		}
	}
	return list
}

// openObserved opens a receiver with an observer.
func (t *caseT) openObserved(transport core.Transport, queue string) (*receiver, *connectionLog) {
	told := &connectionLog{}
	return t.openReceiver(transport, core.ReceiverConfig{Queue: queue, Mode: t.mode, MaxInFlight: 8, ConnectionChanged: told.ConnectionChanged}), told
}

// outageLog records a case's messages over an outage.
type outageLog struct {
	// deliveries counts by the messages' bodies.
	deliveries map[string]int
	// done has the bodies of messages for which Complete was called. They need not be
	// redelivered: if Complete returned an error, its outcome is unknown.
	done map[string]bool
	// completed has the NativeIDs of messages for which Complete returned nil, and again
	// counts later deliveries of these copies.
	completed   map[string]bool
	redelivered int
}

func newOutageLog() *outageLog {
	return &outageLog{deliveries: map[string]int{}, done: map[string]bool{}, completed: map[string]bool{}}
}

// record records a delivery.
func (l *outageLog) record(d core.Delivery) {
	l.deliveries[string(d.Incoming().Body)]++
	if l.completed[d.Incoming().NativeID] {
		l.redelivered++
	}
}

// complete completes a delivery, as far as the outage allows.
func (l *outageLog) complete(t *caseT, d core.Delivery) error {
	ctx, cancel := t.withTimeout()
	defer cancel()
	err := d.Complete(ctx)
	l.done[string(d.Incoming().Body)] = true
	if id := d.Incoming().NativeID; id != "" && err == nil {
		l.completed[id] = true
	}
	return err
}

// duplicates returns the number of surplus deliveries.
func (l *outageLog) duplicates() (n int) {
	for _, deliveries := range l.deliveries {
		n += deliveries - 1
	}
	return n
}

// drain receives and completes until n messages have been completed, or until the time
// has passed in which messages lost in an outage are redelivered.
func (l *outageLog) drain(r *receiver, n int) {
	if len(l.done) < n {
		r.forEach(r.t.redeliveryTimeout(), func(d core.Delivery) bool {
			l.record(d)
			_ = l.complete(r.t, d)
			return len(l.done) >= n
		})
	}
	r.forEach(r.t.quietPeriod(), func(d core.Delivery) bool { // messages with an unknown outcome
		l.record(d)
		_ = l.complete(r.t, d)
		return false
	})
}

// wantNoOutage checks that an error that does not end by waiting does not match
// core.ErrUnavailable.
func (t *caseT) wantNoOutage(subject string, err error) {
	if errors.Is(err, core.ErrUnavailable) {
		t.fail(subject+" is no core.ErrUnavailable: an endpoint that starts would wait for ever", "%v", err)
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
	broker := t.brokerController()
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
	through := &faultTransport{
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
		c.Recoverability.Immediate = core.Immediate{NumberOfRetries: 5}
	})
	var attempts counter
	s.handle(workType, func(_ context.Context, m *core.Message) error {
		attempts.add(m.ID)
		return m.Send(forward, workByteType.Of([]byte("forwarded")))
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
	broker.kill()
	t.sleep(t.quietPeriod())
	if t.mode != core.TransactionSendsAtomicWithReceive {
		let() // so that the endpoint has the result before the message is redelivered
	}
	broker.start()
	t.sendEventually(transport, t.message(t.queue(t.open()), "connected again"))
	let()
	t.await("the message is redelivered and settled", settled.Load)
	// At the end no message is left, neither available nor locked.
	t.sleep(t.lock())
	deadline := time.Now().Add(t.timeout())
	for time.Now().Before(deadline) {
		found := t.contents(forward, 0)
		copies += len(found)
		if len(found) == 0 && copies > 0 && attempts.get(m.ID) > 0 {
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
	return attempts.get(m.ID), copies
}
