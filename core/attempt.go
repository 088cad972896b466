package core

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/reprise-go/reprise/core/internal/backlog"
	"github.com/reprise-go/reprise/core/internal/calls"
	"github.com/reprise-go/reprise/core/internal/delays"
	"github.com/reprise-go/reprise/core/internal/locks"
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

// handle handles one fetched delivery until it is settled or in the backlog.
func (r *runner) handle(w *worker, item fetchedDelivery) {
	var idErr error
	item.delivery, idErr = r.ep.withID(item.delivery)
	in := item.delivery.Incoming()
	if (in.DeliveryCount > 1 || in.Redelivered) && (r.ep.redeliveries.wasSettled(in.NativeID) || r.pump.isCompleting(in.NativeID)) {
		r.completeAgain(w, item)
		return
	}
	if r.backlog.HasCopies() && mayBeRedelivery(in) {
		r.backlog.Supersede(pendingKey(in))
	}
	a := r.newAttempt(item, w.slotStart)
	if a == nil { // the lock was lost before anything began
		r.ep.log.endpoint.Warn("lock on an unstarted message was lost; it is redelivered", "message_id", in.ID)
		return
	}
	w.current.Store(a)
	defer w.current.Store(nil)
	dealtWith := false
	defer func() {
		if !dealtWith {
			r.abandonAfterGoexit(a)
		}
	}()
	if note, ok := readNote(in.Headers); ok {
		r.deliverStored(w, a, note)
		dealtWith = true
		return
	}
	if u := r.ep.redeliveries.decisionFor(in); u != nil {
		r.resumeDecision(w, a, u)
		dealtWith = true
		return
	}
	if err := r.whyRefused(in); err != nil {
		r.failed(w, a, err)
		dealtWith = true
		return
	}

	finished := false
	defer func() {
		if !finished { // the handler ended its goroutine
			r.failed(w, a, calls.ErrGoexit)
			dealtWith = true
		}
	}()
	err := idErr
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
	dealtWith = true
}

// abandonAfterGoexit abandons a message when a policy, a filter or an observer ended
// the worker's goroutine (runtime.Goexit) before the message was settled. It
// counts as a failure, so that MaxDeliveries bounds the attempts.
func (r *runner) abandonAfterGoexit(a *attempt) {
	r.ep.recordSurvived(a.delivery.Incoming())
	cause := errors.New("a policy, filter or observer ended the goroutine with runtime.Goexit (testing's FailNow does)")
	err := a.delivery.Abandon(r.settleCtx, cause)
	if errors.Is(err, ErrSettled) {
		r.endAttempt(a)
		return
	}
	r.ep.log.endpoint.ErrorContext(a.decisionContext(), "message was left in the middle of being settled", "message_id", a.message.incoming.ID, "message_type", a.message.handledAs().messageType, "error", cause)
	if err == nil {
		r.endAttempt(a)
		return
	}
	r.retrySettlement(a.decisionContext(), fetchedDelivery{a.delivery, a.lock}, "abandoned", err, func() error { return a.delivery.Abandon(r.settleCtx, cause) }, a.end)
}

// newAttempt returns nil if the lock is lost already. began is when it got its slot.
func (r *runner) newAttempt(item fetchedDelivery, began time.Time) *attempt {
	in := item.delivery.Incoming()
	a := &attempt{Context: r.handlerCtx, delivery: item.delivery, lock: item.lock}
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

// isAtomic reports whether a message's sends and settlement are one transaction.
func (r *runner) isAtomic() bool { return r.ep.mode == TransactionSendsAtomicWithReceive }

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
		return &MalformedError{in.Malformed}
	case r.ep.exceedsDeliveries(in):
		err := fmt.Errorf("%w: delivery %d, at most %d", ErrDeliveryCountExceeded, in.DeliveryCount, r.ep.maxDeliveriesOf(in))
		if in.LastError != "" {
			err = fmt.Errorf("%w; last error: %s", err, in.LastError)
		}
		return err
	}
	return nil
}

// handlingOf returns the handling of a message type. A header may list several types.
func (ep *Endpoint) handlingOf(messageType string) (h handling) {
	h.messageType, h.handlers = ep.registry.lookup(messageType)
	return h
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
		return callRecovered(ep.chain, ctx, &a.message)
	}
	at := ep.observedAt(a.delivery)
	ctx = ep.observers.handleStart(ctx, ep.observerPanicked, HandleStart{at, &a.message})
	a.observedCtx, a.message.ctx = ctx, ctx
	start := time.Now()
	err := calls.ErrGoexit
	defer func() {
		e := HandleEnd{ObservedEndpoint: at, Message: &a.message, Err: err, Duration: time.Since(start), Duplicate: a.message.isDuplicate()}
		if err == nil {
			e.Fallback = a.message.failingHandler().handledByFallback
		}
		ep.observers.handleEnd(ctx, ep.observerPanicked, e)
	}()
	err = callRecovered(ep.chain, ctx, &a.message)
	return err
}

// dispatch is the innermost handler: it runs the handlers registered for the type, in
// order, and records the one that failed.
func dispatch(ctx context.Context, m *Message) error {
	handlers := m.chooseHandlers()
	if m.Type == anyType && isControl(m.Headers) {
		m.deps.logSkippedControl(ctx, m)
		return nil
	}
	if handlers == nil {
		return noHandlerError(m.Type)
	}
	if handlers.independent {
		return dispatchIndependent(ctx, m, handlers)
	}
	current, began, failed := 0, time.Time{}, true
	defer func() { // also if the handler panics or ends its goroutine
		if failed {
			m.recordFailingHandler(&failingHandler{name: handlers.names[current], began: began, failed: time.Now()})
		}
	}()
	for i, handler := range handlers.handlers {
		current, began = i, time.Now()
		m.typeScope = handlers.scopeOf(i)
		if err := handler(ctx, m); err != nil {
			return err
		}
		if m.skipsRemaining() {
			break
		}
	}
	failed = false
	return nil
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
			w.releaseSlotEarly()
		}
		err := r.completeWith(a, out, engineSends)
		if errors.Is(err, ErrLockLost) {
			r.endLockLost(a)
			return nil
		}
		if err != nil {
			w.reacquireSlot()
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
		r.ep.redeliveries.forgetAccepted(a.delivery.Incoming().ID)
		w.releaseSlotEarly()
		r.complete(a)
	}
	a.message.committedSends().notifySent(r.ep.observerPanicked)
	if len(r.ep.observers.success) > 0 {
		r.ep.observers.succeeded(a.settlementContext(r), r.ep.observerPanicked, Success{r.ep.observedAt(a.delivery), &a.message, a.message.failingHandler().handledByFallback, a.message.isDuplicate()})
	}
	r.limiter.Succeeded()
	r.putBacks.reset(a.message.handledAs().messageType)
	return nil
}

// complete consumes a handled message. A failure is remembered for the redelivery that
// follows it, and so is a call that has not returned (R28).
func (r *runner) complete(a *attempt) {
	a.settled.Store(true)
	if !r.ep.caps.ConfirmsSettlement {
		r.ep.redeliveries.rememberSettled(a.delivery.Incoming().NativeID)
	}
	err := a.delivery.Complete(r.settleCtx)
	if err == nil {
		r.endAttempt(a)
		return
	}
	r.ep.redeliveries.rememberSettled(a.delivery.Incoming().NativeID)
	r.retrySettlement(a.decisionContext(), fetchedDelivery{a.delivery, a.lock}, "completed", err, func() error { return a.delivery.Complete(r.settleCtx) }, a.end)
}

// completeAgain completes a message that was handled in an earlier delivery.
func (r *runner) completeAgain(w *worker, item fetchedDelivery) {
	w.releaseSlotEarly()
	err := item.delivery.Complete(r.settleCtx)
	if err == nil {
		r.renewer.Forget(item.lock)
		return
	}
	r.retrySettlement(r.valuesCtx, item, "completed", err, func() error { return item.delivery.Complete(r.settleCtx) }, nil)
}

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

// releaseUnstarted releases a delivery that was not started.
func (r *runner) releaseUnstarted(item fetchedDelivery) { r.releaseDelivery(r.valuesCtx, item) }

// releaseDelivery releases a delivery that was not started, or could not be settled. ctx
// is for the log.
func (r *runner) releaseDelivery(ctx context.Context, item fetchedDelivery) {
	if item.lock != nil && item.lock.IsLost() {
		r.renewer.Forget(item.lock)
		return
	}
	err := item.delivery.Release(r.settleCtx)
	if err == nil {
		r.renewer.Forget(item.lock)
		return
	}
	r.retrySettlement(ctx, item, "released", err, func() error { return item.delivery.Release(r.settleCtx) }, nil)
}

// settlementBackoff is for the tries of a settlement.
var settlementBackoff = delays.Backoff{First: 50 * time.Millisecond, Last: 10 * time.Second}

// criticalSettlementTries is the number of failed tries after which a settlement raises a
// critical error: about half a minute.
const criticalSettlementTries = 10

// retrySettlement repeats a settlement that failed with err, while the lock is renewed,
// until it succeeds, the lock is lost or the endpoint stops. end may be nil, ctx is for
// the log.
func (r *runner) retrySettlement(ctx context.Context, item fetchedDelivery, settlement string, err error, settle func() error, end func()) {
	in := item.delivery.Incoming()
	ended := func(err error) bool {
		if err != nil && !errors.Is(err, ErrLockLost) && !errors.Is(err, ErrSettled) {
			return false
		}
		switch {
		case err == nil || settlement == "released":
		case errors.Is(err, ErrUncounted):
			r.raiseCriticalContext(ctx, fmt.Errorf("message %s is redelivered, but %w", in.ID, err))
		default:
			r.ep.log.endpoint.WarnContext(ctx, "message could not be settled while its lock held; it is redelivered", "message_id", in.ID, "settlement", settlement, "error", err)
		}
		r.renewer.Forget(item.lock)
		if end != nil {
			end()
		}
		return true
	}
	if ended(err) {
		return
	}
	r.ep.log.endpoint.WarnContext(ctx, "message could not be settled; it is tried again while its lock holds", "message_id", in.ID, "settlement", settlement, "error", err)
	tries := 1
	r.backlog.Add(&backlog.Entry{
		Backoff: settlementBackoff,
		Try: func() bool {
			if item.lock != nil && item.lock.IsLost() {
				return ended(ErrLockLost)
			}
			err := settle()
			if tries++; tries == criticalSettlementTries && err != nil {
				r.raiseCriticalContext(ctx, fmt.Errorf("message %s cannot be %s after %d tries; it is tried further: %w", in.ID, settlement, tries, err))
			}
			return ended(err)
		},
		Cancel: func() {
			if err := settle(); !ended(err) { // the receiver's Close releases it
				ended(fmt.Errorf("%w: %w", ErrLockLost, err))
			}
		},
	})
}

func (r *runner) lockLost(a *attempt) bool {
	return a.lock != nil && a.lock.IsLost()
}

// endLockLost ends the work on a message whose lock is lost (R27).
func (r *runner) endLockLost(a *attempt) {
	r.ep.recordSurvived(a.delivery.Incoming())
	r.endAttempt(a)
	r.ep.log.endpoint.WarnContext(a.decisionContext(), "lock on a message was lost while it was being handled; it is redelivered",
		"message_id", a.message.incoming.ID, "message_type", a.message.handledAs().messageType)
}
