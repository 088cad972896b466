package core

import (
	"context"
	"errors"
	"fmt"
)

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
	receiver, err := ep.transport.OpenReceiver(ctx, ReceiverConfig{
		Queue: ep.inputQueue(), Mode: ep.mode, MaxInFlight: ep.pumpRules().FirstMaxInFlight(concurrency), MaxDeliveries: ep.rules.receiverMaxDeliveries(),
		ConnectionChanged: watch.connectionChanged, MessageUndeliverable: watch.messageUndeliverable,
		MaxReceiveBytes: ep.maxReceiveBytes(),
		ErrorQueue:      ep.rules.config.Failed.ErrorQueue,
	})
	if err == nil {
		ep.logWarnings()
	}
	return receiver, err
}
