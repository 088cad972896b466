package core

import (
	"context"
	"log/slog"
	"time"
)

// Config configures an endpoint. The zero value is ready for use; [New] checks every
// field, refuses settings that would have no effect, and reports all problems together. A
// field that is 0 has its default. Retries and [MaxDeliveries] have a field Off, other
// settings accept the constant Off if their comment says so.
//
// A Config is read from JSON and written to it: keys are the field names in camel case
// (exactly: "concurrency", not "Concurrency"), durations are text such as "10s", unknown
// keys are errors. A 0 in JSON never stands for a default: it is obeyed or refused (see
// [Config.UnmarshalJSON]). Fields that hold code (functions, errors, a logger) are set in
// Go and left out of JSON.
//
// Give a Config in a struct that is read from JSON a name. An embedded Config would give
// the struct its UnmarshalJSON and [Config.MarshalJSON], which ignore the struct's other
// fields.
type Config struct {
	// Concurrency is the number of messages handled at the same time, at most 10,000. The
	// default is 16.
	Concurrency int

	// Transactions is the transaction mode. The default is the highest mode
	// that the transport has.
	Transactions TransactionMode

	// Recoverability configures retries and the queues for failed messages.
	Recoverability Recoverability

	// InputQueue is the queue that the endpoint receives from. The default, "",
	// is a queue with the endpoint's name.
	InputQueue string

	// InstanceQueue opens a second queue, named after the input queue, a hyphen and
	// Instance. Only this instance receives from it: replies to messages that it sends with
	// [SendOptions.ReplyToInstance], and messages that others send there. Its messages have
	// the same handlers and recoverability, and share Concurrency with those of the input
	// queue. They wait while the instance is stopped, and an endpoint with the same Instance
	// gets them; two running instances must not have the same Instance. Only the input queue
	// has subscriptions.
	//
	// Instance must be set. The documentation of the transport tells how long a queue
	// without its instance stays, and how to remove it.
	InstanceQueue bool

	// AuditQueue receives a copy of every message that was handled
	// successfully. The default, "", is none.
	AuditQueue string

	// Provision says when [Endpoint.Run] creates the input queue, the error queues of the
	// configuration and the audit queue.
	Provision Provisioning

	// PurgeOnStart lets [Endpoint.Run] remove the waiting messages from the input queue
	// before it subscribes and receives: for development and tests. They are lost
	// permanently, including messages for other instances and failed messages that are
	// stored there because their error queue cannot be reached (R25). Messages that another
	// instance has locked, and delayed messages that are not due, stay. On a transport that
	// is no [Purger] it is refused.
	PurgeOnStart bool

	// SendOnly makes an endpoint without an input queue. It sends and publishes; handlers
	// are refused, and so are [Endpoint.Run] and the settings for receiving.
	SendOnly bool

	// HandlerTimeout limits one attempt of a message: middleware and all handlers of its
	// type. At the timeout their context is cancelled with a cause that matches
	// context.DeadlineExceeded, and the attempt has failed. The default, 0, means no limit.
	// [Recoverability.MessageTypes] can set another timeout for a message type.
	HandlerTimeout time.Duration

	// SlowHandler is the duration after which a running handler is logged once, as a
	// warning. The default is 1 min. Off logs none.
	SlowHandler time.Duration

	// MaxPrefetchBytes limits the memory, for headers and bodies, of messages that were
	// fetched before a handler is free for them: at the limit the endpoint fetches only as
	// many messages as handlers are free. One message of any size (with InstanceQueue two)
	// may exceed it; messages in handlers are not counted. The default is 64 MiB. Off means
	// no limit. It applies only where messages are prefetched ([Capabilities.Prefetch], not
	// [TransactionNone], and [TransactionSendsAtomicWithReceive] only with
	// [Capabilities.AtomicLeases]). Not every broker tells how large a message is before it
	// delivers it; the documentation of the transport says how exact the limit is.
	MaxPrefetchBytes int

	// DrainTimeout is the time that handlers have after [Endpoint.Run]'s context ended,
	// before their contexts are cancelled. The default is 20 s: with the 5 s that handlers
	// then have to return, Run ends before Kubernetes, which waits for 30 s, ends the
	// process. With Off they are cancelled at once. The transport may use the rest of the
	// time for requests to the broker that are in progress.
	DrainTimeout time.Duration

	// OutageLimit is the duration after which an outage that the transport reported
	// ([ConnectionChange]) raises a critical error, an [*OutageError], once for each outage.
	// The endpoint continues to reconnect. The default is 2 min. Off raises none.
	OutageLimit time.Duration

	// WaitForBroker limits how long [Endpoint.Run] waits, before its first message, for a
	// broker that cannot be reached ([ErrUnavailable]) and for a [ParkStore] that fails;
	// Health and [Observer.ConnectionChanged] report the waiting. After that time Run
	// cancels the attempt in progress and returns the error, so the time must be longer than
	// creating the queues takes. Run returns at once an error that waiting cannot fix: a
	// missing queue, refused credentials. The default, 0, means no limit. With Off it does
	// not wait. A running endpoint always waits for its broker without limit.
	WaitForBroker time.Duration

	// Instance distinguishes this running endpoint from others of the same name in logs and
	// headers. It must not have control characters. The default is the machine's name, the
	// process id and a random part. With InstanceQueue it is part of a queue's name.
	Instance string

	// Codec encodes and decodes message bodies. The default is JSON.
	Codec Codec `json:"-"`

	// Codecs are further codecs for decoding, chosen by a message's content
	// type.
	Codecs []Codec `json:"-"`

	// MessageType returns the type of a message, by which its handlers and settings are
	// chosen. It is called for each delivery of a message that could be parsed. It returns
	// "" to leave the type to the header NServiceBus.EnclosedMessageTypes, which decides
	// without MessageType. It can name the type of a foreign message, which has no such
	// header, or rename a type. It must not write to the message; a panic is a failed
	// attempt.
	MessageType func(in *Incoming) string `json:"-"`

	// MessageID returns the id of a foreign message, which has no header
	// NServiceBus.MessageId: for logs, headers and error queues, and as the source of the
	// ids of messages that its handlers send. It is called for each delivery of such a
	// message that could be parsed, and must return the same id for each. With "" the
	// message keeps [Incoming.ID], the broker's own id, as without MessageID. It must not
	// write to the message; a panic, and an id that is not UTF-8, are a failed attempt.
	MessageID func(in *Incoming) string `json:"-"`

	// BaseTypes names the types that a message type is derived from: base classes and
	// interfaces, the most derived first. A message of the type that is sent or published
	// lists all of them behind its type in the header NServiceBus.EnclosedMessageTypes, so
	// that a receiver that knows only a base type has handlers for it. An event also reaches
	// the subscribers to the base types, each queue once, on a transport with
	// [Capabilities.BaseTopics]. It does not apply to received messages: their header lists
	// their types.
	BaseTypes map[string][]string

	// Middleware wraps the handling of every message, outermost first.
	Middleware []Middleware `json:"-"`

	// SendMiddleware wraps every send of the application, outermost first.
	SendMiddleware []SendMiddleware `json:"-"`

	// Observers are notified of events. Each has at least one function; on a send-only
	// endpoint one of [Observer.SendStart], [Observer.SendEnd] and
	// [Observer.ConnectionChanged], as it only sends.
	Observers []Observer `json:"-"`

	// Logger receives the log lines. The default is slog.Default().
	Logger *slog.Logger `json:"-"`

	// LogFormat is the format of log lines about messages. The default is [LogNServiceBus].
	LogFormat LogFormat

	// LogRepeats is the number of lines about retries and deferrals that are written within
	// 10 s for one cause: in an outage every attempt fails for the same cause. One line at
	// the end of the 10 s counts the others. Causes differ by message type, handler and the
	// text of the error, in which words with digits are ignored. Lines about messages that
	// are moved or discarded are always written. The default is 100. With Off all lines are
	// written.
	LogRepeats int

	// OnCriticalError is called when the endpoint cannot do its work: a failed message could
	// not be moved, a settlement fails again and again, an outage lasts for OutageLimit
	// (errors.As finds an [*OutageError] then); or when the application calls
	// [Endpoint.RaiseCritical]. Calls are made one after the other, behind a queue of 100,
	// on their own goroutine; they may call [Endpoint.Shutdown]. Critical errors are logged
	// and counted in any case.
	OnCriticalError func(ctx context.Context, err error) `json:"-"`
}

// Off switches off a setting that has a default, or that a message type would inherit
// from [Recoverability]: Config{SlowHandler: Off}. The comments of the fields say which
// accept it. In JSON it is 0 or "0s".
const Off = -1

// LogFormat is the format of log lines about messages.
type LogFormat int

const (
	// LogNServiceBus writes the texts of NServiceBus, which contain the id of
	// the message.
	LogNServiceBus LogFormat = iota
	// LogConstant writes the same text in every line of a kind, and everything else in
	// attributes, by which log systems can group and count.
	LogConstant
)

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

// OneDay is a MaxRetryAge that limits delayed retries to 24 hours in total, as
// NServiceBus does by default: "24h" in JSON.
const OneDay = 24 * time.Hour

// Defaults of Config.
const (
	defaultConcurrency    = 16
	maxConcurrency        = 10_000 // each is a goroutine or two
	defaultImmediate      = 5
	defaultDelayed        = 3
	defaultIncrease       = 10 * time.Second
	defaultErrorQueue     = "error"
	defaultLogRepeats     = 100
	defaultSlowHandler    = time.Minute
	defaultDrainTimeout   = 20 * time.Second
	defaultOutageLimit    = 2 * time.Minute
	defaultPrefetchBytes  = 64 << 20
	defaultRequeueDelay   = time.Second
	defaultTimeToWait     = time.Second
	maxTimeToWait         = time.Hour
	defaultMaxDeliveries  = 50
	handlerGrace          = 5 * time.Second  // from cancelling handlers to ErrHandlersRunning
	closeGrace            = 4 * time.Second  // for the steps after that
	maxRememberedMessages = 1000             // settled memory and pending decisions (R28, R25)
	maxRetryDelay         = OneDay           // R5
	applicationReserve    = 8 << 10          // bytes kept free for failure headers (R24)
	pendingExpiry         = 10 * time.Minute // of a decision whose message is not redelivered
)
