package main

import (
	"context"
	"errors"

	"github.com/reprise-go/reprise/core"
)

// queueStore is an endpoint of Reprise on separate queues of a service.
type queueStore struct {
	setup     repriseSetup
	transport core.Transport
	drop      func(ctx context.Context) error // removes the queues
	body      []byte                          // of each message

	finished chan error // the result of Run; nil when it does not run
	end      context.CancelFunc
}

func (s *queueStore) send(ctx context.Context, sequences []string) error {
	messages := make([]core.Outgoing, len(sequences))
	for i, sequence := range sequences {
		messages[i] = repriseMessage(sequence, s.body)
	}
	return s.transport.Send(ctx, messages...)
}

func (s *queueStore) start(ctx context.Context, handle func(string) error) error {
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

func (s *queueStore) stop(context.Context) error {
	if s.finished == nil {
		return nil
	}
	s.end()
	err := <-s.finished
	s.finished = nil
	return err
}

func (s *queueStore) close(ctx context.Context) error {
	err := s.stop(ctx) // a second time, unless there was an error
	err = errors.Join(err, s.transport.Close(context.WithoutCancel(ctx)))
	return errors.Join(err, s.drop(ctx))
}
