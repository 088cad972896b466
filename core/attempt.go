package core

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/reprise-go/reprise/core/internal/calls"
	"github.com/reprise-go/reprise/core/internal/ids"
	"github.com/reprise-go/reprise/core/internal/locks"
	"github.com/reprise-go/reprise/core/internal/plan"
)

// attempt is one attempt at handling one delivery. It is the handler's context
// and its message in a single allocation.
type attempt struct {
	context.Context
	message          Message
	delivery         Delivery
	lock             *locks.Context
	returned         atomic.Bool     // the handlers have returned, or the policy or HandleFailed after them
	settled          atomic.Bool     // only Complete is left to do
	workUndone       bool            // the failed handler's work has been undone (Reset)
	sendsFailed      bool            // the handlers have succeeded, and their sends have failed
	transactionBegun atomic.Bool     // the native transaction, see TransactionBegun
	observedCtx      context.Context // the context that observers returned, or nil

	// The reason why a part of the work could not be undone (Savepoint), so that none of it
	// may be committed, or nil. Guarded by message.mu.
	partialUndoErr error
}

// attemptKey lets Shutdown detect that a handler called it, for which it would wait.
type attemptKey struct{}

// Value adds the message to the context.
func (a *attempt) Value(key any) any {
	switch key.(type) {
	case messageKey:
		return &a.message
	case attemptKey:
		return a
	}
	return a.Context.Value(key)
}

// handle handles one fetched delivery until it is settled, or kept without a slot.
func (r *runner) handle(w *worker, item fetchedDelivery) {
	var idErr error
	item.Delivery, idErr = r.ep.withID(item.Delivery)
	in := item.Delivery.Incoming()
	if (in.DeliveryCount > 1 || in.Redelivered) && (r.ep.unfinished.wasSettled(in.NativeID) || r.isCompleting(in.NativeID)) {
		w.ReleaseSlotEarly()
		r.settle(item, plan.Progress{OnlyConsume: true})
		return
	}
	unfinished := r.ep.unfinished.take(in)
	a := r.newAttempt(item, w.SlotStart())
	if a == nil { // the lock was lost before anything began
		r.ep.log.endpoint.Warn("lock on an unstarted message was lost; it is redelivered", "message_id", in.ID)
		return
	}
	w.Current.Store(a)
	defer w.Current.Store(nil)
	dealtWith := false
	defer func() {
		if !dealtWith {
			r.abandonAfterGoexit(a)
		}
	}()
	if note, ok := readNote(in.Headers); ok {
		r.carrier.carry(r.carrier.storedWork(w, a, note))
	} else if unfinished != nil {
		r.carrier.resume(w, a, unfinished)
	} else if err := r.whyRefused(in); err != nil {
		r.failed(w, a, err)
	} else {
		r.runHandlers(w, a, idErr)
	}
	dealtWith = true
}

// runHandlers lets the handlers of a message handle it.
func (r *runner) runHandlers(w *worker, a *attempt, err error) {
	finished := false
	defer func() {
		if !finished { // the handler ended its goroutine
			r.failed(w, a, calls.ErrGoexit)
		}
	}()
	if err == nil {
		err = r.ep.resolveMessageType(a)
	}
	if err == nil {
		err = r.ep.invoke(a)
	}
	finished = true
	a.returned.Store(true)
	if err == nil {
		err = r.succeeded(w, a)
	}
	if err != nil {
		r.failed(w, a, err)
	}
}

// failed decides about an attempt that returned an error, and carries the decision out.
func (r *runner) failed(w *worker, a *attempt, err error) {
	a.message.end()
	switch {
	case r.lockLost(a):
		r.endLockLost(a)
		return
	case r.interruptedByShutdown(): // not its fault (R27)
		r.carrier.carry(r.carrier.newSettlement(a, plan.Progress{GivenBack: true}))
		return
	}
	f := r.ep.describe(a, err)
	r.undoForPolicy(a, f)
	a.returned.Store(false)
	d := r.ep.rules.decide(a.decisionContext(), *f)
	a.returned.Store(true)
	if d.reason.cause != nil && r.interruptedByShutdown() {
		r.ep.log.logUndecided(a.decisionContext(), f, d.reason.cause)
		r.carrier.carry(r.carrier.newSettlement(a, plan.Progress{GivenBack: true}))
		return
	}
	f.Err = d.reason.err
	if d.action.Kind != ActionPutBack {
		r.pauses.Reset()
	}
	if d.reason.cause != nil { // the policy's incomplete work is undone too
		r.undoForPolicy(a, f)
	}
	counts := d.limit == limitFailure && r.limiter.Counts(err)
	if counts { // before a retry can begin, and succeed
		r.limiter.Failed()
	}
	r.ep.log.logReasons(a.decisionContext(), f, &d)
	work := r.carrier.newWork(w, a, f, d)
	switch d.action.Kind { // before the message can be delivered again
	case ActionImmediateRetry:
		r.carrier.announce(work, plan.Step{})
		r.carrier.notify(work, d.action)
	case ActionPutBack:
		r.putBack(work)
	}
	r.carrier.carry(work)
	switch {
	case counts:
		r.limiter.Probed()
	case d.limit == limitSuccess:
		r.limiter.Succeeded()
	}
}

// undoForPolicy undoes the failed work before a custom policy works in the same transaction.
func (r *runner) undoForPolicy(a *attempt, f *failure) {
	if !r.isAtomic() || r.ep.rules.policy == nil {
		return
	}
	if err := a.undo(r.settleCtx); err != nil {
		r.ep.log.logNotUndone(a.decisionContext(), f, err)
	}
}

// isCompleting reports whether a worker waits for a delivery of the message to be
// completed: in an outage the call takes a while, and the broker may redeliver the
// message before it returns (R28). It is called for redeliveries only.
func (r *runner) isCompleting(nativeID string) bool {
	return nativeID != "" && r.pump.AnyAttempt(func(a *attempt) bool {
		return a.settled.Load() && a.delivery.Incoming().NativeID == nativeID
	})
}

// abandonAfterGoexit abandons a message when a policy, a filter or an observer ended
// the worker's goroutine (runtime.Goexit) before the message was settled. It
// counts as a failure, so that MaxDeliveries bounds the attempts.
func (r *runner) abandonAfterGoexit(a *attempt) {
	cause := errors.New("a policy, filter or observer ended the goroutine with runtime.Goexit (testing's FailNow does)")
	r.ep.log.endpoint.ErrorContext(a.decisionContext(), "message was left in the middle of being settled", "message_id", a.message.incoming.ID, "message_type", a.message.handledAs().messageType, "error", cause)
	work := r.carrier.newWork(nil, a, r.ep.describe(a, cause), decision{action: ImmediateRetry()})
	work.announced = true
	r.carrier.carry(work)
}

// releaseUnstarted gives back a delivery that was not started.
func (r *runner) releaseUnstarted(item fetchedDelivery) {
	r.settle(item, plan.Progress{GivenBack: true})
}

// settle settles a delivery without an attempt.
func (r *runner) settle(item fetchedDelivery, p plan.Progress) {
	a := &attempt{Context: r.valuesCtx, delivery: item.Delivery, lock: item.Lock}
	in := item.Delivery.Incoming()
	a.message.begin(r.ep.deps, in, r.ep.handlingOf(in.Headers.Get(HeaderMessageTypes)))
	r.carrier.carry(r.carrier.newSettlement(a, p))
}

// newAttempt returns nil if the lock is lost already. began is when it got its slot.
func (r *runner) newAttempt(item fetchedDelivery, began time.Time) *attempt {
	in := item.Delivery.Incoming()
	a := &attempt{Context: r.handlerCtx, delivery: item.Delivery, lock: item.Lock}
	if a.lock != nil {
		if !a.lock.Begin(r.handlerCtx) {
			r.renewer.Forget(a.lock)
			return nil
		}
		a.Context = a.lock
	}
	if r.isAtomic() {
		a.Context = a.delivery.BindContext(a.Context)
	}
	a.message.begin(r.ep.deps, in, r.ep.handlingOf(in.Headers.Get(HeaderMessageTypes)))
	a.message.scope = r.ep.scope
	a.message.started = began.UnixNano()
	return a
}

// TransactionBegun is called by an adapter with [Capabilities.AtomicLeases] when the
// native transaction of a message begins, with the context in which it was requested. The
// message then keeps its slot until it is settled: an endpoint has no more transactions
// than slots. With any other context it does nothing.
func TransactionBegun(ctx context.Context) {
	if a, ok := ctx.Value(attemptKey{}).(*attempt); ok {
		a.transactionBegun.Store(true)
	}
}

// whyRefused returns the reason for not giving a message to any handler.
func (r *runner) whyRefused(in *Incoming) error {
	switch {
	case in.Malformed != nil:
		return newMalformedError(in.Malformed)
	case r.ep.suspects.exceedsDeliveries(in):
		err := fmt.Errorf("%w: delivery %d, at most %d", ErrDeliveryCountExceeded, in.DeliveryCount, r.ep.suspects.maxDeliveriesOf(in))
		if in.LastError != "" {
			err = fmt.Errorf("%w; last error: %s", err, in.LastError)
		}
		return err
	}
	return nil
}

// resolveMessageType calls Config.MessageType for the type of the message.
func (ep *Endpoint) resolveMessageType(a *attempt) (err error) {
	name := ep.config.MessageType
	if name == nil {
		return nil
	}
	defer func() {
		if value := recover(); value != nil {
			err = safeError(fmt.Errorf("Config.MessageType: %w", newPanicError(value)))
		}
	}()
	in := a.delivery.Incoming()
	if messageType := name(in); messageType != "" {
		a.message.begin(ep.deps, in, ep.handlingOf(messageType))
	}
	return nil
}

// invoke calls middleware and handlers, with observers around them, within the handler
// timeout.
func (ep *Endpoint) invoke(a *attempt) error {
	if !ep.rules.hasTimeouts() {
		return ep.observedCall(a, a)
	}
	timeout := ep.rules.handlerTimeout(a.message.handledAs().messageType)
	if timeout == 0 {
		return ep.observedCall(a, a)
	}
	ctx, cancel := context.WithTimeoutCause(a, timeout, ErrHandlerTimeout)
	defer cancel()
	err := ep.observedCall(ctx, a)
	if err != nil && errors.Is(context.Cause(ctx), ErrHandlerTimeout) {
		err = fmt.Errorf("%w of %v: %w", ErrHandlerTimeout, timeout, err)
	}
	return err
}

// observedCall calls middleware and handlers, with observers around them.
func (ep *Endpoint) observedCall(ctx context.Context, a *attempt) error {
	a.message.ctx = ctx
	if len(ep.observers.handle) == 0 {
		return ep.call(ctx, a)
	}
	at := ep.observed
	ctx = ep.observers.handleStart(ctx, ep.observerPanicked, HandleStart{at, &a.message})
	a.observedCtx, a.message.ctx = ctx, ctx
	start := time.Now()
	err := calls.ErrGoexit
	defer func() {
		ep.observers.handleEnd(ctx, ep.observerPanicked, HandleEnd{ObservedEndpoint: at, Message: &a.message, Err: err, Duration: time.Since(start), Duplicate: a.message.isDuplicate()})
	}()
	err = ep.call(ctx, a)
	return err
}

// call calls middleware and handlers. No handler has failed if they return nil, also where
// middleware hid a failure.
func (ep *Endpoint) call(ctx context.Context, a *attempt) error {
	err := ep.chain.CallRecovered(ctx, &a.message)
	if err == nil {
		a.message.recordFailingHandler(nil)
	}
	return err
}

// succeeded sends the messages that the handlers collected and consumes the message. An
// error means that it was not settled: the attempt failed after all (R20).
func (r *runner) succeeded(w *worker, a *attempt) error {
	out := a.message.end()
	if r.lockLost(a) {
		r.endLockLost(a)
		return nil
	}
	if err := a.commitError(); err != nil {
		return err
	}
	engineSends, endProbe := r.engineSends(a)
	defer endProbe()
	if r.isAtomic() {
		if !a.transactionBegun.Load() {
			w.ReleaseSlotEarly()
		}
		err := r.completeWith(a, out, engineSends)
		if errors.Is(err, ErrLockLost) {
			r.endLockLost(a)
			return nil
		}
		if err != nil {
			w.ReacquireSlot()
			return fmt.Errorf("commit: %w", err)
		}
		r.endAttempt(a)
	} else {
		if len(out)+len(engineSends) > 0 {
			if err := r.sendAll(a, out, engineSends); err != nil {
				a.sendsFailed = true
				return err
			}
		}
		w.ReleaseSlotEarly()
		r.carrier.complete(a)
	}
	a.message.committedSends().notifySent(r.ep.observerPanicked)
	if len(r.ep.observers.success) > 0 {
		r.ep.observers.succeeded(a.settlementContext(r), r.ep.observerPanicked, Success{r.ep.observed, &a.message, a.message.isDuplicate()})
	}
	r.limiter.Succeeded()
	r.pauses.Reset()
	return nil
}

// describe collects the facts for the decision and the failure headers.
func (ep *Endpoint) describe(a *attempt, err error) *failure {
	in := a.delivery.Incoming()
	handler := a.message.failingHandler()
	f := &failure{
		ErrorContext: ErrorContext{
			Err:                         err,
			MessageID:                   in.ID,
			MessageType:                 a.message.handledAs().messageType,
			ReceiveQueue:                ep.address,
			ImmediateProcessingFailures: in.attempt(),
			DelayedDeliveriesPerformed:  in.delayedRetries(),
			FailedAt:                    time.Now(),
			LastDelayedRetry:            parseTimeOrZero(in.Headers.Get(HeaderRetriesTimestamp)),
			FirstFailure:                in.firstFailure(),
			attemptValues:               a.message.values(false),
			Handler:                     handler.name,
			HandlerStarted:              handler.began,
		},
		deferrals:     in.deferrals(),
		inPlace:       ep.retriesInPlace(a.delivery),
		handlerFailed: handler.failed,
	}
	f.setMessage(in)
	return f
}

// IsLastAttempt reports whether no other attempt follows if this one fails with err: the
// message then goes to the error queue, or is discarded. Middleware that answers for
// handlers asks it, as package middleware/fallback does. With [Endpoint.Invoke], and outside an
// endpoint, each attempt is the last. With a [Policy] ([MiddlewareScope.HasPolicy]), whose
// decision cannot be known beforehand, it returns false.
func (m *Message) IsLastAttempt(err error) bool {
	a := m.attempt()
	return a == nil || a.delivery == nil || m.deps.isLast(a, err)
}

// isLastAttempt makes the decision in advance.
func (ep *Endpoint) isLastAttempt(a *attempt, err error) bool {
	if ep.rules.policy != nil { // which would be called twice
		return false
	}
	kind := ep.rules.decide(a, *ep.describe(a, err)).action.Kind
	return kind == ActionMoveToError || kind == ActionDiscard
}

// Invoke runs middleware and handlers for a message in this process, without a queue in
// between: no retries, no error queue; the handlers' error is returned as it is. The
// messages that the handlers collect are sent if they succeed, committed messages
// ([Message.Commit]) in any case. Invoke calls the observers' functions about attempts
// and sends, not those about received messages. Invoke ends the registration of handlers,
// as [Endpoint.Run] does.
func (ep *Endpoint) Invoke(ctx context.Context, messageType string, body any) error {
	if err := ep.registry.seal(); err != nil {
		return err
	}
	out, err := ep.composer.compose(IntentSend, ep.name, messageType, body, nil, causation{}, ids.New)
	if err != nil {
		return fmt.Errorf("core: endpoint %q: invoke %q: %w", ep.name, messageType, err)
	}
	out.Headers.Del(HeaderReplyToAddress)
	in := &Incoming{ID: out.ID, NativeID: out.ID, Headers: out.Headers, Body: out.Body, DeliveryCount: 1}
	a := &attempt{Context: ctx}
	a.message.begin(ep.deps, in, ep.handlingOf(messageType))
	a.message.scope = ep.scope
	err = ep.invoke(a)
	toSend := a.message.end()
	if err != nil {
		toSend = a.message.committedSends().withCommitted(nil)
	}
	if len(toSend) > 0 {
		if a.observedCtx != nil {
			ctx = a.observedCtx
		}
		if failed := ep.transportSend(ctx, toSend); failed != nil {
			return errors.Join(err, failed)
		}
	}
	a.message.committedSends().notifySent(ep.observerPanicked)
	return err
}

// settlementContext returns the context for sends and settlements: it outlives the
// handler's context, but has the values that observers added to it, so that sent messages
// belong to the trace of the handled message.
func (a *attempt) settlementContext(r *runner) context.Context {
	if a.observedCtx == nil {
		return r.settleCtx
	}
	return &settlementContext{r.settleCtx, a.observedCtx}
}

type settlementContext struct {
	context.Context
	values context.Context
}

func (c *settlementContext) Value(key any) any {
	// The settlement context's own values are needed too: the context package
	// finds a cancelled parent by one.
	if value := c.Context.Value(key); value != nil {
		return value
	}
	return c.values.Value(key)
}

// decisionContext returns the context for policies and HandleFailed: the attempt's, with
// the values that observers put into that of its handlers, a trace for example.
func (a *attempt) decisionContext() context.Context {
	if a.observedCtx == nil {
		return a
	}
	return decisionContext{a}
}

type decisionContext struct{ *attempt }

func (c decisionContext) Value(key any) any { return c.observedCtx.Value(key) }

// recoveryContext returns the context for recovery observers: it does not end, and has the
// values that observers gave the attempt's.
func (a *attempt) recoveryContext(r *runner) context.Context {
	if a.observedCtx == nil {
		return r.valuesCtx
	}
	return context.WithoutCancel(a.observedCtx)
}

// isAtomic reports whether a message's sends and settlement are one transaction.
func (r *runner) isAtomic() bool { return r.ep.mode == TransactionSendsAtomicWithReceive }

// endAttempt ends the attempt and the renewal of its lock, after any outcome.
func (r *runner) endAttempt(a *attempt) {
	r.renewer.Forget(a.lock)
	a.end()
}

// end ends the attempt's context.
func (a *attempt) end() {
	if a.lock != nil {
		a.lock.End()
	}
}

func (r *runner) lockLost(a *attempt) bool {
	return a.lock != nil && a.lock.IsLost()
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
