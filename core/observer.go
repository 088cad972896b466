package core

import (
	"context"
	"time"
)

// Observers see what an endpoint does, so that tracing and metrics can be added
// from outside. Each of the interfaces below is small and independent; an
// observer implements those it needs. None can fail a message: panics are caught.

// ObservedEndpoint says where an event happened.
type ObservedEndpoint struct {
	Endpoint string // its name
	Instance string // Endpoint.Instance
	// Queue is the address of the queue that the message was received from, and
	// otherwise that of the input queue; "" if send-only.
	Queue string
	// InstanceQueue: Queue is the instance's own (Config.InstanceQueue).
	InstanceQueue bool
	// Transport describes the endpoint's transport, or is nil where that is no Describer.
	// It is the same pointer in all events of an endpoint, and nobody writes to it.
	Transport *TransportInfo
}

// RunObserver is told of the beginning and the end of each Run: for gauges that come from
// Endpoint.Health. It is called inline, once each for every Run that was not refused at once,
// by the goroutine of Run or RunAll.
type RunObserver interface {
	// RunStarted is called before Run connects. Health tells that it is Starting, and whether
	// it waits for its broker.
	RunStarted(ctx context.Context, ep *Endpoint)
	// RunEnded is called after the last settlement, or when Run could not start, with the
	// error that Run returns. Health still tells of this Run, all of whose RecoveryObservers
	// have been called.
	RunEnded(ctx context.Context, ep *Endpoint, err error)
}

// HandleObserver is called around every attempt, that of Invoke too: its Start before middleware
// and handlers, its End after them, on the same goroutine, with the context
// that Start returned. Both run inline and should be quick. That the handlers
// succeeded does not mean yet that the message is done: see SuccessObserver.
type HandleObserver interface {
	HandleStart(ctx context.Context, e HandleStart) context.Context
	HandleEnd(ctx context.Context, e HandleEnd)
}

// HandleStart describes an attempt that begins.
type HandleStart struct {
	ObservedEndpoint
	Message *Message
}

// HandleEnd describes an attempt that ended. Sends and settlement follow.
type HandleEnd struct {
	ObservedEndpoint
	Message  *Message
	Err      error // nil on success
	Duration time.Duration
	Fallback error // the failure that a Fallback answered for, so that Err is nil, or nil

	// Duplicate: the message was handled before, and no handler has run (Message.SetDuplicate).
	Duplicate bool
}

// SuccessObserver is called inline when a message has been handled, what its
// handlers sent has left, and it was consumed; a settlement that the transport
// does not confirm, or that failed after the sends, counts too, because such a
// message is not handled again here.
type SuccessObserver interface {
	Succeeded(ctx context.Context, e Success)
}

// Success describes a message that is done.
type Success struct {
	ObservedEndpoint
	Message  *Message
	Fallback error // the failure that a Fallback answered for, or nil: the handlers succeeded

	// Duplicate: the message was handled before, and no handler has run (Message.SetDuplicate).
	Duplicate bool
}

// SendObserver is called around every call to the transport that sends,
// whatever sends: the application, a handler's success, a delayed retry, a move
// to the error queue. Start may set headers on the messages, such as a trace
// context. Both run inline.
//
// Outgoing.Reason tells why each message is sent. A header that belongs to the
// first send of a message, such as the traceparent of its creation, is set where
// Reason is ReasonApplication: with the other reasons but ReasonAcknowledgement
// the message is a copy of one that was received, and has the header already.
type SendObserver interface {
	SendStart(ctx context.Context, e SendStart) context.Context
	SendEnd(ctx context.Context, e SendEnd)
}

// SendStart describes a send that begins.
type SendStart struct {
	ObservedEndpoint
	// Messages may have their Headers changed, nothing else.
	Messages []Outgoing
}

// SendEnd describes a send that ended.
type SendEnd struct {
	ObservedEndpoint
	Messages []Outgoing
	Err      error
	Duration time.Duration
}

// RecoveryObserver is told what became of failed messages. It is called by a
// goroutine of its own behind a queue of 1,000 events; what does not fit is
// dropped and counted (Health). For one message the events are in order, and
// that of an immediate retry was queued before the retry could begin. The
// context has the values that HandleObservers gave the attempt's.
type RecoveryObserver interface {
	Recovered(ctx context.Context, e Recovery)
}

// Recovery is what became of a failed message.
type Recovery struct {
	ObservedEndpoint
	MessageID, MessageType             string
	Headers                            Headers
	Err                                error
	Handler                            string // that failed, as in ErrorContext
	Attempt, DelayedRetries, Deferrals int
	// Action is the decision that was carried out. A MoveToError whose queue cannot be
	// reached counts as carried out when the message is stored (Health.Undelivered).
	Action Action
	// Deferred: the handler deferred the message; Action is a DelayedRetry.
	Deferred bool
	// NewCopy: the message was delivered too often, perhaps without a handler, and gets
	// the rest of MaxDeliveries as a new copy (R34); Action is a DelayedRetry.
	NewCopy bool
	// DeadLettered: the message went to the broker's own dead-letter queue; Action
	// is a MoveToError.
	DeadLettered bool
	// Reason is that of a message in a dead-letter queue or the invalid queue, or "".
	Reason FailureReason
	// TakenOver: HandleFailed took the message over; it was not moved.
	TakenOver bool
	// FailedAt is when the attempt failed.
	FailedAt time.Time
	// FirstFailure is when the message failed for the first time, as in ErrorContext: the zero
	// time if this is the first round.
	FirstFailure time.Time

	noted *values // of the attempt
}

// RateLimitObserver is told when rate-limited mode begins and ends, like
// RateLimit.OnStarted and OnEnded.
type RateLimitObserver interface {
	RateLimitChanged(ctx context.Context, e RateLimitChange)
}

// RateLimitChange is the beginning or the end of rate-limited mode.
type RateLimitChange struct {
	ObservedEndpoint
	Limited bool
}

// ParkObserver is told when the endpoint is parked because UnacceptableMessageLimit was
// reached, and when that ends (R50). It is called by the goroutine that tells a
// ConnectionObserver, and by Resume where no Run is in progress. An endpoint that starts
// parked (ParkStore) is in Health, and no change.
type ParkObserver interface {
	ParkChanged(ctx context.Context, e ParkChange)
}

// ParkChange is the beginning or the end of parking.
type ParkChange struct {
	ObservedEndpoint
	Parked bool
	// Park is why the endpoint is, or was, parked.
	Park Park
}

// ConnectionObserver is told of outages and their end, by a goroutine that it shares
// with the hooks of rate limiting, behind a queue of 1,000 events. An adapter calls the
// endpoint's own from any goroutine, and is not held up.
//
// A send-only endpoint receives nothing, and tells of its sends instead: of the first that
// fails for a reason other than its message (Health.SendError), and of the first that is
// accepted after it, if there is one; RetryIn is 0. A separate goroutine calls, one call
// after the other. An outage that ends while a call lasts may be left out.
type ConnectionObserver interface {
	ConnectionChanged(e ConnectionChange)
}

// ConnectionChange is an outage, a failed attempt to end it, or its end.
type ConnectionChange struct {
	// ObservedEndpoint is filled in by the endpoint. An adapter leaves it zero.
	ObservedEndpoint
	Connected bool
	// Err is why there is no connection.
	Err error
	// Since is when the outage began.
	Since time.Time
	// RetryIn is when the next attempt to connect begins.
	RetryIn time.Duration
}

// observers holds an endpoint's observers by what they implement.
type observers struct {
	handle     []HandleObserver
	success    []SuccessObserver
	send       []SendObserver
	recovery   []RecoveryObserver
	rateLimit  []RateLimitObserver
	connection []ConnectionObserver
	run        []RunObserver
	park       []ParkObserver

	undeliverable []UndeliverableObserver
}

func sortObservers(p *problems, all []any, sendOnly bool) *observers {
	o := &observers{}
	for i, each := range all {
		known, told := false, !sendOnly // told of anything
		if v, ok := each.(HandleObserver); ok {
			o.handle, known = append(o.handle, v), true
		}
		if v, ok := each.(SuccessObserver); ok {
			o.success, known = append(o.success, v), true
		}
		if v, ok := each.(SendObserver); ok {
			o.send, known, told = append(o.send, v), true, true
		}
		if v, ok := each.(RecoveryObserver); ok {
			o.recovery, known = append(o.recovery, v), true
		}
		if v, ok := each.(RateLimitObserver); ok {
			o.rateLimit, known = append(o.rateLimit, v), true
		}
		if v, ok := each.(ConnectionObserver); ok {
			o.connection, known, told = append(o.connection, v), true, true
		}
		if v, ok := each.(RunObserver); ok {
			o.run, known = append(o.run, v), true
		}
		if v, ok := each.(ParkObserver); ok {
			o.park, known = append(o.park, v), true
		}
		if v, ok := each.(UndeliverableObserver); ok {
			o.undeliverable, known = append(o.undeliverable, v), true
		}
		switch {
		case each == nil:
			p.add("Observers[%d] is nil; remove it", i)
		case !known:
			p.add("Observers[%d] is of type %T, which implements no observer interface of core; check the signatures of its methods and their receiver", i, each)
		case !told:
			p.add("Observers[%d] is of type %T, which a send-only endpoint tells of nothing: it is neither a SendObserver nor a ConnectionObserver; remove it, or SendOnly", i, each)
		}
	}
	return o
}

// guarded calls f and reports a panic through caught instead of passing it on.
func guarded(caught func(value any), f func()) {
	defer func() {
		if value := recover(); value != nil {
			caught(value)
		}
	}()
	f()
}

// The contexts of several observers nest: each Start gets the context of the one
// before it, and every End the innermost.

func (o *observers) handleStart(ctx context.Context, caught func(any), e HandleStart) context.Context {
	for _, each := range o.handle {
		guarded(caught, func() {
			if c := each.HandleStart(ctx, e); c != nil {
				ctx = c
			}
		})
	}
	return ctx
}

func (o *observers) handleEnd(ctx context.Context, caught func(any), e HandleEnd) {
	for _, each := range o.handle {
		guarded(caught, func() { each.HandleEnd(ctx, e) })
	}
}

func (o *observers) succeeded(ctx context.Context, caught func(any), e Success) {
	for _, each := range o.success {
		guarded(caught, func() { each.Succeeded(ctx, e) })
	}
}

func (o *observers) sendStart(ctx context.Context, caught func(any), e SendStart) context.Context {
	for _, each := range o.send {
		guarded(caught, func() {
			if c := each.SendStart(ctx, e); c != nil {
				ctx = c
			}
		})
	}
	return ctx
}

func (o *observers) sendEnd(ctx context.Context, caught func(any), e SendEnd) {
	for _, each := range o.send {
		guarded(caught, func() { each.SendEnd(ctx, e) })
	}
}

func (o *observers) runStarted(ctx context.Context, caught func(any), ep *Endpoint) {
	for _, each := range o.run {
		guarded(caught, func() { each.RunStarted(ctx, ep) })
	}
}

func (o *observers) runEnded(ctx context.Context, caught func(any), ep *Endpoint, err error) {
	for _, each := range o.run {
		guarded(caught, func() { each.RunEnded(ctx, ep, err) })
	}
}
