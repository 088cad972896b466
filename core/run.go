package core

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
)

// Run receives and handles messages until ctx ends, [Endpoint.Shutdown] is called, or an
// error occurs that waiting cannot fix. It then drains: no new message is started,
// unstarted messages are given back, running handlers have [Config.DrainTimeout] to
// finish before their contexts are cancelled. If some have not returned 5 s later, Run
// returns [ErrHandlersRunning] naming their messages, which are redelivered.
//
// Run waits for a broker that cannot be reached: before the first message up to
// [Config.WaitForBroker], and without limit afterwards. Any other error before the first
// message is returned at once.
//
// Handlers' contexts carry ctx's values, not its cancellation. Run returns nil after a
// drain that ctx or Shutdown caused, and may then be called again.
func (ep *Endpoint) Run(ctx context.Context) error {
	r, err := ep.open(ctx, nil)
	if r == nil {
		return err
	}
	return r.serve(ctx)
}

// RunAll runs several endpoints until ctx ends, each as [Endpoint.Run] does. Endpoints of
// one transport are connected one after the other, with their queues and subscriptions,
// before the first of them starts to receive: messages that one endpoint sends at once
// reach the others. Endpoints of different transports connect at the same time and wait
// for each other too, up to 5 s. Endpoints whose broker cannot be reached do not delay
// others: they start when it can be reached ([Config.WaitForBroker]). When an endpoint
// ends with an error, the others are drained; all errors are returned together.
//
// Two endpoints with handlers for different message types that receive from one queue by
// the same [Transport] are refused, since each would get a part of the messages, with or
// without a handler for them: register all handlers at one endpoint. Instances with
// handlers for the same types may share a queue, but to handle more messages at a time
// use [Config.Concurrency].
func RunAll(ctx context.Context, endpoints ...*Endpoint) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if len(endpoints) == 0 {
		return errors.New("core: run all: no endpoint was given")
	}
	if i := slices.Index(endpoints, nil); i >= 0 {
		return fmt.Errorf("core: run all: endpoint %d of %d is nil; look at the error of its New", i+1, len(endpoints))
	}
	if err := checkSharedQueues(endpoints); err != nil {
		return err
	}
	starts := make([]startingEndpoint, len(endpoints))
	groups := startGroups(starts, endpoints)
	var tried, served sync.WaitGroup
	tried.Add(len(groups))
	allTried := make(chan struct{})
	for _, g := range groups {
		served.Go(func() {
			failed := g.connect(ctx)
			if failed {
				cancel() // before another group starts to receive
			}
			tried.Done()
			if !failed {
				waitForFirstTries(ctx, allTried)
			}
			g.serve(ctx, cancel, len(endpoints) > 1)
		})
	}
	tried.Wait()
	close(allTried)
	served.Wait()
	errs := make([]error, len(starts))
	for i := range starts {
		errs[i] = starts[i].err
	}
	return errors.Join(errs...)
}

// checkSharedQueues refuses endpoints that receive from one queue by the same transport
// and handle different types.
func checkSharedQueues(endpoints []*Endpoint) error {
	for i, ep := range endpoints {
		for j, other := range endpoints[:i] {
			if ep.address != "" && ep.address == other.address && sameTransport(ep.transport, other.transport) && !ep.registry.handlesSame(&other.registry) {
				return fmt.Errorf("core: run all: endpoints %d (%q) and %d (%q) receive from one queue, %s, and have handlers for different message types, but each gets a part of the messages of every type; "+
					"to fix: register all handlers at one endpoint, or give one of them another name",
					j+1, other.name, i+1, ep.name, ep.address)
			}
		}
	}
	return nil
}

// sameTransport reports whether a and b are one transport, as far as that can be
// detected.
func sameTransport(a, b Transport) bool {
	return reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}
