package core

import (
	"context"
	"fmt"
	"log/slog"
	"time"
)

// Config configures an endpoint. The zero value is ready for use; [New] checks every
// field, refuses settings that would have no effect, and reports all problems together. A
// field that is 0 has its default. A field accepts [Off] if its comment says so.
//
// Package configfile reads a Config from JSON and environment variables, and writes it,
// without the fields that hold code (functions, errors, a logger). encoding/json does
// neither: it takes durations for nanoseconds.
type Config struct {
	// Concurrency is the number of messages handled at the same time, at most 10,000. The
	// default is 16. The owner of a service sets it after measuring.
	Concurrency int

	// Transactions is the transaction mode. The default is the highest mode that the
	// transport has. Set it for handlers that need a lower mode, which is faster, or to be
	// sure of one on every transport.
	Transactions TransactionMode

	// Recoverability configures retries and the queues for failed messages.
	Recoverability Recoverability

	// InputQueue is the queue that the endpoint receives from. The default, "", is a queue
	// with the endpoint's name. A tool that reads an error queue sets it.
	InputQueue string

	// QueueExpiry makes the broker delete the input queue, with its messages, when nothing
	// has received from it for this long. Set it, with [ProvisionAlways], for a queue that
	// one instance alone receives from, such as the queue for replies to that instance: the
	// queues of instances that do not return are then removed. It must be longer than an
	// instance is ever stopped, and than the longest delay of a message to it. The default,
	// 0, keeps the queue for ever.
	//
	// Provision sets the expiry when it creates the queue, and returns an error for an
	// existing queue with another one. On a broker that cannot delete unused queues,
	// [Endpoint.Run] returns an error; the documentation of the transport says so.
	QueueExpiry time.Duration

	// AuditQueue receives a copy of every message that was handled successfully. The default,
	// "", is none. Operations set it where handled messages are kept.
	AuditQueue string

	// Provision says when [Endpoint.Run] creates the input queue, the error queues of the
	// configuration and the audit queue. Teams whose deployment does not create queues set
	// [ProvisionAlways].
	Provision Provisioning

	// SendOnly makes an endpoint without an input queue, for a process that only sends and
	// publishes, such as an HTTP API. Handlers are refused, and so are [Endpoint.Run] and the
	// settings for receiving.
	SendOnly bool

	// HandlerTimeout limits one attempt of a message: middleware and all handlers of its
	// type. At the timeout their context is cancelled with a cause that matches
	// context.DeadlineExceeded, and the attempt has failed. The default, 0, means no limit:
	// set one for handlers whose own calls have none. [Recoverability.MessageTypes] can set
	// another timeout for a message type.
	HandlerTimeout time.Duration

	// DrainTimeout is the time that handlers have after [Endpoint.Run]'s context ended,
	// before their contexts are cancelled. The default is 20 s: with the 5 s that handlers
	// then have to return, Run ends before Kubernetes, which waits for 30 s, ends the
	// process. Set it where that time is another one. With Off they are cancelled at once.
	// The transport may use the rest of the time for requests to the broker that are in
	// progress.
	DrainTimeout time.Duration

	// OutageLimit is the duration after which an outage that the transport reported
	// ([ConnectionChange]) raises a critical error that matches [ErrOutage], once for each
	// outage. The endpoint continues to reconnect. The default is 2 min. Off raises none. A
	// team on call sets it to the time after which it has to know.
	OutageLimit time.Duration

	// Instance distinguishes this running endpoint from others of the same name in logs and
	// headers. It must not have control characters. The default is the machine's name, the
	// process id and a random part. Teams whose logs name pods set it.
	Instance string

	// Codec encodes and decodes message bodies. The default is JSON. Teams with another
	// format, or several, set it.
	Codec Codec

	// MessageType returns the type of a message, by which its handlers and settings are
	// chosen. It is called for each delivery of a message that could be parsed. It returns
	// "" to leave the type to the header NServiceBus.EnclosedMessageTypes, which decides
	// without MessageType. Receivers of foreign messages, which have no such header, set it
	// to name their types, or to rename a type. It must not write to the message; a panic is
	// a failed attempt.
	MessageType func(in *Incoming) string

	// MessageID returns the id of a foreign message, which has no header
	// NServiceBus.MessageId: for logs, headers and error queues, and as the source of the
	// ids of messages that its handlers send. It is called for each delivery of such a
	// message that could be parsed, and must return the same id for each. With "" the
	// message keeps [Incoming.ID], the broker's own id, as without MessageID. It must not
	// write to the message; a panic, and an id that is not UTF-8, are a failed attempt.
	MessageID func(in *Incoming) string

	// BaseTypes names the types that a message type is derived from: base classes and
	// interfaces, the most derived first. A message of the type that is sent or published
	// lists all of them behind its type in the header NServiceBus.EnclosedMessageTypes, so
	// that a receiver that knows only a base type has handlers for it. An event also reaches
	// the subscribers to the base types, each queue once, on a transport with
	// [Abilities.BaseTopics]. It does not apply to received messages: their header lists
	// their types.
	BaseTypes map[string][]string

	// Middleware wraps the handling of every message, outermost first. Platform teams set it
	// for the needs of all their services.
	Middleware []Middleware

	// SendMiddleware wraps every send of the application, outermost first, as for headers
	// that all messages have.
	SendMiddleware []SendMiddleware

	// Observers are notified of events, as for telemetry. Each has at least one function; on
	// a send-only endpoint one of [Observer.SendStart], [Observer.SendEnd] and
	// [Observer.ConnectionChanged], as it only sends.
	Observers []Observer

	// Logger receives the log lines, one for each failed attempt among them. Package
	// logformat has handlers that fold repeated lines and that write NServiceBus's texts. The
	// default is slog.Default().
	Logger *slog.Logger

	// OnCriticalError is called when the endpoint cannot do its work: a failed message could
	// not be moved, a settlement fails again and again, an outage lasts for OutageLimit
	// (the error matches [ErrOutage] then); or when the application calls
	// [Endpoint.RaiseCritical]. A team on call sets it to be paged, or to end the process.
	// Calls are made one after the other, behind a queue of 100, on their own goroutine; they
	// may call [Endpoint.Shutdown]. Critical errors are logged and counted in any case.
	OnCriticalError func(ctx context.Context, err error)
}

// Off switches off a setting that has a default, or that a message type would inherit
// from [Recoverability]: Config{OutageLimit: Off}. The comments of the fields say which
// accept it.
const Off = -1

// Provisioning says when [Endpoint.Run] creates queues.
type Provisioning int

const (
	// ProvisionAuto creates queues on a transport that keeps nothing beyond the process (not
	// Durable), in which no other process could have created them.
	ProvisionAuto Provisioning = iota
	// ProvisionAlways creates queues on every transport that can.
	ProvisionAlways
	// ProvisionNever creates nothing.
	ProvisionNever
)

var provisioningNames = [...]string{ProvisionAuto: "Auto", ProvisionAlways: "Always", ProvisionNever: "Never"}

// String returns the name as a configuration file writes it.
func (p Provisioning) String() string {
	if p >= 0 && int(p) < len(provisioningNames) {
		return provisioningNames[p]
	}
	return fmt.Sprintf("Provisioning(%d)", int(p))
}

// Defaults and limits of Config beside those in settings.
const (
	maxConcurrency        = 10_000 // each is a goroutine or two
	defaultImmediate      = 5
	defaultDelayed        = 3
	defaultIncrease       = 10 * time.Second
	maxTimeToWait         = time.Hour
	defaultMaxDeliveries  = 50
	slowHandlerAfter      = time.Minute      // a running handler is logged once
	maxPrefetchBytes      = 64 << 20         // of headers and bodies of messages without a handler
	handlerGrace          = 5 * time.Second  // from cancelling handlers to ErrHandlersRunning
	closeGrace            = 4 * time.Second  // for the steps after that
	maxRememberedMessages = 1000             // settled memory and pending decisions (R28, R25)
	maxRetryDelay         = 24 * time.Hour   // R5
	applicationReserve    = 8 << 10          // bytes kept free for failure headers (R24)
	pendingExpiry         = 10 * time.Minute // of a decision whose message is not redelivered
)

// Recoverability configures the handling of failed messages. The zero value is 5
// immediate retries, then 3 delayed ones after 10, 20 and 30 s, each followed by 5
// immediate retries, then the error queue: 24 attempts.
type Recoverability struct {
	Immediate Immediate
	Delayed   Delayed

	// ErrorQueue is the queue for messages that could not be handled. The default is
	// "error". Operations set it, for a queue for each team or endpoint.
	ErrorQueue string

	// MessageTypes has other settings for some message types, for partners that need more
	// patience, or less. The keys are the names with which handlers are registered.
	MessageTypes map[string]TypeRecoverability

	// MaxRetryAge is the time after a message's first failure in which [DefaultPolicy] may
	// schedule delayed retries. The default, 0, means no limit. Set it where messages are
	// worthless after some time; NServiceBus's limit is 24 h. A Policy finds it in its
	// [RecoverabilityConfig].
	MaxRetryAge time.Duration

	// RetryAfterLimit is the time after a message's first failure in which [RetryAfter] is
	// granted; the first one always is. The default is 1 h. Off means no limit. Set it to the
	// longest outage of a service that says when to call again.
	RetryAfterLimit time.Duration

	// MaxDeliveries limits the deliveries of one copy of a message, including deliveries
	// that ended with the death of the process. If the broker also counts deliveries
	// in which no handler began ([Guarantees.CountsReleases]), the last deliveries are
	// those of a new copy of the message.
	//
	// A message that was delivered more often than its failures explain is attempted in
	// isolation: this process then has no other message, so that no other message is counted
	// if this one kills the process. Set it below a smaller limit of the broker.
	// The default, 0, is the larger of 50 and 4 x (immediate retries + 1). Off means no limit.
	MaxDeliveries int

	// RequeueDelay is the delay of a [Defer] without one. The default is 1 s. Services whose handlers
	// defer set it, and RequeueLimit.
	RequeueDelay time.Duration

	// RequeueLimit is the number of times that a message may be deferred; the next deferral
	// moves it to the error queue with [ErrRequeueLimitExceeded]. With 3 its handler runs
	// four times (Brighter's RequeueCount counts the runs: 4). The default, 0, means no
	// limit.
	RequeueLimit int

	// UnacceptableMessageLimit ends the endpoint when too many of its messages failed
	// permanently, for a team that would rather look than fill an error queue.
	UnacceptableMessageLimit UnacceptableMessageLimit

	// DeadLetter sends all failed messages to the dead-letter queue instead of the error
	// queue; handlers send single ones there by [GiveUpTo]. Operations set it where they
	// have tools for the broker's dead-letter queues.
	DeadLetter bool

	// DeadLetterQueue is the dead-letter queue, on any transport. It gets the same copy as
	// an error queue. The default is the broker's own dead-letter queue, which a transport
	// with [Abilities.DeadLetter] has. A message goes to the error queue if the
	// dead-letter queue does not accept it, as some brokers' own in [TransactionNone], or
	// cannot be reached, by the broker's own queue in 8 tries.
	DeadLetterQueue string

	// InvalidQueue is for messages that no handler can handle: malformed ones
	// ([ErrMalformed]), those whose body cannot be decoded ([ErrUndecodable]) or that name
	// no type ([ErrNoType]), and those that a handler gives up to it ([GiveUpTo]).
	// Their sender has to fix them; they are not to be sent back. The default, "", is the
	// dead-letter queue if DeadLetter is set, and the error queue otherwise.
	InvalidQueue string

	// CustomErrorQueues are queues that handlers name in [GiveUpTo], and a Policy in
	// [MoveToError]. Like the error queue, Provision creates them, and they must exist when
	// [Endpoint.Run] begins, and messages are stored for them while they cannot be reached.
	// GiveUpTo and MoveToError may name other queues too. A message goes to the error queue
	// at once if its queue does not exist or refuses it, and after 8 tries, about a minute
	// and a half, if the queue cannot be reached and the message is not stored for it.
	CustomErrorQueues []string

	// RateLimit switches to one attempt at a time after consecutive failures, for handlers
	// whose failures mean that a service they need is away.
	RateLimit RateLimit

	// Unrecoverable lists errors that no retry can fix: a message that fails with one goes to
	// the error queue without a retry. Wrapped errors match too. [ErrNoHandler] can be one,
	// and [ErrorOfType] stands for all errors of a type. A configuration file lists names of
	// types, as the header NServiceBus.ExceptionInfo.ExceptionType does: "*fs.PathError". For
	// other conditions, such as codes in errors, write a Policy.
	Unrecoverable []error

	// Policy decides instead of [DefaultPolicy], where settings do not suffice.
	Policy Policy

	// EditFailed edits the headers of the copy of a failed message for the error queue: it
	// may change, add and drop them, as for redacting error texts. They are those of the
	// message and those of its failure. It is called before a message is moved to an error
	// or dead-letter queue, after [HandleFailed], once for each delivery that is moved (and
	// again if the move has to wait until the message is redelivered, or another process
	// takes it over). It must be safe for concurrent use.
	//
	//   - The endpoint restores NServiceBus.FailedQ and NServiceBus.MessageId, by which the
	//     message can be sent back, and logs a warning.
	//   - Headers that it added or made longer are left out, the largest first, if the
	//     copy would exceed the transport's limits.
	//   - After a panic, or runtime.Goexit, the copy is moved as if there were no EditFailed,
	//     and the panic is logged. If a shutdown had cancelled ctx, the message is given back
	//     instead.
	//   - A message that waits because its error queue cannot be reached keeps the
	//     changes, and EditFailed is not called for it again.
	//   - In the broker's own dead-letter queue the description has the text that is left in
	//     NServiceBus.ExceptionInfo.Message.
	//
	// EditFailed does not affect retries, audit copies, log lines and observers. ctx is as
	// for a Policy; work in a native transaction is kept only if a Policy or HandleFailed is
	// set, before which the handler's work is undone.
	EditFailed func(ctx context.Context, failure ErrorContext, headers *Headers)
}

// Immediate configures retries at once, or after a short pause.
type Immediate struct {
	// NumberOfRetries is the number of retries in a round; the default, 0, is 5. Off means
	// none.
	NumberOfRetries int
	// Pause is before the first retry of a round; each further pause is twice as long, up to
	// MaxPause. It is lengthened by a random part, up to a half, so that messages that
	// failed together are not tried together. The message takes no slot while it waits. This
	// instance keeps up to 1,000 waiting messages (in SendsAtomicWithReceive without
	// [Abilities.AtomicLeases] as many as Concurrency, but at least 10), and at that
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
	// NumberOfRetries is the number of retries; the default, 0, is 3, or the number of
	// Delays. Off means none.
	NumberOfRetries int
	// TimeIncrease is the first delay, and the amount by which each later delay is longer.
	// The default is 10 s.
	TimeIncrease time.Duration
	// Factor, at least 1, multiplies each delay instead of adding TimeIncrease: TimeIncrease,
	// TimeIncrease x Factor, TimeIncrease x Factor x Factor. The default, 0 or Off, is the
	// linear growth by TimeIncrease.
	Factor float64
	// MaxDelay limits each delay before jitter; it is at least TimeIncrease. The default, 0
	// or Off, is none.
	MaxDelay time.Duration
	// Delays lists each delay, instead of TimeIncrease, Factor and MaxDelay.
	Delays []time.Duration
	// Jitter, between 0 and 1, lengthens a delay by a random part of it: 0.2 by up to a
	// fifth. It never shortens a delay. The default, 0 or Off, is none.
	Jitter float64
}

// TypeRecoverability has the settings of one message type. It is merged with those of the
// endpoint field by field: with Delayed{NumberOfRetries: 10, TimeIncrease: time.Minute} in
// [Recoverability], Delayed{MaxDelay: 5 * time.Minute} here means 10 retries, with delays
// that grow by a minute up to five.
//
//   - A field that is 0 is inherited.
//   - NumberOfRetries: Off switches a level off; another number, or Delays, switch on a
//     level that is off for the endpoint.
//   - Delays replace the inherited NumberOfRetries, TimeIncrease, Factor and MaxDelay;
//     NumberOfRetries and TimeIncrease together replace inherited Delays.
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

	// RetryAfterLimit replaces that of the endpoint. Off means no limit.
	RetryAfterLimit time.Duration

	// RequeueDelay replaces that of the endpoint.
	RequeueDelay time.Duration

	// RequeueLimit replaces that of the endpoint. Off means no limit.
	RequeueLimit int

	// Unrecoverable errors are added to those of the endpoint.
	Unrecoverable []error
}

// RateLimit configures automatic rate limiting.
type RateLimit struct {
	// ConsecutiveFailures is the number of failed attempts in a row, over all messages of
	// the endpoint and including immediate retries, that switches to one attempt at a time.
	// The default, 0, is never. The verdicts [GiveUp] and [RetryAfter] are failures, too;
	// [Refuse] and [PutBack] are neither failures nor successes, and any other verdict is a
	// success: the handler ran to a decision.
	ConsecutiveFailures int
	// TimeToWait is the pause after each failed attempt in that mode, at most an
	// hour. The default is 1 s.
	TimeToWait time.Duration
	// Filter reports which errors count. The default is all.
	Filter func(error) bool
}
