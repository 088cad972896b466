package core

import (
	"context"
	"log/slog"
	"time"
)

// Config says how an endpoint works. The zero value is ready for use; New
// checks every field, refuses what would have no effect, and reports all that
// is wrong together. A field that is 0 has its default. Retries and
// MaxDeliveries have a field Off, other settings take the constant Off where
// their comment says so.
//
// A Config is read from JSON and written to it: keys are the field names in
// camel case (exactly: "concurrency", not "Concurrency"), durations are text
// such as "10s", unknown keys are errors. A number that is 0 in JSON is never
// taken for a default: it is obeyed or refused (see UnmarshalJSON). Fields that
// hold code (functions, errors, a logger) are set in Go and left out of JSON.
//
// Give a Config in a struct that is read from JSON a name. A struct that embeds
// it has its UnmarshalJSON and MarshalJSON and with them no other keys.
type Config struct {
	// Concurrency is how many messages are handled at the same time, at most
	// 10,000. The default is 16.
	Concurrency int

	// Transactions is the transaction mode. The default is the highest mode
	// that the transport has.
	Transactions TransactionMode

	// Recoverability says what happens when a handler fails.
	Recoverability Recoverability

	// InputQueue is the queue that the endpoint receives from. The default, "",
	// is a queue with the endpoint's name.
	InputQueue string

	// InstanceQueue opens a second queue, called like the input queue with a hyphen
	// and Instance behind it. This instance alone receives from it: replies to
	// messages that it sends with SendOptions.ReplyToInstance, and what others
	// send there. Its messages have the same handlers and recoverability, and count
	// in the same Concurrency. They wait while the instance is stopped, and an
	// endpoint with the same Instance gets them; no two that run at the same time
	// may have it. Subscriptions are the input queue's alone.
	//
	// Instance must be set. How long a queue without its instance stays, and how
	// to remove one, is in the documentation of the transport.
	InstanceQueue bool

	// AuditQueue receives a copy of every message that was handled
	// successfully. The default, "", is none.
	AuditQueue string

	// Provision says when Run creates the input queue, the error queues of the
	// configuration and the audit queue.
	Provision Provisioning

	// PurgeOnStart lets Run remove the messages that wait in the input queue, before
	// it subscribes and receives: for development and tests. They are lost for ever,
	// those included that other instances wait for, and failed ones that are stored
	// there because their error queue cannot be reached (R25). Messages that another
	// instance has, and delayed ones that are not due, stay. On a transport that is no
	// Purger it is refused.
	PurgeOnStart bool

	// SendOnly makes an endpoint without an input queue. It sends and
	// publishes; handlers are refused, and so are Run and the settings for
	// receiving.
	SendOnly bool

	// HandlerTimeout is how long one attempt of a message may take: middleware
	// and all handlers of its type. Then their context is cancelled with a
	// cause that matches context.DeadlineExceeded, and the attempt has failed.
	// The default, 0, is without limit.
	// Recoverability.MessageTypes can have another one for a message type.
	HandlerTimeout time.Duration

	// SlowHandler is after how long a handler that is still running is logged,
	// once, as a warning. The default is 1 min. Off logs none.
	SlowHandler time.Duration

	// MaxPrefetchBytes bounds the memory that messages take, headers and bodies, which
	// were fetched before a handler is free for them: where that many bytes wait, nothing
	// is fetched beyond the free handlers. One message more may wait, of whatever size
	// (with InstanceQueue two); those in handlers come on top. The default is 64 MiB. Off is without bound. It
	// concerns the transports on which messages are prefetched at all (Capabilities.Prefetch,
	// not TransactionNone, and TransactionSendsAtomicWithReceive only with Capabilities.AtomicLeases). Not every broker tells
	// how large a message is before it delivers it; the documentation of the transport
	// says how far the bound holds there.
	MaxPrefetchBytes int

	// DrainTimeout is how long handlers may go on after Run's context ended,
	// before their contexts are cancelled. The default is 20 s: with the 5 s
	// that handlers then have to return, Run ends before Kubernetes, which
	// waits for 30 s, ends the process. With Off they are cancelled at once. The
	// transport has the rest of it for requests to the broker that are in progress.
	DrainTimeout time.Duration

	// OutageLimit is after how long an outage that the transport reported
	// (ConnectionChange) is a critical error, once for each outage: an *OutageError. The
	// endpoint goes on reconnecting. The default is 2 min. Off raises none.
	OutageLimit time.Duration

	// WaitForBroker is how long Run waits, before its first message, for a broker that
	// cannot be reached (ErrUnavailable) and for a ParkStore that fails; Health and
	// Observer.ConnectionChanged tell. Then it returns the error; a try that is in progress is
	// given up, so it must be longer than creating the queues takes. It returns the error at
	// once where waiting cannot help: a missing queue, refused
	// credentials. The default, 0, is without limit. With Off it does not wait. While it
	// receives, an endpoint waits for its broker without limit in any case.
	WaitForBroker time.Duration

	// Instance tells this running endpoint from others of the same name in
	// logs and headers, and has no control characters. The default is the
	// machine's name, the process id and a random part. With InstanceQueue it is
	// part of a queue's name.
	Instance string

	// Codec encodes and decodes message bodies. The default is JSON.
	Codec Codec `json:"-"`

	// Codecs are further codecs for decoding, chosen by a message's content
	// type.
	Codecs []Codec `json:"-"`

	// MessageType names the type of a message, by which its handlers and its
	// settings are chosen. It is called for each delivery of a message that could
	// be parsed, and returns "" where the header
	// NServiceBus.EnclosedMessageTypes decides, as it does without it. So it can
	// name the type of a foreign message, which has no such header, or give a
	// type another name. It must not write to the message; a panic is a failed
	// attempt.
	MessageType func(in *Incoming) string `json:"-"`

	// MessageID names a foreign message, one without the header
	// NServiceBus.MessageId: in logs, headers and error queues, and as the source of
	// the ids of what its handlers send. It is called for each delivery of such a
	// message that could be parsed, and must return the same id for each. With ""
	// the message keeps Incoming.ID, the broker's own id, as without MessageID. It
	// must not write to the message; a panic, and an id that is not UTF-8, are a
	// failed attempt.
	MessageID func(in *Incoming) string `json:"-"`

	// BaseTypes names the types that a message type is derived from: base classes and
	// interfaces, the most derived first. A message of the type that is sent or published
	// lists all of them behind its type in the header NServiceBus.EnclosedMessageTypes,
	// so that a receiver that knows only a base type has handlers for it. An event also
	// reaches the subscribers to the base types, each queue once, on a transport with
	// Capabilities.BaseTopics. It does not concern received messages: their header lists
	// their types.
	BaseTypes map[string][]string

	// Middleware wraps the handling of every message, outermost first.
	Middleware []Middleware `json:"-"`

	// SendMiddleware wraps every send of the application, outermost first.
	SendMiddleware []SendMiddleware `json:"-"`

	// Observers are told of events. Each has a function at least; on a send-only endpoint,
	// which does nothing but send, SendStart, SendEnd or ConnectionChanged.
	Observers []Observer `json:"-"`

	// Logger receives the log lines. The default is slog.Default().
	Logger *slog.Logger `json:"-"`

	// LogFormat says how the lines about messages are written. The default is
	// LogNServiceBus.
	LogFormat LogFormat

	// LogRepeats is how many lines about retries and deferrals are written within 10 s for
	// one cause: in an outage every attempt fails for the same. The others are counted in one
	// line at the end of the 10 s. Causes differ by message type, handler and the text of the
	// error, in which words with digits do not count. Lines about messages that are moved or
	// discarded are always written. The default is 100. With Off all lines are written.
	LogRepeats int

	// OnCriticalError is called when the endpoint cannot do what it must: a
	// failed message could not be moved, a settlement fails again and again, an outage
	// lasts for OutageLimit (errors.As finds an *OutageError then); or when the
	// application calls RaiseCritical. Calls
	// are made one after the other, behind a queue of 100, on a goroutine of their own;
	// they may call Shutdown. Such errors are logged and counted in any case.
	OnCriticalError func(ctx context.Context, err error) `json:"-"`
}

// Off switches off a setting that has a default, or that a message type would
// inherit from Recoverability: Config{SlowHandler: Off}. Which fields take it is
// said in their comments. In JSON it is 0 or "0s".
const Off = -1

// LogFormat says how the log lines about messages are written.
type LogFormat int

const (
	// LogNServiceBus writes the texts of NServiceBus, which contain the id of
	// the message.
	LogNServiceBus LogFormat = iota
	// LogConstant writes the same text in every line of a kind. Everything that
	// differs is in attributes, by which log systems can group and count.
	LogConstant
)

// Provisioning says when Run creates queues.
type Provisioning int

const (
	// ProvisionAuto creates queues on a transport that keeps nothing beyond
	// the process (not Durable), where nobody else could have.
	ProvisionAuto Provisioning = iota
	// ProvisionAlways creates queues on every transport that can.
	ProvisionAlways
	// ProvisionNever creates nothing.
	ProvisionNever
)

// Recoverability says what happens to a message whose handling failed. The
// zero value is 5 immediate retries, then 3 delayed ones after 10, 20 and 30 s,
// each followed by 5 immediate retries, then the error queue: 24 attempts.
type Recoverability struct {
	Immediate Immediate
	Delayed   Delayed

	// ErrorQueue is where messages go that could not be handled. The default
	// is "error".
	ErrorQueue string

	// MessageTypes has other settings for some message types. The keys are the
	// names with which handlers are registered.
	MessageTypes map[string]TypeRecoverability

	// MaxRetryAge is how long after a message's first failure DefaultPolicy may
	// still schedule delayed retries. The default, 0, is without limit. OneDay is
	// NServiceBus's. A Policy finds it in its RecoverabilityConfig.
	MaxRetryAge time.Duration

	// MaxDeliveries bounds how often one copy of a message is delivered,
	// including deliveries that ended with the death of the process (R34). Where the
	// broker also counts deliveries in which no handler began
	// (Capabilities.CountsReleases), the last of them belong to a new copy of the
	// message; without isolation (IsolateAfter) that copy may be delivered as often again.
	MaxDeliveries MaxDeliveries

	// IsolateAfter is after how many deliveries without a known end a message is
	// attempted in isolation: with no other message in the hands of this process, so
	// that none is counted with it if it kills the process (R35). The default, 0, is the
	// larger of 2 and the immediate retries + 1, which is as often as a message can have
	// failed; Off is never. It needs Capabilities.NativeDeliveryCount, transaction mode
	// ReceiveOnly (or, with Capabilities.AtomicLeases, SendsAtomicWithReceive) and
	// MaxDeliveries, and is off without one of them.
	IsolateAfter int

	// RequeueDelay is the delay of Defer(0). The default is 1 s.
	RequeueDelay time.Duration

	// RequeueLimit is how often one message may be deferred before it goes to
	// the error queue with ErrRequeueLimitExceeded: 3 are four runs of its handler,
	// the last of which is answered with the move (Brighter's RequeueCount counts the runs:
	// 4). The default, 0, is without limit.
	RequeueLimit int

	// UnacceptableMessageLimit stops or parks the endpoint when as many messages were
	// moved to an error, dead-letter or invalid queue. The default, 0, is without limit.
	UnacceptableMessageLimit int

	// UnacceptableMessageWindow limits that count to messages that failed within this
	// time, a window that slides. The default, 0, counts since Run or Resume.
	UnacceptableMessageWindow time.Duration

	// UnacceptableMessagePutBacks counts each time that a message is put back (PutBack) as
	// well, although nothing was moved: for an endpoint that is to stop when it can do
	// nothing else. By default they are not counted.
	UnacceptableMessagePutBacks bool

	// UnacceptableMessageAction says what happens at the limit. By default an endpoint
	// that runs alone stops, and one that runs with others (RunAll) is parked.
	UnacceptableMessageAction LimitAction

	// ParkFor is after which time a parked endpoint resumes by itself. The default, 0, is
	// never: until Resume is called.
	ParkFor time.Duration

	// ParkStore lets the next process start parked. The default, nil, starts it receiving.
	// With LimitStop the next Run starts parked.
	ParkStore ParkStore `json:"-"`

	// DeadLetter says which failed messages go to a dead-letter queue instead of the error
	// queue: none, those that a handler rejected, or all (R62).
	DeadLetter DeadLetters

	// DeadLetterQueue is that queue, on any transport. It gets the same copy as an error queue,
	// with HeaderFailureReason. The default is the broker's own dead-letter queue, which a
	// transport with Capabilities.DeadLetter has. A message that the dead-letter queue does not
	// take, as some brokers' own one in TransactionNone, or whose queue cannot be reached, goes to
	// the error queue.
	DeadLetterQueue string

	// InvalidQueue is for messages that no handler can handle: malformed
	// ones (ErrMalformed), those whose body cannot be decoded (ErrUndecodable) or that name no type
	// (ErrNoType), and those that a handler calls invalid (Invalid). They are for their sender to
	// fix, not to be sent back. The default, "", is the dead-letter queue if DeadLetter is
	// DeadLettersAll, and the error queue otherwise (R63).
	InvalidQueue string

	// InvalidWithoutHandler counts messages without a handler (ErrNoHandler) among them, once
	// their retries are used up.
	InvalidWithoutHandler bool

	// CustomErrorQueues are queues that handlers name in MoveTo, and a Policy in MoveToError.
	// Like the error queue they are created by Provision, and must exist when Run begins. Other
	// queues can be named too; a message for one that does not exist goes to the error queue.
	CustomErrorQueues []string

	// RateLimit switches to one attempt at a time after consecutive failures.
	RateLimit RateLimit

	// Unrecoverable errors go to the error queue without a retry. Wrapped
	// errors match too. ErrNoHandler can be one.
	Unrecoverable []error `json:"-"`

	// UnrecoverableTypes names types of errors that go to the error queue without a retry, as
	// the header NServiceBus.ExceptionInfo.ExceptionType does: "*fs.PathError". An error
	// that wraps one matches too. In Go ErrorType writes the name.
	UnrecoverableTypes []string

	// UnrecoverableFunc reports further errors as unrecoverable.
	UnrecoverableFunc func(error) bool `json:"-"`

	// Policy decides instead of DefaultPolicy.
	Policy Policy `json:"-"`

	// EditFailed changes what the error queue is told of a failed message: it may
	// change, add and drop headers of the copy, and replace its body. It is called before
	// a message is moved to an error or dead-letter queue, after HandleFailed, once for
	// each delivery that is moved (and again if the move has to wait until the message is
	// redelivered, or another process takes it over). It must be safe for concurrent use.
	//
	//   - The endpoint restores NServiceBus.FailedQ and NServiceBus.MessageId, by which the
	//     message can be sent back, and logs a warning.
	//   - Headers that it added or made longer are left out, the largest first, where the
	//     copy would exceed the transport's limits. A body that it made too long is
	//     replaced by the original one, and logged (R24).
	//   - After a panic, or runtime.Goexit, the copy is moved as if there were no EditFailed,
	//     and the panic is logged. If a shutdown had cancelled ctx, the message is given back
	//     instead (R27).
	//   - A message that waits because its error queue cannot be reached waits as it was
	//     changed here, and is not changed again.
	//   - In the broker's own dead-letter queue the message has the body with which it was
	//     received: the broker moves it. The description has the text that is left in
	//     NServiceBus.ExceptionInfo.Message.
	//
	// Retries, audit copies, log lines and observers are not concerned. ctx is as for a
	// Policy; what is done in a native transaction is kept only where a Policy or a
	// HandleFailed has its work undone before.
	EditFailed func(ctx context.Context, failure ErrorContext, message *FailedCopy) `json:"-"`
}

// FailedCopy is the copy of a failed message for an error queue, as EditFailed gets it. It
// must not be used after EditFailed returned.
type FailedCopy struct {
	// Headers are those of the message and those of its failure. Values that are not
	// UTF-8 are made so, empty keys are dropped.
	Headers Headers
	// Body is a copy of the message's body, which may be written or replaced. Whoever
	// sends the message back to its queue sends this body.
	Body []byte
	// Queue is the error queue, or "" for the broker's dead-letter queue. Writing to it
	// changes nothing.
	Queue string
}

// Immediate configures retries that follow at once, or after a short pause.
type Immediate struct {
	// Retries is how many; the default, 0, is 5.
	Retries int
	// Off turns them off.
	Off bool
	// Pause is before the first retry of a round; each further pause is twice as long, up
	// to MaxPause. It is lengthened by a random part, up to a half, so that messages that
	// failed together are not tried together. The message takes no slot while it waits: this
	// instance keeps it, up to 1,000 of them (in SendsAtomicWithReceive without Capabilities.AtomicLeases as
	// many as Concurrency, but not below 10), and then fetches nothing until one is given back. In a
	// queue that keeps groups the rest of the group waits for it. At most 1 min. The default,
	// 0 or Off, is none, as with NServiceBus.
	Pause time.Duration
	// MaxPause is the longest pause, at most 1 min. The default is 10 s, or Pause if that
	// is longer; a message type that has another Pause than the endpoint has it too.
	MaxPause time.Duration
}

// Delayed configures retries that follow after a delay, each with a full round
// of immediate retries.
type Delayed struct {
	// Retries is how many; the default, 0, is 3, or the number of Delays.
	Retries int
	// Off turns them off.
	Off bool
	// Increase is the first delay, and by how much each later one is longer. The
	// default is 10 s.
	Increase time.Duration
	// Factor, at least 1, multiplies each delay instead: Increase,
	// Increase x Factor, Increase x Factor x Factor. The default, 0 or Off, is
	// the linear growth of Increase.
	Factor float64
	// MaxDelay is the ceiling of a delay before jitter, at least Increase. The
	// default, 0 or Off, is none.
	MaxDelay time.Duration
	// Delays lists each delay, instead of Increase, Factor and MaxDelay.
	Delays []time.Duration
	// Jitter, between 0 and 1, lengthens a delay by a random part of it: 0.2 by
	// up to a fifth. It never shortens one. The default, 0 or Off, is none.
	Jitter float64
}

// TypeRecoverability is the settings of one message type. It is merged with
// those of the endpoint field by field: with Delayed{Retries: 10, Increase:
// time.Minute} in Recoverability, Delayed{MaxDelay: 5 * time.Minute} here is 10
// retries that grow by a minute up to five.
//
//   - A field that is 0 is inherited.
//   - Immediate.Off and Delayed.Off switch a level off; Retries or Delays switch
//     on a level that is off for the endpoint.
//   - Delays replace the inherited Retries, Increase, Factor and MaxDelay;
//     Retries and Increase together replace inherited Delays.
//   - Off, where a comment mentions it, replaces an inherited value by none. So
//     it does in Delayed.Factor, Delayed.MaxDelay and Delayed.Jitter.
type TypeRecoverability struct {
	Immediate Immediate
	Delayed   Delayed

	// ErrorQueue is the error queue of this type. Like that of the endpoint it
	// is created by Provision, and must exist when Run begins.
	ErrorQueue string

	// DeadLetterQueue and InvalidQueue replace those of the endpoint.
	DeadLetterQueue, InvalidQueue string

	// HandlerTimeout replaces Config.HandlerTimeout. Off is without limit.
	HandlerTimeout time.Duration

	// MaxRetryAge replaces that of the endpoint. Off is without limit.
	MaxRetryAge time.Duration

	// RequeueDelay replaces that of the endpoint.
	RequeueDelay time.Duration

	// RequeueLimit replaces that of the endpoint. Off is without limit.
	RequeueLimit int

	// Unrecoverable errors are added to those of the endpoint.
	Unrecoverable []error `json:"-"`

	// UnrecoverableTypes are added to those of the endpoint.
	UnrecoverableTypes []string

	// UnrecoverableFunc is asked as well as that of the endpoint.
	UnrecoverableFunc func(error) bool `json:"-"`
}

// MaxDeliveries bounds deliveries of one copy of a message.
type MaxDeliveries struct {
	// Count is how many; the default, 0, is the larger of 50 and
	// 4 x (immediate retries + 1).
	Count int
	// Off turns the bound off.
	Off bool
}

// RateLimit configures automatic rate limiting (R40-R45).
type RateLimit struct {
	// ConsecutiveFailures is how many failed attempts in a row, over all
	// messages of the endpoint and counting immediate retries, switch to one
	// attempt at a time. The default, 0, is never.
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

// OneDay is the MaxRetryAge that bounds delayed retries to 24 hours in all, as NServiceBus does by
// default: "24h" in JSON.
const OneDay = 24 * time.Hour

// Defaults of Config.
const (
	defaultConcurrency     = 16
	maxConcurrency         = 10_000 // each is a goroutine or two
	defaultImmediate       = 5
	defaultDelayed         = 3
	defaultIncrease        = 10 * time.Second
	defaultErrorQueue      = "error"
	defaultSlowHandler     = time.Minute
	defaultDrainTimeout    = 20 * time.Second
	defaultOutageLimit     = 2 * time.Minute
	defaultPrefetchBytes   = 64 << 20
	defaultRequeueDelay    = time.Second
	defaultTimeToWait      = time.Second
	maxTimeToWait          = time.Hour
	defaultMaxDeliveries   = 50
	handlerGrace           = 5 * time.Second // from cancelling handlers to ErrHandlersRunning
	closeGrace             = 4 * time.Second // for all that follows
	memoryEntries          = 1000            // settled memory and pending decisions (R28, R25)
	longestDelay           = OneDay          // R5
	applicationReserve     = 8 << 10         // bytes kept free for failure headers (R24)
	longestUndeliveredHold = 30 * time.Second
	pendingExpiry          = 10 * time.Minute // of a decision whose message is not redelivered
)
