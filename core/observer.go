package core

import (
	"context"
	"time"

	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/core/internal/calls"
)

// Observer has functions for the events of an endpoint, for tracing and metrics; nil ones
// are not called. None can fail a message: panics are caught. Functions that are called
// inline should be quick; the others have a goroutine behind a queue of 1,000 events, and
// an event that does not fit is dropped. Functions are called by several goroutines at
// once. Those of several observers nest.
type Observer struct {
	// HandleStart and HandleEnd are called inline around every attempt, that of Invoke too.
	// Middleware, handlers and HandleEnd get the context that HandleStart returned; nil
	// stands for the one that it got.
	HandleStart func(ctx context.Context, e Handling) context.Context
	HandleEnd   func(ctx context.Context, e Handling)

	// Succeeded is called inline when a message has been handled, its handlers' messages
	// have been sent, and it was consumed. A settlement that failed after the sends counts
	// too.
	Succeeded func(ctx context.Context, e Handling)

	// SendStart and SendEnd are called inline around every call to the transport that
	// sends, for any reason ([Outgoing.Reason]). SendStart may set headers on the messages.
	// A header of a message's first send, such as a traceparent, is set where Reason is
	// [ReasonApplication] or [ReasonAcknowledgement]: copies have it.
	SendStart func(ctx context.Context, e Sending) context.Context
	SendEnd   func(ctx context.Context, e Sending)

	// Recovered reports the outcome of failed messages, for one message in order, on a
	// separate goroutine; Health counts the dropped events. The context has the values that
	// HandleStart gave the attempt's.
	Recovered func(ctx context.Context, e Recovery)

	// RunStarted and RunEnded are called inline by the goroutine of Run or [RunAll], once
	// each for every Run that was not refused at once: RunStarted before it connects,
	// RunEnded after the last settlement and the last Recovered, with the error that Run
	// returns. [Endpoint.Health] then still describes this Run.
	RunStarted func(ctx context.Context, ep *Endpoint)
	RunEnded   func(ctx context.Context, ep *Endpoint, err error)

	// CriticalError is called when the endpoint cannot do its work: a failed message could
	// not be moved, a settlement fails again and again, an outage lasts for
	// [Config.OutageLimit] (the error matches [ErrOutage] then); or when the application calls
	// [Endpoint.RaiseCritical]. A team on call sets it to be paged, or to end the process.
	// Calls are made one after the other, behind a queue of 100, on a separate goroutine; they
	// may call [Endpoint.Shutdown]. Critical errors are logged and counted in any case.
	CriticalError func(ctx context.Context, ep *Endpoint, err error)

	// RateLimitChanged is called when rate-limited mode begins and ends.
	RateLimitChanged func(ctx context.Context, ep *Endpoint, limited bool)

	// ConnectionChanged reports outages and their end, on a goroutine that it shares with
	// RateLimitChanged. A send-only endpoint reports, on another one, the first send that
	// fails for a reason other than its message, and the first that is accepted after it.
	ConnectionChanged func(e ConnectionChange)

	// MessageUndeliverable reports delayed messages that cannot be put into their queue
	// when they are due, on the goroutine of ConnectionChanged, and, inline, events that one
	// of their subscribers does not get ([Undeliverable.Topic]).
	MessageUndeliverable func(e Undeliverable)
}

// ObservedEndpoint says where an event happened.
type ObservedEndpoint struct {
	Endpoint string // its name
	Instance string // Endpoint.Instance
	Queue    string // the address of the input queue; "" if send-only
	// Transport describes the transport, or is nil if that is no [Describer]. It must not
	// be written to.
	Transport *TransportInfo
}

// Handling is an attempt at a message that begins or has ended, or the last one of a
// message that is done.
type Handling struct {
	ObservedEndpoint
	Message *Message

	// Err is the error of the attempt, nil on success, and Duration is that of middleware
	// and handlers. Only HandleEnd gets them.
	Err      error
	Duration time.Duration

	// Duplicate: the message was handled before, and no handler has run
	// (messagekit.MarkDuplicate). HandleStart does not know it.
	Duplicate bool
}

// Sending is a send, which begins or has ended.
type Sending struct {
	ObservedEndpoint
	// Messages are the messages to send. SendStart may change their Headers, nothing else.
	Messages []Outgoing

	// Err is the error of the send, and Duration is how long it took. Only SendEnd gets
	// them.
	Err      error
	Duration time.Duration
}

// Recovery describes the outcome of a failed message.
type Recovery struct {
	ObservedEndpoint

	// Failure is the failure, as a [Policy] gets it, but its Message has no body. If a later
	// delivery carried out the decision, it has no values of the attempt.
	Failure ErrorContext

	// Action is the decision that was carried out, or stored until its queue can be
	// reached. If the error queue replaced another queue, Queue names the error queue.
	Action Action
	// NewCopy: the message was delivered too often, and gets the rest of
	// [Recoverability.MaxDeliveries] as a new copy; Action is a [DelayedRetry].
	NewCopy bool
	// DeadLettered: the message went to the broker's own dead-letter queue; Action
	// is a [MoveToError].
	DeadLettered bool
	// Reason is that of a [MoveToError], as in [headers.FailureReason]; otherwise it is "".
	Reason headers.Failure
	// TakenOver: [HandleFailed] took the message over; it was not moved.
	TakenOver bool
}

// ConnectionChange is an outage, a failed attempt to end it, or its end.
type ConnectionChange struct {
	// ObservedEndpoint is filled in by the endpoint. An adapter leaves it zero.
	ObservedEndpoint
	Connected bool
	// Err is the reason why there is no connection.
	Err error
	// Since is when the outage began.
	Since time.Time
	// RetryIn is when the next attempt to connect begins.
	RetryIn time.Duration
}

// observers holds an endpoint's observers by kind of event.
type observers struct {
	onPanic func(value any) // logs the panic of an observer or a hook

	handle, success, send, recovery, run, critical, rateLimit, connection, undeliverable []*Observer
}

func groupObservers(errs *validationErrors, all []Observer, sendOnly bool) *observers {
	o := &observers{}
	for i := range all {
		each := &all[i]
		known, called := false, !sendOnly // for any event
		add := func(to *[]*Observer, isSet, ofSends bool) {
			if isSet {
				*to, known, called = append(*to, each), true, called || ofSends
			}
		}
		add(&o.handle, each.HandleStart != nil || each.HandleEnd != nil, false)
		add(&o.success, each.Succeeded != nil, false)
		add(&o.send, each.SendStart != nil || each.SendEnd != nil, true)
		add(&o.recovery, each.Recovered != nil, false)
		add(&o.run, each.RunStarted != nil || each.RunEnded != nil, false)
		add(&o.critical, each.CriticalError != nil, true)
		add(&o.rateLimit, each.RateLimitChanged != nil, false)
		add(&o.connection, each.ConnectionChanged != nil, true)
		add(&o.undeliverable, each.MessageUndeliverable != nil, true)
		switch {
		case !known:
			errs.add("Observers[%d] has no function; set one, or remove it", i)
		case !called:
			errs.add("Observers[%d] has no function that a send-only endpoint calls: SendStart, SendEnd, ConnectionChanged, MessageUndeliverable or CriticalError; remove it, or SendOnly", i)
		}
	}
	return o
}

func (o *observers) handleStart(ctx context.Context, e Handling) context.Context {
	for _, each := range o.handle {
		if each.HandleStart == nil {
			continue
		}
		calls.Recover(o.onPanic, func() {
			if c := each.HandleStart(ctx, e); c != nil {
				ctx = c
			}
		})
	}
	return ctx
}

func (o *observers) handleEnd(ctx context.Context, e Handling) {
	for _, each := range o.handle {
		if each.HandleEnd != nil {
			calls.Recover(o.onPanic, func() { each.HandleEnd(ctx, e) })
		}
	}
}

func (o *observers) succeeded(ctx context.Context, e Handling) {
	for _, each := range o.success {
		calls.Recover(o.onPanic, func() { each.Succeeded(ctx, e) })
	}
}

func (o *observers) sendStart(ctx context.Context, e Sending) context.Context {
	for _, each := range o.send {
		if each.SendStart == nil {
			continue
		}
		calls.Recover(o.onPanic, func() {
			if c := each.SendStart(ctx, e); c != nil {
				ctx = c
			}
		})
	}
	return ctx
}

func (o *observers) sendEnd(ctx context.Context, e Sending) {
	for _, each := range o.send {
		if each.SendEnd != nil {
			calls.Recover(o.onPanic, func() { each.SendEnd(ctx, e) })
		}
	}
}

func (o *observers) runStarted(ctx context.Context, ep *Endpoint) {
	for _, each := range o.run {
		if each.RunStarted != nil {
			calls.Recover(o.onPanic, func() { each.RunStarted(ctx, ep) })
		}
	}
}

func (o *observers) runEnded(ctx context.Context, ep *Endpoint, err error) {
	for _, each := range o.run {
		if each.RunEnded != nil {
			calls.Recover(o.onPanic, func() { each.RunEnded(ctx, ep, err) })
		}
	}
}
