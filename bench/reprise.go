package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// repriseSetup is one way of running Reprise. All other settings are as in production:
// recoverability on, every log line at Info or above formatted (and discarded, so that
// the speed of a terminal does not matter).
type repriseSetup struct {
	mode        core.TransactionMode
	concurrency int                                              // 0 is Config's default
	bodySize    int                                              // 0 is bodySize
	endpoint    bool                                             // send by Endpoint.Send, not Transport.Send
	sends       bool                                             // the handler sends a message
	work        func(ctx context.Context, sequence string) error // of the handler, before that
	undelayed   bool                                             // no delayed retries
	observers   []core.Observer
	middleware  []core.Middleware
}

func (setup repriseSetup) inMemory(name string) contender {
	return contender{name, func(ctx context.Context, handle func(string) error) (system, error) {
		t := inmemory.Open()
		sys, err := setup.start(ctx, t, handle)
		if err != nil {
			return nil, errors.Join(err, t.Close(ctx))
		}
		return &inMemorySystem{sys, t}, nil
	}}
}

// repriseSystem is a running endpoint on some transport.
type repriseSystem struct {
	setup     repriseSetup
	transport core.Transport
	endpoint  *core.Endpoint
	body      []byte
	finished  chan error // the result of Run
	stop      context.CancelFunc
}

const (
	repriseQueue      = "orders"
	repriseErrorQueue = "error"
)

// handlerQueue is the destination of handlers' sends.
const handlerQueue = "shipping"

// endpointOn returns an endpoint that does not run yet.
func (setup repriseSetup) endpointOn(t core.Transport, handle func(string) error) (*core.Endpoint, error) {
	ep, err := core.New(repriseQueue, t, core.Config{
		Transactions:   setup.mode,
		Concurrency:    setup.concurrency,
		Recoverability: core.Recoverability{ErrorQueue: repriseErrorQueue, Delayed: core.Delayed{Off: setup.undelayed}},
		Observers:      setup.observers,
		Middleware:     setup.middleware,
		Logger:         discardingLogger(),
	})
	if err != nil {
		return nil, err
	}
	body := setup.body()
	core.Handle(ep, messageType, func(ctx context.Context, m *core.TypedMessage[[]byte]) error {
		sequence := m.Headers.Get(sequenceHeader)
		if setup.work != nil {
			if err := setup.work(ctx, sequence); err != nil {
				return err
			}
		}
		if err := handle(sequence); err != nil || !setup.sends {
			return err
		}
		return m.Send(handlerQueue, messageType, body)
	})
	return ep, nil
}

func (setup repriseSetup) body() []byte { return make([]byte, cmp.Or(setup.bodySize, bodySize)) }

func (setup repriseSetup) start(ctx context.Context, t core.Transport, handle func(string) error) (*repriseSystem, error) {
	ep, err := setup.endpointOn(t, handle)
	if err != nil {
		return nil, err
	}
	if err := ep.Provision(ctx); err != nil { // so that sends need not wait for Run
		return nil, err
	}
	running, stop := context.WithCancel(ctx)
	sys := &repriseSystem{setup, t, ep, setup.body(), make(chan error, 1), stop}
	go func() { sys.finished <- ep.Run(running) }()
	return sys, nil
}

func (s *repriseSystem) send(ctx context.Context, sequence string) error {
	if s.setup.endpoint {
		headers := make(map[string]string, len(fixedHeaders)+1)
		for _, h := range fixedHeaders {
			headers[h.key] = h.value
		}
		headers[sequenceHeader] = sequence
		return s.endpoint.Send(ctx, repriseQueue, messageType, s.body, core.SendOptions{Headers: headers})
	}
	return s.transport.Send(ctx, repriseMessage(sequence, s.body))
}

// repriseMessage is the message for sends without an endpoint.
func repriseMessage(sequence string, body []byte) core.Outgoing {
	var headers core.Headers
	headers.Set(core.HeaderMessageTypes, messageType)
	for _, h := range fixedHeaders {
		headers.Set(h.key, h.value)
	}
	headers.Set(sequenceHeader, sequence)
	return core.Outgoing{ID: sequence, Queue: repriseQueue, Headers: headers, Body: body}
}

func (s *repriseSystem) close(context.Context) error {
	s.stop()
	return <-s.finished
}

// inMemorySystem is a system with its own in-memory transport, which reports its
// messages.
type inMemorySystem struct {
	*repriseSystem
	transport *inmemory.Transport
}

func (s *inMemorySystem) close(ctx context.Context) error {
	errs := []error{s.repriseSystem.close(ctx)}
	for _, queue := range []string{repriseQueue, repriseErrorQueue, inmemory.DeadLetterQueue(repriseQueue)} {
		depth, err := s.transport.Depth(queue)
		if err == nil && depth.Total() > 0 {
			err = fmt.Errorf("queue %q still holds messages: %+v", queue, depth)
		}
		errs = append(errs, err)
	}
	return errors.Join(append(errs, s.transport.Close(ctx))...)
}

// discardingLogger formats lines at Info and above, and discards them.
func discardingLogger() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }
