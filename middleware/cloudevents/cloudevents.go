// Package cloudevents receives and sends messages as events of CloudEvents 1.0, in the binary
// and the structured content mode, on every transport.
//
//	events, err := cloudevents.New(cloudevents.Config{Source: "/shop/orders"})
//	...
//	config := core.Config{
//		MessageType: events.MessageType, MessageID: events.MessageID,
//		Middleware:     []core.Middleware{events},
//		SendMiddleware: []core.SendMiddleware{events.Send},
//	}
//
// The type of an event is the message type of its handlers, and its data is their body.
// Messages that are no events are handled as without the package. Every copy of an event, as
// for a delayed retry or the error queue, is the event as it was received.
package cloudevents

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

// Config describes the events that an endpoint sends.
type Config struct {
	// Source is the attribute source of sent events, a URI or a part of one that names the
	// endpoint, such as "/shop/orders". It is required. The header "cloudEvents:source" of a
	// message replaces it.
	Source string

	// Structured sends events in the structured mode: the attributes and the data are one
	// JSON object. Without it they are sent in the binary mode: attributes are headers,
	// such as "cloudEvents:id". A reply to an event has the mode of that event, and a reply to
	// another message is no event.
	Structured bool
}

// Events is the middleware of an endpoint that receives and sends events. It is safe for
// concurrent use, by several endpoints too.
type Events struct{ config Config }

// New returns middleware, or an error for an invalid configuration.
func New(c Config) (*Events, error) {
	if c.Source == "" {
		return nil, errors.New("cloudevents: Config.Source is empty; name the endpoint, as in \"/shop/orders\"")
	}
	if _, err := url.Parse(c.Source); err != nil || len(c.Source) > maxValue {
		return nil, errors.New("cloudevents: Config.Source is no URI reference; use one such as \"/shop/orders\"")
	}
	return &Events{c}, nil
}

// MessageType returns the type of a received event, or "", for core.Config.MessageType.
func (*Events) MessageType(in *core.Incoming) string {
	e := readOrNil(in)
	if e == nil || isFirst(e.get("type"), in.Headers.Get(headers.MessageTypes)) {
		return "" // the header may also have base types
	}
	return e.get("type")
}

// isFirst reports whether a type is the first of a header with types.
func isFirst(messageType, header string) bool {
	after, ok := strings.CutPrefix(header, messageType)
	return ok && (after == "" || after[0] == ';' || after[0] == ',')
}

// maxID is the length in bytes of the longest id that is not replaced by a hash.
const maxID = 200

// MessageID returns an id made of the source and the id of a received event, which identify
// it together, or "", for core.Config.MessageID.
func (*Events) MessageID(in *core.Incoming) string {
	e := readOrNil(in)
	if e == nil {
		return ""
	}
	id := e.get("source") + "#" + e.get("id")
	if len(id) > maxID {
		return fmt.Sprintf("%x", sha256.Sum256([]byte(id)))
	}
	return id
}

// readOrNil returns no event for an invalid one, whose error the middleware returns.
func readOrNil(in *core.Incoming) *event {
	e, err := read(&in.Headers, func() []byte { return in.Body })
	if err != nil {
		return nil
	}
	return e
}

// Describe implements core.Middleware.
func (*Events) Describe(core.MiddlewareScope) ([]core.MiddlewareFacts, error) { return nil, nil }

// Wrap implements core.Middleware. The headers of the message that inner middleware and
// handlers get have the content type, the time and the trace context of the event. A message
// that claims to be an event and is none fails with core.ErrUndecodable.
func (*Events) Wrap(_ core.MiddlewareScope, next core.HandlerFunc) core.HandlerFunc {
	return func(ctx context.Context, m *core.Message) error {
		e, err := read(&m.Headers, m.RawBody)
		if err != nil {
			return err
		}
		if e == nil {
			return next(ctx, m)
		}
		m.SetValue(eventKey{}, e)
		if e.structured {
			m.SetBody(e.data)
			m.Headers.Set(headers.ContentType, e.contentType)
		} else { // on SQS it is no field of the message
			setMissing(&m.Headers, headers.ContentType, cmp.Or(e.get("datacontenttype"), m.Headers.Get("content-type")))
		}
		if at, err := time.Parse(time.RFC3339, e.get("time")); err == nil {
			setMissing(&m.Headers, headers.TimeSent, headers.FormatTime(at))
		}
		for _, key := range traceAttributes {
			setMissing(&m.Headers, key, e.get(key))
		}
		return next(ctx, m)
	}
}

// traceAttributes are the attributes of the extension for distributed tracing, and the
// headers of the same names.
var traceAttributes = []string{"traceparent", "tracestate"}

func setMissing(h *core.Headers, key, value string) {
	if _, has := h.Lookup(key); !has && value != "" {
		h.Set(key, value)
	}
}

type eventKey struct{}

// Attribute returns an attribute of the event that is being handled, such as "source" or
// "subject", as text, or "" if the event has none or the message is no event.
func Attribute(m *core.Message, name string) string {
	if e, ok := m.Value(eventKey{}).(*event); ok {
		return e.get(name)
	}
	return ""
}

// Send is a core.SendMiddleware. The message id and the message type are the id and the type
// of the event, and a header of the message such as "cloudEvents:subject" is an attribute. A
// body that was sent with a content type of CloudEvents is sent as it is.
func (s *Events) Send(next core.SendFunc) core.SendFunc {
	return func(ctx context.Context, out *core.Outgoing) error {
		structured := s.config.Structured
		if out.Headers.Get(headers.MessageIntent) == headers.IntentReply {
			request, ok := core.MessageFromContext(ctx)
			if !ok {
				return next(ctx, out)
			}
			e, ok := request.Value(eventKey{}).(*event)
			if !ok {
				return next(ctx, out)
			}
			structured = e.structured
		}
		if isCloudEvents(out.Headers.Get(headers.ContentType)) {
			return next(ctx, out)
		}
		if err := write(out, s.config.Source, structured); err != nil {
			return err
		}
		return next(ctx, out)
	}
}
