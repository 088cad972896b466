package core

import (
	"context"
	"time"

	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/core/internal/calls"
)

// Observer has functions for the events of an endpoint, by which tracing and metrics can
// be added from outside. Functions that are nil are not called. None can fail a message:
// panics are caught. Functions that are called inline should be quick; the others have a
// goroutine behind a queue of 1,000 events, and an event that does not fit is dropped.
//
// Functions are called by several goroutines at once. Those of several observers nest: each
// Start gets the context that the one before it returned, and each End the innermost.
type Observer struct {
	// HandleStart and HandleEnd are called around every attempt, that of Invoke too: before
	// middleware and handlers, and after them on the same goroutine, with the context that
	// HandleStart returned; nil stands for the context that it got. Both are called inline.
	// After successful handlers the message is not yet done: see Succeeded.
	HandleStart func(ctx context.Context, e Handling) context.Context
	HandleEnd   func(ctx context.Context, e Handling)

	// Succeeded is called inline when a message has been handled, the messages of its
	// handlers have been sent, and it was consumed. A settlement that the transport does not
	// confirm, or that failed after the sends, counts too, because such a message is not
	// handled again here.
	Succeeded func(ctx context.Context, e Handling)

	// SendStart and SendEnd are called around every call to the transport that sends,
	// for any reason: the application, a handler's success, a delayed retry, a move
	// to the error queue. SendStart may set headers on the messages, such as a trace
	// context. Both are called inline.
	//
	// [Outgoing.Reason] tells why each message is sent. A header that belongs to the first
	// send of a message, such as the traceparent of its creation, is set where Reason is
	// [ReasonApplication]: with the other reasons but [ReasonAcknowledgement] the message is
	// a copy of a received message, and has the header already.
	SendStart func(ctx context.Context, e Sending) context.Context
	SendEnd   func(ctx context.Context, e Sending)

	// Recovered reports the outcome of failed messages. It has its own goroutine and queue;
	// Health counts the dropped events. For one message the events are in order, and the
	// event of an immediate retry is queued before the retry can begin. The context has the
	// values that HandleStart gave the attempt's.
	Recovered func(ctx context.Context, e Recovery)

	// RunStarted and RunEnded are called for each Run: for gauges that come from
	// [Endpoint.Health]. They are called inline, once each for every Run that was not
	// refused at once, by the goroutine of Run or [RunAll]. RunStarted is called before
	// [Endpoint.Run] connects: Health then shows Starting, and whether Run waits for its
	// broker. RunEnded is called after the last settlement, or when Run could not start,
	// with the error that Run returns: Health still describes this Run, and Recovered has
	// been called for all its events.
	RunStarted func(ctx context.Context, ep *Endpoint)
	RunEnded   func(ctx context.Context, ep *Endpoint, err error)

	// RateLimitChanged is called when rate-limited mode begins and ends.
	RateLimitChanged func(ctx context.Context, e RateLimitChange)

	// ConnectionChanged reports outages and their end, on a goroutine that it shares with
	// RateLimitChanged.
	//
	// A send-only endpoint does not receive, and reports its sends instead: the first that
	// fails for a reason other than its message (health.State), and the first that is
	// accepted after it, if any; RetryIn is 0. A separate goroutine makes these calls one
	// after the other. An outage that ends during a call may be left out.
	ConnectionChanged func(e ConnectionChange)

	// MessageUndeliverable reports delayed messages that cannot be put into their queue when
	// they are due, for example because the queue was deleted. It is called by the goroutine
	// of ConnectionChanged.
	MessageUndeliverable func(e Undeliverable)
}

// ObservedEndpoint says where an event happened.
type ObservedEndpoint struct {
	Endpoint string // its name
	Instance string // Endpoint.Instance
	Queue    string // the address of the input queue; "" if send-only
	// Transport describes the endpoint's transport, or is nil if that is no [Describer]. It
	// is the same pointer in all events of an endpoint, and must not be written to.
	Transport *TransportInfo
}

// Handling is an attempt at a message: one that begins, one that has ended, whose sends and
// settlement follow, or the one with which the message was done.
type Handling struct {
	ObservedEndpoint
	Message *Message

	// Err is the error of the attempt, nil on success, and Duration is how long middleware
	// and handlers took. Only HandleEnd gets them.
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

	// Err is the error of the send, and Duration is how long it took. Only SendEnd gets them.
	Err      error
	Duration time.Duration
}

// Recovery describes the outcome of a failed message.
type Recovery struct {
	ObservedEndpoint

	// Failure is the failure, as a [Policy] gets it, without the Body. A decision that was
	// carried out in a later delivery of the message has no values of the attempt.
	Failure ErrorContext

	// Action is the decision that was carried out. The Delay of an [ImmediateRetry] is
	// the pause as it is made. A [MoveToError] whose queue cannot be reached counts as
	// carried out when the message is stored (health.Waiting); if the error queue
	// replaced another queue, Queue names the error queue.
	Action Action
	// NewCopy: the message was delivered too often, perhaps without a handler, and gets
	// the rest of [Recoverability.MaxDeliveries] as a new copy; Action is a [DelayedRetry].
	NewCopy bool
	// DeadLettered: the message went to the broker's own dead-letter queue; Action
	// is a [MoveToError].
	DeadLettered bool
	// Reason is that of a [MoveToError], as in [headers.FailureReason]; otherwise it is "".
	Reason headers.Failure
	// TakenOver: [HandleFailed] took the message over; it was not moved.
	TakenOver bool
}

// RateLimitChange is the beginning or the end of rate-limited mode.
type RateLimitChange struct {
	ObservedEndpoint
	Limited bool
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

	handle, success, send, recovery, run, rateLimit, connection, undeliverable []*Observer
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
		add(&o.rateLimit, each.RateLimitChanged != nil, false)
		add(&o.connection, each.ConnectionChanged != nil, true)
		add(&o.undeliverable, each.MessageUndeliverable != nil, false)
		switch {
		case !known:
			errs.add("Observers[%d] has no function; set one, or remove it", i)
		case !called:
			errs.add("Observers[%d] has no function that a send-only endpoint calls: SendStart, SendEnd or ConnectionChanged; remove it, or SendOnly", i)
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
