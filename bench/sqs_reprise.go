package main

import (
	"context"
	"errors"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/sqs"
)

// sqsSetup is one way of running Reprise on SQS.
type sqsSetup struct {
	repriseSetup
	away time.Duration // by which answers come later
}

func (setup sqsSetup) keeper(l load, name string) keeper {
	return keeper{name, func(ctx context.Context) (store, error) { return setup.openOn(ctx, l) }}
}

// sqsStore is Reprise on separate queues.
type sqsStore struct {
	setup sqsSetup
	*sqsQueues
	transport *sqs.Transport
	body      []byte

	finished chan error // what Run returned; nil when it does not run
	end      context.CancelFunc
}

func (setup sqsSetup) openOn(ctx context.Context, l load) (_ store, err error) {
	server, err := l.on.sqs(setup.away)
	if err != nil {
		return nil, err
	}
	s := &sqsStore{setup: setup, sqsQueues: server.newQueues(), body: setup.body()}
	if s.transport, err = s.open(ctx); err != nil {
		return nil, errors.Join(err, s.close(ctx))
	}
	return s, nil
}

// open opens a transport as somebody would who has set nothing, and makes its queues.
func (q *sqsQueues) open(ctx context.Context) (*sqs.Transport, error) {
	config := q.server.config()
	t, err := sqs.New(ctx, sqs.Config{AWS: &config, QueuePrefix: q.prefix, WaitTime: sqsWait})
	if err != nil {
		return nil, err
	}
	if err := t.Provision(ctx, core.Topology{Queues: []string{repriseQueue, repriseErrorQueue}}); err != nil {
		return nil, errors.Join(err, t.Close(ctx))
	}
	return t, nil
}

func (s *sqsStore) send(ctx context.Context, sequences []string) error {
	messages := make([]core.Outgoing, len(sequences))
	for i, sequence := range sequences {
		messages[i] = repriseMessage(sequence, s.body)
	}
	return s.transport.Send(ctx, messages...)
}

func (s *sqsStore) start(ctx context.Context, handle func(string) error) error {
	ep, err := s.setup.endpointOn(s.transport, handle)
	if err != nil {
		return err
	}
	ctx, s.end = context.WithCancel(ctx)
	finished := make(chan error, 1)
	s.finished = finished
	go func() { finished <- ep.Run(ctx) }()
	return nil
}

func (s *sqsStore) stop(context.Context) error {
	if s.finished == nil {
		return nil
	}
	s.end()
	err := <-s.finished
	s.finished = nil
	return err
}

func (s *sqsStore) close(ctx context.Context) error {
	err := s.stop(ctx) // again, unless something failed
	if s.transport != nil {
		err = errors.Join(err, s.transport.Close(context.WithoutCancel(ctx)))
	}
	return errors.Join(err, s.drop(ctx))
}
