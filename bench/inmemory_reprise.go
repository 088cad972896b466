package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/reprise-go/reprise/transport/inmemory"
)

// repriseContender returns Reprise on a separate in-memory transport.
func repriseContender(setup repriseSetup, name string) contender {
	return contender{name, func(ctx context.Context, handle func(string) error) (system, error) {
		t := inmemory.Open()
		sys, err := startInMemory(ctx, setup, t, handle)
		if err != nil {
			return nil, errors.Join(err, t.Close(ctx))
		}
		return sys, nil
	}}
}

// inMemorySystem is a system with its own in-memory transport, which reports its
// messages.
type inMemorySystem struct {
	*repriseSystem
	transport *inmemory.Transport
}

// startInMemory starts an endpoint on an open transport, which the system closes at its end.
func startInMemory(ctx context.Context, setup repriseSetup, t *inmemory.Transport, handle func(string) error) (*inMemorySystem, error) {
	sys, err := setup.start(ctx, t, handle)
	if err != nil {
		return nil, err
	}
	return &inMemorySystem{sys, t}, nil
}

func (s *inMemorySystem) close(ctx context.Context) error {
	errs := []error{s.repriseSystem.close(ctx)}
	for _, queue := range []string{ordersQueue, repriseErrorQueue, inmemory.DeadLetterQueue(ordersQueue)} {
		depth, err := s.transport.Depth(queue)
		if err == nil && depth.Total() > 0 {
			err = fmt.Errorf("queue %q still holds messages: %+v", queue, depth)
		}
		errs = append(errs, err)
	}
	return errors.Join(append(errs, s.transport.Close(ctx))...)
}
