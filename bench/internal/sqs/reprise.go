package sqs

import (
	"context"
	"errors"
	"time"

	"github.com/reprise-go/reprise/bench/internal/measure"
	"github.com/reprise-go/reprise/bench/internal/reprise"
	"github.com/reprise-go/reprise/bench/internal/workload"
	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/sqs"
)

// repriseSetup is one way of running Reprise on SQS.
type repriseSetup struct {
	reprise.Setup
	latency time.Duration // delay of answers
}

func (setup repriseSetup) contender(servers *Servers, name string) measure.StoreContender {
	return measure.StoreContender{Name: name, Open: func(ctx context.Context) (measure.Store, error) { return setup.openOn(ctx, servers) }}
}

// repriseStore is Reprise on separate queues.
type repriseStore struct {
	*sampleQueues
	reprise.QueueStore
}

func (setup repriseSetup) openOn(ctx context.Context, servers *Servers) (measure.Store, error) {
	running, err := servers.ensureRunning(setup.latency)
	if err != nil {
		return nil, err
	}
	queues := running.newQueues()
	t, err := queues.open(ctx)
	if err != nil {
		return nil, errors.Join(err, queues.drop(ctx))
	}
	return &repriseStore{queues, reprise.QueueStore{Setup: setup.Setup, Transport: t, Drop: queues.drop, Body: setup.Body()}}, nil
}

// open opens a transport with default settings, and makes its queues.
func (q *sampleQueues) open(ctx context.Context) (*sqs.Transport, error) {
	config := q.server.config()
	t, err := sqs.New(sqs.Config{AWS: &config, QueuePrefix: q.prefix, WaitTime: waitTime})
	if err != nil {
		return nil, err
	}
	if err := t.Provision(ctx, core.Topology{InputQueue: workload.Queue, Queues: []string{workload.Queue, reprise.ErrorQueue}}); err != nil {
		return nil, errors.Join(err, t.Close(ctx))
	}
	return t, nil
}
