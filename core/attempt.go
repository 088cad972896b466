package core

import (
	"context"
	"sync/atomic"

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
	dealtWith        bool            // settled, or kept: the worker has nothing left to do
	workUndone       bool            // the failed handler's work has been undone (Reset)
	sendsFailed      bool            // the handlers have succeeded, and their sends have failed
	transactionBegun atomic.Bool     // the native transaction, see TransactionBegun
	observedCtx      context.Context // the context that observers returned, or nil

	// The reason why a part of the work could not be undone (Savepoint), so that none of it
	// may be committed, or nil.
	partialUndoErr atomic.Pointer[error]
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

// IsLastAttempt reports whether no other attempt follows if this one fails with err, for
// middleware that answers for handlers. With [Endpoint.Invoke], and outside an endpoint,
// each attempt is the last. With a [Policy], whose decision is not known before, it returns
// false.
func (m *Message) IsLastAttempt(err error) bool {
	a := m.attempt()
	return a == nil || a.delivery == nil || m.deps.rules.isLastAttempt(a, err)
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
