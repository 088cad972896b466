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
	away time.Duration // delay of answers
}

func (setup sqsSetup) keeper(on *sqsSystem, name string) keeper {
	return keeper{name, func(ctx context.Context) (store, error) { return setup.openOn(ctx, on) }}
}

// sqsStore is Reprise on separate queues.
type sqsStore struct {
	*sqsQueues
	queueStore
}

func (setup sqsSetup) openOn(ctx context.Context, on *sqsSystem) (store, error) {
	server, err := on.server(setup.away)
	if err != nil {
		return nil, err
	}
	queues := server.newQueues()
	t, err := queues.open(ctx)
	if err != nil {
		return nil, errors.Join(err, queues.drop(ctx))
	}
	return &sqsStore{queues, queueStore{setup: setup.repriseSetup, transport: t, drop: queues.drop, body: setup.body()}}, nil
}

// open opens a transport with default settings, and makes its queues.
func (q *sqsQueues) open(ctx context.Context) (*sqs.Transport, error) {
	config := q.server.config()
	t, err := sqs.New(sqs.Config{AWS: &config, QueuePrefix: q.prefix, WaitTime: sqsWait})
	if err != nil {
		return nil, err
	}
	if err := t.Provision(ctx, core.Topology{InputQueue: ordersQueue, Queues: []string{ordersQueue, repriseErrorQueue}}); err != nil {
		return nil, errors.Join(err, t.Close(ctx))
	}
	return t, nil
}
