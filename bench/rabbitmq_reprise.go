package main

import (
	"context"
	"errors"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/rabbitmq"
)

// rabbitSetup is one way of running Reprise on RabbitMQ.
type rabbitSetup struct {
	repriseSetup
	instances int // of the endpoint, each with its own transport; 0 is one
}

func (setup rabbitSetup) keeper(on *rabbitSystem, name string) keeper {
	return keeper{name, func(ctx context.Context) (store, error) { return setup.openOn(ctx, on) }}
}

// rabbitStore is Reprise on separate queues.
type rabbitStore struct {
	setup rabbitSetup
	*rabbitQueues
	transports []*rabbitmq.Transport // the first one sends as well
	body       []byte

	running  int
	finished chan error
	end      context.CancelFunc
}

func (setup rabbitSetup) openOn(ctx context.Context, on *rabbitSystem) (_ store, err error) {
	server, err := on.server()
	if err != nil {
		return nil, err
	}
	queues, err := server.newQueues()
	if err != nil {
		return nil, err
	}
	s := &rabbitStore{setup: setup, rabbitQueues: queues, body: setup.body()}
	for range max(setup.instances, 1) {
		t, err := rabbitmq.Open(server.url)
		if err != nil {
			return nil, errors.Join(err, s.close(ctx))
		}
		s.transports = append(s.transports, t)
	}
	if err := s.transports[0].Provision(ctx, core.Topology{InputQueue: ordersQueue, Queues: rabbitNames}); err != nil {
		return nil, errors.Join(err, s.close(ctx))
	}
	return s, nil
}

func (s *rabbitStore) send(ctx context.Context, sequences []string) error {
	messages := make([]core.Outgoing, len(sequences))
	for i, sequence := range sequences {
		messages[i] = repriseMessage(sequence, s.body)
	}
	return s.transports[0].Send(ctx, messages...)
}

func (s *rabbitStore) start(ctx context.Context, handle func(string) error) error {
	ctx, s.end = context.WithCancel(ctx)
	s.finished = make(chan error, len(s.transports))
	for _, t := range s.transports {
		ep, err := s.setup.endpointOn(t, handle)
		if err != nil {
			return err
		}
		s.running++
		go func() { s.finished <- ep.Run(ctx) }()
	}
	return nil
}

func (s *rabbitStore) stop(context.Context) error {
	s.end()
	var errs []error
	for ; s.running > 0; s.running-- {
		errs = append(errs, <-s.finished)
	}
	return errors.Join(errs...)
}

func (s *rabbitStore) close(ctx context.Context) error {
	var errs []error
	if s.end != nil {
		errs = append(errs, s.stop(ctx)) // a second time, unless there was an error
	}
	ctx = context.WithoutCancel(ctx)
	for _, t := range s.transports {
		errs = append(errs, t.Close(ctx))
	}
	return errors.Join(append(errs, s.drop())...)
}
