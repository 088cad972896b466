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

	"github.com/reprise-go/reprise/core/internal/backlog"
	"github.com/reprise-go/reprise/core/internal/calls"
	"github.com/reprise-go/reprise/core/internal/locks"
	"github.com/reprise-go/reprise/core/internal/prefetch"
	"github.com/reprise-go/reprise/core/internal/ratelimit"
)

// runner is one Run of an endpoint.
type runner struct {
	ep              *Endpoint
	receiver        Receiver
	pump            *pump
	backlog         *backlog.Backlog
	putBackMessages *backlog.Backlog // messages that were put back, for their pause
	retryWaits      *backlog.Backlog // messages that wait for an immediate retry
	putBacks        putBacks
	limiter         *ratelimit.Limiter
	renewer         *locks.Renewer
	// Calls of users' code: recovery observers, critical errors, and hooks of rate limiting
	// and connections, each with its own queue so that one kind cannot fill the queue of
	// another.
	recoveryCalls, criticalCalls, hookCalls *calls.Queue
	callQueuesClosed                        bool // recoveryCalls, criticalCalls, hookCalls and parkStoreCalls are closed
	connection                              atomic.Pointer[ConnectionChange]
	outages                                 outageAlarm
	outageLog                               outageLog
	undeliverableQueues                     undeliverableQueues

	valuesCtx  context.Context // Run's values, never cancelled
	fetchCtx   context.Context // ends when fetching ends
	handlerCtx context.Context // the handlers'
	settleCtx  context.Context // ends after the last settlement

	stopFetch      context.CancelFunc
	cancelHandlers context.CancelCauseFunc
	stopSettle     context.CancelFunc

	ended     chan struct{} // closed by end
	forceStop chan struct{} // closed by Shutdown when its context ended
	drained   chan struct{} // closed when the handlers have ended and the receiver is closed
	finished  chan struct{} // closed when Run returns

	mu        sync.Mutex
	endErr    error
	hasEnded  bool
	forced    bool
	byRequest bool // Shutdown governs the drain, not DrainTimeout

	terminalFailures terminalFailures
	inRunAll         bool         // runs with others (RunAll)
	parkLoaded       bool         // the ParkStore has answered, or there is none
	parkStoreCalls   *calls.Queue // nil without a ParkStore
	parkTimer        *time.Timer  // ends parking; guarded by Endpoint.mu
}

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

// serve receives until the Run ends, and drains.
func (r *runner) serve(ctx context.Context) (err error) {
	defer func() { r.ep.finish(r, err) }()
	r.start()
	select {
	case <-ctx.Done():
	case <-r.ended:
	}
	if err := errors.Join(r.endError(), r.drain()); err != nil {
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
		ep.observers.runStarted(r.valuesCtx, ep.observerPanicked, ep) // they may call Health
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
		ep: ep, valuesCtx: context.WithoutCancel(ctx),
		ended: make(chan struct{}), forceStop: make(chan struct{}), drained: make(chan struct{}), finished: make(chan struct{}),
		recoveryCalls: calls.New(1000, ep.observerPanicked), criticalCalls: calls.New(100, ep.observerPanicked), hookCalls: calls.New(1000, ep.observerPanicked),
	}
	if ep.config.Recoverability.ParkStore != nil {
		r.parkStoreCalls = calls.New(100, ep.observerPanicked)
	}
	r.outages.limit, r.outages.raise = ep.config.OutageLimit, r.raiseCritical
	r.fetchCtx, r.stopFetch = context.WithCancel(ctx)
	r.handlerCtx, r.cancelHandlers = context.WithCancelCause(r.valuesCtx)
	r.settleCtx, r.stopSettle = context.WithCancel(r.valuesCtx)
	ep.unreachable.AllowProbes()
	ep.current = r
	return r, nil
}

// finish ends a Run, also after a failed start.
func (ep *Endpoint) finish(r *runner, err error) {
	r.stopFetch()
	r.cancelHandlers(ErrShutdown)
	r.stopSettle()
	r.closeCallQueues(time.Now().Add(closeGrace))
	ep.observers.runEnded(r.valuesCtx, ep.observerPanicked, ep, err)
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
	if err := ep.purge(ctx); err != nil {
		return nil, err
	}
	if err := ep.subscribe(ctx); err != nil {
		return nil, err
	}
	ep.mu.Lock()
	concurrency := ep.concurrency
	ep.mu.Unlock()
	p := ep.configurePump(&pump{})
	receiver, err := ep.openReceiver(ctx, p.receiverLimitLocked(concurrency), watch)
	if err == nil {
		ep.logWarnings()
	}
	return receiver, err
}

// configurePump sets how a pump works with this transport in this mode.
func (ep *Endpoint) configurePump(p *pump) *pump {
	p.fetchPerWorker = ep.connectionPerMessage()
	p.receiveAndDelete = ep.mode == TransactionNone
	p.countsReleases = ep.caps.CountsReleases && !p.receiveAndDelete
	p.prefetches = ep.caps.Prefetch && !p.fetchPerWorker && !p.receiveAndDelete
	p.settlesOffSlot = p.prefetches
	p.maxBatch = ep.caps.MaxReceiveBatch
	p.estimate.Max = prefetch.Max
	if p.countsReleases {
		p.estimate.Max = prefetch.MaxCounted
	}
	p.prefetchedBytes.Limit = ep.maxPrefetchBytes()
	if ep.isolation.threshold > 0 {
		p.isolation.isSuspect, p.isolation.probing = ep.isSuspect, true
		p.isolation.single = ep.instanceAddress == ""
	}
	return p
}

func (r *runner) start() {
	ep := r.ep
	ep.mu.Lock()
	r.renewer = locks.New(r.settleCtx, ErrLockLost)
	go r.renewer.Run()
	r.pump = ep.configurePump(newPump(r.fetchCtx, r.receiver))
	watch := func(d Delivery) *locks.Context { return r.renewer.Watch(d) }
	r.pump.watch, r.pump.adjust = watch, ep.withRoundCount
	r.connectCombinedReceiver()
	r.pump.handle = r.handle
	r.pump.release = r.releaseUnstarted
	r.pump.onError = func(err error) { r.end(fmt.Errorf("receive: %w", err)) }
	r.pump.isolation.onChange = r.isolationChanged
	r.pump.slowAfter, r.pump.onSlow = max(ep.config.SlowHandler, 0), r.reportSlowHandler
	r.backlog = backlog.New(r.backlogLimit(), r.pump.retain, r.onBacklogFull)
	r.putBackMessages = backlog.New(maxPutBacks, r.pump.retain, r.onPutBacksFull)
	r.retryWaits = backlog.New(r.backlogLimit(), r.pump.retain, r.onRetryWaitsFull)
	r.putBacks.pump = r.pump
	r.limiter = r.newRateLimiter()
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

func (r *runner) isEnded() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.hasEnded
}

func (r *runner) endError() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.endErr
}

// backlogLimit returns the limit of deliveries that are kept without a slot. A native
// transaction takes a connection of the transport; still, with few slots a few messages
// that the broker refuses must not stop all others.
func (r *runner) backlogLimit() int {
	if r.ep.connectionPerMessage() {
		return max(r.ep.concurrency, backlog.Min)
	}
	return backlog.Max
}

// onBacklogFull stops fetching while too many messages are kept without a slot.
func (r *runner) onBacklogFull(full bool) {
	if !full {
		r.pump.resumeFetching()
		r.ep.log.endpoint.Info("messages are fetched again: fewer of them wait to be settled or moved")
		return
	}
	r.pump.pauseFetching()
	r.raiseCritical(fmt.Errorf("no more messages are fetched: %d cannot be settled, moved or stored, and are tried again; see the errors before", r.backlog.Limit()))
}

// reportSlowHandler reports a handler that takes long.
func (r *runner) reportSlowHandler(a *attempt, running time.Duration) {
	r.ep.log.endpoint.Warn("handler is slow; its message is kept locked until it returns",
		"message_id", a.message.incoming.ID, "message_type", a.message.handledAs().messageType, "running_for", running)
}

// newRateLimiter connects rate limiting with the pump. In rate-limited mode there
// is one slot; after each failed attempt nothing is fetched for TimeToWait.
func (r *runner) newRateLimiter() *ratelimit.Limiter {
	c := r.ep.config.Recoverability.RateLimit
	log := r.ep.log.rateLimit
	notify := func(limited bool, hook func(context.Context)) {
		if hook != nil {
			r.hookCalls.Add(func() { hook(r.valuesCtx) })
		}
		for _, o := range r.ep.observers.rateLimit {
			r.hookCalls.Add(func() { o.RateLimitChanged(r.valuesCtx, RateLimitChange{r.ep.observed, limited}) })
		}
	}
	return &ratelimit.Limiter{
		Threshold: c.ConsecutiveFailures,
		Filter:    c.Filter,
		OnPanic:   r.ep.observerPanicked,
		OnLimit: func() {
			r.pump.setRateLimited(true)
			r.hookCalls.Add(func() {
				log.Warn("rate limiting began: one message is attempted at a time", "consecutive_failures", c.ConsecutiveFailures, "time_to_wait", c.TimeToWait)
			})
			notify(true, c.OnStarted)
		},
		OnProbe: func() { r.pump.waitFor(waitRateLimited, c.TimeToWait) },
		OnNormal: func() {
			r.pump.setRateLimited(false)
			r.hookCalls.Add(func() { log.Info("rate limiting ended") })
			notify(false, c.OnEnded)
		},
	}
}

// purge empties the input queue if PurgeOnStart is set.
func (ep *Endpoint) purge(ctx context.Context) error {
	if !ep.config.PurgeOnStart {
		return nil
	}
	queue := ep.inputQueue()
	p, ok := ep.transport.(Purger) // New has checked it
	if !ok {
		return fmt.Errorf("purge queue %q: the transport cannot empty queues: %w", queue, errors.ErrUnsupported)
	}
	removed, err := p.Purge(ctx, queue)
	if err != nil {
		return fmt.Errorf("purge queue %q: %w", queue, err)
	}
	ep.log.endpoint.Warn("input queue was emptied before the first message, as Config.PurgeOnStart says", "queue", ep.address, "messages", removed)
	return nil
}
