package core

import (
	"errors"
	"fmt"
	"time"

	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/core/internal/calls"
	"github.com/reprise-go/reprise/core/internal/plan"
)

// processor makes one attempt at each delivery of a Run: it runs the handlers, and commits
// their work, or has a decision made and carried out. The workers of the pump call it, each
// for its own delivery.
type processor struct {
	run     *runner
	ep      *Endpoint
	carrier *carrier
}

// handle handles one fetched delivery until it is settled, or kept without a slot.
func (p *processor) handle(w *worker, item fetchedDelivery) {
	var idErr error
	item.Delivery, idErr = identify(item.Delivery, p.ep.config.MessageID)
	in := item.Delivery.Incoming()
	if (in.DeliveryCount > 1 || in.Redelivered) && (p.ep.unfinished.wasSettled(in.NativeID) || p.isCompleting(in.NativeID)) {
		w.ReleaseSlotEarly()
		p.settle(item, plan.Progress{OnlyConsume: true})
		return
	}
	unfinished := p.ep.unfinished.take(in)
	a := p.newAttempt(item, w.SlotStart())
	if a == nil { // the lock was lost before anything began
		p.ep.log.endpoint.Warn("lock on an unstarted message was lost; it is redelivered", "message_id", in.ID)
		return
	}
	w.Current.Store(a)
	defer w.Current.Store(nil)
	defer func() {
		if !a.dealtWith {
			p.abandonAfterGoexit(a)
		}
	}()
	if note, ok := p.carrier.storedNote(in); ok {
		p.carrier.carry(p.carrier.storedWork(w, a, note))
	} else if unfinished != nil {
		p.carrier.resume(w, a, unfinished)
	} else if err := p.whyRefused(in); err != nil {
		p.failed(w, a, err)
	} else {
		p.runHandlers(w, a, idErr)
	}
	a.dealtWith = true
}

// runHandlers lets the handlers of a message handle it.
func (p *processor) runHandlers(w *worker, a *attempt, err error) {
	finished := false
	defer func() {
		if !finished { // the handler ended its goroutine
			p.failed(w, a, calls.ErrGoexit)
			a.dealtWith = true
		}
	}()
	if err == nil {
		err = p.ep.invoker.resolveMessageType(a)
	}
	if err == nil {
		err = p.ep.invoker.invoke(a)
	}
	finished = true
	a.returned.Store(true)
	if err == nil {
		err = p.succeeded(w, a)
	}
	if err != nil {
		p.failed(w, a, err)
	}
}

// failed decides about an attempt that returned an error, and carries the decision out.
func (p *processor) failed(w *worker, a *attempt, err error) {
	a.message.sends.end()
	switch {
	case a.isLockLost():
		p.run.endLockLost(a)
		return
	case p.run.interruptedByShutdown(): // not its fault (R27)
		p.carrier.carry(p.carrier.newSettlement(a, plan.Progress{GivenBack: true}))
		return
	}
	f := p.ep.rules.describe(a, err)
	p.undoForPolicy(a, f)
	a.returned.Store(false)
	d := p.ep.rules.decide(a.decisionContext(), *f)
	a.returned.Store(true)
	if d.reason.cause != nil && p.run.interruptedByShutdown() {
		p.ep.log.logUndecided(a.decisionContext(), f, d.reason.cause)
		p.carrier.carry(p.carrier.newSettlement(a, plan.Progress{GivenBack: true}))
		return
	}
	f.Err = d.reason.err
	if d.action.Kind != ActionPutBack {
		p.run.pauses.Reset()
	}
	if d.reason.cause != nil { // the policy's incomplete work is undone too
		p.undoForPolicy(a, f)
	}
	counts := d.limit == limitFailure && p.run.limiter.Counts(err)
	if counts { // before a retry can begin, and succeed
		p.run.limiter.Failed()
	}
	p.ep.log.logReasons(a.decisionContext(), f, &d)
	work := p.carrier.newWork(w, a, f, d)
	switch d.action.Kind { // before the message can be delivered again
	case ActionImmediateRetry:
		p.carrier.announce(work, plan.Step{})
		p.carrier.notify(work, d.action)
	case ActionPutBack:
		p.putBack(work)
	}
	p.carrier.carry(work)
	switch {
	case counts:
		p.run.limiter.Probed()
	case d.limit == limitSuccess:
		p.run.limiter.Succeeded()
	}
}

// undoForPolicy undoes the failed work before a custom policy works in the same transaction.
func (p *processor) undoForPolicy(a *attempt, f *failure) {
	if !p.ep.mode.isAtomic() || p.ep.rules.policy == nil {
		return
	}
	if err := a.undo(p.run.settleCtx); err != nil {
		p.ep.log.logNotUndone(a.decisionContext(), f, err)
	}
}

// isCompleting reports whether a worker waits for a delivery of the message to be
// completed: in an outage the call takes a while, and the broker may redeliver the
// message before it returns (R28). It is called for redeliveries only.
func (p *processor) isCompleting(nativeID string) bool {
	return nativeID != "" && p.run.pump.AnyAttempt(func(a *attempt) bool {
		return a.settled.Load() && a.delivery.Incoming().NativeID == nativeID
	})
}

// abandonAfterGoexit abandons a message when a policy, a filter or an observer ended
// the worker's goroutine (runtime.Goexit) before the message was settled. It
// counts as a failure, so that MaxDeliveries bounds the attempts.
func (p *processor) abandonAfterGoexit(a *attempt) {
	cause := errors.New("a policy, filter or observer ended the goroutine with runtime.Goexit (testing's FailNow does)")
	p.ep.log.endpoint.ErrorContext(a.decisionContext(), "message was left in the middle of being settled", "message_id", a.message.incoming.ID, "message_type", a.message.handledAs().messageType, "error", cause)
	work := p.carrier.newWork(nil, a, p.ep.rules.describe(a, cause), decision{action: ImmediateRetry()})
	work.announced = true
	p.carrier.carry(work)
}

// releaseUnstarted gives back a delivery that was not started.
func (p *processor) releaseUnstarted(item fetchedDelivery) {
	p.settle(item, plan.Progress{GivenBack: true})
}

// settle settles a delivery without an attempt.
func (p *processor) settle(item fetchedDelivery, progress plan.Progress) {
	a := &attempt{Context: p.run.valuesCtx, delivery: item.Delivery, lock: item.Lock}
	in := item.Delivery.Incoming()
	p.ep.invoker.begin(a, in, in.Headers.Get(headers.MessageTypes))
	p.carrier.carry(p.carrier.newSettlement(a, progress))
}

// whyRefused returns the reason for not giving a message to any handler.
func (p *processor) whyRefused(in *Incoming) error {
	switch {
	case in.Malformed != nil:
		return newMalformedError(in.Malformed)
	case p.ep.suspects.exceedsDeliveries(in):
		err := fmt.Errorf("%w: delivery %d, at most %d", ErrDeliveryCountExceeded, in.DeliveryCount, p.ep.suspects.maxDeliveriesOf(in))
		if in.LastError != "" {
			err = fmt.Errorf("%w; last error: %s", err, in.LastError)
		}
		return err
	}
	return nil
}

// newAttempt returns nil if the lock is lost already. began is when it got its slot.
func (p *processor) newAttempt(item fetchedDelivery, began time.Time) *attempt {
	in := item.Delivery.Incoming()
	a := &attempt{Context: p.run.handlerCtx, delivery: item.Delivery, lock: item.Lock}
	if a.lock != nil {
		if !a.lock.Begin(p.run.handlerCtx) {
			p.run.renewer.Forget(a.lock)
			return nil
		}
		a.Context = a.lock
	}
	if p.ep.mode.isAtomic() {
		a.Context = a.delivery.BindContext(a.Context)
	}
	p.ep.invoker.begin(a, in, in.Headers.Get(headers.MessageTypes))
	a.message.sends.scope = p.ep.invoker.scope
	a.message.started = began.UnixNano()
	return a
}
