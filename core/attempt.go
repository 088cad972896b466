package core

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"
)

// attempt is one attempt at handling one delivery. It is the handler's context
// and its message in a single allocation.
type attempt struct {
	context.Context
	message  Message
	delivery Delivery
	hold     *hold
	undone   bool            // the failed handler's work has been undone (Reset)
	observed context.Context // what observers made of the context, or nil
}

// settling returns the context for sends and settlements: it outlives the
// handler's, but carries what observers put there, so that what is sent belongs
// to the trace of what was handled.
func (a *attempt) settling(r *runner) context.Context {
	if a.observed == nil {
		return r.settle
	}
	return &settlingContext{r.settle, a.observed}
}

type settlingContext struct {
	context.Context
	values context.Context
}

func (c *settlingContext) Value(key any) any {
	// The settling context's own values are needed too: the context package
	// finds a cancelled parent by one.
	if value := c.Context.Value(key); value != nil {
		return value
	}
	return c.values.Value(key)
}

// attemptKey is how Shutdown finds that it was called by one whom it would wait
// for.
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

// handle takes one delivery from fetched to settled.
func (r *runner) handle(w *worker, item held) {
	in := item.delivery.Incoming()
	if (in.DeliveryCount > 1 || in.Redelivered) && r.ep.memory.wasSettled(in.NativeID) {
		r.settleAgain(w, item)
		return
	}
	a := r.newAttempt(item)
	if a == nil { // the lock was lost before anything began
		r.ep.log.endpoint.Warn("lock on an unstarted message was lost; it comes again", "message_id", in.ID)
		return
	}
	w.current.Store(a)
	defer w.current.Store(nil)
	dealtWith := false
	defer func() {
		if !dealtWith {
			r.surrender(a)
		}
	}()
	if u, ok := r.ep.memory.pendingDecision(in.NativeID); ok {
		u.failure.Headers, u.failure.Body = in.Headers, in.Body
		a.message.begin(r.ep.env, in, r.ep.handlingOf(u.failure.MessageType))
		r.carryOut(w, a, &u.failure, &u.decision, &u)
		dealtWith = true
		return
	}
	if err := r.refusal(in); err != nil {
		r.failed(w, a, err)
		dealtWith = true
		return
	}

	finished := false
	defer func() {
		if !finished { // the handler ended its goroutine
			r.failed(w, a, errGoexit)
			dealtWith = true
		}
	}()
	err := r.ep.identify(a)
	if err == nil {
		err = r.ep.invoke(a)
	}
	finished = true
	if err == nil {
		err = r.succeeded(w, a)
	}
	if err != nil {
		r.failed(w, a, err)
	}
	dealtWith = true
}

// surrender gives back a message when a policy, a filter or an observer ended
// the worker's goroutine (runtime.Goexit) before the message was settled. It
// counts as a failure, so that MaxDeliveries bounds the attempts.
func (r *runner) surrender(a *attempt) {
	cause := errors.New("a policy, filter or observer ended the goroutine with runtime.Goexit (testing's FailNow does)")
	err := a.delivery.Abandon(r.settle, cause)
	r.release(a)
	if !errors.Is(err, ErrSettled) {
		r.ep.log.endpoint.Error("message was left in the middle of being settled", "message_id", a.message.incoming.ID, "message_type", a.message.handledAs().messageType,
			"error", cause, "settle_error", err)
	}
}

var errGoexit = errors.New("the code called ended its goroutine with runtime.Goexit (testing's FailNow does)")

// newAttempt returns nil if the lock is lost already.
func (r *runner) newAttempt(item held) *attempt {
	in := item.delivery.Incoming()
	a := &attempt{Context: r.work, delivery: item.delivery, hold: item.hold}
	if a.hold != nil {
		if !a.hold.begin(r.work) {
			r.renewer.forget(a.hold)
			return nil
		}
		a.Context = a.hold
	}
	if r.isAtomic() {
		a.Context = a.delivery.BindContext(a.Context)
	}
	a.message.begin(r.ep.env, in, r.ep.handlingOf(in.Headers.Get(HeaderMessageTypes)))
	a.message.scope = r.ep.scope
	if r.ep.auditAddress != "" {
		a.message.started = time.Now()
	}
	return a
}

// isAtomic reports whether a message's sends and its settlement are one
// transaction.
func (r *runner) isAtomic() bool { return r.ep.mode == TransactionSendsAtomicWithReceive }

// refusal says why a message is not given to any handler.
func (r *runner) refusal(in *Incoming) error {
	switch {
	case in.Malformed != nil:
		return &MalformedError{in.Malformed}
	case r.ep.maxDeliveries > 0 && in.DeliveryCount > r.ep.maxDeliveries:
		err := fmt.Errorf("%w: delivery %d, at most %d", ErrDeliveryCountExceeded, in.DeliveryCount, r.ep.maxDeliveries)
		if in.LastError != "" {
			err = fmt.Errorf("%w; last error: %s", err, in.LastError)
		}
		return err
	}
	return nil
}

// handlingOf returns how messages of a type are handled. A header may list several.
func (ep *Endpoint) handlingOf(messageType string) (h handling) {
	h.messageType, h.handlers = ep.registry.lookup(messageType)
	return h
}

// identify asks Config.MessageType for the type of the message.
func (ep *Endpoint) identify(a *attempt) (err error) {
	name := ep.config.MessageType
	if name == nil {
		return nil
	}
	defer func() {
		if value := recover(); value != nil {
			err = readable(fmt.Errorf("Config.MessageType: %w", &PanicError{Value: value, Stack: debug.Stack()}))
		}
	}()
	in := a.delivery.Incoming()
	if messageType := name(in); messageType != "" {
		a.message.begin(ep.env, in, ep.handlingOf(messageType))
	}
	return nil
}

// invoke calls middleware and handlers, with observers around them.
func (ep *Endpoint) invoke(a *attempt) error {
	if len(ep.observers.handle) == 0 {
		return call(ep.chain, a, &a.message)
	}
	ctx := ep.observers.handleStart(a, ep.observerPanicked, HandleStart{ep.observed, &a.message})
	a.observed = ctx
	start := time.Now()
	err := errGoexit
	defer func() {
		ep.observers.handleEnd(ctx, ep.observerPanicked, HandleEnd{ep.observed, &a.message, err, time.Since(start)})
	}()
	err = call(ep.chain, ctx, &a.message)
	return err
}

// call turns a panic into an error (R26).
func call(chain HandlerFunc, ctx context.Context, m *Message) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &PanicError{Value: value, Stack: debug.Stack()}
		}
		if err != nil {
			err = readable(err)
		}
	}()
	return chain(ctx, m)
}

// apart calls f in a goroutine of its own, which users' code may end
// (runtime.Goexit) without ending the worker before the message is settled.
func apart(f func() error) error {
	err, done := errGoexit, make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if value := recover(); value != nil {
				err = &PanicError{Value: value, Stack: debug.Stack()}
			}
		}()
		err = f()
	}()
	<-done
	return err
}

// readable replaces an error that cannot be read: a method of it, or of an error
// that it wraps, panics, as that of a nil pointer does.
func readable(err error) (result error) {
	text := ""
	defer func() {
		value := recover()
		if value == nil {
			return
		}
		if p, ok := err.(*PanicError); ok {
			result = &PanicError{Value: fmt.Sprint(p.Value), Stack: p.Stack}
		} else {
			result = fmt.Errorf("handler returned an error of type %T that panics when it is read (%v): %s", err, value, text)
		}
	}()
	text = err.Error()
	_ = errors.Is(err, errGoexit) // any target will do: it calls what each error in the tree has
	for _, e := range errorChain(err) {
		_ = e.Error()
	}
	return err
}

// dispatch is the innermost handler: it runs those registered for the type, in
// order.
func dispatch(ctx context.Context, m *Message) error {
	handlers := m.choose()
	if handlers == nil {
		return fmt.Errorf("%w: %q; register one, or check the spelling", ErrNoHandler, m.Type)
	}
	for _, handler := range handlers.run {
		if err := handler(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

// succeeded sends what the handlers collected and consumes the message. An
// error means that nothing was settled: the attempt failed after all (R20).
func (r *runner) succeeded(w *worker, a *attempt) error {
	out := a.message.end()
	if r.lockLost(a) {
		r.abandonLost(a)
		return nil
	}
	out = r.withAudit(a, out)
	if r.isAtomic() {
		err := r.ep.observedSend(a.settling(r), out, func(ctx context.Context) error { return a.delivery.CompleteWith(ctx, out) })
		if errors.Is(err, ErrLockLost) {
			r.abandonLost(a)
			return nil
		}
		if err != nil {
			return fmt.Errorf("commit: %w", err)
		}
		r.release(a)
	} else {
		if len(out) > 0 {
			if err := r.ep.transportSend(a.settling(r), out); err != nil {
				return err
			}
		}
		w.freeSlot()
		r.complete(a)
	}
	if len(r.ep.observers.success) > 0 {
		r.ep.observers.succeeded(a.settling(r), r.ep.observerPanicked, Success{r.ep.observed, &a.message})
	}
	r.limiter.succeeded()
	return nil
}

// complete consumes a message that has been dealt with. A failure is remembered
// for the redelivery that follows it (R28).
func (r *runner) complete(a *attempt) {
	in := a.delivery.Incoming()
	if !r.ep.caps.ConfirmsSettlement {
		r.ep.memory.rememberSettled(in.NativeID)
	}
	err := a.delivery.Complete(r.settle)
	r.release(a)
	if err != nil {
		r.ep.memory.rememberSettled(in.NativeID)
		r.ep.log.endpoint.Warn("message was handled but could not be settled; if it comes again here, it is settled without being handled",
			"message_id", in.ID, "message_type", a.message.handledAs().messageType, "error", err)
	}
}

// settleAgain completes a message that was dealt with before.
func (r *runner) settleAgain(w *worker, item held) {
	in := item.delivery.Incoming()
	w.freeSlot()
	err := item.delivery.Complete(r.settle)
	r.renewer.forget(item.hold)
	if err != nil {
		r.ep.log.endpoint.Warn("message was handled before but could not be settled again", "message_id", in.ID, "error", err)
	}
}

// release ends the attempt's hold on the delivery, whatever became of it.
func (r *runner) release(a *attempt) {
	if a.hold != nil {
		r.renewer.forget(a.hold)
		a.hold.end()
	}
}

// giveBack releases a delivery that was not started.
func (r *runner) giveBack(item held) {
	if r.renewer.forget(item.hold) {
		return
	}
	if err := item.delivery.Release(r.settle); err != nil && !errors.Is(err, ErrLockLost) {
		r.ep.log.endpoint.Warn("unstarted message could not be given back; it comes again when its lock ends",
			"message_id", item.delivery.Incoming().ID, "error", err)
	}
}

func (r *runner) lockLost(a *attempt) bool {
	return a.hold != nil && a.hold.isLost()
}

// abandonLost leaves a message alone whose lock is lost (R27).
func (r *runner) abandonLost(a *attempt) {
	r.release(a)
	r.ep.log.endpoint.Warn("lock on a message was lost while it was being handled; it comes again",
		"message_id", a.message.incoming.ID, "message_type", a.message.handledAs().messageType)
}

// withAudit adds what a success sends on the endpoint's own account: the audit
// copy, and the acknowledgement that an operator's retry asks for.
func (r *runner) withAudit(a *attempt, out []Outgoing) []Outgoing {
	in := a.delivery.Incoming()
	ackQueue := in.Headers.Get(HeaderRetryAckQueue)
	if ackQueue == "" && r.ep.auditAddress == "" {
		return out
	}
	now := FormatTime(time.Now())
	audit := in.Headers
	if unique := in.Headers.Get(HeaderRetryUniqueMessageID); unique != "" && ackQueue != "" {
		id := derivedID(in.ID, r.ep.name+"/retry-acknowledgement", 1)
		out = append(out, Outgoing{ID: id, Queue: ackQueue, Reason: ReasonAcknowledgement, Headers: Headers{pairs: []header{
			{HeaderMessageID, id},
			{HeaderControlMessage, "True"},
			{HeaderRetrySuccessful, now},
			{HeaderRetryUniqueMessageID, unique},
			{HeaderMessageIntent, IntentSend},
			{HeaderOriginatingEndpoint, r.ep.name},
			{HeaderTimeSent, now},
		}}})
		audit.Set(HeaderRetryAckSent, "true")
	}
	if r.ep.auditAddress != "" {
		audit.Set(HeaderMessageID, in.ID)
		audit.Set(HeaderProcessingEndpoint, r.ep.host.endpoint)
		audit.Set(HeaderProcessingMachine, r.ep.host.machine)
		audit.Set(HeaderHostID, r.ep.host.hostID)
		audit.Set(HeaderHostDisplayName, r.ep.host.instance)
		audit.Set(HeaderProcessingStarted, FormatTime(a.message.started))
		audit.Set(HeaderProcessingEnded, now)
		// The copy must not fail a message that was handled.
		if audit = legible(audit); !fits(audit, in.Body, r.ep.caps) {
			r.ep.log.endpoint.Warn("message is too large for the headers of its audit copy; the copy goes without them",
				"message_id", in.ID, "message_type", a.message.handledAs().messageType)
			audit = legible(in.Headers)
		}
		out = append(out, in.copyTo(r.ep.auditAddress, audit, ReasonAudit))
	}
	return out
}
