package main

import (
	"context"
	"errors"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/asb"
)

// asbSetup is one way of running Reprise on Service Bus.
type asbSetup struct {
	repriseSetup
	away time.Duration // delay of answers
}

func (setup asbSetup) keeper(on *asbSystem, name string) keeper {
	return keeper{name, func(ctx context.Context) (store, error) { return setup.openOn(ctx, on) }}
}

// asbStore is Reprise on separate queues.
type asbStore struct {
	*asbQueues
	queueStore
}

func (setup asbSetup) openOn(ctx context.Context, on *asbSystem) (store, error) {
	server, err := on.server(ctx, setup.away)
	if err != nil {
		return nil, err
	}
	queues, err := server.newQueues()
	if err != nil {
		return nil, err
	}
	t, err := queues.open(ctx)
	if err != nil {
		return nil, errors.Join(err, queues.drop(ctx))
	}
	return &asbStore{queues, queueStore{setup: setup.repriseSetup, transport: t, drop: queues.drop, body: setup.body()}}, nil
}

// open opens a transport with default settings, and makes its queues.
func (q *asbQueues) open(ctx context.Context) (*asb.Transport, error) {
	t, err := asb.New(asb.Config{ConnectionString: q.server.connectionString, AdminEndpoint: "http://" + q.server.admin, QueuePrefix: q.prefix})
	if err != nil {
		return nil, err
	}
	if err := t.Provision(ctx, core.Topology{InputQueue: ordersQueue, Queues: []string{ordersQueue, repriseErrorQueue}}); err != nil {
		return nil, errors.Join(err, t.Close(ctx))
	}
	return t, nil
}
