// Package coretest is for unit tests of handlers: it makes the message for a handler,
// without an endpoint or a transport, and records the messages that the handler sends.
//
//	m, body, rec := coretest.Message(placed, OrderPlaced{ID: "42"})
//	err := handler(ctx, m, body)
//	// look at err and at rec.Sent()
//
// core.VerdictOf(err) returns the handler's verdict, or nil. Code that finds the message
// by [core.MessageFromContext] needs coretest.Context(ctx, m).
//
// It tests the handler alone. The endpoint sends, retries and moves messages: to test
// that, [Run] a whole endpoint on package inmemory.
package coretest

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/core/internal/hooks"
	"github.com/reprise-go/reprise/core/internal/mediatype"
	"github.com/reprise-go/reprise/core/messagekit"
)

// Defaults of [Options].
const (
	// ID is the message id.
	ID = "test-message"
	// Endpoint is the name of the endpoint.
	Endpoint = "test"
	// ReplyTo is the address for replies.
	ReplyTo = "test-replies"
)

// Options are the properties of a message. The zero value is the first attempt at a
// message that can be replied to, on a transport that can do everything.
type Options struct {
	// ID is the message id. The default is the constant ID, so that the ids of the handler's
	// messages, which derive from it, are the same in every run.
	ID string

	// Attempt is the number of this attempt in its round. The default is 1.
	Attempt int

	// DelayedRetries is the number of earlier delayed retries, without those that handlers
	// requested ([core.RetryAfter]).
	DelayedRetries int

	// Deferrals is how often handlers have deferred the message ([core.Defer]).
	Deferrals int

	// LastError is the text of the previous attempt's error.
	LastError string

	// GroupKey is the key that the message was sent with.
	GroupKey string

	// Properties are those that the message was received with.
	Properties map[string]string

	// EnqueuedAt is when the message became available. The default is the time
	// of the call.
	EnqueuedAt time.Time

	// Headers are set on top of those that every message has: message id,
	// conversation, correlation, type, content type, intent, time sent, reply
	// address, and the counts of delayed retries and deferrals above 0.
	Headers map[string]string

	// ReplyTo is the address for replies. The default is the constant ReplyTo.
	ReplyTo string

	// NoReplyTo makes a message without an address for replies: Reply returns
	// [core.ErrNoReplyAddress].
	NoReplyTo bool

	// Endpoint is the name of the endpoint that seems to handle the message.
	// The default is the constant Endpoint.
	Endpoint string

	// Capabilities are those of the transport. Missing abilities are refused as in
	// production, with an error matching errors.ErrUnsupported or [core.ErrTooLarge]. The
	// default has all abilities and no limits; inmemory.LikeSQS().Capabilities, for example,
	// has fewer.
	Capabilities *core.Capabilities

	// Codec encodes and decodes bodies. The default is [core.JSON].
	Codec core.Codec

	// SendNow stands in for the broker when the handler calls SendNow or PublishNow: the
	// handler gets its error, and a message with an error is not recorded. The default
	// accepts everything.
	SendNow func(ctx context.Context, r Record) error
}

var kit = hooks.Core.(interface {
	NewMessage(endpoint, messageType string, in *core.Incoming, caps core.Capabilities, codec core.Codec, send func(context.Context, ...core.Outgoing) error) (*core.Message, error)
	ContextWithMessage(ctx context.Context, m *core.Message) context.Context
	TakenOver(f *core.Failed) bool
})

// Context returns a context in which [core.MessageFromContext] finds m, as in the context
// of an endpoint's handlers.
func Context(ctx context.Context, m *core.Message) context.Context {
	return kit.ContextWithMessage(ctx, m)
}

// TakenOver reports whether a handler of failed messages called [core.Failed.TakeOver].
func TakenOver(f *core.Failed) bool { return kit.TakenOver(f) }

// Message returns a message for a handler's test, its body as the handler gets it, and the
// recorder of the messages that the handler sends. The body is encoded and decoded by the
// codec, as it would be through a queue: the handler only sees data that survives this, such
// as exported fields with JSON. A []byte is copied.
//
// Message panics if the test itself is wrong: a body that its codec cannot encode or
// decode, a type that no handler could be registered for, a negative count, more than one
// [Options].
func Message[T any](t core.MessageType[T], body T, opts ...Options) (m *core.Message, decoded T, sent *Recorder) {
	messageType := t.Name()
	o := singleOptions(messageType, opts)
	sent = &Recorder{codec: o.Codec}
	raw, contentType, decoded := throughCodec(messageType, body, o.Codec)
	m, err := kit.NewMessage(o.Endpoint, messageType, &core.Incoming{
		ID:            o.ID,
		NativeID:      o.ID,
		Headers:       headersOf(messageType, contentType, o),
		Body:          raw,
		DeliveryCount: o.Attempt,
		LastError:     o.LastError,
		GroupKey:      o.GroupKey,
		Properties:    o.Properties,
		EnqueuedAt:    o.EnqueuedAt,
	}, *o.Capabilities, o.Codec, func(ctx context.Context, out ...core.Outgoing) error { return sent.sendNow(ctx, o.SendNow, out) })
	if err != nil {
		panic(fmt.Sprintf("coretest: message %q: %v", messageType, err))
	}
	sent.message = m
	return m, decoded, sent
}

// singleOptions returns the options with their defaults.
func singleOptions(messageType string, opts []Options) Options {
	var o Options
	switch len(opts) {
	case 0:
	case 1:
		o = opts[0]
	default:
		panic(fmt.Sprintf("coretest: message %q: %d Options were given; merge them into one", messageType, len(opts)))
	}
	switch {
	case messageType == "" || !utf8.ValidString(messageType) || strings.ContainsAny(messageType, ";,"):
		panic(fmt.Sprintf("coretest: inbound: %q cannot be a message type; use UTF-8 text without ';' and ','", messageType))
	case o.Attempt < 0 || o.DelayedRetries < 0 || o.Deferrals < 0:
		panic(fmt.Sprintf("coretest: message %q: Attempt is %d, DelayedRetries %d and Deferrals %d; none can be negative", messageType, o.Attempt, o.DelayedRetries, o.Deferrals))
	case o.NoReplyTo && o.ReplyTo != "":
		panic(fmt.Sprintf("coretest: message %q: ReplyTo is %q, but NoReplyTo is set; remove one of the two", messageType, o.ReplyTo))
	}
	orDefault(&o.ID, ID)
	orDefault(&o.Attempt, 1)
	orDefault(&o.Endpoint, Endpoint)
	orDefault(&o.Codec, core.JSON)
	if o.EnqueuedAt.IsZero() {
		o.EnqueuedAt = time.Now()
	}
	if !o.NoReplyTo {
		orDefault(&o.ReplyTo, ReplyTo)
	}
	if o.Capabilities == nil {
		o.Capabilities = &core.Capabilities{
			Transactions: []core.TransactionMode{
				core.TransactionNone,
				core.TransactionReceiveOnly,
				core.TransactionSendsAtomicWithReceive,
			},
			Abilities: core.Abilities{
				DelayedDelivery:  true,
				PublishSubscribe: true,
				TimeToBeReceived: true,
				DeadLetter:       true,
			},
			Guarantees: core.Guarantees{NativeDeliveryCount: true},
		}
	}
	return o
}

func orDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// throughCodec returns the encoded body, and the body decoded from it.
func throughCodec[T any](messageType string, body T, codec core.Codec) (raw []byte, contentType string, decoded T) {
	if target, ok := any(&decoded).(*[]byte); ok {
		raw = any(body).([]byte)
		*target = slices.Clone(raw)
		return slices.Clone(raw), "application/octet-stream", decoded
	}
	raw, err := codec.Encode(body)
	if err != nil {
		panic(fmt.Sprintf("coretest: message %q: encode a %T: %v", messageType, body, err))
	}
	if err := codec.Decode(mediatype.Of(codec.ContentType()), raw, &decoded); err != nil {
		panic(fmt.Sprintf("coretest: message %q: a %T cannot be decoded from its own encoding: %v", messageType, body, err))
	}
	return raw, codec.ContentType(), decoded
}

func headersOf(messageType, contentType string, o Options) core.Headers {
	var h core.Headers
	h.Set(headers.MessageID, o.ID)
	h.Set(headers.MessageTypes, messageType)
	h.Set(headers.ContentType, contentType)
	h.Set(headers.MessageIntent, headers.IntentSend)
	h.Set(headers.ConversationID, o.ID)
	h.Set(headers.CorrelationID, o.ID)
	h.Set(headers.TimeSent, headers.FormatTime(o.EnqueuedAt))
	if !o.NoReplyTo {
		h.Set(headers.ReplyToAddress, o.ReplyTo)
	}
	if o.DelayedRetries > 0 {
		h.Set(headers.Retries, strconv.Itoa(o.DelayedRetries))
	}
	if o.Deferrals > 0 {
		h.Set(headers.Deferrals, strconv.Itoa(o.Deferrals))
	}
	for _, key := range slices.Sorted(maps.Keys(o.Headers)) {
		h.Set(key, o.Headers[key])
	}
	return h
}

// Recorder records the messages that were sent while a message was handled. It is safe
// for concurrent use.
type Recorder struct {
	message *core.Message
	codec   core.Codec

	mu      sync.Mutex
	sentNow []Record
}

// Sent returns the messages that Send, Publish and Reply collected, in their order. An
// endpoint sends them when the handler returns nil, and drops them when it returns an
// error: look at the error first.
func (r *Recorder) Sent() []Record {
	var records []Record
	for _, out := range messagekit.Collected(r.message) {
		records = append(records, r.record(out))
	}
	return records
}

// SentNow returns the messages that were sent at once, through [core.Message.SendNow] and
// [core.Message.PublishNow], in the order in which they were accepted.
func (r *Recorder) SentNow() []Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.sentNow)
}

func (r *Recorder) sendNow(ctx context.Context, broker func(context.Context, Record) error, out []core.Outgoing) error {
	for _, each := range out {
		record := r.record(each)
		if broker != nil {
			if err := broker(ctx, record); err != nil {
				return err
			}
		}
		r.mu.Lock()
		r.sentNow = append(r.sentNow, record)
		r.mu.Unlock()
	}
	return nil
}

func (r *Recorder) record(out core.Outgoing) Record {
	return Record{
		Intent:   out.Headers.Get(headers.MessageIntent),
		Queue:    out.Queue,
		Type:     out.Headers.Get(headers.MessageTypes),
		Headers:  out.Headers,
		Delay:    out.Delay,
		Outgoing: out,
		codec:    r.codec,
	}
}

// Record is one message that a handler sent. Body decodes its body.
type Record struct {
	// Intent is [headers.IntentSend], [headers.IntentPublish] or [headers.IntentReply].
	Intent string
	// Queue is the destination; "" for an event.
	Queue string
	// Type is the message type.
	Type string
	// Headers are all of its headers.
	Headers core.Headers
	// Delay is the delay until the message becomes available.
	Delay time.Duration
	// Outgoing is the message as a transport would get it: its id, the encoded
	// body, the time to be received, group key and properties.
	Outgoing core.Outgoing

	codec core.Codec
}

// String describes the record in one line, for the message of a failing test.
func (r Record) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", r.Intent, r.Type)
	if r.Queue != "" {
		fmt.Fprintf(&b, " to %s", r.Queue)
	}
	if r.Delay > 0 {
		fmt.Fprintf(&b, " after %v", r.Delay)
	}
	fmt.Fprintf(&b, ": %s", r.Outgoing.Body)
	return b.String()
}

// Body decodes a record's body; []byte gets a copy of the encoded one. It panics if that
// is impossible, because then the test is wrong, or the handler sent something else than
// the test expects. T need not be the type that was sent: the type that the receiver
// declares is a good choice.
func Body[T any](r Record) T {
	var body T
	if raw, ok := any(&body).(*[]byte); ok {
		*raw = slices.Clone(r.Outgoing.Body)
		return body
	}
	if contentType := r.Headers.Get(headers.ContentType); contentType != r.codec.ContentType() {
		panic(fmt.Sprintf("coretest: the body of %q has content type %q, which %T does not read; use Body[[]byte]", r.Type, contentType, r.codec))
	}
	if err := r.codec.Decode(mediatype.Of(r.codec.ContentType()), r.Outgoing.Body, &body); err != nil {
		panic(fmt.Sprintf("coretest: the body of %q cannot be decoded into a %v: %v; it is %q", r.Type, reflect.TypeFor[T](), err, r.Outgoing.Body))
	}
	return body
}
