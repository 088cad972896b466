//go:build darwin || linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/inmemory"
)

var wroteRow = core.NewMessageType[row]("soak.row")

// inMemory is a broker in this process. Its workers are goroutines. A wrapper of each
// worker's transport injects the faults of a network and a server, and can stop all effects
// of the worker, as if its process had been killed.
type inMemory struct {
	broker *inmemory.Broker
	view   *inmemory.Transport // of the broker, without faults: it reads depths
	calls  *calls              // of the workers
	killed sync.WaitGroup      // workers that have not ended yet

	// The endpoint that reads rowsQueue, in SendsAtomicWithReceive.
	stopRows context.CancelFunc
	rowsDone chan error
}

// inMemoryLock is the lock of a delivery. Handlers take a small part of it.
const inMemoryLock = 2 * time.Second

// rowsQueue gets a message for each row of a worker: there is no database in memory.
const (
	rowsQueue = "rows"
	rowType   = "soak.row"
)

// row is the body of a message in rowsQueue.
type row struct {
	Stage stage
	Order int
}

func startInMemory(context.Context) (system, error) {
	broker := inmemory.NewBroker()
	view, err := inmemory.New(inmemory.Config{Broker: broker})
	if err != nil {
		return nil, err
	}
	return &inMemory{broker: broker, view: view, calls: newCalls()}, nil
}

func (s *inMemory) version() string { return "in memory" }

func (s *inMemory) open() (core.Transport, error) {
	return inmemory.New(inmemory.Config{Broker: s.broker, LockDuration: inMemoryLock})
}

// openThrough implements system. The faults concern only the workers' calls, so that the
// load goes on.
func (s *inMemory) openThrough() (core.Transport, error) { return s.open() }

// prepare implements system. Rows are messages here. They are read as they arrive, on a
// transport that no fault reaches and whose locks do not end, so that none is read twice.
func (s *inMemory) prepare(ctx context.Context, mode core.TransactionMode, l *ledger) error {
	if mode != core.TransactionSendsAtomicWithReceive {
		return nil
	}
	t, err := inmemory.New(inmemory.Config{Broker: s.broker})
	if err != nil {
		return err
	}
	ep, err := core.New(rowsQueue, t, core.Config{Transactions: core.TransactionReceiveOnly, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	core.Handle(ep, wroteRow, func(_ context.Context, _ *core.Message, body row) error {
		l.addRow(body.Stage, body.Order)
		return nil
	})
	if err := ep.Provision(ctx); err != nil {
		return err
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stopRows, s.rowsDone = stop, make(chan error, 1)
	go func() { s.rowsDone <- errors.Join(ep.Run(running), t.Close(running)) }()
	return nil
}

// startWorker implements system. A worker is an instance of the endpoints, with its own
// transport.
func (s *inMemory) startWorker(w workerOptions, log io.Writer) (worker, error) {
	opened, err := s.open()
	if err != nil {
		return nil, err
	}
	t := &faultyTransport{Wrapper: transport.Wrapper{Transport: opened}, calls: s.calls, dead: make(chan struct{})}
	ctx, stop := context.WithCancel(context.Background())
	i := &inMemoryWorker{system: s, transport: t, cancel: stop, done: make(chan struct{}), gone: make(chan struct{})}
	j := &job{
		transport: t, guarantees: w.guarantees, pace: w.pace,
		log: log,
		record: func(f fact) {
			if !t.isDead() {
				w.record(f)
			}
		},
	}
	if w.mode == core.TransactionSendsAtomicWithReceive {
		j.addRow = func(_ context.Context, m *core.Message, s stage, id int) error {
			return m.Send(rowsQueue, wroteRow.Of(row{s, id}))
		}
	}
	go func() {
		defer close(i.gone)
		err := j.run(ctx)
		i.failed = errors.Join(err, opened.Close(context.Background()))
		if !t.isDead() {
			close(i.done)
		}
	}()
	return i, nil
}

// inMemoryWorker is a worker in this process.
type inMemoryWorker struct {
	system    *inMemory
	transport *faultyTransport
	cancel    context.CancelFunc
	done      chan struct{} // closed when it was killed, or has ended
	gone      chan struct{} // closed when it has ended
	failed    error         // to be read after done
}

// kill implements worker. From now on the worker's calls have no effect: its locks end,
// like those of a killed process, and then the worker is stopped.
func (w *inMemoryWorker) kill() error {
	close(w.transport.dead)
	w.system.killed.Go(func() {
		time.Sleep(2 * inMemoryLock)
		w.cancel()
		<-w.gone
	})
	close(w.done)
	return nil
}

func (w *inMemoryWorker) stop() error {
	w.cancel()
	<-w.done
	return nil
}

func (w *inMemoryWorker) ended() <-chan struct{} { return w.done }

func (w *inMemoryWorker) err() error { return w.failed }

// faults implements system. A failed send is a failed attempt, and an order whose sends
// fail in all attempts is correctly moved to the error queue. So sends either wait until
// the fault has ended, as they do during an outage of a broker, or fail seldom.
func (s *inMemory) faults() []fault {
	during := func(during callFaults) func(context.Context, time.Duration) error {
		set := func(f callFaults) func(context.Context) error {
			return func(context.Context) error {
				s.calls.set(f)
				return nil
			}
		}
		return lasting(set(during), set(callFaults{}))
	}
	return []fault{
		{"sends wait", during(callFaults{sendsWait: true})},
		{"one of 20 sends fails after it has arrived", during(callFaults{sendAnswers: 0.05})},
		{"every settlement fails", during(callFaults{settlements: 1})},
		{"every second settlement fails after it has happened", during(callFaults{answers: 0.5})},
		{"every settlement and renewal fails, so that locks end", func(ctx context.Context, length time.Duration) error {
			// A lock that has just begun has to end too.
			return during(callFaults{settlements: 1, renewals: 1})(ctx, max(length, 2*inMemoryLock))
		}},
		{"one of 100 calls fails", during(callFaults{sends: 0.01, sendAnswers: 0.01, settlements: 0.01, answers: 0.01, renewals: 0.01})},
	}
}

func (s *inMemory) depths(ctx context.Context) (map[string]int, error) {
	depths := map[string]int{}
	names, err := s.view.ListQueues(ctx)
	if err != nil {
		return nil, err
	}
	for _, queue := range names {
		if queue == rowsQueue {
			continue // rows waits for the messages of this queue
		}
		depth, err := s.view.Depth(ctx, queue)
		if err != nil {
			return nil, err
		}
		depths[queue] = depth.Ready + depth.Locked + depth.Delayed
	}
	return depths, nil
}

func (s *inMemory) staleness() time.Duration { return 0 }

// rows implements system. The rows are in the ledger when their queue is empty.
func (s *inMemory) rows(ctx context.Context, _ *ledger) error {
	for ctx.Err() == nil {
		depth, err := s.view.Depth(ctx, rowsQueue)
		if err != nil {
			return err
		}
		if depth.Ready+depth.Locked+depth.Delayed == 0 {
			return nil
		}
		pause(ctx, 10*time.Millisecond)
	}
	return context.Cause(ctx)
}

func (s *inMemory) serverLog() string { return "" }

func (s *inMemory) secrets() []string { return nil }

func (s *inMemory) close() error {
	s.killed.Wait()
	if s.stopRows == nil {
		return nil
	}
	s.stopRows()
	return <-s.rowsDone
}

// callFaults has the probabilities with which calls fail. The zero value has no faults.
type callFaults struct {
	sendsWait   bool
	sends       float64 // no message is sent
	sendAnswers float64 // all messages are sent
	settlements float64 // the call has no effect
	answers     float64 // of settlements: the call takes effect
	renewals    float64 // the call has no effect
}

// calls has the faults in force. Its methods may be called concurrently.
type calls struct {
	mu      sync.Mutex
	faults  callFaults
	changed chan struct{} // closed by set
}

func newCalls() *calls { return &calls{changed: make(chan struct{})} }

func (c *calls) set(f callFaults) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults = f
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *calls) inForce() (f callFaults, changed <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.faults, c.changed
}

// send makes a call that sends messages.
func (c *calls) send(ctx context.Context, call func() error) error {
	f, changed := c.inForce()
	for f.sendsWait {
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		f, changed = c.inForce()
	}
	return maybeFail("the send", f.sends, f.sendAnswers, call)
}

// settle makes a call that settles a delivery.
func (c *calls) settle(call func() error) error {
	f, _ := c.inForce()
	return maybeFail("the settlement", f.settlements, f.answers, call)
}

// maybeFail makes a call, or returns an error instead of it or after it, with the given
// probabilities.
func maybeFail(name string, before, after float64, call func() error) error {
	if rand.Float64() < before {
		return fmt.Errorf("%s was lost on the way to the broker", name)
	}
	if err := call(); err != nil {
		return err
	}
	if rand.Float64() < after {
		return fmt.Errorf("the answer to %s was lost", name)
	}
	return nil
}

// faultyTransport is the transport of one worker, with the faults of a network and a
// server. When the worker is dead, no call reaches the broker.
type faultyTransport struct {
	transport.Wrapper
	calls *calls
	dead  chan struct{} // closed when the worker is dead
}

var errDead = errors.New("the worker was killed")

func (t *faultyTransport) isDead() bool {
	select {
	case <-t.dead:
		return true
	default:
		return false
	}
}

// Send implements core.Transport.
func (t *faultyTransport) Send(ctx context.Context, msgs ...core.Outgoing) error {
	return t.calls.send(ctx, func() error {
		if t.isDead() {
			return errDead
		}
		return t.Wrapper.Send(ctx, msgs...)
	})
}

// OpenReceiver implements core.Transport.
func (t *faultyTransport) OpenReceiver(ctx context.Context, cfg core.ReceiverConfig) (core.Receiver, error) {
	r, err := t.Wrapper.OpenReceiver(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return &faultyReceiver{r, t}, nil
}

type faultyReceiver struct {
	core.Receiver
	t *faultyTransport
}

// Receive implements core.Receiver.
func (r *faultyReceiver) Receive(ctx context.Context, dst []core.Delivery) (int, error) {
	n, err := r.Receiver.Receive(ctx, dst)
	if r.t.isDead() {
		// Their locks end. The call blocks until the worker is stopped.
		<-ctx.Done()
		return 0, context.Cause(ctx)
	}
	for i, d := range dst[:n] {
		dst[i] = &faultyDelivery{d, r.t}
	}
	return n, err
}

type faultyDelivery struct {
	core.Delivery
	t *faultyTransport
}

func (d *faultyDelivery) settle(call func() error) error {
	return d.t.calls.settle(func() error {
		if d.t.isDead() {
			return errDead
		}
		return call()
	})
}

// Complete implements core.Delivery.
func (d *faultyDelivery) Complete(ctx context.Context) error {
	return d.settle(func() error { return d.Delivery.Complete(ctx) })
}

// Abandon implements core.Delivery.
func (d *faultyDelivery) Abandon(ctx context.Context, cause error) error {
	return d.settle(func() error { return d.Delivery.Abandon(ctx, cause) })
}

// Release implements core.Delivery.
func (d *faultyDelivery) Release(ctx context.Context) error {
	return d.settle(func() error { return d.Delivery.Release(ctx) })
}

// CompleteWith implements core.Delivery.
func (d *faultyDelivery) CompleteWith(ctx context.Context, out []core.Outgoing) error {
	return d.settle(func() error { return d.Delivery.CompleteWith(ctx, out) })
}

// ReplaceWith implements core.Delivery.
func (d *faultyDelivery) ReplaceWith(ctx context.Context, out []core.Outgoing) error {
	return d.settle(func() error { return d.Delivery.ReplaceWith(ctx, out) })
}

// Renew implements core.Delivery.
func (d *faultyDelivery) Renew(ctx context.Context) error {
	f, _ := d.t.calls.inForce()
	return maybeFail("the renewal", f.renewals, 0, func() error {
		if d.t.isDead() {
			return errDead
		}
		return d.Delivery.Renew(ctx)
	})
}
