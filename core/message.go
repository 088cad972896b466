package core

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/core/internal/values"
)

// Message is one attempt at handling one message, with its properties and methods for
// sending others. Each run of middleware has a separate one (see [Middleware]). The fields
// are copies; changing them affects only the inner middleware and the handlers of this
// attempt. The methods may be called from several goroutines; after the handler has
// returned they return [ErrHandlingEnded].
type Message struct {
	// ID is the message id.
	ID string
	// Type is the message type. Its handlers are chosen when the innermost middleware calls
	// next: middleware may change the type before that.
	Type string
	// Headers are those of the message.
	Headers Headers
	// Attempt is the number of this attempt in this round: 1, 2, ...
	Attempt int
	// DelayedRetries is the number of earlier delayed retries, without those that handlers
	// requested ([RetryAfter]).
	DelayedRetries int
	// Deferrals is how often handlers have deferred the message ([Defer]).
	Deferrals int
	// LastError is the text of the previous attempt's error, if the transport remembers it.
	LastError string
	// EnqueuedAt is when the message became available, or the zero time.
	EnqueuedAt time.Time

	incoming      *Incoming
	replaced      *replacedBody   // or nil: the body is that of incoming
	ctx           context.Context // the handler's, or nil outside an endpoint
	deps          *messageDeps
	started       int64          // when the attempt got its slot, in Unix nanoseconds
	part          *handlerPart   // the handlers of the message's types that are running, or nil
	parent        *Message       // of the middleware that called next for this one, or nil
	attemptValues *values.Values // of the outermost Message, guarded by its mu; nil until one is set
	sends         sends          // has a separate mutex

	mu             sync.Mutex
	selected       selection       // of the outermost Message
	failing        *failingHandler // in the last run; of the outermost Message
	skipsRest      bool            // the handlers that have not run
	duplicate      bool            // it was handled before; of the outermost Message
	handlersChosen bool            // handlers were chosen, which are about to run; of the outermost Message
}

// messageDeps has the parts of the endpoint that messages need.
type messageDeps struct {
	composer *composer
	registry *registry
	send     func(ctx context.Context, out ...Outgoing) error
	log      *slog.Logger
	rules    *rules // nil outside an endpoint
	atomic   bool   // sends, receive and the handlers' work are one transaction
}

// selection is the type under which a message is handled, and its handlers.
type selection struct {
	messageType string
	handlers    *handlerSet // nil if there are none
	content     *content    // replaces the received content (set by middleware), or nil
}

// replacedBody is a body with which middleware replaced the received one.
type replacedBody struct {
	body    []byte // nil is that of incoming
	decoded any    // a pointer to the body that TypedMiddleware passed on, or nil
}

// content is a body with the headers that describe it.
type content struct {
	body    []byte
	headers Headers
}

// begin fills m for one attempt.
func (m *Message) begin(deps *messageDeps, in *Incoming, h selection) {
	m.ID = in.ID
	m.Type = h.messageType
	m.selected = h
	m.Headers = in.Headers
	m.Attempt = in.attempt()
	m.DelayedRetries = in.delayedRetries()
	m.Deferrals = in.deferrals()
	m.LastError = in.LastError
	m.EnqueuedAt = in.EnqueuedAt
	m.incoming = in
	m.deps = deps
	m.sends.message = m
	if c := h.content; c != nil {
		m.Headers, m.replaced = c.headers, &replacedBody{body: c.body}
	}
}

// handledAs returns the selection of the last run, or the one that it would
// have had. Unlike m's fields, only chooseHandlers changes it.
func (m *Message) handledAs() selection {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.selected
}

// RawBody returns a copy of the body that is not decoded, as it was received or set by
// [Message.SetBody].
func (m *Message) RawBody() []byte { return slices.Clone(m.rawBody()) }

func (m *Message) rawBody() []byte {
	if m.replaced != nil && m.replaced.body != nil {
		return m.replaced.body
	}
	return m.incoming.Body
}

// SetBody replaces the body for inner middleware and the handlers of this attempt, for
// middleware that decrypts or fetches bodies. [HandleFailed] gets the replaced body; copies
// of the message have the received one. It is called before next, by the goroutine that
// calls next. The message takes over body.
func (m *Message) SetBody(body []byte) {
	if body == nil {
		body = []byte{}
	}
	m.replaced = &replacedBody{body: body}
}

// SkipRemainingHandlers skips the handlers of the message that would run after this one,
// except independent ones ([HandleOptions.Independent]). Another attempt begins with the
// first handler again.
func (m *Message) SkipRemainingHandlers() { m.setSkip(true) }

func (m *Message) setSkip(skip bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.skipsRest = skip
}

func (m *Message) skipsRemaining() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.skipsRest
}

func (m *Message) markDuplicate() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.duplicate = true
}

func (m *Message) isDuplicate() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.duplicate && !m.handlersChosen
}

// GroupKey returns the key that the message was sent with ([SendOptions.GroupKey]). The
// messages that the handler sends do not inherit it.
func (m *Message) GroupKey() string { return m.incoming.GroupKey }

// Properties returns a copy of the broker's properties of the message. See
// [Incoming.Properties].
func (m *Message) Properties() map[string]string { return maps.Clone(m.incoming.Properties) }

// NativeID identifies the stored copy of the message: it is the same at every delivery of
// the copy. See [Incoming.NativeID].
func (m *Message) NativeID() string { return m.incoming.NativeID }

// Native returns the client library's own message, or nil. See [Incoming.Native].
func (m *Message) Native() any { return m.incoming.Native }

// Send sends a message to a queue when all handlers have succeeded, and never otherwise. An
// error, as for a body that cannot be encoded or an option that the transport does not
// support, means that it will not be sent.
func (m *Message) Send(queue string, d Draft) error {
	return m.sends.collect(headers.IntentSend, queue, &d)
}

// Publish publishes an event to all its subscribers, as [Message.Send] does.
func (m *Message) Publish(e EventDraft) error {
	return m.sends.collect(headers.IntentPublish, "", &e.draft)
}

// Reply sends an answer to the address that the message names, as [Message.Send] does.
// Without an address it returns [ErrNoReplyAddress].
func (m *Message) Reply(d Draft) error {
	to := m.incoming.Headers.Get(headers.ReplyToAddress)
	if to == "" {
		return fmt.Errorf("core: reply to message %s: %w", m.incoming.ID, ErrNoReplyAddress)
	}
	return m.sends.collect(headers.IntentReply, to, &d)
}

// SendNow sends a message at once: it is sent even if the handler fails, and once more at
// every attempt, with the same message id. After a deferral ([Defer]) the id changes.
func (m *Message) SendNow(ctx context.Context, queue string, d Draft) error {
	return m.sends.sendNow(ctx, headers.IntentSend, queue, &d)
}

// PublishNow publishes an event at once, as [Message.SendNow] does.
func (m *Message) PublishNow(ctx context.Context, e EventDraft) error {
	return m.sends.sendNow(ctx, headers.IntentPublish, "", &e.draft)
}

// context returns the context of the handler.
func (m *Message) context() context.Context {
	if m.ctx != nil {
		return m.ctx
	}
	return contextWithMessage(context.Background(), m)
}

// messageKey is the context key of a handler's Message.
type messageKey struct{}

func contextWithMessage(ctx context.Context, m *Message) context.Context {
	return context.WithValue(ctx, messageKey{}, m)
}

// MessageFromContext returns the message that is being handled under ctx.
func MessageFromContext(ctx context.Context) (*Message, bool) {
	m, ok := ctx.Value(messageKey{}).(*Message)
	return m, ok
}

// SetValue stores a value for the rest of this attempt, for its middleware, handlers,
// policy, [HandleFailed] and observers. The key must be comparable, and of a type of the
// package that sets it, as with context.WithValue. SetValue and [Message.Value] are safe
// for concurrent use, also after the handler has returned.
func (m *Message) SetValue(key, value any) { m.values(true).Set(key, value) }

// Value returns the value that [Message.SetValue] stored in this attempt, or in
// [HandleFailed] in the one that failed, or nil.
func (m *Message) Value(key any) any { return m.values(false).Get(key) }

// values returns the values of the attempt, or nil if there are none and none are wanted.
func (m *Message) values(wanted bool) *values.Values {
	outermost := m.outermost()
	outermost.mu.Lock()
	defer outermost.mu.Unlock()
	if outermost.attemptValues == nil && wanted {
		outermost.attemptValues = &values.Values{}
	}
	return outermost.attemptValues
}

// outermost returns the message of the attempt; m may be that of one run.
func (m *Message) outermost() *Message {
	for m.parent != nil {
		m = m.parent
	}
	return m
}

// failingHandler is the handler that failed in an attempt.
type failingHandler struct {
	name          string
	began, failed time.Time
}

// recordFailingHandler records the handler of m that failed, or nil for none.
func (m *Message) recordFailingHandler(h *failingHandler) {
	m = m.outermost()
	m.mu.Lock()
	m.failing = h
	m.mu.Unlock()
}

// failingHandler returns the handler that failed in the last run, or the zero value: then
// no handler ran, or the attempt failed outside of them.
func (m *Message) failingHandler() failingHandler {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failing == nil {
		return failingHandler{}
	}
	return *m.failing
}

// Forward sends a copy of the message to another queue, as [Message.Send] does: with
// everything as it was received but the headers of its retries here, and without
// [SendMiddleware]. An empty queue, and a message that has no room for failure headers
// ([ErrTooLarge]), are errors.
func (m *Message) Forward(queue string) error { return m.sends.forward(queue) }

// ForwardNow forwards the message at once, as [Message.SendNow] does.
func (m *Message) ForwardNow(ctx context.Context, queue string) error {
	return m.sends.forwardNow(ctx, queue)
}
