package asb

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
)

// received is a message of the service as the adapter reads it.
type received struct {
	core.Incoming
	released  int       // deliveries that were no failure
	notBefore time.Time // of a message that was postponed, by the service's clock
	expires   time.Time // by that clock; zero: never
}

// expired reports whether the message is past its time to be received.
func (r *received) expired(now time.Time) bool { return !r.expires.IsZero() && now.After(r.expires) }

// read reads a message of queue into r.
func (t *Transport) read(r *received, queue string, m *azservicebus.ReceivedMessage) {
	r.Native = m
	r.NativeID = nativeID(queue, m)
	raw := m.RawAMQPMessage
	if m.EnqueuedTime != nil {
		r.EnqueuedAt = *m.EnqueuedTime
	}
	headers := make(map[string]string, len(m.ApplicationProperties))
	for key, value := range m.ApplicationProperties {
		if n, ok := transport.Integer(value); ok {
			switch key {
			case propertyReleased:
				r.released = int(max(0, n))
				continue
			case propertyNotBefore:
				r.notBefore = time.UnixMilli(n)
				continue
			}
		}
		if key == propertyTopic {
			continue
		}
		text := text(value)
		if key == "" || !utf8.ValidString(key) || !utf8.ValidString(text) {
			r.Malformed = fmt.Errorf("%w: the application property %q is not UTF-8 or has no name", core.ErrInvalidHeader, key)
			continue
		}
		headers[key] = text
	}
	r.DeliveryCount = 1
	if raw.Header != nil {
		r.DeliveryCount = max(1, int(raw.Header.DeliveryCount)+1-r.released)
		r.Redelivered = raw.Header.DeliveryCount > 0
	}
	switch {
	case raw.Properties != nil && raw.Properties.AbsoluteExpiryTime != nil:
		r.expires = *raw.Properties.AbsoluteExpiryTime
	case raw.Header != nil && raw.Header.TTL > 0 && m.EnqueuedTime != nil:
		r.expires = m.EnqueuedTime.Add(raw.Header.TTL)
	}
	body, err := bodyOf(&raw.Body)
	r.Body, r.Malformed = body, errors.Join(r.Malformed, err)
	r.Headers = core.HeadersFromMap(headers)
	transport.UnpackHeaders(&r.Incoming)
	if r.GroupKey == "" && m.SessionID != nil && *m.SessionID != m.MessageID {
		r.GroupKey = *m.SessionID
	}
	r.ID = r.Headers.Get(core.HeaderMessageID)
	if r.ID == "" {
		r.ID = foreignID(raw)
		r.IDSent = r.ID != ""
		r.addForeign(m)
	}
	if r.ID == "" {
		r.ID = r.NativeID
	}
	if t.cfg.MessageType != nil && r.Headers.Get(core.HeaderMessageTypes) == "" {
		if name := t.cfg.MessageType(queue, m); name != "" {
			r.Headers.Set(core.HeaderMessageTypes, name)
		}
	}
}

// addForeign adds the values that a sender that knows no headers has put into AMQP's own fields.
func (r *received) addForeign(m *azservicebus.ReceivedMessage) {
	for _, field := range []struct {
		key   string
		value *string
	}{
		{core.HeaderCorrelationID, m.CorrelationID}, {core.HeaderReplyToAddress, m.ReplyTo}, {core.HeaderContentType, m.ContentType},
	} {
		if field.value != nil && *field.value != "" && utf8.ValidString(*field.value) {
			if _, has := r.Headers.Lookup(field.key); !has {
				r.Headers.Set(field.key, *field.value)
			}
		}
	}
}

// nativeID names the copy of a message: each queue has sequence numbers of its own, which begin again where it was deleted and created
// anew.
func nativeID(queue string, m *azservicebus.ReceivedMessage) string {
	if m.SequenceNumber == nil {
		return m.MessageID
	}
	id := make([]byte, 0, 128) // of which only the text is allocated, for most names
	id = append(append(id, queue...), '-')
	id = strconv.AppendInt(id, *m.SequenceNumber, 10)
	if m.EnqueuedTime != nil {
		id = strconv.AppendInt(append(id, '-'), m.EnqueuedTime.UnixMilli(), 36)
	}
	return string(id)
}

// foreignID returns the message id of AMQP, which may be of several types, as text.
func foreignID(m *azservicebus.AMQPAnnotatedMessage) string {
	if m.Properties == nil || m.Properties.MessageID == nil {
		return ""
	}
	id := text(m.Properties.MessageID)
	if !utf8.ValidString(id) {
		return ""
	}
	return id
}

// bodyOf returns the bytes of a body of any kind.
func bodyOf(body *azservicebus.AMQPAnnotatedMessageBody) ([]byte, error) {
	switch {
	case len(body.Data) == 1:
		return body.Data[0], nil
	case len(body.Data) > 1:
		return slices.Concat(body.Data...), nil
	case body.Sequence != nil:
		return nil, errors.New("the body is an AMQP sequence, which has no bytes; to fix: send it as data, or as a text")
	case body.Value == nil:
		return nil, nil
	}
	switch v := body.Value.(type) {
	case string:
		return []byte(v), nil
	case []byte:
		return v, nil
	case map[any]any, map[string]any, []any:
		return nil, fmt.Errorf("the body is an AMQP value of the type %T, which has no bytes; to fix: send it as data, or as a text", v)
	default:
		return []byte(text(v)), nil
	}
}

// text returns a value of an application property, of any type of AMQP, as text.
func text(value any) string {
	switch v := value.(type) {
	case nil:
		return ""
	case string:
		return v
	case amqp.Symbol:
		return string(v)
	case []byte:
		return base64.StdEncoding.EncodeToString(v)
	case time.Time:
		return v.UTC().Format(time.RFC3339Nano)
	case amqp.UUID:
		return v.String()
	case float32:
		return strconv.FormatFloat(float64(v), 'g', -1, 32)
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	default:
		return fmt.Sprint(v)
	}
}

// resent returns a copy of a message that was received, as it came, to be sent again.
func resent(m *azservicebus.ReceivedMessage) *outgoing {
	raw := *m.RawAMQPMessage
	c := &outgoing{ApplicationProperties: maps.Clone(raw.ApplicationProperties), Body: raw.Body, Properties: raw.Properties, Footer: raw.Footer}
	if raw.Header != nil {
		header := *raw.Header
		header.DeliveryCount = 0
		c.Header = &header
	}
	return c
}
