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

// TransactionBegun is called by an adapter with [Capabilities.AtomicLeases] when the
// native transaction of a message begins, with the context in which it was requested. The
// message then keeps its slot until it is settled: an endpoint has no more transactions
// than slots. With any other context it does nothing.
func TransactionBegun(ctx context.Context) {
	if a, ok := ctx.Value(attemptKey{}).(*attempt); ok {
		a.transactionBegun.Store(true)
	}
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
		a.message.begin(ep.deps, in, ep.registry.handlingOf(messageType))
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
	ctx = ep.observers.handleStart(ctx, HandleStart{at, &a.message})
	a.observedCtx, a.message.ctx = ctx, ctx
	start := time.Now()
	err := calls.ErrGoexit
	defer func() {
		ep.observers.handleEnd(ctx, HandleEnd{ObservedEndpoint: at, Message: &a.message, Err: err, Duration: time.Since(start), Duplicate: a.message.isDuplicate()})
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
	a.message.begin(ep.deps, in, ep.registry.handlingOf(messageType))
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
		if failed := ep.sender.send(ctx, toSend...); failed != nil {
			return errors.Join(err, failed)
		}
	}
	a.message.committedSends().notifySent(ep.observers.onPanic)
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

// end ends the attempt's context.
func (a *attempt) end() {
	if a.lock != nil {
		a.lock.End()
	}
}

// isLockLost reports whether the broker may deliver the message again.
func (a *attempt) isLockLost() bool { return a.lock != nil && a.lock.IsLost() }
