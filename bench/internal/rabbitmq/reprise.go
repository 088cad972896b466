package rabbitmq

import (
	"context"
	"errors"

	"github.com/reprise-go/reprise/bench/internal/measure"
	"github.com/reprise-go/reprise/bench/internal/reprise"
	"github.com/reprise-go/reprise/bench/internal/workload"
	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/rabbitmq"
)

// repriseSetup is one way of running Reprise on RabbitMQ.
type repriseSetup struct {
	reprise.Setup
	instances int // of the endpoint, each with its own transport; 0 is one
}

func (setup repriseSetup) contender(server *Server, name string) measure.StoreContender {
	return measure.StoreContender{Name: name, Open: func(ctx context.Context) (measure.Store, error) { return setup.openOn(ctx, server) }}
}

// repriseStore is Reprise on separate queues.
type repriseStore struct {
	setup repriseSetup
	*sampleQueues
	transports []*rabbitmq.Transport // the first one sends as well
	body       []byte

	running  int
	finished chan error
	end      context.CancelFunc
}

func (setup repriseSetup) openOn(ctx context.Context, server *Server) (_ measure.Store, err error) {
	running, err := server.ensureRunning()
	if err != nil {
		return nil, err
	}
	queues, err := running.newQueues()
	if err != nil {
		return nil, err
	}
	s := &repriseStore{setup: setup, sampleQueues: queues, body: setup.Body()}
	for range max(setup.instances, 1) {
		t, err := rabbitmq.Open(running.url)
		if err != nil {
			return nil, errors.Join(err, s.Close(ctx))
		}
		s.transports = append(s.transports, t)
	}
	if err := s.transports[0].Provision(ctx, core.Topology{InputQueue: workload.Queue, Queues: queueNames}); err != nil {
		return nil, errors.Join(err, s.Close(ctx))
	}
	return s, nil
}

func (s *repriseStore) Send(ctx context.Context, sequences []string) error {
	messages := make([]core.Outgoing, len(sequences))
	for i, sequence := range sequences {
		messages[i] = reprise.Message(sequence, s.body)
	}
	return s.transports[0].Send(ctx, messages...)
}

func (s *repriseStore) Start(ctx context.Context, handle func(string) error) error {
	ctx, s.end = context.WithCancel(ctx)
	s.finished = make(chan error, len(s.transports))
	for _, t := range s.transports {
		ep, err := s.setup.NewEndpoint(t, handle)
		if err != nil {
			return err
		}
		s.running++
		go func() { s.finished <- ep.Run(ctx) }()
	}
	return nil
}

func (s *repriseStore) Stop(context.Context) error {
	s.end()
	var errs []error
	for ; s.running > 0; s.running-- {
		errs = append(errs, <-s.finished)
	}
	return errors.Join(errs...)
}

func (s *repriseStore) Close(ctx context.Context) error {
	var errs []error
	if s.end != nil {
		errs = append(errs, s.Stop(ctx)) // a second time, unless there was an error
	}
	ctx = context.WithoutCancel(ctx)
	for _, t := range s.transports {
		errs = append(errs, t.Close(ctx))
	}
	return errors.Join(append(errs, s.drop())...)
}
