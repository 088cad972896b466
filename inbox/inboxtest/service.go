package inboxtest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/core/queues"
	"github.com/reprise-go/reprise/inbox"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// service is an endpoint with an inbox, on a broker whose sends can be refused.
type service struct {
	db Database
	*broker

	mu     sync.Mutex
	runs   map[string]int // number of handler calls, by message id
	failed []error        // errors of attempts, without refusals
}

// broker is an in-memory broker.
type broker struct {
	*inmemory.Transport

	mu     sync.Mutex
	lost   int               // number of calls to refuse from now on
	called [][]core.Outgoing // messages sent by applications
}

var errRefused = errors.New("the broker refuses the send")

// Send implements core.Transport.
func (b *broker) Send(ctx context.Context, out ...core.Outgoing) error {
	if len(out) > 0 && out[0].Reason == core.ReasonApplication {
		b.mu.Lock()
		b.called = append(b.called, out)
		refused := b.lost > 0
		if refused {
			b.lost--
		}
		b.mu.Unlock()
		if refused {
			return errRefused
		}
	}
	return b.Transport.Send(ctx, out...)
}

func newService(ctx context.Context, db Database) (*service, error) {
	s := &service{db: db, broker: &broker{Transport: inmemory.Open()}, runs: map[string]int{}}
	return s, s.Provision(ctx, core.Topology{Queues: []string{"events", "parking", "error"}})
}

// inside is the configuration of a test's endpoint.
type inside struct {
	name     string
	handlers []core.HandlerFunc
	each     bool // handlers have inboxes, the endpoint does not
	retries  core.Recoverability
}

// run runs an endpoint on another store. stop ends the endpoint, and then its inbox.
func (s *service) run(ctx context.Context, in inside) (stop func() error, err error) {
	store, err := s.db.Open(ctx)
	if err != nil {
		return nil, err
	}
	quiet := slog.New(slog.DiscardHandler)
	box, err := inbox.New(inbox.Config{Store: store, Logger: quiet, Retention: 30 * 24 * time.Hour})
	if err != nil {
		return nil, err
	}
	config := core.Config{
		Transactions: core.TransactionReceiveOnly, Concurrency: 20, Provision: core.ProvisionAlways, Logger: quiet,
		Recoverability: in.retries, Observers: []core.Observer{{HandleEnd: s.handleEnd}},
	}
	if !in.each {
		config.Middleware = []core.Middleware{box.Middleware()}
	}
	ep, err := core.New(in.name, s.broker, config)
	if err != nil {
		return nil, err
	}
	for i, h := range in.handlers {
		var o core.HandleOptions
		if in.each {
			o.Middleware = []core.Middleware{box.Handler(fmt.Sprint("handler ", i))}
		}
		core.HandleEvent(ep, eventEvent, func(ctx context.Context, m *core.Message, _ []byte) error {
			s.ran(m.ID)
			return h(ctx, m)
		}, o)
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- ep.Run(ctx) }()
	select {
	case <-ep.Ready():
	case err := <-ended:
		cancel()
		return nil, err
	}
	return func() error {
		cancel()
		return errors.Join(<-ended, box.Close(context.WithoutCancel(ctx)))
	}, nil
}

func (s *service) ran(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs[id]++
}

func (s *service) handleEnd(_ context.Context, e core.Handling) {
	if v := core.VerdictOf(e.Err); e.Err == nil || v != nil && v.Action.Kind == core.ActionRefuse {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = append(s.failed, e.Err)
}

// put publishes events with these ids. Each call makes new copies.
func (s *service) put(ctx context.Context, ids ...string) error {
	for _, id := range ids {
		if err := s.Transport.Send(ctx, core.Outgoing{ID: id, Topic: "event", Body: []byte("event"), Headers: core.HeadersFromMap(map[string]string{
			headers.MessageID: id, headers.MessageTypes: "event",
		})}); err != nil {
			return err
		}
	}
	return nil
}

// drained waits until the queues are empty: no message is waiting, delayed or being
// handled.
func (s *service) drained(ctx context.Context, names ...string) error {
	for _, queue := range names {
		for {
			depth, err := s.Depth(ctx, queue)
			if err != nil {
				return err
			}
			if depth.Ready+depth.Locked+depth.Delayed == 0 {
				break
			}
			select {
			case <-time.After(time.Millisecond):
			case <-ctx.Done():
				return fmt.Errorf("the queue %s is not empty: %+v", queue, depth)
			}
		}
	}
	return nil
}

// arrived returns the messages in a queue.
func (s *service) arrived(ctx context.Context, queue string, want int) ([]queues.Message, error) {
	page, err := s.Browse(ctx, queues.Request{Queue: queue, Limit: 1000})
	if err == nil && len(page.Messages) != want {
		err = fmt.Errorf("%d messages have arrived in %s, want %d", len(page.Messages), queue, want)
	}
	return page.Messages, err
}

// hasRun checks the number of handler calls for a message.
func (s *service) hasRun(id string, want int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if got := s.runs[id]; got != want {
		return fmt.Errorf("the handlers ran %d times for %s, want %d", got, id, want)
	}
	return nil
}

// onlyFailures checks that no attempt failed with another error.
func (s *service) onlyFailures(allowed error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, err := range s.failed {
		if !errors.Is(err, allowed) {
			return fmt.Errorf("an attempt failed: %w", err)
		}
	}
	return nil
}
