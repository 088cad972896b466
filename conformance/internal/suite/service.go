package suite

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

// service is an endpoint with its own input queue and error queue.
type service struct {
	*core.Endpoint
	t                 *caseT
	queue, errorQueue string

	mu     sync.Mutex
	cancel context.CancelFunc
	done   chan struct{} // closed when Run has returned
	err    error         // the result of Run
}

// service makes an endpoint in the case's mode, without retries, with its own queues;
// change may alter its configuration. The endpoint starts when run is called.
func (t *caseT) service(transport core.Transport, change func(c *core.Config)) *service {
	return t.serviceOn(transport, t.queue(transport), t.queue(transport), change)
}

// serviceOn is service on given queues, for several instances of one endpoint.
func (t *caseT) serviceOn(transport core.Transport, queue, errorQueue string, change func(c *core.Config)) *service {
	c := core.Config{
		Transactions: t.mode,
		Provision:    core.ProvisionNever,
		Logger:       t.log.logger(t.recordUnconfirmed),
		Recoverability: core.Recoverability{
			ErrorQueue: errorQueue,
			Immediate:  core.Immediate{NumberOfRetries: core.Off},
			Delayed:    core.Delayed{NumberOfRetries: core.Off},
			// A failed message that is redelivered for ever, without a handler that could
			// notice it, would stop a bubble's clock.
			UnacceptableMessageLimit: core.UnacceptableMessageLimit{Count: 1000},
		},
	}
	if change != nil {
		change(&c)
	}
	if limit := t.suite.h.MaxInFlight; limit > 0 {
		c.Concurrency = min(cmp.Or(c.Concurrency, 16), limit) // 16 is the default
	}
	ep, err := core.New(queue, transport, c)
	if err != nil {
		t.stop("core.New accepts a configuration that the transport can meet", "%v", err)
	}
	return &service{Endpoint: ep, t: t, queue: queue, errorQueue: errorQueue}
}

// handle registers a handler that receives the undecoded body.
func (s *service) handle(messageType string, h core.HandlerFunc, opts ...core.HandleOptions) {
	core.Handle(s.Endpoint, core.NewMessageType[[]byte](messageType), func(ctx context.Context, m *core.Message, _ []byte) error { return h(ctx, m) }, opts...)
}

// run starts the endpoint, and waits until it receives messages.
func (s *service) run() {
	s.launch()
	s.awaitReady()
}

// launch starts the endpoint.
func (s *service) launch() {
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.t.ctx))
	done := make(chan struct{})
	s.mu.Lock()
	s.cancel, s.done = cancel, done
	s.mu.Unlock()
	go func() {
		err := s.Run(ctx)
		s.mu.Lock()
		s.err = err
		s.mu.Unlock()
		close(done)
	}()
	s.t.Cleanup(func() {
		if err := s.stop(); err != nil {
			s.t.fail("Endpoint.Run returns nil after its context was cancelled", "%v", err)
		}
	})
}

// awaitReady waits until the endpoint receives messages.
func (s *service) awaitReady() {
	s.mu.Lock()
	done := s.done
	s.mu.Unlock()
	timer := time.NewTimer(s.t.timeout())
	defer timer.Stop()
	select {
	case <-s.Ready():
	case <-done:
		s.t.stop("an endpoint on the transport runs", "Endpoint.Run returned %v", s.ended())
	case <-timer.C:
		s.t.stop("an endpoint on the transport runs", "it is not Ready after %v", s.t.timeout())
	}
}

// stop drains the endpoint, and returns the result of Run. It may be called again.
func (s *service) stop() error {
	s.mu.Lock()
	cancel, done := s.cancel, s.done
	s.mu.Unlock()
	if done == nil {
		return nil
	}
	cancel()
	select {
	case <-done:
		return s.ended()
	case <-time.After(s.t.timeout()):
		return fmt.Errorf("Run did not return within %v", s.t.timeout())
	}
}

// end stops the endpoint, and checks that Run returned no error.
func (s *service) end() {
	if err := s.stop(); err != nil {
		s.t.stop("Endpoint.Run returns nil after its context was cancelled", "%v", err)
	}
}

// handleEvent registers a handler of events that receives the undecoded body.
func (s *service) handleEvent(topic string, h core.HandlerFunc) {
	core.HandleEvent(s.Endpoint, core.NewEvent[[]byte](topic), func(ctx context.Context, m *core.Message, _ []byte) error { return h(ctx, m) })
}

// endRun asks Run to end, and does not wait.
func (s *service) endRun() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cancel()
}

// hasEnded reports whether Run has returned.
func (s *service) hasEnded() bool {
	s.mu.Lock()
	done := s.done
	s.mu.Unlock()
	select {
	case <-done:
		return true
	default:
		return false
	}
}

func (s *service) ended() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// command returns a message for the handlers of a type.
func (t *caseT) command(queue, messageType, body string) core.Outgoing {
	m := t.message(queue, body)
	m.Headers.Set(headers.MessageTypes, messageType)
	return m
}
