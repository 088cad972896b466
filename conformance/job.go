package conformance

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
)

// job describes the work of a process that a case starts, and may kill.
type job struct {
	Mode core.TransactionMode

	// A process with a Queue runs an endpoint on it.

	Queue, ErrorQueue string
	// Forward is the queue to which the handler sends a message for each handled one. The
	// default is to send none.
	Forward string
	// Concurrency is the endpoint's concurrency.
	Concurrency int
	// MaxDeliveries and IsolateAfter are options of the endpoint; 0 is the default.
	MaxDeliveries, IsolateAfter int
	// Deadly is the id of a message whose handler ends the process at once.
	Deadly string
	// Pause is the duration of the handler.
	Pause time.Duration
	// Then is how the handler ends, if it does not succeed.
	Then ending
	// HoldSettlement blocks every settlement.
	HoldSettlement bool

	// A process without a Queue sends Count messages, one after the other, to To.
	// Their ids are Prefix and a number from 0.

	To, Prefix string
	Count      int
	Delay      time.Duration
}

// ending is how a handler ends.
type ending string

const (
	succeeds ending = ""
	blocks   ending = "blocks" // for ever
	crashes  ending = "crashes"
)

// workType is the type of the messages handled by jobs.
const workType = "conformance.work"

// event is one event that a process reports when it happens.
type event struct {
	What happening
	// ID is the id of the message.
	ID string
}

type happening string

const (
	isReady    happening = "is ready"          // the endpoint receives
	isHandling happening = "handles a message" // the handler begins
	isSettling happening = "settles a message" // the handler has succeeded
	hasSettled happening = "has settled a message"
	hasSent    happening = "has sent a message" // Send returned nil
)

// process runs a job separately from the case.
type process interface {
	// next returns the next event. The error is errEnded when the process has ended and
	// there are no more events, or os.ErrDeadlineExceeded.
	next(limit time.Duration) (event, error)
	// stop shuts the process down gracefully, and returns its error.
	stop(limit time.Duration) error
	// kill ends the process at once, and returns when it has ended. It may be called
	// again.
	kill()
	// remains describes a process that has ended: how it ended, and the end of its output
	// to standard error.
	remains() string
}

var errEnded = errors.New("the process has ended")

// feed passes events on. It never blocks the process.
type feed struct {
	mu     sync.Mutex
	events []event
	ended  bool
	news   chan struct{} // holds a value when there are new events
}

func newFeed() *feed { return &feed{news: make(chan struct{}, 1)} }

func (f *feed) push(e event) {
	f.mu.Lock()
	f.events = append(f.events, e)
	f.mu.Unlock()
	f.poke()
}

func (f *feed) end() {
	f.mu.Lock()
	f.ended = true
	f.mu.Unlock()
	f.poke()
}

func (f *feed) poke() {
	select {
	case f.news <- struct{}{}:
	default:
	}
}

// next is process.next. One goroutine calls it.
func (f *feed) next(limit time.Duration) (event, error) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		f.mu.Lock()
		if len(f.events) > 0 {
			e := f.events[0]
			f.events = f.events[1:]
			f.mu.Unlock()
			return e, nil
		}
		ended := f.ended
		f.mu.Unlock()
		if ended {
			return event{}, errEnded
		}
		select {
		case <-f.news:
		case <-timer.C:
			return event{}, os.ErrDeadlineExceeded
		}
	}
}

// surroundings are the functions of its process that a job needs.
type surroundings struct {
	// say reports an event to the case.
	say func(event)
	// crash ends the process at once.
	crash func()
	// gone is closed when the process has ended, for goroutines of a process that do not
	// end with it. A real process leaves it nil.
	gone <-chan struct{}
}

// run does the job until ctx ends.
func (j job) run(ctx context.Context, transport core.Transport, s surroundings) error {
	if j.Queue == "" {
		return j.send(ctx, transport, s)
	}
	ep, err := core.New(j.Queue, j.watched(transport, s), core.Config{
		Transactions: j.Mode,
		Concurrency:  j.Concurrency,
		Provision:    core.ProvisionNever,
		Logger:       slog.New(slog.DiscardHandler),
		Recoverability: core.Recoverability{
			ErrorQueue:    j.ErrorQueue,
			Immediate:     core.Immediate{Off: true},
			Delayed:       core.Delayed{Off: true},
			MaxDeliveries: core.MaxDeliveries{Count: j.MaxDeliveries},
			IsolateAfter:  j.IsolateAfter,
		},
	})
	if err != nil {
		return err
	}
	core.Handle(ep, workType, func(ctx context.Context, m *core.TypedMessage[[]byte]) error {
		s.say(event{isHandling, m.ID})
		if m.ID == j.Deadly {
			s.crash()
			return errEnded
		}
		pause := time.NewTimer(j.Pause)
		defer pause.Stop()
		select {
		case <-pause.C:
		case <-s.gone:
		}
		switch j.Then {
		case blocks:
			select {
			case <-s.gone:
			case <-ctx.Done():
			}
			return errEnded
		case crashes:
			s.crash()
			return errEnded
		}
		if j.Forward == "" {
			return nil
		}
		return m.Send(j.Forward, workType, m.Body)
	})
	ended := make(chan error, 1)
	go func() { ended <- ep.Run(ctx) }()
	select {
	case <-ep.Ready():
		s.say(event{isReady, ""})
		return <-ended
	case err := <-ended:
		return err
	}
}

// watched returns the transport with a wrapper that reports when a message is being
// settled and, with HoldSettlement, blocks the settlement.
func (j job) watched(transport core.Transport, s surroundings) core.Transport {
	settling := func(id string, settle func() error) error {
		s.say(event{isSettling, id})
		if j.HoldSettlement {
			<-s.gone
			return errEnded
		}
		err := settle()
		if err == nil {
			s.say(event{hasSettled, id})
		}
		return err
	}
	watched := &interfering{
		Transport: transport,
		complete: func(ctx context.Context, d core.Delivery) error {
			return settling(d.Incoming().ID, func() error { return d.Complete(ctx) })
		},
	}
	if j.Mode == core.TransactionSendsAtomicWithReceive { // sending is part of the settlement
		watched.send = func(ctx context.Context, out []core.Outgoing, next func(context.Context) error) error {
			return settling(out[0].Headers.Get(core.HeaderRelatedTo), func() error { return next(ctx) })
		}
	}
	return watched
}

func (j job) send(ctx context.Context, transport core.Transport, s surroundings) error {
	for i := range j.Count {
		out := core.Outgoing{ID: fmt.Sprintf("%s-%d", j.Prefix, i), Queue: j.To, Delay: j.Delay}
		out.Headers.Set(core.HeaderMessageID, out.ID)
		out.Body = []byte(out.ID)
		if err := transport.Send(ctx, out); err != nil {
			return err
		}
		s.say(event{hasSent, out.ID})
	}
	select {
	case <-ctx.Done():
	case <-s.gone:
	}
	return nil
}
