package reprise

import (
	"context"
	"errors"

	"github.com/reprise-go/reprise/core"
)

// QueueStore is an endpoint of Reprise on separate queues of a service. It has the methods of measure.Store that are the same for
// all services.
type QueueStore struct {
	Setup     Setup
	Transport core.Transport
	Drop      func(ctx context.Context) error // removes the queues
	Body      []byte                          // of each message

	finished chan error // the result of Run; nil when it does not run
	end      context.CancelFunc
}

// Send implements measure.Store.
func (s *QueueStore) Send(ctx context.Context, sequences []string) error {
	messages := make([]core.Outgoing, len(sequences))
	for i, sequence := range sequences {
		messages[i] = Message(sequence, s.Body)
	}
	return s.Transport.Send(ctx, messages...)
}

// Start implements measure.Store.
func (s *QueueStore) Start(ctx context.Context, handle func(string) error) error {
	ep, err := s.Setup.NewEndpoint(s.Transport, handle)
	if err != nil {
		return err
	}
	ctx, s.end = context.WithCancel(ctx)
	finished := make(chan error, 1)
	s.finished = finished
	go func() { finished <- ep.Run(ctx) }()
	return nil
}

// Stop implements measure.Store.
func (s *QueueStore) Stop(context.Context) error {
	if s.finished == nil {
		return nil
	}
	s.end()
	err := <-s.finished
	s.finished = nil
	return err
}

// Close implements measure.Store.
func (s *QueueStore) Close(ctx context.Context) error {
	err := s.Stop(ctx) // a second time, unless there was an error
	err = errors.Join(err, s.Transport.Close(context.WithoutCancel(ctx)))
	return errors.Join(err, s.Drop(ctx))
}
