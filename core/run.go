package core

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// runner is one Run of an endpoint.
type runner struct {
	ep       *Endpoint
	receiver Receiver
	pump     *pump
	backlog  *backlog
	kept     *backlog // messages that were put back, for their pause
	pausing  *backlog // messages that wait for an immediate retry
	putBacks putBacks
	limiter  *rateLimiter
	renewer  *renewer
	// Calls of users' code: recovery observers, critical errors, and hooks of rate limiting
	// and connections, each with its own queue so that one kind cannot fill the queue of
	// another.
	notifier, criticals, hooks *notifier
	toldAll                    bool // the notifiers are closed
	connection                 atomic.Pointer[ConnectionChange]
	outages                    outageAlarm
	outageLines                outageLines
	undeliverable              undeliverableQueues

	values context.Context // Run's values, never cancelled
	fetch  context.Context // ends when fetching ends
	work   context.Context // the handlers'
	settle context.Context // ends after the last settlement

	stopFetch  context.CancelFunc
	cancelWork context.CancelCauseFunc
	stopSettle context.CancelFunc

	ended    chan struct{} // closed by end
	hurry    chan struct{} // closed by Shutdown when its context ended
	drained  chan struct{} // closed when the handlers have ended and the receiver is closed
	finished chan struct{} // closed when Run returns

	mu        sync.Mutex
	endErr    error
	hasEnded  bool
	hurried   bool
	byRequest bool // Shutdown governs the drain, not DrainTimeout

	terminations terminations
	together     bool        // runs with others (RunAll)
	parkLoaded   bool        // the ParkStore has answered, or there is none
	parks        *notifier   // of calls of the ParkStore; nil without one
	parkTimer    *time.Timer // ends parking; guarded by Endpoint.mu
}

// Run receives and handles messages until ctx ends, Shutdown is called, or an error
// occurs that waiting cannot fix. It then drains: no new message is started, unstarted
// messages are given back, running handlers have DrainTimeout to finish before their
// contexts are cancelled. If some have not returned 5 s later, Run returns
// ErrHandlersRunning naming their messages, which are redelivered.
//
// Run waits for a broker that cannot be reached: before the first message up to
// Config.WaitForBroker, and without limit afterwards. Any other error before the first
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

// RunAll runs several endpoints until ctx ends, each as Run does. Endpoints of one
// transport are connected one after the other, with their queues and subscriptions,
// before the first of them starts to receive: messages that one endpoint sends at once
// reach the others. Endpoints of different transports connect at the same time and wait
// for each other too, up to 5 s. Endpoints whose broker cannot be reached do not delay
// others: they start when it can be reached (Config.WaitForBroker). When an endpoint ends
// with an error, the others are drained; all errors are returned together.
//
// Two endpoints with handlers for different message types that receive from one queue by
// the same Transport are refused, since each would get a part of the messages, with or
// without a handler for them: register all handlers at one endpoint. Instances with
// handlers for the same types may share a queue, but to handle more messages at a time
// use Config.Concurrency.
func RunAll(ctx context.Context, endpoints ...*Endpoint) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if len(endpoints) == 0 {
		return errors.New("core: run all: no endpoint was given")
	}
	if i := slices.Index(endpoints, nil); i >= 0 {
		return fmt.Errorf("core: run all: endpoint %d of %d is nil; look at the error of its New", i+1, len(endpoints))
	}
	if err := checkQueues(endpoints); err != nil {
		return err
	}
	starts := make([]start, len(endpoints))
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
				waitUntilTried(ctx, allTried)
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

// checkQueues refuses endpoints that receive from one queue by the same transport and handle
// different types.
func checkQueues(endpoints []*Endpoint) error {
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

// serve receives until the Run ends, and drains.
func (r *runner) serve(ctx context.Context) (err error) {
	defer func() { r.ep.finish(r, err) }()
	r.start()
	select {
	case <-ctx.Done():
	case <-r.ended:
	}
	if err := errors.Join(r.reason(), r.drain()); err != nil {
		return fmt.Errorf("core: run endpoint %q: %w", r.ep.name, err)
	}
	return nil
}

// close ends a Run that was opened and never served.
func (r *runner) close() {
	r.closeReceiver(closeGrace, 0)
	r.ep.finish(r, nil)
}

// begin creates the Run in progress, and notifies observers.
func (ep *Endpoint) begin(ctx context.Context) (*runner, error) {
	r, err := ep.newRunner(ctx)
	if err == nil {
		ep.observers.runStarted(r.values, ep.observerPanicked, ep) // they may call Health
	}
	return r, err
}

func (ep *Endpoint) newRunner(ctx context.Context) (*runner, error) {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if ep.current != nil {
		return nil, fmt.Errorf("core: run endpoint %q: it is running already; make a second endpoint for a second receiver", ep.name)
	}
	r := &runner{
		ep: ep, values: context.WithoutCancel(ctx),
		ended: make(chan struct{}), hurry: make(chan struct{}), drained: make(chan struct{}), finished: make(chan struct{}),
		notifier: newNotifier(1000, ep.observerPanicked), criticals: newNotifier(100, ep.observerPanicked), hooks: newNotifier(1000, ep.observerPanicked),
	}
	if ep.config.Recoverability.ParkStore != nil {
		r.parks = newNotifier(100, ep.observerPanicked)
	}
	r.outages.limit, r.outages.raise = ep.config.OutageLimit, r.critical
	r.fetch, r.stopFetch = context.WithCancel(ctx)
	r.work, r.cancelWork = context.WithCancelCause(r.values)
	r.settle, r.stopSettle = context.WithCancel(r.values)
	ep.destinations.retry()
	ep.current = r
	return r, nil
}

// finish ends a Run, also after a failed start.
func (ep *Endpoint) finish(r *runner, err error) {
	r.stopFetch()
	r.cancelWork(ErrShutdown)
	r.stopSettle()
	r.closeNotifiers(time.Now().Add(closeGrace))
	ep.observers.runEnded(r.values, ep.observerPanicked, ep, err)
	ep.mu.Lock()
	ep.current, ep.runErr = nil, err
	stopTimer(&r.parkTimer)
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

func (r *runner) isDrained() bool {
	select {
	case <-r.drained:
		return true
	default:
		return false
	}
}

// connect creates and checks the endpoint's queues, and opens its receiver.
func (ep *Endpoint) connect(ctx context.Context, watch connectionWatch) (Receiver, error) {
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
	if err := ep.purge(ctx); err != nil {
		return nil, err
	}
	if err := ep.subscribe(ctx); err != nil {
		return nil, err
	}
	ep.mu.Lock()
	concurrency := ep.concurrency
	ep.mu.Unlock()
	p := ep.shapePump(&pump{})
	receiver, err := ep.openReceiver(ctx, p.maxInFlight(concurrency), watch)
	if err == nil {
		ep.logWarnings()
	}
	return receiver, err
}

// subscribe subscribes to the events that the endpoint handles.
func (ep *Endpoint) subscribe(ctx context.Context) error {
	topics := ep.registry.topics()
	if len(topics) == 0 {
		return nil
	}
	s, ok := ep.transport.(Subscriber)
	if !ok || !ep.caps.PublishSubscribe {
		return fmt.Errorf("subscribe to %v: the transport has no PublishSubscribe: %w", topics, errors.ErrUnsupported)
	}
	if err := s.Subscribe(ctx, ep.inputQueue(), topics...); err != nil {
		return fmt.Errorf("subscribe to %v: %w", topics, err)
	}
	return nil
}

// shapePump sets how a pump works with this transport in this mode.
func (ep *Endpoint) shapePump(p *pump) *pump {
	p.perWorker = ep.holdsConnections()
	p.consumed = ep.mode == TransactionNone
	p.counts = ep.caps.CountsReleases && !p.consumed
	p.ahead = ep.caps.Prefetch && !p.perWorker && !p.consumed
	p.overlap = p.ahead
	p.maxBatch = ep.caps.MaxReceiveBatch
	p.prefetched.most = ep.maxPrefetchBytes()
	if ep.isolation.after > 0 {
		p.isolation.suspect, p.isolation.probing = ep.isSuspect, true
		p.isolation.single = ep.instanceAddress == ""
	}
	return p
}

func (r *runner) start() {
	ep := r.ep
	ep.mu.Lock()
	r.renewer = newRenewer(r.settle)
	go r.renewer.run()
	r.pump = ep.shapePump(newPump(r.fetch, r.receiver))
	r.pump.watch, r.pump.adjust = r.renewer.watch, ep.inRound
	r.connectInputs()
	r.pump.handle = r.handle
	r.pump.giveBack = r.giveBack
	r.pump.onError = func(err error) { r.end(fmt.Errorf("receive: %w", err)) }
	r.pump.isolation.onChange = r.isolationChanged
	r.pump.slow, r.pump.onSlow = max(ep.config.SlowHandler, 0), r.slowHandler
	r.backlog = newBacklog(r.mostUnsettled(), r.pump.retain, r.stall)
	r.kept = newBacklog(mostPutBack, r.pump.retain, r.keptFull)
	r.pausing = newBacklog(r.mostUnsettled(), r.pump.retain, r.pausingFull)
	r.putBacks.pump = r.pump
	r.limiter = r.newLimiter()
	r.pump.paused = ep.paused
	r.startParkedLocked()
	r.pump.setLimit(ep.concurrency)
	concurrency, parked := ep.concurrency, ep.parked.clone()
	ready := ep.ready
	ep.mu.Unlock() // a log handler may call Health
	close(ready)
	ep.log.endpoint.Info("endpoint is running", "queue", ep.address, "mode", ep.mode.String(), "concurrency", concurrency)
	r.logLimit(parked)
}

// end makes Run drain and return err. The first call counts.
func (r *runner) end(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.hasEnded {
		r.hasEnded = true
		r.endErr = err
		close(r.ended)
		r.stopFetch()
	}
}

func (r *runner) isEnded() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.hasEnded
}

func (r *runner) reason() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.endErr
}

// mostUnsettled returns the limit of deliveries that are kept without a slot. A native
// transaction takes a connection of the transport; still, with few slots a few messages
// that the broker refuses must not stop all others.
func (r *runner) mostUnsettled() int {
	if r.ep.holdsConnections() {
		return max(r.ep.concurrency, leastUnsettled)
	}
	return mostUnfinished
}

// stall stops fetching while too many messages are kept without a slot.
func (r *runner) stall(full bool) {
	if !full {
		r.pump.ungate()
		r.ep.log.endpoint.Info("messages are fetched again: fewer of them wait to be settled or moved")
		return
	}
	r.pump.gate()
	r.critical(fmt.Errorf("no more messages are fetched: %d cannot be settled, moved or stored, and are tried again; see the errors before", r.backlog.most))
}

// slowHandler reports a handler that takes long.
func (r *runner) slowHandler(a *attempt, running time.Duration) {
	r.ep.log.endpoint.Warn("handler is slow; its message is kept locked until it returns",
		"message_id", a.message.incoming.ID, "message_type", a.message.handledAs().messageType, "running_for", running)
}

// critical raises a critical error of the endpoint.
func (r *runner) critical(err error) { r.criticalIn(r.values, err) }

// criticalIn is critical with the context of an attempt for the log.
func (r *runner) criticalIn(ctx context.Context, err error) {
	r.ep.noteCritical(ctx, err)
	if f := r.ep.config.OnCriticalError; f != nil {
		r.criticals.notify(func() { f(r.values, err) })
	}
}

// newLimiter connects rate limiting with the pump. In rate-limited mode there
// is one slot; after each failed attempt nothing is fetched for TimeToWait.
func (r *runner) newLimiter() *rateLimiter {
	c := r.ep.config.Recoverability.RateLimit
	log := r.ep.log.rateLimit
	tell := func(limited bool, hook func(context.Context)) {
		if hook != nil {
			r.hooks.notify(func() { hook(r.values) })
		}
		for _, o := range r.ep.observers.rateLimit {
			r.hooks.notify(func() { o.RateLimitChanged(r.values, RateLimitChange{r.ep.observed, limited}) })
		}
	}
	return &rateLimiter{
		threshold: c.ConsecutiveFailures,
		filter:    c.Filter,
		onPanic:   r.ep.observerPanicked,
		onLimit: func() {
			r.pump.setSlowed(true)
			r.hooks.notify(func() {
				log.Warn("rate limiting began: one message is attempted at a time", "consecutive_failures", c.ConsecutiveFailures, "time_to_wait", c.TimeToWait)
			})
			tell(true, c.OnStarted)
		},
		onProbe: func() { r.pump.waitFor(waitRateLimited, c.TimeToWait) },
		onNormal: func() {
			r.pump.setSlowed(false)
			r.hooks.notify(func() { log.Info("rate limiting ended") })
			tell(false, c.OnEnded)
		},
	}
}
