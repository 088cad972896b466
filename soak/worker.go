package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/logformat"
)

// errorQueue is the error queue of all endpoints.
const errorQueue = "failed"

// concurrency is the concurrency of each endpoint of a worker.
const concurrency = 8

// types are the types of the messages for each stage.
var types = [stages]string{"soak.place-order", "soak.ship-order", "soak.order-placed"}

// body is the body of all messages.
type body struct{ Order int }

// A job runs the endpoints of one worker.
type job struct {
	transport core.Transport
	guarantees
	pace   time.Duration // a handler takes up to twice as long
	record func(fact)
	log    io.Writer

	// addRow, if not nil, writes one row in the transaction of the message.
	addRow func(ctx context.Context, m *core.Message, s stage, id int) error
}

var (
	errAlways = errors.New("this order always fails")
	errChance = errors.New("this attempt fails by chance")
)

// failureChance is the probability that an attempt fails, for an order that does not
// always fail. Such an order does not fail in its last round, so that it is never moved
// to the error queue.
const failureChance = 0.2

// endpoints returns an endpoint for each stage.
func (j *job) endpoints(log *slog.Logger) ([]*core.Endpoint, error) {
	var all []*core.Endpoint
	for s := range stages {
		ep, err := core.New(j.queue(s), j.transport, core.Config{
			Transactions: j.mode, Concurrency: concurrency, Logger: log,
			Recoverability: core.Recoverability{
				Immediate:  core.Immediate{NumberOfRetries: immediateRetries},
				Delayed:    core.Delayed{NumberOfRetries: delayedRetries, TimeIncrease: delayIncrease},
				ErrorQueue: errorQueue,
			},
		})
		if err != nil {
			return nil, err
		}
		handle := func(ctx context.Context, m *core.Message, content body) error { return j.handle(ctx, m, content, s) }
		if s == notices {
			core.HandleEvent(ep, core.NewEvent[body](j.messageType(s)), handle)
		} else {
			core.Handle(ep, core.NewMessageType[body](j.messageType(s)), handle)
		}
		all = append(all, ep)
	}
	return all, nil
}

// run runs the endpoints until ctx ends, and records when they are ready, and why they
// ended if they were not asked to.
func (j *job) run(ctx context.Context) error {
	folder := logformat.FoldRepeats(slog.NewTextHandler(j.log, &slog.HandlerOptions{Level: slog.LevelWarn}), 100)
	defer folder.Flush()
	all, err := j.endpoints(slog.New(folder))
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	var ready atomic.Bool
	go func() {
		for _, ep := range all {
			select {
			case <-ep.Ready():
			case <-ended:
				return
			}
		}
		ready.Store(true)
		j.report(factReady, 0, 0, "")
	}()
	err = core.RunAll(ctx, all...)
	close(ended)
	switch {
	case ctx.Err() != nil: // it was asked to
	case ready.Load():
		j.report(factEnded, 0, 0, fmt.Sprintf("RunAll returned %v", err))
	default:
		j.report(factRefused, 0, 0, fmt.Sprint(err))
	}
	return err
}

func (j *job) report(kind factKind, s stage, id int, text string) {
	j.record(fact{kind: kind, at: time.Now(), stage: s, id: id, text: text})
}

// handle handles one message of a stage.
func (j *job) handle(ctx context.Context, m *core.Message, content body, s stage) error {
	id, began := content.Order, time.Now()
	if alwaysFails(id) {
		j.report(factBegan, s, id, "")
	}
	select {
	case <-time.After(rand.N(2 * j.pace)):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if j.addRow != nil {
		if err := j.addRow(ctx, m, s, id); err != nil {
			return err
		}
	}
	if s == orders {
		if err := errors.Join(
			m.Send(j.queue(shipping), core.NewMessageType[body](j.messageType(shipping)).Of(content).With(core.SendOptions{GroupKey: m.GroupKey()})),
			m.Publish(core.NewEvent[body](j.messageType(notices)).Of(content).With(core.SendOptions{GroupKey: m.GroupKey()})),
		); err != nil {
			return err
		}
	}
	// A failure comes last, so that there are rows and messages to be dropped.
	switch {
	case alwaysFails(id):
		j.report(factFailed, s, id, "")
		return errAlways
	case m.DelayedRetries < delayedRetries && rand.Float64() < failureChance:
		j.report(factFailed, s, id, "")
		if rand.IntN(4) == 0 {
			panic(errChance)
		}
		return errChance
	}
	now := time.Now()
	j.record(fact{kind: factHandled, at: now, took: now.Sub(began), stage: s, id: id})
	return nil
}
