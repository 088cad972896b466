package core

import (
	"errors"
	"reflect"

	"github.com/reprise-go/reprise/core/headers"
)

// MessageType declares a message: its name on the wire, and the Go type T of its body.
// Declare it once, as a variable of the package that both sides share. A T of []byte is the
// raw body; any other T is encoded and decoded by [Config.Codec]. A MessageType is a value
// that any number of goroutines may use.
type MessageType[T any] struct{ name string }

// NewMessageType declares a message. A name that cannot be one is an error of its first
// use: of the registration ([Endpoint.Err]), or of Send.
func NewMessageType[T any](name string) MessageType[T] { return MessageType[T]{name} }

// Name returns the name on the wire.
func (t MessageType[T]) Name() string { return t.name }

// Of returns a message with a body, to be sent once or several times.
func (t MessageType[T]) Of(body T) Draft { return Draft{messageType: t.name, body: body} }

// Decode decodes the body of a message, at each call, for code that gets messages of
// several types. It does not compare the name.
func (t MessageType[T]) Decode(m *Message) (T, error) { return decodeBody[T](m) }

// Event declares an event: a message that is published to all who subscribe to it. The
// [MessageType] in it is for [HandleFailed], a handler without a subscription, or a send to
// one queue.
type Event[T any] struct{ MessageType[T] }

// NewEvent declares an event, as [NewMessageType] declares a message.
func NewEvent[T any](name string) Event[T] { return Event[T]{NewMessageType[T](name)} }

// Of returns an event with a body, to be published once or several times.
func (e Event[T]) Of(body T) EventDraft { return EventDraft{e.MessageType.Of(body)} }

// Draft is a message that is to be sent: type, body, options. It is a value; the body is
// read when it is sent.
type Draft struct {
	messageType string
	body        any
	options     *SendOptions // as a rule nil
	twice       bool         // With was called again
}

// With returns the draft with options. A draft to which With is applied twice cannot be
// sent.
func (d Draft) With(o SendOptions) Draft {
	d.twice = d.options != nil
	d.options = &o
	return d
}

// EventDraft is an event that is to be published, otherwise as a [Draft].
type EventDraft struct{ draft Draft }

// With returns the draft with options, as [Draft.With] does.
func (d EventDraft) With(o SendOptions) EventDraft { return EventDraft{d.draft.With(o)} }

var (
	errNoName  = errors.New("the message type has no name; declare it with core.NewMessageType or core.NewEvent")
	errNilBody = errors.New("the body is nil; send a value")
	errTwoWith = errors.New("With was called twice for one draft, whose first options would be lost; set all options in one SendOptions")
)

// check returns the mistake of the draft, or nil.
func (d *Draft) check() error {
	switch {
	case d.messageType == "":
		return errNoName
	case isNilBody(d.body):
		return errNilBody
	case d.twice:
		return errTwoWith
	}
	return nil
}

// isNilBody reports whether a body would be encoded as "null". A []byte without content is an
// empty body.
func isNilBody(body any) bool {
	if _, ok := body.([]byte); ok {
		return false
	}
	switch v := reflect.ValueOf(body); v.Kind() {
	case reflect.Invalid:
		return true
	case reflect.Pointer, reflect.Map, reflect.Slice:
		return v.IsNil()
	default:
		return false
	}
}

// decodeBody decodes the body of a message, or returns the one that [TypedMiddleware] passed
// on.
func decodeBody[T any](m *Message) (body T, err error) {
	if m.replaced != nil {
		if decoded, ok := m.replaced.decoded.(*T); ok {
			return *decoded, nil
		}
	}
	if raw, ok := any(&body).(*[]byte); ok {
		*raw = m.RawBody()
		return body, nil
	}
	err = m.deps.composer.codec.decode(m.Type, m.Headers.Get(headers.ContentType), m.rawBody(), &body, m.contentEncoding)
	return body, err
}
