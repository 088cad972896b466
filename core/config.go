package core

import (
	"context"
	"fmt"
	"log/slog"
	"time"
)

// Config configures an endpoint. The zero value is ready for use, and a field that is 0 has
// its default. [New] refuses settings that would have no effect, and reports all problems
// together. A field accepts [Off] if its comment says so. Package configfile reads and
// writes a Config as JSON, which encoding/json cannot: it takes durations for nanoseconds.
type Config struct {
	// Concurrency is the number of messages handled at the same time, at most 10,000. The
	// default is 16.
	Concurrency int

	// Transactions is the transaction mode. The default is the highest mode that the
	// transport has; lower ones are faster.
	Transactions TransactionMode

	// Recoverability configures retries and the queues for failed messages.
	Recoverability Recoverability

	// InputQueue is the queue that the endpoint receives from. The default is a queue with
	// the endpoint's name. A tool that reads an error queue sets it.
	InputQueue string

	// QueueExpiry makes the broker delete the input queue, with its messages, when nothing
	// has received from it for this long: for a queue of one instance. It must be longer
	// than an instance is ever stopped, and than the longest delay of a message to it. The
	// default, 0, keeps the queue. Another expiry of an existing queue, and a broker that
	// cannot delete queues, are errors of [Endpoint.Run].
	QueueExpiry time.Duration

	// AuditQueue receives a copy of every message that was handled successfully. The
	// default, "", is none.
	AuditQueue string

	// RetryAckQueues are the queues to which the endpoint acknowledges the retry of a
	// message that an operator sent back, or reports its outcome (headers.ReplayReport). A
	// message names the queue itself (headers.RetryAckQueue), so its sender chooses among
	// these. The default, nil, is the queue of ServiceControl, Particular.ServiceControl, and
	// reprise.outcomes. An empty list that is not nil allows none.
	RetryAckQueues []string

	// Provision says when [Endpoint.Run] creates the input queue, the error queues and the
	// audit queue.
	Provision Provisioning

	// SendOnly makes an endpoint without an input queue. Handlers, [Endpoint.Run] and the
	// settings for receiving are refused.
	SendOnly bool

	// HandlerTimeout limits one attempt of a message: middleware and all handlers of its
	// type. At the timeout their context is cancelled with a cause that matches
	// context.DeadlineExceeded, and the attempt has failed. The default, 0, means no limit.
	HandlerTimeout time.Duration

	// DrainTimeout is the time that handlers have after [Endpoint.Run]'s context ended,
	// before their contexts are cancelled. The default is 20 s: with 5 s more for their
	// return, Run ends before Kubernetes kills the process after 30 s. With Off they are
	// cancelled at once. The transport may use the rest for requests in progress.
	DrainTimeout time.Duration

	// OutageLimit is the duration after which an outage ([ConnectionChange]) raises a
	// critical error that matches [ErrOutage], once; the endpoint continues to reconnect.
	// The default is 2 min. Off raises none.
	OutageLimit time.Duration

	// Instance distinguishes this running endpoint from others of the same name in logs and
	// headers, without control characters. The default is the machine's name, the process
	// id and a random part.
	Instance string

	// Codec encodes and decodes message bodies. The default is [JSON].
	Codec Codec

	// MessageType returns the type of a received message, by which its handlers and
	// settings are chosen; with "" the header NServiceBus.EnclosedMessageTypes decides. It
	// is called for each delivery of a message that could be parsed. It must not write to
	// the message; a panic is a failed attempt.
	MessageType func(in *Incoming) string

	// MessageID returns the id of a foreign message, which has no header
	// NServiceBus.MessageId; with "" it keeps [Incoming.ID]. The ids of messages that its
	// handlers send derive from it, so it must be the same for each delivery. It must not
	// write to the message; a panic, and an id that is not UTF-8, are a failed attempt.
	MessageID func(in *Incoming) string

	// BaseTypes names the types that a message type is derived from, the most derived
	// first. Messages that are sent or published list them behind their type. An event also
	// reaches the subscribers to them, each queue once, on a transport with
	// [Abilities.BaseTopics].
	BaseTypes map[string][]string

	// Middleware wraps the handling of every message, outermost first.
	Middleware []Middleware

	// SendMiddleware wraps every send of the application, outermost first.
	SendMiddleware []SendMiddleware

	// Observers are notified of events. Each has at least one function; on a send-only
	// endpoint one of [Observer.SendStart], [Observer.SendEnd], [Observer.ConnectionChanged]
	// and [Observer.CriticalError].
	Observers []Observer

	// Logger receives the log lines. Package logformat has handlers that fold repeated
	// lines. The default is slog.Default().
	Logger *slog.Logger
}

// Off switches off a setting that has a default, or that a message type would inherit from
// [Recoverability]: Config{OutageLimit: Off}.
const Off = -1

// Provisioning says when [Endpoint.Run] creates queues.
type Provisioning int

const (
	// ProvisionAuto creates queues on a transport that keeps nothing beyond the process
	// (not [Guarantees.Durable]).
	ProvisionAuto Provisioning = iota
	// ProvisionAlways creates queues on every transport that can, for a deployment that does
	// not create them.
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

// Recoverability configures the handling of failed messages. The zero value is 24 attempts:
// 5 immediate retries, then 3 delayed ones after 10, 20 and 30 s, each followed by 5
// immediate retries; then the error queue.
type Recoverability struct {
	Immediate Immediate
	Delayed   Delayed

	// ErrorQueue is the queue for messages that could not be handled. The default is
	// "error".
	ErrorQueue string

	// MessageTypes has other settings for some message types, by the names with which
	// handlers are registered.
	MessageTypes map[string]TypeRecoverability

	// MaxRetryAge is the time after a message's first failure in which [DefaultPolicy] may
	// schedule delayed retries. The default, 0, means no limit (NServiceBus: 24 h).
	MaxRetryAge time.Duration

	// RetryAfterLimit is the time after a message's first failure in which [RetryAfter] is
	// granted; the first always is. The default is 1 h. Off means no limit.
	RetryAfterLimit time.Duration

	// MaxDeliveries limits the deliveries of one copy of a message, also those that ended
	// with the death of the process. If the broker counts deliveries in which no handler
	// began ([Guarantees.CountsReleases]), the last are those of a new copy. Set it below a
	// smaller limit of the broker. The default, 0, is the larger of 50 and 4 x (immediate
	// retries + 1). Off means no limit.
	MaxDeliveries int

	// RequeueDelay is the delay of a [Defer] without one. The default is 1 s.
	RequeueDelay time.Duration

	// RequeueLimit is the number of times that a message may be deferred; the next deferral
	// moves it to the error queue with [ErrRequeueLimitExceeded]. The default, 0, means no
	// limit.
	RequeueLimit int

	// UnacceptableMessageLimit ends the endpoint when too many of its messages failed
	// permanently.
	UnacceptableMessageLimit UnacceptableMessageLimit

	// DeadLetter sends all failed messages to the dead-letter queue instead of the error
	// queue.
	DeadLetter bool

	// DeadLetterQueue names the dead-letter queue, on any transport. The default is the
	// broker's own ([Abilities.DeadLetter]). A message goes to the error queue if it does
	// not accept it, or the broker's own cannot be reached in 8 tries.
	DeadLetterQueue string

	// InvalidQueue is for messages that only their sender can fix: they match
	// [ErrMalformed], [ErrUndecodable] or [ErrNoType], or a handler gives them up to it
	// ([GiveUpTo]). The default, "", is the dead-letter queue if DeadLetter is set, and the
	// error queue otherwise.
	InvalidQueue string

	// CustomErrorQueues are queues that handlers name in [GiveUpTo], and a Policy in
	// [MoveToError], to be created and checked as the error queue is. A message goes to the
	// error queue at once if such a queue does not exist or refuses it; while it cannot be
	// reached, the message is stored. Of a queue that is not listed it goes to the error
	// queue after 8 tries, about a minute and a half.
	CustomErrorQueues []string

	// RateLimit switches to one attempt at a time after consecutive failures.
	RateLimit RateLimit

	// Unrecoverable lists errors that no retry can fix: a message that fails with one, or
	// an error that wraps it, goes to the error queue without a retry. [ErrorOfType] stands
	// for all errors of a type. For other conditions write a Policy.
	Unrecoverable []error

	// Policy decides instead of [DefaultPolicy].
	Policy Policy

	// EditFailed edits the headers of the copy of a failed message for an error or
	// dead-letter queue, for example to redact error texts. It is called before the move,
	// after [HandleFailed], once for each delivery that is moved (again if another delivery
	// or process repeats the move). It must be safe for concurrent use. ctx is as for a
	// Policy; work in a native transaction is kept only if a Policy or HandleFailed is set.
	//
	// The endpoint restores NServiceBus.FailedQ and NServiceBus.MessageId. Headers that it
	// added or made longer are left out, the largest first, if the copy would exceed the
	// transport's limits. After a panic, or runtime.Goexit, the copy is moved unedited; if
	// a shutdown had cancelled ctx, the message is given back instead.
	EditFailed func(ctx context.Context, failure ErrorContext, headers *Headers)
}

// Immediate configures retries at once, or after a short pause.
type Immediate struct {
	// NumberOfRetries is the number of retries in a round; the default, 0, is 5. Off means
	// none.
	NumberOfRetries int
	// Pause is the time before the first retry of a round, at most 1 min; each further
	// pause is twice as long, up to MaxPause, and a random part, up to a half, is added.
	// The default, 0 or Off, is none. A waiting message takes no slot; at 1,000 of them (in
	// SendsAtomicWithReceive without [Abilities.AtomicLeases] at Concurrency, but at least
	// 10) this instance fetches nothing.
	Pause time.Duration
	// MaxPause is the longest pause, at most 1 min. The default is 10 s, or Pause if that
	// is longer, also for a message type with another Pause.
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
	// Factor, at least 1, multiplies each delay instead of adding TimeIncrease. The
	// default, 0 or Off, is to add.
	Factor float64
	// MaxDelay limits each delay before jitter; it is at least TimeIncrease. The default, 0
	// or Off, is none.
	MaxDelay time.Duration
	// Delays lists each delay, instead of TimeIncrease, Factor and MaxDelay.
	Delays []time.Duration
	// Jitter, between 0 and 1, lengthens a delay by a random part of it: 0.2 by up to a
	// fifth. The default, 0 or Off, is none.
	Jitter float64
}

// TypeRecoverability has the settings of one message type. It is merged with those of the
// endpoint field by field; a field that is 0 is inherited. NumberOfRetries: Off switches a
// level off; another number, or Delays, switch it on. Delays replace the inherited
// NumberOfRetries, TimeIncrease, Factor and MaxDelay; NumberOfRetries and TimeIncrease
// together replace inherited Delays.
type TypeRecoverability struct {
	Immediate Immediate
	Delayed   Delayed

	// ErrorQueue replaces that of the endpoint, and is created and checked as it is.
	ErrorQueue string

	// DeadLetterQueue, InvalidQueue and RequeueDelay replace those of the endpoint.
	DeadLetterQueue, InvalidQueue string
	RequeueDelay                  time.Duration

	// HandlerTimeout and the other limits replace those of the endpoint. Off means no limit.
	HandlerTimeout  time.Duration
	MaxRetryAge     time.Duration
	RetryAfterLimit time.Duration
	RequeueLimit    int

	// Unrecoverable errors are added to those of the endpoint.
	Unrecoverable []error
}

// RateLimit configures automatic rate limiting.
type RateLimit struct {
	// ConsecutiveFailures is the number of failed attempts in a row, over all messages of
	// the endpoint, that switches to one attempt at a time. The default, 0, is never. The
	// verdicts [GiveUp] and [RetryAfter] are failures, too; [Refuse] and [PutBack] are
	// neither failures nor successes; any other verdict is a success.
	ConsecutiveFailures int
	// TimeToWait is the pause after each failed attempt in that mode, at most an
	// hour. The default is 1 s.
	TimeToWait time.Duration
	// Filter reports which errors count. The default is all.
	Filter func(error) bool
}
