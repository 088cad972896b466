package core

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprise-go/reprise/core/internal/backlog"
	"github.com/reprise-go/reprise/core/internal/calls"
	"github.com/reprise-go/reprise/core/internal/locks"
	"github.com/reprise-go/reprise/core/internal/pauses"
	"github.com/reprise-go/reprise/core/internal/pump"
	"github.com/reprise-go/reprise/core/internal/ratelimit"
)

// runner is one Run of an endpoint.
type runner struct {
	ep        *Endpoint
	receiver  Receiver
	pump      *pump.Pump[Delivery, attempt]
	processor *processor
	pauses    pauses.Pauses // after messages that were put back
	limiter   *ratelimit.Limiter
	renewer   *locks.Renewer
	// Calls of users' code: recovery observers, critical errors, and rate limit observers
	// and connections, each with its own queue so that one kind cannot fill the queue of
	// another.
	recoveryCalls, criticalCalls, hookCalls *calls.Queue
	callQueuesClosed                        bool // recoveryCalls, criticalCalls, hookCalls and limitCalls are closed
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
	limitCalls       *calls.Queue // of OnReached; nil without one
	inRunAll         bool         // runs with others (RunAll)
}

func newRunner(ctx context.Context, ep *Endpoint) *runner {
	r := &runner{
		ep: ep, valuesCtx: context.WithoutCancel(ctx),
		ended: make(chan struct{}), forceStop: make(chan struct{}), drained: make(chan struct{}), finished: make(chan struct{}),
		recoveryCalls: calls.New(1000, ep.observers.onPanic), criticalCalls: calls.New(100, ep.observers.onPanic), hookCalls: calls.New(1000, ep.observers.onPanic),
	}
	if ep.config.Recoverability.UnacceptableMessageLimit.OnReached != nil {
		r.limitCalls = calls.New(1, ep.observers.onPanic) // the limit is not reached again before OnReached returns
	}
	r.outages.limit, r.outages.raise = ep.config.OutageLimit, r.raiseCritical
	r.fetchCtx, r.stopFetch = context.WithCancel(ctx)
	r.handlerCtx, r.cancelHandlers = context.WithCancelCause(r.valuesCtx)
	r.settleCtx, r.stopSettle = context.WithCancel(r.valuesCtx)
	return r
}

func (r *runner) isDrained() bool {
	select {
	case <-r.drained:
		return true
	default:
		return false
	}
}

// serve receives until the Run ends, and drains.
func (r *runner) serve(ctx context.Context) (err error) {
	defer func() { r.ep.finish(r, err) }()
	r.start()
	select {
	case <-ctx.Done():
	case <-r.ended:
	}
	return r.wrapRunError(errors.Join(r.endError(), r.drain()))
}

// wrapRunError adds the endpoint to an error of its Run, or returns nil.
func (r *runner) wrapRunError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("core: run endpoint %q: %w", r.ep.name, err)
}

// close ends a Run that was opened and never served.
func (r *runner) close() {
	r.closeReceiver(closeGrace, 0)
	r.ep.finish(r, nil)
}

func (r *runner) start() {
	ep := r.ep
	ep.mu.Lock()
	r.renewer = locks.New(r.settleCtx, ErrLockLost)
	go r.renewer.Run()
	r.processor = &processor{r, ep, &carrier{run: r, ep: ep, unfinished: ep.unfinished}}
	r.pump = r.newPump()
	controlled := backlog.Pump{Retain: r.pump.Retain, PauseFetching: r.pump.PauseFetching, ResumeFetching: r.pump.ResumeFetching}
	ep.unfinished.begin(r.backlogLimit(), controlled, r.reportFullBacklog)
	r.processor.carrier.kept, r.processor.carrier.paused = ep.unfinished.kept, ep.unfinished.paused
	r.pauses.Wait = func(d time.Duration) { r.pump.WaitFor(pump.WaitPutBack, d) }
	r.limiter = r.newRateLimiter()
	if ep.paused {
		r.pump.SetPaused(true)
	}
	r.pump.SetLimit(ep.concurrency)
	concurrency := ep.concurrency
	ready := ep.ready
	ep.mu.Unlock() // a log handler may call Health
	close(ready)
	ep.log.endpoint.Info("endpoint is running", "queue", ep.address, "mode", ep.mode.String(), "concurrency", concurrency)
	r.logLimit()
}

// backlogLimit returns the limit of deliveries that are kept without a slot. A native
// transaction takes a connection of the transport; still, with few slots a few messages
// that the broker refuses must not stop all others.
func (r *runner) backlogLimit() int {
	if r.ep.resolved.connectionPerMessage() {
		return max(r.ep.concurrency, backlog.Min)
	}
	return backlog.Max
}

// reportFullBacklog reports that too many messages are kept without a slot, so that no more
// are fetched, and later that there are fewer.
func (r *runner) reportFullBacklog(full bool) {
	if !full {
		r.ep.log.endpoint.Info("messages are fetched again: fewer of them wait to be settled or moved")
		return
	}
	r.raiseCritical(fmt.Errorf("no more messages are fetched: %d cannot be settled, moved or stored, and are tried again; see the errors before", r.ep.unfinished.kept.Limit()))
}

// reportSlowHandler reports a handler that takes long.
func (r *runner) reportSlowHandler(a *attempt, running time.Duration) {
	r.ep.log.endpoint.Warn("handler is slow; its message is kept locked until it returns",
		"message_id", a.message.incoming.ID, "message_type", a.message.handledAs().messageType, "running_for", running)
}

// receiveFailed ends the Run.
func (r *runner) receiveFailed(err error) {
	if r.end(fmt.Errorf("receive: %w", err)) {
		r.ep.log.endpoint.Error("endpoint ends: it can no longer receive", "error", err)
	}
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

// The pump's parts, with the engine's types.
type (
	worker          = pump.Worker[Delivery, attempt]
	fetchedDelivery = pump.Item[Delivery]
)

// newPump returns the pump of a Run, which has its receiver and its renewer.
func (r *runner) newPump() *pump.Pump[Delivery, attempt] {
	return pump.New(r.fetchCtx, r.receiver, r.ep.resolved.pumpRules(), pump.Calls[Delivery, attempt]{
		Fetched:         r.fetched,
		Handle:          r.processor.handle,
		Release:         r.processor.releaseUnstarted,
		OnError:         r.receiveFailed,
		OnSlow:          r.reportSlowHandler,
		Bytes:           messageBytes,
		IsSuspect:       r.ep.suspects.isSuspectDelivery,
		TotalDeliveries: r.ep.suspects.totalDeliveries,
		OnIsolate:       r.isolationChanged,
	})
}

// fetched begins the renewal of a delivery's lock, if it has one that ends, and wraps the
// delivery for the engine.
func (r *runner) fetched(d Delivery) fetchedDelivery {
	return fetchedDelivery{Delivery: r.ep.rounds.adjust(d), Lock: r.renewer.Watch(d)}
}

// messageBytes returns the memory that a delivery's message takes.
func messageBytes(d Delivery) int {
	in := d.Incoming()
	n := len(in.Body)
	for _, pair := range in.Headers.pairs {
		n += len(pair.key) + len(pair.value)
	}
	return n
}

// newRateLimiter connects rate limiting with the pump. In rate-limited mode there
// is one slot; after each failed attempt nothing is fetched for TimeToWait.
func (r *runner) newRateLimiter() *ratelimit.Limiter {
	c := r.ep.config.Recoverability.RateLimit
	log := r.ep.log.rateLimit
	notify := func(limited bool) {
		for _, o := range r.ep.observers.rateLimit {
			r.hookCalls.Add(func() { o.RateLimitChanged(r.valuesCtx, r.ep, limited) })
		}
	}
	return &ratelimit.Limiter{
		Threshold: c.ConsecutiveFailures,
		Filter:    c.Filter,
		OnPanic:   r.ep.observers.onPanic,
		OnLimit: func() {
			r.pump.SetRateLimited(true)
			r.hookCalls.Add(func() {
				log.Warn("rate limiting began: one message is attempted at a time", "consecutive_failures", c.ConsecutiveFailures, "time_to_wait", c.TimeToWait)
			})
			notify(true)
		},
		OnProbe: func() { r.pump.WaitFor(pump.WaitRateLimited, c.TimeToWait) },
		OnNormal: func() {
			r.pump.SetRateLimited(false)
			r.hookCalls.Add(func() { log.Info("rate limiting ended") })
			notify(false)
		},
	}
}

// endAttempt ends the attempt and the renewal of its lock, after any outcome.
func (r *runner) endAttempt(a *attempt) {
	r.renewer.Forget(a.lock)
	a.end()
}

// endLockLost ends the work on a message whose lock is lost (R27).
func (r *runner) endLockLost(a *attempt) {
	r.ep.suspects.recordSurvived(a.delivery.Incoming())
	r.endAttempt(a)
	r.logLockLost(a)
}

// logLockLost logs that a message is redelivered because its lock was lost.
func (r *runner) logLockLost(a *attempt) {
	r.ep.log.endpoint.WarnContext(a.decisionContext(), "lock on a message was lost while it was being handled; it is redelivered",
		"message_id", a.message.incoming.ID, "message_type", a.message.handledAs().messageType)
}

// isolationChanged reports suspects, once while there are some.
func (r *runner) isolationChanged(isolating bool, suspect Delivery) {
	log := r.ep.log.recoverability
	if !isolating {
		r.hookCalls.Add(func() { log.Info("messages are attempted side by side again") })
		return
	}
	in := suspect.Incoming()
	id, deliveries := in.ID, in.DeliveryCount
	r.hookCalls.Add(func() {
		log.Warn("a message was delivered several times without a known end and may have killed its process: such messages are attempted one at a time, with nothing beside them",
			"message_id", id, "deliveries", deliveries, "isolate_after", r.ep.suspects.threshold)
	})
}
