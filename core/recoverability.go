package core

import (
	"context"
	"time"
)

// Recoverability configures the handling of failed messages. The zero value is 5
// immediate retries, then 3 delayed ones after 10, 20 and 30 s, each followed by 5
// immediate retries, then the error queue: 24 attempts.
type Recoverability struct {
	Immediate Immediate
	Delayed   Delayed

	// ErrorQueue is the queue for messages that could not be handled. The default is
	// "error".
	ErrorQueue string

	// MessageTypes has other settings for some message types. The keys are the
	// names with which handlers are registered.
	MessageTypes map[string]TypeRecoverability

	// MaxRetryAge is the time after a message's first failure in which [DefaultPolicy] may
	// schedule delayed retries. The default, 0, means no limit. [OneDay] is NServiceBus's. A
	// Policy finds it in its [RecoverabilityConfig].
	MaxRetryAge time.Duration

	// MaxDeliveries limits the deliveries of one copy of a message, including deliveries
	// that ended with the death of the process (R34). If the broker also counts deliveries
	// in which no handler began ([Capabilities.CountsReleases]), the last deliveries are
	// those of a new copy of the message; without isolation (IsolateAfter) that copy may be
	// delivered as often again.
	MaxDeliveries MaxDeliveries

	// IsolateAfter is the number of deliveries without a known end after which a message is
	// attempted in isolation: this process then has no other message, so that no other
	// message is counted if this one kills the process (R35). The default, 0, is the larger
	// of 2 and the immediate retries + 1, the number of times that a message can have
	// failed; Off means never. It needs [Capabilities.NativeDeliveryCount], transaction mode
	// ReceiveOnly (or, with [Capabilities.AtomicLeases], SendsAtomicWithReceive) and
	// MaxDeliveries, and is off without one of them.
	IsolateAfter int

	// RequeueDelay is the delay of Defer(0). The default is 1 s.
	RequeueDelay time.Duration

	// RequeueLimit is the number of times that a message may be deferred; the next deferral
	// moves it to the error queue with [ErrRequeueLimitExceeded]. With 3 its handler runs
	// four times (Brighter's RequeueCount counts the runs: 4). The default, 0, means no
	// limit.
	RequeueLimit int

	// UnacceptableMessageLimit stops or parks the endpoint when this number of messages was
	// moved to an error, dead-letter or invalid queue. The default, 0, means no limit.
	UnacceptableMessageLimit int

	// UnacceptableMessageWindow restricts the count to messages that failed within this
	// sliding window. The default, 0, counts since [Endpoint.Run] or [Endpoint.Resume].
	UnacceptableMessageWindow time.Duration

	// UnacceptableMessagePutBacks also counts each time that a message is put back
	// ([PutBack]), although it was not moved: for an endpoint that is to stop when it can do
	// nothing else. By default PutBacks are not counted.
	UnacceptableMessagePutBacks bool

	// UnacceptableMessageAction is the action at the limit. By default an endpoint that runs
	// alone stops, and an endpoint that runs with others ([RunAll]) is parked.
	UnacceptableMessageAction LimitAction

	// ParkFor is the time after which a parked endpoint resumes by itself. With the default,
	// 0, it stays parked until [Endpoint.Resume] is called.
	ParkFor time.Duration

	// ParkStore lets the next process start parked. The default, nil, starts it receiving.
	// With [LimitStop] the next Run starts parked.
	ParkStore ParkStore `json:"-"`

	// DeadLetter selects the failed messages that go to a dead-letter queue instead of the
	// error queue: none, those that a handler rejected, or all (R62).
	DeadLetter DeadLetters

	// DeadLetterQueue is the dead-letter queue, on any transport. It gets the same copy as
	// an error queue, with [HeaderFailureReason]. The default is the broker's own
	// dead-letter queue, which a transport with [Capabilities.DeadLetter] has. A message
	// goes to the error queue if the dead-letter queue does not accept it, as some brokers'
	// own in [TransactionNone], or cannot be reached.
	DeadLetterQueue string

	// InvalidQueue is for messages that no handler can handle: malformed ones
	// ([ErrMalformed]), those whose body cannot be decoded ([ErrUndecodable]) or that name
	// no type ([ErrNoType]), and those that a handler calls invalid ([Invalid]). Their
	// sender has to fix them; they are not to be sent back. The default, "", is the
	// dead-letter queue if DeadLetter is [DeadLettersAll], and the error queue otherwise
	// (R63).
	InvalidQueue string

	// InvalidWithoutHandler treats messages without a handler ([ErrNoHandler]) as invalid,
	// once their retries are used up.
	InvalidWithoutHandler bool

	// CustomErrorQueues are queues that handlers name in [MoveTo], and a Policy in
	// [MoveToError]. Like the error queue, Provision creates them, and they must exist when
	// [Endpoint.Run] begins. MoveTo and MoveToError may name other queues too; if such a
	// queue does not exist, the message goes to the error queue.
	CustomErrorQueues []string

	// RateLimit switches to one attempt at a time after consecutive failures.
	RateLimit RateLimit

	// Unrecoverable errors go to the error queue without a retry. Wrapped
	// errors match too. [ErrNoHandler] can be one.
	Unrecoverable []error `json:"-"`

	// UnrecoverableTypes names types of errors that go to the error queue without a retry,
	// as the header NServiceBus.ExceptionInfo.ExceptionType does: "*fs.PathError". An error
	// that wraps one matches too. In Go [ErrorType] writes the name.
	UnrecoverableTypes []string

	// UnrecoverableFunc reports further errors as unrecoverable.
	UnrecoverableFunc func(error) bool `json:"-"`

	// Policy decides instead of [DefaultPolicy].
	Policy Policy `json:"-"`

	// EditFailed edits the copy of a failed message for the error queue: it may change, add
	// and drop headers, and replace the body. It is called before a message is moved to an
	// error or dead-letter queue, after [HandleFailed], once for each delivery that is moved
	// (and again if the move has to wait until the message is redelivered, or another
	// process takes it over). It must be safe for concurrent use.
	//
	//   - The endpoint restores NServiceBus.FailedQ and NServiceBus.MessageId, by which the
	//     message can be sent back, and logs a warning.
	//   - Headers that it added or made longer are left out, the largest first, if the
	//     copy would exceed the transport's limits. A body that it made too long is
	//     replaced by the original one, and logged (R24).
	//   - After a panic, or runtime.Goexit, the copy is moved as if there were no EditFailed,
	//     and the panic is logged. If a shutdown had cancelled ctx, the message is given back
	//     instead (R27).
	//   - A message that waits because its error queue cannot be reached keeps the
	//     changes, and EditFailed is not called for it again.
	//   - In the broker's own dead-letter queue the message has the body with which it was
	//     received: the broker moves it. The description has the text that is left in
	//     NServiceBus.ExceptionInfo.Message.
	//
	// EditFailed does not affect retries, audit copies, log lines and observers. ctx is as
	// for a Policy; work in a native transaction is kept only if a Policy or HandleFailed is
	// set, before which the handler's work is undone.
	EditFailed func(ctx context.Context, failure ErrorContext, message *FailedCopy) `json:"-"`
}

// FailedCopy is the copy of a failed message for an error queue, as
// [Recoverability.EditFailed] gets it. It must not be used after EditFailed returned.
type FailedCopy struct {
	// Headers are those of the message and those of its failure. Values that are not UTF-8
	// are converted, empty keys are dropped.
	Headers Headers
	// Body is a copy of the message's body; [Recoverability.EditFailed] may write to it or
	// replace it. A message that an operator sends back to its queue has this body.
	Body []byte
	// Queue is the error queue, or "" for the broker's dead-letter queue. Writing to it
	// changes nothing.
	Queue string
}

// Immediate configures retries at once, or after a short pause.
type Immediate struct {
	// Retries is the number of retries; the default, 0, is 5.
	Retries int
	// Off turns them off.
	Off bool
	// Pause is before the first retry of a round; each further pause is twice as long, up to
	// MaxPause. It is lengthened by a random part, up to a half, so that messages that
	// failed together are not tried together. The message takes no slot while it waits. This
	// instance keeps up to 1,000 waiting messages (in SendsAtomicWithReceive without
	// [Capabilities.AtomicLeases] as many as Concurrency, but at least 10), and at that
	// limit fetches nothing until one is given back. In a queue that keeps groups the rest
	// of the group waits for the message. At most 1 min. The default, 0 or Off, is none, as
	// with NServiceBus.
	Pause time.Duration
	// MaxPause is the longest pause, at most 1 min. The default is 10 s, or Pause if that
	// is longer; a message type that has another Pause than the endpoint has it too.
	MaxPause time.Duration
}

// Delayed configures retries after a delay, each with a full round of immediate retries.
type Delayed struct {
	// Retries is the number of retries; the default, 0, is 3, or the number of Delays.
	Retries int
	// Off turns them off.
	Off bool
	// Increase is the first delay, and the amount by which each later delay is longer. The
	// default is 10 s.
	Increase time.Duration
	// Factor, at least 1, multiplies each delay instead of adding Increase: Increase,
	// Increase x Factor, Increase x Factor x Factor. The default, 0 or Off, is the linear
	// growth of Increase.
	Factor float64
	// MaxDelay limits each delay before jitter; it is at least Increase. The default, 0 or
	// Off, is none.
	MaxDelay time.Duration
	// Delays lists each delay, instead of Increase, Factor and MaxDelay.
	Delays []time.Duration
	// Jitter, between 0 and 1, lengthens a delay by a random part of it: 0.2 by up to a
	// fifth. It never shortens a delay. The default, 0 or Off, is none.
	Jitter float64
}

// TypeRecoverability has the settings of one message type. It is merged with those of the
// endpoint field by field: with Delayed{Retries: 10, Increase: time.Minute} in
// [Recoverability], Delayed{MaxDelay: 5 * time.Minute} here means 10 retries, with delays
// that grow by a minute up to five.
//
//   - A field that is 0 is inherited.
//   - Immediate.Off and Delayed.Off switch a level off; Retries or Delays switch
//     on a level that is off for the endpoint.
//   - Delays replace the inherited Retries, Increase, Factor and MaxDelay;
//     Retries and Increase together replace inherited Delays.
//   - Off, if the field's comment mentions it, replaces an inherited value by none, as
//     in Delayed.Factor, Delayed.MaxDelay and Delayed.Jitter.
type TypeRecoverability struct {
	Immediate Immediate
	Delayed   Delayed

	// ErrorQueue is the error queue of this type. Like that of the endpoint it
	// is created by Provision, and must exist when [Endpoint.Run] begins.
	ErrorQueue string

	// DeadLetterQueue and InvalidQueue replace those of the endpoint.
	DeadLetterQueue, InvalidQueue string

	// HandlerTimeout replaces [Config.HandlerTimeout]. Off means no limit.
	HandlerTimeout time.Duration

	// MaxRetryAge replaces that of the endpoint. Off means no limit.
	MaxRetryAge time.Duration

	// RequeueDelay replaces that of the endpoint.
	RequeueDelay time.Duration

	// RequeueLimit replaces that of the endpoint. Off means no limit.
	RequeueLimit int

	// Unrecoverable errors are added to those of the endpoint.
	Unrecoverable []error `json:"-"`

	// UnrecoverableTypes are added to those of the endpoint.
	UnrecoverableTypes []string

	// UnrecoverableFunc is called in addition to that of the endpoint.
	UnrecoverableFunc func(error) bool `json:"-"`
}

// MaxDeliveries limits the deliveries of one copy of a message.
type MaxDeliveries struct {
	// Count is the limit; the default, 0, is the larger of 50 and 4 x (immediate retries +
	// 1).
	Count int
	// Off turns the limit off.
	Off bool
}

// RateLimit configures automatic rate limiting (R40-R45).
type RateLimit struct {
	// ConsecutiveFailures is the number of failed attempts in a row, over all messages of
	// the endpoint and including immediate retries, that switches to one attempt at a time.
	// The default, 0, is never.
	ConsecutiveFailures int
	// TimeToWait is the pause after each failed attempt in that mode, at most an
	// hour. The default is 1 s.
	TimeToWait time.Duration
	// Filter reports which errors count. The default is all.
	Filter func(error) bool `json:"-"`
	// OnStarted and OnEnded are called when the mode changes.
	OnStarted func(ctx context.Context) `json:"-"`
	OnEnded   func(ctx context.Context) `json:"-"`
}
