package core

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"
)

// TypedMessage is a [Message] with its decoded body, as a handler gets it.
type TypedMessage[T any] struct {
	*Message
	// Body is the decoded body. It is the handler's copy: no other handler and no
	// retry sees changes to it.
	Body T
}

// Message is one attempt at handling one message: what is known of it, and the
// means to send others. The messages that Send, Publish and Reply collect leave
// when all handlers have succeeded, and never otherwise. Where middleware runs
// the handlers more than once, each run has a separate Message (see
// Middleware).
//
// The fields are copies; changing them affects the inner middleware and the
// handlers of this attempt alone. The methods may be called from several
// goroutines, but not after the handler has returned: they return
// ErrHandlingEnded then.
type Message struct {
	// ID is the message id.
	ID string
	// Type is the message type. Its handlers are chosen when the innermost
	// middleware calls next: a middleware may change the type before.
	Type string
	// Headers are those of the message.
	Headers Headers
	// Attempt is the number of this attempt in this round: 1, 2, ...
	Attempt int
	// DelayedRetries is how many delayed retries came before.
	DelayedRetries int
	// Deferrals is how often handlers have deferred the message (Defer).
	Deferrals int
	// LastError is the text of the previous attempt's error, where the
	// transport remembers it.
	LastError string
	// EnqueuedAt is when the message became available, or the zero time.
	EnqueuedAt time.Time

	incoming *Incoming
	replaced *replacedBody   // or nil: the body is that of incoming
	ctx      context.Context // the handler's, or nil outside an endpoint
	env      *environment
	started  int64    // when the attempt got its slot, in Unix nanoseconds
	scope    string   // keeps the derived ids of middleware and HandleFailed apart
	as       string   // added to the scopes of runs for handlers of a further type of the message
	parent   *Message // of the middleware that called next for this one, or nil
	noted    *values  // of the outermost Message, guarded by its mu; nil until one is set

	mu       sync.Mutex
	handling handling        // of the outermost Message
	failing  *failingHandler // in the last run; of the outermost Message
	outgoing []Outgoing
	// outgoing[adoptedAt:][:adopted] were collected by the last run of next that
	// succeeded.
	adoptedAt, adopted int32
	composed           int32 // messages composed so far, those sent at once included
	ended              bool
	skips              bool       // the handlers that have not run
	duplicate          bool       // it was handled before; of the outermost Message
	chosen             bool       // handlers were chosen, which are about to run; of the outermost Message
	committed          *committed // of the outermost Message, or nil
}

// environment is what messages need of their endpoint.
type environment struct {
	composer *composer
	registry *registry
	send     func(ctx context.Context, out ...Outgoing) error
	log      *slog.Logger
	// configFor returns the recoverability in force for a message type.
	configFor func(messageType string) RecoverabilityConfig
	// isLast reports whether an attempt that fails with err is the last one.
	isLast func(ctx context.Context, a *attempt, err error) bool
	atomic bool // sends, receive and the handlers' work are one transaction
}

// handling is by which type a message is handled, and by which handlers.
type handling struct {
	messageType string
	handlers    *handlerSet // nil if there are none
	content     *content    // that middleware put in place of the received one, or nil
}

// replacedBody is what middleware put in place of the received body.
type replacedBody struct {
	body    []byte // nil is that of incoming
	decoded any    // a pointer to the body that TypedMiddleware passed on, or nil
}

// content is a body with the headers that describe it.
type content struct {
	body    []byte
	headers Headers
}

// MessageConfig describes a TypedMessage that no endpoint received. See NewMessage.
type MessageConfig struct {
	// Endpoint is the name of the endpoint that seems to handle the message.
	// The default is "test". Its instance queue is NAME-instance.
	Endpoint string
	// Incoming is the received message. Its Body is not decoded: the body is
	// given to NewMessage. A DeliveryCount of 0 becomes 1.
	Incoming Incoming
	// Type is the message type.
	Type string
	// Capabilities are those of the transport; sends that it could not honour
	// are refused.
	Capabilities Capabilities
	// Codec encodes what is sent. The default is JSON.
	Codec Codec
	// SendNow gets what SendNow and PublishNow send. nil drops it.
	SendNow func(ctx context.Context, out ...Outgoing) error
}

// NewMessage makes a TypedMessage outside an endpoint, for a handler's unit test;
// package coretest is the comfortable way to it. A Codec that New would refuse
// panics.
func NewMessage[T any](body T, c MessageConfig) *TypedMessage[T] {
	standard, err := newCodecs(c.Codec, nil)
	if err != nil {
		panic(fmt.Sprintf("core: NewMessage: %v", err)) // a mistake in the test
	}
	c.Incoming.DeliveryCount = max(c.Incoming.DeliveryCount, 1)
	env := &environment{
		composer: &composer{
			endpoint: firstOf(c.Endpoint, "test"), machine: "test", replyTo: firstOf(c.Endpoint, "test"),
			replyToInstance: firstOf(c.Endpoint, "test") + "-instance",
			codecs:          standard, caps: c.Capabilities,
			address: func(queue string) (string, error) { return queue, nil },
		},
		send: c.SendNow,
	}
	if env.send == nil {
		env.send = func(context.Context, ...Outgoing) error { return nil }
	}
	m := &Message{}
	m.begin(env, &c.Incoming, handling{messageType: c.Type})
	return &TypedMessage[T]{Message: m, Body: body}
}

// begin fills m for one attempt.
func (m *Message) begin(env *environment, in *Incoming, h handling) {
	m.ID = in.ID
	m.Type = h.messageType
	m.handling = h
	m.Headers = in.Headers
	m.Attempt = in.attempt()
	m.DelayedRetries = in.delayedRetries()
	m.Deferrals = in.deferrals()
	m.LastError = in.LastError
	m.EnqueuedAt = in.EnqueuedAt
	m.incoming = in
	m.env = env
	if c := h.content; c != nil {
		m.Headers, m.replaced = c.headers, &replacedBody{body: c.body}
	}
}

// choose returns the handlers for m's type, which middleware may have changed,
// and notes both, with the body that middleware set.
func (m *Message) choose() *handlerSet {
	outermost := m.outermost()
	outermost.mu.Lock()
	defer outermost.mu.Unlock()
	outermost.failing, outermost.chosen = nil, true
	h := &outermost.handling
	if m.Type != h.messageType {
		m.Type, h.handlers = m.env.registry.lookup(m.Type)
		h.messageType = m.Type
	}
	h.content = nil
	if m.replaced != nil && m.replaced.body != nil {
		h.content = &content{m.replaced.body, m.Headers}
	}
	return h.handlers
}

// handledAs returns how the message of an attempt was handled in the last run, or
// would have been. Unlike m's fields nothing but choose changes it.
func (m *Message) handledAs() handling {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.handling
}

// end closes m and returns the messages that leave if it succeeded.
func (m *Message) end() []Outgoing {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended = true
	return m.committed.with(m.outgoing)
}

// RawBody returns a copy of the body before it is decoded: as it was received, or
// as an outer middleware set it (SetBody).
func (m *Message) RawBody() []byte { return slices.Clone(m.rawBody()) }

func (m *Message) rawBody() []byte {
	if m.replaced != nil && m.replaced.body != nil {
		return m.replaced.body
	}
	return m.incoming.Body
}

// SetBody replaces the body, for inner middleware and the handlers of this attempt
// alone: for middleware that decrypts or decompresses bodies, or fetches them for a
// claim check. Change Headers with it where the content type is another
// (NServiceBus.ContentType chooses the codec). HandleFailed gets the body and the
// headers of the last attempt; retries, the error queue, the audit queue and Forward
// have those that were received. Like Headers it is set before the call of next, by
// the goroutine that calls it. The message takes body over.
func (m *Message) SetBody(body []byte) {
	if body == nil {
		body = []byte{}
	}
	m.replaced = &replacedBody{body: body}
}

// SkipRemainingHandlers lets no other handler of the message, of whichever of its types, run
// after this one, but independent ones (HandleOptions.Independent). The message counts as handled if this one succeeds; another attempt begins
// with the first handler again. It is for handlers: middleware that wants to run
// none does not call next.
func (m *Message) SkipRemainingHandlers() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.skips = true
}

func (m *Message) unskip() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.skips = false
}

func (m *Message) skipsRemaining() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.skips
}

// GroupKey returns the key that the message was sent with (SendOptions.GroupKey).
// The messages that the handler sends have it only where their own SendOptions say
// so.
func (m *Message) GroupKey() string { return m.incoming.GroupKey }

// NativeID names the stored copy of the message: it is the same at every delivery of the
// copy, and another one for each copy, a delayed retry for example. See Incoming.NativeID.
func (m *Message) NativeID() string { return m.incoming.NativeID }

// Native returns the client library's own message, or nil. See Incoming.Native.
func (m *Message) Native() any { return m.incoming.Native }

// Outgoing returns copies of the messages collected so far: to middleware, also
// those of the last run of next that succeeded.
func (m *Message) Outgoing() []Outgoing {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.outgoing)
}

// Send collects a command for a queue. An error (a body that cannot be encoded,
// a message that is too large, an option that the transport cannot honour)
// means that nothing was collected.
func (m *Message) Send(queue, messageType string, body any, opts ...SendOptions) error {
	return m.collect(IntentSend, queue, messageType, body, opts)
}

// Publish collects an event for all who subscribed to messageType.
func (m *Message) Publish(messageType string, body any, opts ...SendOptions) error {
	return m.collect(IntentPublish, "", messageType, body, opts)
}

// Reply collects an answer to the address that the message names. Without one
// it returns ErrNoReplyAddress.
func (m *Message) Reply(messageType string, body any, opts ...SendOptions) error {
	to := m.incoming.Headers.Get(HeaderReplyToAddress)
	if to == "" {
		return fmt.Errorf("core: reply to message %s: %w", m.incoming.ID, ErrNoReplyAddress)
	}
	return m.collect(IntentReply, to, messageType, body, opts)
}

// SendNow sends a command at once: it leaves even if the handler fails, and at
// every attempt again, with the same message id. After a deferral (Defer) the id
// is another one.
func (m *Message) SendNow(ctx context.Context, queue, messageType string, body any, opts ...SendOptions) error {
	return m.now(ctx, IntentSend, queue, messageType, body, opts)
}

// PublishNow publishes an event at once, as SendNow does.
func (m *Message) PublishNow(ctx context.Context, messageType string, body any, opts ...SendOptions) error {
	return m.now(ctx, IntentPublish, "", messageType, body, opts)
}

func (m *Message) collect(intent, queue, messageType string, body any, opts []SendOptions) error {
	if m.env.composer.through == nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		out, err := m.composeLocked(intent, queue, messageType, body, opts)
		if err == nil {
			m.outgoing = append(m.outgoing, out)
		}
		return err
	}
	out, err := m.compose(m.context(), intent, queue, messageType, body, opts)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.endedLocked() { // while SendMiddleware ran
		return m.sendFailed(intent, messageType, ErrHandlingEnded)
	}
	m.outgoing = append(m.outgoing, out...)
	return nil
}

func (m *Message) now(ctx context.Context, intent, queue, messageType string, body any, opts []SendOptions) error {
	out, err := m.compose(ctx, intent, queue, messageType, body, opts)
	if err != nil || len(out) == 0 {
		return err
	}
	return m.env.send(ctx, out...)
}

// context returns the context of the handler.
func (m *Message) context() context.Context {
	if m.ctx != nil {
		return m.ctx
	}
	return ContextWithMessage(context.Background(), m)
}

// compose returns the messages that a send makes: one, unless SendMiddleware makes
// more or fewer of it. The middleware runs without m's lock.
func (m *Message) compose(ctx context.Context, intent, queue, messageType string, body any, opts []SendOptions) ([]Outgoing, error) {
	composed, err := m.composeOne(intent, queue, messageType, body, opts)
	if err != nil {
		return nil, err
	}
	c := m.env.composer
	if c.through != nil {
		if found, _ := MessageFromContext(ctx); found != m {
			ctx = ContextWithMessage(ctx, m)
		}
	}
	out, err := c.handOver(ctx, composed)
	if err != nil {
		return nil, m.sendFailed(intent, messageType, err)
	}
	return out, nil
}

func (m *Message) composeOne(intent, queue, messageType string, body any, opts []SendOptions) (Outgoing, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.composeLocked(intent, queue, messageType, body, opts)
}

func (m *Message) sendFailed(intent, messageType string, err error) error {
	return fmt.Errorf("core: %s %q while handling message %s: %w", sendVerb(intent), messageType, m.incoming.ID, err)
}

func (m *Message) composeLocked(intent, queue, messageType string, body any, opts []SendOptions) (Outgoing, error) {
	if m.endedLocked() {
		return Outgoing{}, m.sendFailed(intent, messageType, ErrHandlingEnded)
	}
	from := origin{
		id:             m.incoming.ID,
		conversationID: m.incoming.Headers.Get(HeaderConversationID),
		correlationID:  m.incoming.Headers.Get(HeaderCorrelationID),
		sagaID:         m.incoming.Headers.Get(headerOriginatingSagaID),
		sagaType:       m.incoming.Headers.Get(headerOriginatingSagaType),
	}
	m.composed++
	out, err := m.env.composer.compose(intent, queue, messageType, body, opts, from, func() string {
		sender := m.env.composer.endpoint + m.scope
		if n := m.incoming.deferrals(); n > 0 {
			// Deferred, the message is not attempted again but handled anew, and
			// sends (SendNow) other messages.
			sender += "/deferral/" + strconv.Itoa(n)
		}
		return derivedID(m.incoming.ID, sender, int(m.composed))
	})
	if err != nil {
		return Outgoing{}, m.sendFailed(intent, messageType, err)
	}
	return out, nil
}

func sendVerb(intent string) string {
	switch intent {
	case IntentPublish:
		return "publish"
	case IntentReply:
		return "reply with"
	default:
		return "send"
	}
}

// messageKey is how a handler's context finds its Message.
type messageKey struct{}

// ContextWithMessage returns a context under which MessageFromContext finds m: what an
// endpoint gives its handlers, for those who call one themselves.
func ContextWithMessage(ctx context.Context, m *Message) context.Context {
	return context.WithValue(ctx, messageKey{}, m)
}

// MessageFromContext returns the message that is being handled under ctx, for code
// below the handler that has only the context, such as a log handler.
func MessageFromContext(ctx context.Context) (*Message, bool) {
	m, ok := ctx.Value(messageKey{}).(*Message)
	return m, ok
}
