package core

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// This file prepares an endpoint's queues, and opens the receiver of its input
// queue, or those of its input and its instance queue as one.

// connect creates and checks the endpoint's queues, and opens its receiver.
func (ep *Endpoint) connect(ctx context.Context, watch connectionReporter) (Receiver, error) {
	always := ep.config.Provision == ProvisionAlways
	if p, ok := ep.transport.(Provisioner); ok && (always || ep.config.Provision == ProvisionAuto && !ep.caps.Durable) {
		err := p.Provision(ctx, ep.topology())
		if err != nil && (always || !errors.Is(err, errors.ErrUnsupported)) {
			return nil, fmt.Errorf("provision: %w", err)
		}
	}
	if c, ok := ep.transport.(Checker); ok {
		if err := c.Check(ctx, ep.topology()); err != nil && !errors.Is(err, errors.ErrUnsupported) {
			return nil, fmt.Errorf("check: %w", err)
		}
	}
	if err := ep.subscribe(ctx); err != nil {
		return nil, err
	}
	ep.mu.Lock()
	concurrency := ep.concurrency
	ep.mu.Unlock()
	receiver, err := ep.openReceiver(ctx, ep.pumpRules().FirstMaxInFlight(concurrency), watch)
	if err == nil {
		ep.logWarnings()
	}
	return receiver, err
}

// openReceiver opens the receiver of the input queue or, if the endpoint has an instance
// queue, those of both.
func (ep *Endpoint) openReceiver(ctx context.Context, maxInFlight int, watch connectionReporter) (Receiver, error) {
	cfg := ReceiverConfig{
		Queue: ep.inputQueue(), Mode: ep.mode, MaxInFlight: maxInFlight, MaxDeliveries: ep.deliveriesFrom(ep.address),
		ConnectionChanged: watch.connectionChanged, MessageUndeliverable: watch.messageUndeliverable,
		MaxReceiveBytes: ep.maxReceiveBytes(),
		ErrorQueue:      ep.rules.config.Failed.ErrorQueue,
	}
	if ep.instanceAddress == "" {
		return ep.transport.OpenReceiver(ctx, cfg)
	}
	shared := &queueReceiver{queue: cfg.Queue, address: ep.address, maxInFlight: maxInFlight}
	own := &queueReceiver{queue: ep.resolved.instanceQueue, address: ep.instanceAddress, maxInFlight: 1}
	connections := &combinedConnection{report: watch.connectionChanged}
	for i, q := range []*queueReceiver{shared, own} {
		cfg.Queue, cfg.MaxInFlight = q.queue, q.maxInFlight
		cfg.ConnectionChanged = func(e ConnectionChange) { connections.changed(i, e) }
		cfg.MaxDeliveries = ep.deliveriesFrom(q.address)
		var err error
		if q.receiver, err = ep.transport.OpenReceiver(ctx, cfg); err != nil {
			return nil, errors.Join(err, shared.closeIfOpen(ctx))
		}
	}
	c := newCombinedReceiver(shared, own, ep.mode, ep.caps)
	c.maxInFlight = maxInFlight
	return c, nil
}

// closeIfOpen closes the receiver if it is open, after that of the other queue could
// not be opened.
func (q *queueReceiver) closeIfOpen(ctx context.Context) error {
	if q.receiver == nil {
		return nil
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeGrace)
	defer cancel()
	return q.receiver.Close(closing)
}

// combinedConnection combines the connections of two receivers into one: it is lost while
// one of them is.
type combinedConnection struct {
	report func(ConnectionChange)

	mu   sync.Mutex
	lost [2]time.Time
}

// changed records a change of one of the two, and reports the change of the combined
// connection.
func (c *combinedConnection) changed(i int, e ConnectionChange) {
	c.mu.Lock()
	defer c.mu.Unlock()
	other := c.lost[1-i]
	if e.Connected {
		c.lost[i] = time.Time{}
		if !other.IsZero() {
			return
		}
	} else {
		c.lost[i] = e.Since
		if !other.IsZero() && other.Before(e.Since) {
			e.Since = other
		}
	}
	c.report(e)
}
