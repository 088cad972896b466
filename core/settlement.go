package core

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/reprise-go/reprise/core/internal/backlog"
	"github.com/reprise-go/reprise/core/internal/delays"
)

// This file ends deliveries: it completes, abandons, replaces and releases them, and
// repeats a settlement that failed.

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

// fetched returns the delivery as the pump has it.
func (a *attempt) fetched() fetchedDelivery {
	return fetchedDelivery{Delivery: a.delivery, Lock: a.lock}
}

// isAtomic reports whether a message's sends and settlement are one transaction.
func (r *runner) isAtomic() bool { return r.ep.mode == TransactionSendsAtomicWithReceive }

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
	r.retrySettlement(a.decisionContext(), a.fetched(), "completed", err, func() error { return a.delivery.Complete(r.settleCtx) }, a.end)
}

// completeAgain completes a message that was handled in an earlier delivery.
func (r *runner) completeAgain(w *worker, item fetchedDelivery) {
	w.ReleaseSlotEarly()
	err := item.Delivery.Complete(r.settleCtx)
	if err == nil {
		r.renewer.Forget(item.Lock)
		return
	}
	r.retrySettlement(r.valuesCtx, item, "completed", err, func() error { return item.Delivery.Complete(r.settleCtx) }, nil)
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
	if item.Lock != nil && item.Lock.IsLost() {
		r.renewer.Forget(item.Lock)
		return
	}
	err := item.Delivery.Release(r.settleCtx)
	if err == nil {
		r.renewer.Forget(item.Lock)
		return
	}
	r.retrySettlement(ctx, item, "released", err, func() error { return item.Delivery.Release(r.settleCtx) }, nil)
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
	in := item.Delivery.Incoming()
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
		r.renewer.Forget(item.Lock)
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
			if item.Lock != nil && item.Lock.IsLost() {
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

// endsDelivery reports whether a settlement's error means that no other settlement can be
// tried.
func endsDelivery(err error) bool { return errors.Is(err, ErrLockLost) || errors.Is(err, ErrSettled) }

// endDelivery ends the work on a delivery whose settlement returned such an error.
func (r *runner) endDelivery(a *attempt, err error) {
	if !errors.Is(err, ErrSettled) {
		r.endLockLost(a)
		return
	}
	r.endAttempt(a)
	r.ep.log.endpoint.WarnContext(a.decisionContext(), "message was settled already, by a call of the transport that returned an error",
		"message_id", a.message.incoming.ID, "message_type", a.message.handledAs().messageType)
	// If an adapter settles deliveries that it was not asked to settle, the message would be
	// redelivered and attempted without a pause.
	pause := time.NewTimer(moveBackoff.First)
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-r.fetchCtx.Done():
	}
}

// abandon gives the message back for its next attempt.
func (r *runner) abandon(a *attempt, f *failure) {
	in := a.delivery.Incoming()
	r.ep.recordSurvived(in)
	if f.inPlace {
		r.ep.redeliveries.rememberRounds(in.NativeID, in.roundsAfter(1))
	}
	err := a.delivery.Abandon(r.settleCtx, f.Err)
	if err == nil {
		r.endAttempt(a)
		return
	}
	r.retrySettlement(a.decisionContext(), a.fetched(), "abandoned", err, func() error { return a.delivery.Abandon(r.settleCtx, f.Err) }, a.end)
}

// replace sends out and consumes the message: atomically if the mode can, otherwise in
// this order. The failed handler's work is undone either way.
func (r *runner) replace(a *attempt, out []Outgoing) error {
	if r.lockLost(a) { // while policy or HandleFailed ran: another copy must not leave
		return ErrLockLost
	}
	if r.isAtomic() {
		err := r.ep.observedSend(a.settlementContext(r), out, func(ctx context.Context) error {
			if a.workUndone { // the work of HandleFailed or the policy is kept
				return a.delivery.CompleteWith(ctx, out)
			}
			return a.delivery.ReplaceWith(ctx, out)
		})
		if err == nil {
			r.endAttempt(a)
		}
		return err
	}
	if len(out) > 0 {
		if err := r.ep.transportSend(a.settlementContext(r), out); err != nil {
			return err
		}
	}
	r.complete(a)
	return nil
}

// A shutdown that interrupts users' code must not decide about a failed message: a policy
// or HandleFailed that obeys its cancelled context has made no decision. The message is
// released uncounted, and the next run decides (R27). Only in TransactionNone, which
// cannot release messages, the message is moved.

// undecidedError is the error of HandleFailed or EditFailed after a shutdown interrupted
// it.
type undecidedError struct{ cause error }

func (e *undecidedError) Error() string { return "cut off by the shutdown: " + e.cause.Error() }

// interruptedByShutdown reports whether a failure of user code may come from the
// shutdown, which has cancelled its context, and the message can be released.
func (r *runner) interruptedByShutdown() bool {
	return r.handlerCtx.Err() != nil && r.ep.mode != TransactionNone
}

// releaseUndecided releases a failed message whose policy, HandleFailed or EditFailed was
// interrupted with cause. The release undoes their work in the delivery's transaction, as
// it does that of a handler.
func (r *runner) releaseUndecided(a *attempt, f *failure, cause error) {
	if r.lockLost(a) {
		r.endLockLost(a)
		return
	}
	logFailure(a.decisionContext(), r.ep.log.recoverability, slog.LevelInfo, f, "the endpoint stopped before the failure was decided; the message is given back", slog.Any("cause", cause))
	r.releaseDelivery(a.decisionContext(), a.fetched())
	a.end()
}
