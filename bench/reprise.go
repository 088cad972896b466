package main

import (
	"cmp"
	"context"

	"github.com/reprise-go/reprise/core"
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

// repriseSystem is a running endpoint on some transport.
type repriseSystem struct {
	setup     repriseSetup
	transport core.Transport
	endpoint  *core.Endpoint
	body      []byte
	finished  chan error // the result of Run
	stop      context.CancelFunc
}

// repriseErrorQueue is the error queue of endpoints.
const repriseErrorQueue = "error"

// endpointOn returns an endpoint that does not run yet.
func (setup repriseSetup) endpointOn(t core.Transport, handle func(string) error) (*core.Endpoint, error) {
	ep, err := core.New(ordersQueue, t, core.Config{
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
		return s.endpoint.Send(ctx, ordersQueue, messageType, s.body, core.SendOptions{Headers: headers})
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
	return core.Outgoing{ID: sequence, Queue: ordersQueue, Headers: headers, Body: body}
}

func (s *repriseSystem) close(context.Context) error {
	s.stop()
	return <-s.finished
}
