package suite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/core/queues"
)

// workerSpec describes the work of a process that a case starts, and may kill.
type workerSpec struct {
	Mode core.TransactionMode

	// A process with a Queue runs an endpoint on it.

	Queue, ErrorQueue string
	// Forward is the queue to which the handler sends a message for each handled one. The
	// default is to send none.
	Forward string
	// Concurrency is the endpoint's concurrency.
	Concurrency int
	// Immediate is the number of immediate retries.
	Immediate int
	// MaxDeliveries is an option of the endpoint; 0 is the default.
	MaxDeliveries int
	// Poison is the id of a message whose handler ends the process at once.
	Poison string
	// Pause is the duration of the handler.
	Pause time.Duration
	// Then is how the handler ends, if it does not succeed.
	Then exitMode
	// HoldSettlement blocks every settlement.
	HoldSettlement bool

	// A process without a Queue sends Count messages, one after the other, to To.
	// Their ids are Prefix and a number from 0.

	To, Prefix string
	Count      int
	Delay      time.Duration

	// A process with Takes takes messages of Queue, one after the other, and replaces each by
	// one in To.

	Takes []workerTake
}

// workerTake names a message to take.
type workerTake struct{ Key, Body string }

// exitMode is how a handler ends.
type exitMode string

const (
	succeeds exitMode = ""
	blocks   exitMode = "blocks" // for ever
	crashes  exitMode = "crashes"
)

// workType is the type of the messages that workers handle.
const workType = "conformance.work"

// event is one event that a process reports when it happens.
type event struct {
	Kind eventKind
	// ID is the id of the message.
	ID string
}

type eventKind string

const (
	isReady    eventKind = "is ready"          // the endpoint receives
	isHandling eventKind = "handles a message" // the handler begins
	isSettling eventKind = "settles a message" // the handler has succeeded
	hasSettled eventKind = "has settled a message"
	hasSent    eventKind = "has sent a message" // Send returned nil
	hasTaken   eventKind = "has taken a message"
)

// process runs a worker separately from the case.
type process interface {
	// next returns the next event. The error is errEnded when the process has ended and
	// there are no more events, or os.ErrDeadlineExceeded.
	next(limit time.Duration) (event, error)
	// stop shuts the process down gracefully, and returns its error.
	stop(limit time.Duration) error
	// kill ends the process at once, and returns when it has ended. It may be called
	// again.
	kill()
	// exitReport describes a process that has ended: how it ended, and the end of its
	// output to standard error.
	exitReport() string
}

var errEnded = errors.New("the process has ended")

// eventQueue passes events on. It never blocks the process.
type eventQueue struct {
	mu     sync.Mutex
	events []event
	ended  bool
	wakeup chan struct{} // holds a value when there are new events
}

func newEventQueue() *eventQueue { return &eventQueue{wakeup: make(chan struct{}, 1)} }

func (q *eventQueue) push(e event) {
	q.mu.Lock()
	q.events = append(q.events, e)
	q.mu.Unlock()
	q.wake()
}

func (q *eventQueue) close() {
	q.mu.Lock()
	q.ended = true
	q.mu.Unlock()
	q.wake()
}

func (q *eventQueue) wake() {
	select {
	case q.wakeup <- struct{}{}:
	default:
	}
}

// next is process.next. One goroutine calls it.
func (q *eventQueue) next(limit time.Duration) (event, error) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		q.mu.Lock()
		if len(q.events) > 0 {
			e := q.events[0]
			q.events = q.events[1:]
			q.mu.Unlock()
			return e, nil
		}
		ended := q.ended
		q.mu.Unlock()
		if ended {
			return event{}, errEnded
		}
		select {
		case <-q.wakeup:
		case <-timer.C:
			return event{}, os.ErrDeadlineExceeded
		}
	}
}

// workerEnv are the functions of its process that a worker needs.
type workerEnv struct {
	// report reports an event to the case.
	report func(event)
	// crash ends the process at once.
	crash func()
	// ended is closed when the process has ended, for goroutines of a process that do not
	// end with it. A real process leaves it nil.
	ended <-chan struct{}
}

// run does the work until ctx ends.
func (spec workerSpec) run(ctx context.Context, transport core.Transport, env workerEnv) error {
	switch {
	case spec.Takes != nil:
		return spec.take(ctx, transport, env)
	case spec.Queue == "":
		return spec.send(ctx, transport, env)
	}
	ep, err := core.New(spec.Queue, spec.reportingTransport(transport, env), core.Config{
		Transactions: spec.Mode,
		Concurrency:  spec.Concurrency,
		Provision:    core.ProvisionNever,
		Logger:       slog.New(slog.DiscardHandler),
		Recoverability: core.Recoverability{
			ErrorQueue:    spec.ErrorQueue,
			Immediate:     core.Immediate{NumberOfRetries: cmp.Or(spec.Immediate, core.Off)},
			Delayed:       core.Delayed{NumberOfRetries: core.Off},
			MaxDeliveries: spec.MaxDeliveries,
		},
	})
	if err != nil {
		return err
	}
	core.Handle(ep, workByteType, func(ctx context.Context, m *core.Message, body []byte) error {
		env.report(event{isHandling, m.ID})
		if m.ID == spec.Poison {
			env.crash()
			return errEnded
		}
		pause := time.NewTimer(spec.Pause)
		defer pause.Stop()
		select {
		case <-pause.C:
		case <-env.ended:
		}
		switch spec.Then {
		case blocks:
			select {
			case <-env.ended:
			case <-ctx.Done():
			}
			return errEnded
		case crashes:
			env.crash()
			return errEnded
		}
		if spec.Forward == "" {
			return nil
		}
		return m.Send(spec.Forward, workByteType.Of(body))
	})
	ended := make(chan error, 1)
	go func() { ended <- ep.Run(ctx) }()
	select {
	case <-ep.Ready():
		env.report(event{isReady, ""})
		return <-ended
	case err := <-ended:
		return err
	}
}

// reportingTransport returns the transport with a wrapper that reports when a message is
// being settled and, with HoldSettlement, blocks the settlement.
func (spec workerSpec) reportingTransport(transport core.Transport, env workerEnv) core.Transport {
	settling := func(id string, settle func() error) error {
		env.report(event{isSettling, id})
		if spec.HoldSettlement {
			<-env.ended
			return errEnded
		}
		err := settle()
		if err == nil {
			env.report(event{hasSettled, id})
		}
		return err
	}
	watched := &faultTransport{
		Transport: transport,
		complete: func(ctx context.Context, d core.Delivery) error {
			return settling(d.Incoming().ID, func() error { return d.Complete(ctx) })
		},
	}
	if spec.Mode == core.TransactionSendsAtomicWithReceive { // sending is part of the settlement
		watched.send = func(ctx context.Context, out []core.Outgoing, next func(context.Context) error) error {
			return settling(out[0].Headers.Get(headers.RelatedTo), func() error { return next(ctx) })
		}
	}
	return watched
}

func (spec workerSpec) send(ctx context.Context, transport core.Transport, env workerEnv) error {
	for i := range spec.Count {
		out := core.Outgoing{ID: fmt.Sprintf("%s-%d", spec.Prefix, i), Queue: spec.To, Delay: spec.Delay}
		out.Headers.Set(headers.MessageID, out.ID)
		out.Body = []byte(out.ID)
		if err := transport.Send(ctx, out); err != nil {
			return err
		}
		env.report(event{hasSent, out.ID})
	}
	select {
	case <-ctx.Done():
	case <-env.ended:
	}
	return nil
}

func (spec workerSpec) take(ctx context.Context, transport core.Transport, env workerEnv) error {
	taker, ok := transport.(queues.Taker)
	if !ok {
		return fmt.Errorf("%T is no queues.Taker", transport)
	}
	for _, take := range spec.Takes {
		out := core.Outgoing{ID: spec.Prefix + take.Body, Queue: spec.To, Body: []byte(take.Body)}
		out.Headers.Set(headers.MessageID, out.ID)
		results, err := taker.Take(ctx, spec.Queue, []queues.Take{{Key: take.Key, Out: []core.Outgoing{out}}})
		if err != nil {
			return err
		}
		if len(results) == 1 && results[0].State == queues.TakeDone {
			env.report(event{hasTaken, take.Body})
		}
	}
	select {
	case <-ctx.Done():
	case <-env.ended:
	}
	return nil
}
