// Package reprise has the parts of Reprise's contenders that do not depend on the transport.
package reprise

import (
	"cmp"
	"context"
	"log/slog"

	"github.com/reprise-go/reprise/bench/internal/workload"
	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/core/logformat"
)

var placed = core.NewMessageType[[]byte]("orders.placed")

// Setup is one way of running Reprise. All other settings are as in production:
// recoverability on, log lines at Info or above folded as docs/recoverability.md recommends,
// formatted and discarded, so that the speed of a terminal does not matter.
type Setup struct {
	Mode             core.TransactionMode
	Concurrency      int                                              // 0 is Config's default
	BodySize         int                                              // 0 is workload.BodySize
	EndpointSend     bool                                             // send by Endpoint.Send, not Transport.Send
	Sends            bool                                             // the handler sends a message
	Work             func(ctx context.Context, sequence string) error // of the handler, before that
	NoDelayedRetries bool
	Observers        []core.Observer
	Middleware       []core.Middleware
}

// System is a running endpoint on some transport.
type System struct {
	setup     Setup
	transport core.Transport
	endpoint  *core.Endpoint
	body      []byte
	finished  chan error // the result of Run
	stop      context.CancelFunc
}

// ErrorQueue is the error queue of endpoints.
const ErrorQueue = "error"

// NewEndpoint returns an endpoint that does not run yet.
func (setup Setup) NewEndpoint(t core.Transport, handle func(string) error) (*core.Endpoint, error) {
	delayed := core.Delayed{}
	if setup.NoDelayedRetries {
		delayed.NumberOfRetries = core.Off
	}
	ep, err := core.New(workload.Queue, t, core.Config{
		Transactions:   setup.Mode,
		Concurrency:    setup.Concurrency,
		Recoverability: core.Recoverability{ErrorQueue: ErrorQueue, Delayed: delayed},
		Observers:      setup.Observers,
		Middleware:     setup.Middleware,
		Logger:         slog.New(logformat.FoldRepeats(workload.DiscardingLogger().Handler(), 100)),
	})
	if err != nil {
		return nil, err
	}
	body := setup.Body()
	core.Handle(ep, placed, func(ctx context.Context, m *core.Message, _ []byte) error {
		sequence := m.Headers.Get(workload.SequenceHeader)
		if setup.Work != nil {
			if err := setup.Work(ctx, sequence); err != nil {
				return err
			}
		}
		if err := handle(sequence); err != nil || !setup.Sends {
			return err
		}
		return m.Send(workload.HandlerQueue, placed.Of(body))
	})
	return ep, nil
}

// Body returns the body of a message.
func (setup Setup) Body() []byte { return make([]byte, cmp.Or(setup.BodySize, workload.BodySize)) }

// Start starts an endpoint on a transport.
func (setup Setup) Start(ctx context.Context, t core.Transport, handle func(string) error) (*System, error) {
	ep, err := setup.NewEndpoint(t, handle)
	if err != nil {
		return nil, err
	}
	if err := ep.Provision(ctx); err != nil { // so that sends need not wait for Run
		return nil, err
	}
	running, stop := context.WithCancel(ctx)
	sys := &System{setup, t, ep, setup.Body(), make(chan error, 1), stop}
	go func() { sys.finished <- ep.Run(running) }()
	return sys, nil
}

// Send implements measure.System.
func (s *System) Send(ctx context.Context, sequence string) error {
	if s.setup.EndpointSend {
		sent := make(map[string]string, len(workload.Headers)+1)
		for _, h := range workload.Headers {
			sent[h.Key] = h.Value
		}
		sent[workload.SequenceHeader] = sequence
		return s.endpoint.Send(ctx, workload.Queue, placed.Of(s.body).With(core.SendOptions{Headers: sent}))
	}
	return s.transport.Send(ctx, Message(sequence, s.body))
}

// Message is the message for sends without an endpoint.
func Message(sequence string, body []byte) core.Outgoing {
	var sent core.Headers
	sent.Set(headers.MessageTypes, workload.MessageType)
	for _, h := range workload.Headers {
		sent.Set(h.Key, h.Value)
	}
	sent.Set(workload.SequenceHeader, sequence)
	return core.Outgoing{ID: sequence, Queue: workload.Queue, Headers: sent, Body: body}
}

// Close stops the endpoint. The transport stays open.
func (s *System) Close(context.Context) error {
	s.stop()
	return <-s.finished
}
