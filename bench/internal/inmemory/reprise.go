package inmemory

import (
	"context"
	"errors"
	"fmt"

	"github.com/reprise-go/reprise/bench/internal/measure"
	"github.com/reprise-go/reprise/bench/internal/reprise"
	"github.com/reprise-go/reprise/bench/internal/workload"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// repriseContender returns Reprise on a separate in-memory transport.
func repriseContender(setup reprise.Setup, name string) measure.Contender {
	return measure.Contender{Name: name, Open: func(ctx context.Context, handle func(string) error) (measure.System, error) {
		t := inmemory.Open()
		sys, err := Start(ctx, setup, t, handle)
		if err != nil {
			return nil, errors.Join(err, t.Close(ctx))
		}
		return sys, nil
	}}
}

// System is a system with its own in-memory transport, which reports its
// messages.
type System struct {
	*reprise.System
	transport *inmemory.Transport
}

// Start starts an endpoint on an open transport, which the system closes at its end.
func Start(ctx context.Context, setup reprise.Setup, t *inmemory.Transport, handle func(string) error) (*System, error) {
	sys, err := setup.Start(ctx, t, handle)
	if err != nil {
		return nil, err
	}
	return &System{sys, t}, nil
}

// Close stops the endpoint, and returns an error if a queue has a message.
func (s *System) Close(ctx context.Context) error {
	errs := []error{s.System.Close(ctx)}
	for _, queue := range []string{workload.Queue, reprise.ErrorQueue, inmemory.DeadLetterQueue(workload.Queue)} {
		depth, err := s.transport.Depth(ctx, queue)
		if err == nil && depth.Ready+depth.Locked+depth.Delayed > 0 {
			err = fmt.Errorf("queue %q still holds messages: %+v", queue, depth)
		}
		errs = append(errs, err)
	}
	return errors.Join(append(errs, s.transport.Close(ctx))...)
}
