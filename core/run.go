package core

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core/internal/delays"
)

// Run receives and handles messages until ctx ends, [Endpoint.Shutdown] is called, or an
// error occurs that waiting cannot fix. It waits for a broker that cannot be reached,
// before the first message too. Handlers' contexts carry ctx's values, not its
// cancellation.
//
// At its end it drains: unstarted messages are given back, running handlers have
// [Config.DrainTimeout] to finish before their contexts are cancelled. If some have not
// returned 5 s later, Run returns [ErrHandlersRunning] naming their messages, which are
// redelivered. After a drain that ctx or Shutdown caused it returns nil, and may be called
// again.
func (ep *Endpoint) Run(ctx context.Context) error {
	r, err := ep.open(ctx, nil)
	if r == nil {
		return err
	}
	return r.serve(ctx)
}

// RunAll runs several endpoints until ctx ends, each as [Endpoint.Run] does. Endpoints of
// one transport are connected before the first of them receives; those of different
// transports wait for each other up to 5 s. When an endpoint ends with an error, the others
// are drained, except at its [Recoverability.UnacceptableMessageLimit], which is a critical
// error then; all errors are returned together. Two endpoints that receive from one queue
// by the same [Transport], with handlers for different message types, are refused.
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
			if ep.address != "" && ep.address == other.address && sameTransport(ep.transport, other.transport) && !ep.registry.handlesSame(other.registry) {
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

// connectBackoff is for the tries of an endpoint to reach its broker before its first
// message.
var connectBackoff = delays.Backoff{First: 250 * time.Millisecond, Last: 10 * time.Second}

// open does all steps before the first message, and waits for a broker that cannot be
// reached: then it calls waiting, which may be nil, at least once.
// It returns nil and nil if the Run was ended before open was done.
func (ep *Endpoint) open(ctx context.Context, waiting func()) (*runner, error) {
	if err := ep.registry.seal(); err != nil {
		return nil, err
	}
	if ep.config.SendOnly {
		return nil, fmt.Errorf("core: run endpoint %q: it is send-only, so there is nothing to run", ep.name)
	}
	r, err := ep.begin(ctx)
	if err != nil {
		return nil, err
	}
	ep.resolved.logWarnings(ep.log.endpoint, ep.caps, ep.registry.types())
	if err = r.connectWithRetry(waiting); err == nil {
		return r, nil
	}
	if err = fmt.Errorf("core: run endpoint %q: %w", ep.name, err); ctx.Err() != nil || r.isEnded() {
		err = nil // it was asked to end
	}
	ep.finish(r, err)
	return nil, err
}

// begin creates the Run in progress, and notifies observers.
func (ep *Endpoint) begin(ctx context.Context) (*runner, error) {
	ep.mu.Lock()
	if ep.current != nil {
		ep.mu.Unlock()
		return nil, fmt.Errorf("core: run endpoint %q: it is running already; make a second endpoint for a second receiver", ep.name)
	}
	r := newRunner(ctx, ep)
	ep.unreachable.AllowProbes()
	ep.current = r
	ep.mu.Unlock()
	ep.observers.runStarted(r.valuesCtx, ep) // they may call Health
	return r, nil
}

// finish ends a Run, also after a failed start.
func (ep *Endpoint) finish(r *runner, err error) {
	r.stopFetch()
	r.cancelHandlers(ErrShutdown)
	r.stopSettle()
	r.closeCallQueues(time.Now().Add(closeGrace))
	ep.observers.runEnded(r.valuesCtx, ep, err)
	ep.mu.Lock()
	ep.current, ep.runErr = nil, err
	select {
	case <-ep.ready:
		ep.ready = make(chan struct{})
	default:
	}
	ep.mu.Unlock()
	if !r.isDrained() { // it failed to start
		close(r.drained)
	}
	close(r.finished)
}

// connect creates and checks the endpoint's queues, and opens its receiver.
func (ep *Endpoint) connect(ctx context.Context, watch connectionReporter) (Receiver, error) {
	always := ep.config.Provision == ProvisionAlways
	if p, ok := ep.transport.(Provisioner); ok && (always || ep.config.Provision == ProvisionAuto && !ep.caps.Durable) {
		err := p.Provision(ctx, ep.resolved.topology())
		if err != nil && (always || !errors.Is(err, errors.ErrUnsupported)) {
			return nil, fmt.Errorf("provision: %w", err)
		}
	}
	if c, ok := ep.transport.(Checker); ok {
		if err := c.Check(ctx, ep.resolved.topology()); err != nil && !errors.Is(err, errors.ErrUnsupported) {
			return nil, fmt.Errorf("check: %w", err)
		}
	}
	if err := ep.subscribe(ctx); err != nil {
		return nil, err
	}
	ep.mu.Lock()
	concurrency := ep.concurrency
	ep.mu.Unlock()
	config := ep.resolved.receiverConfig(concurrency)
	config.ConnectionChanged, config.MessageUndeliverable = watch.connectionChanged, watch.messageUndeliverable
	config.Warn = ep.logWarning
	receiver, err := ep.transport.OpenReceiver(ctx, config)
	if err == nil {
		ep.logWarnings()
	}
	return receiver, err
}

// connectWithRetry retries to connect while the broker cannot be reached.
func (r *runner) connectWithRetry(waiting func()) error {
	began := time.Now()
	var reported *ConnectionChange
	for tries := 1; ; tries++ {
		var err error
		if r.receiver, err = r.ep.connect(r.fetchCtx, connectionReporter{r}); err == nil {
			break
		}
		if r.fetchCtx.Err() != nil || !errors.Is(err, ErrUnavailable) { // waiting cannot fix it
			return err
		}
		pause := connectBackoff.After(tries)
		pause = pause/2 + rand.N(pause) // instances that start together do not all try together
		reported = &ConnectionChange{Err: err, Since: began, RetryIn: pause}
		connectionReporter{r}.record(reported)
		if waiting != nil {
			waiting()
		}
		if err := r.sleep(pause); err != nil {
			return err
		}
	}
	// The receiver may have reported another outage by now, or the end of this one.
	if reported != nil && r.connection.Load() == reported {
		connectionReporter{r}.record(&ConnectionChange{Connected: true, Since: began})
	}
	r.hookCalls.Add(func() { r.outageLog.connected = true })
	return nil
}

// sleep returns an error if the Run was ended before d has passed.
func (r *runner) sleep(d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-r.fetchCtx.Done():
		return r.fetchCtx.Err()
	}
}

// firstTryTimeout is how long endpoints wait for the first tries of those on other
// transports.
const firstTryTimeout = 5 * time.Second

func waitForFirstTries(ctx context.Context, allTried <-chan struct{}) {
	timer := time.NewTimer(firstTryTimeout)
	defer timer.Stop()
	select {
	case <-allTried:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// startingEndpoint is an endpoint of RunAll.
type startingEndpoint struct {
	ep             *Endpoint
	tried          chan struct{} // closed once it has connected, failed or begun to wait
	done           chan struct{} // closed once it has connected or failed
	runner         *runner       // nil if it failed, or was asked to end
	err            error         // of its start, then of its Run
	waitsForBroker bool          // when tried was closed
}

// begin connects an endpoint on a goroutine.
func (s *startingEndpoint) begin(ctx context.Context) {
	s.tried, s.done = make(chan struct{}), make(chan struct{})
	var once sync.Once
	go func() {
		defer close(s.done)
		s.runner, s.err = s.ep.open(ctx, func() { once.Do(func() { s.waitsForBroker = true; close(s.tried) }) })
		once.Do(func() { close(s.tried) })
	}()
}

// failed reports whether an endpoint has tried once, and does not wait for its broker.
func (s *startingEndpoint) failed() bool {
	<-s.tried
	if s.waitsForBroker {
		return false
	}
	<-s.done
	return s.err != nil
}

// startGroup has the endpoints of RunAll that share a transport.
type startGroup struct {
	starts  []*startingEndpoint
	started int // how many of them
}

// startGroups fills in starts, and groups them.
func startGroups(starts []startingEndpoint, endpoints []*Endpoint) (groups []*startGroup) {
	byTransport := map[Transport]*startGroup{}
	for i, ep := range endpoints {
		starts[i].ep = ep
		hashable := reflect.ValueOf(ep.transport).Comparable()
		var g *startGroup
		if hashable {
			g = byTransport[ep.transport]
		}
		if g == nil {
			g = &startGroup{}
			groups = append(groups, g)
			if hashable {
				byTransport[ep.transport] = g
			}
		}
		g.starts = append(g.starts, &starts[i])
	}
	return groups
}

// connect connects the endpoints one after the other, until one fails. Once one of them
// waits for the shared broker, it does not wait for the others.
func (g *startGroup) connect(ctx context.Context) (failed bool) {
	waits := false
	for _, s := range g.starts {
		s.begin(ctx)
		g.started++
		if waits {
			continue
		}
		if s.failed() {
			return true
		}
		waits = s.waitsForBroker
	}
	return false
}

// serve runs the endpoints that have been started, each when it is connected, until ctx
// ends. An endpoint that ends with an error calls cancel, unless it ends at its
// UnacceptableMessageLimit.
func (g *startGroup) serve(ctx context.Context, cancel context.CancelFunc, together bool) {
	var served sync.WaitGroup
	for _, s := range g.starts[:g.started] {
		served.Go(func() {
			<-s.done
			switch {
			case s.runner == nil:
			case ctx.Err() != nil: // before the first message
				s.runner.close()
			default:
				s.runner.inRunAll = together
				s.err = s.runner.serve(ctx)
			}
			if s.err != nil && !errors.Is(s.err, ErrUnacceptableMessageLimit) {
				cancel()
			}
		})
	}
	served.Wait()
}
