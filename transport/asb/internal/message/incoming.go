package message

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/asb/internal/names"
)

// Received is a message of the service as the adapter reads it.
type Received struct {
	core.Incoming
	State
	Forged  bool      // its state had a time later than any that an adapter with this configuration writes
	Expires time.Time // by the service's clock; zero: never

	life time.Duration // from the arrival in the queue until Expires
}

// Expired reports whether the message is past its time to be received.
func (r *Received) Expired(now time.Time) bool { return !r.Expires.IsZero() && now.After(r.Expires) }

// HasOwnLifetime reports whether the message's sender limited its time, and not only its queue, in
// which a message lives no longer than queueLife; 0: that is not known. The service tells the
// shorter of the two times. A header that says more than that is of an earlier copy.
func (r *Received) HasOwnLifetime(queueLife time.Duration) bool {
	if r.Expires.IsZero() {
		return false
	}
	if text, has := r.Headers.Lookup(headers.TimeToBeReceived); has || queueLife == 0 {
		sent, ok := transport.ParseTimeSpan(text)
		return ok && r.life <= sent+time.Millisecond // it was rounded up
	}
	return r.life < queueLife
}

// Read reads a message of queue into r.
func (c *Codec) Read(r *Received, queue string, m *azservicebus.ReceivedMessage) {
	r.Native = m
	r.NativeID = nativeID(queue, m)
	raw := m.RawAMQPMessage
	if m.EnqueuedTime != nil {
		r.EnqueuedAt = *m.EnqueuedTime
	}
	h := make(map[string]string, len(m.ApplicationProperties))
	for key, value := range m.ApplicationProperties {
		if isOwnProperty(key) {
			continue
		}
		text := Text(value)
		if key == "" || !utf8.ValidString(key) || !utf8.ValidString(text) {
			r.Malformed = fmt.Errorf("%w: the application property %q is not UTF-8 or has no name", core.ErrInvalidHeader, key)
			continue
		}
		h[key] = text
	}
	r.readCounts(c, queue, m)
	switch {
	case names.IsDeadLetterQueue(queue):
		// "time-to-live isn't observed" there (https://learn.microsoft.com/azure/service-bus-messaging/service-bus-dead-letter-queues).
	case m.EnqueuedTime == nil:
	case raw.Properties != nil && raw.Properties.AbsoluteExpiryTime != nil && raw.Properties.AbsoluteExpiryTime.After(*m.EnqueuedTime):
		r.Expires = *raw.Properties.AbsoluteExpiryTime
	case raw.Header != nil && raw.Header.TTL > 0 && raw.Header.TTL < maxHeaderTTL:
		r.Expires = m.EnqueuedTime.Add(raw.Header.TTL)
	}
	if !r.Expires.IsZero() {
		r.life = r.Expires.Sub(*m.EnqueuedTime)
	}
	body, err := bodyOf(&raw.Body)
	r.Body, r.Malformed = body, errors.Join(r.Malformed, err)
	r.Headers = core.HeadersFromMap(h)
	transport.UnpackHeaders(&r.Incoming)
	if r.GroupKey == "" && m.SessionID != nil && *m.SessionID != m.MessageID {
		r.GroupKey = validText(*m.SessionID)
	}
	if r.ID == "" {
		r.ID = foreignID(m)
		r.IDSent = r.ID != ""
		r.addForeign(m)
	}
	if r.ID == "" {
		r.ID = r.NativeID
	}
	if c.MessageType != nil && r.Headers.Get(headers.MessageTypes) == "" {
		if name := c.MessageType(queue, m); name != "" {
			r.Headers.Set(headers.MessageTypes, validText(name))
		}
	}
}

// validText returns a text that go-amqp has read as it is in a form that the headers of a copy can have.
func validText(text string) string { return strings.ToValidUTF8(text, "\ufffd") }

// readCounts reads how often a message was delivered, and when it is due.
func (r *Received) readCounts(c *Codec, queue string, m *azservicebus.ReceivedMessage) {
	r.State = StateOf(m, names.IsDeadLetterQueue(queue))
	if names.IsDeadLetterQueue(queue) {
		// The count belongs to the original queue. The service counts nothing in the
		// dead-letter queue (azure-sdk-for-net#53437), not even a lock that has ended.
		r.DeliveryCount, r.Redelivered = 1+r.Failed, true
		return
	}
	if limit := c.Clock.Now().Add(c.MaxPostpone + clocksDiffer); c.MaxPostpone > 0 && r.NotBefore.After(limit) {
		r.NotBefore, r.Forged = time.Time{}, true
	}
	counted := countOf(m)
	r.DeliveryCount, r.Redelivered = 1+counted-r.Released, counted > 0
}

// addForeign adds the values that a sender without headers has put into AMQP's own
// fields.
func (r *Received) addForeign(m *azservicebus.ReceivedMessage) {
	for _, field := range []struct {
		key   string
		value *string
	}{
		{headers.CorrelationID, m.CorrelationID}, {headers.ReplyToAddress, m.ReplyTo}, {headers.ReplyToGroup, m.ReplyToSessionID}, {headers.ContentType, m.ContentType},
	} {
		if field.value != nil && *field.value != "" && utf8.ValidString(*field.value) {
			if _, has := r.Headers.Lookup(field.key); !has {
				r.Headers.Set(field.key, *field.value)
			}
		}
	}
}

// nativeID identifies the copy of a message: each queue has separate sequence numbers,
// which start anew if it was deleted and created again.
func nativeID(queue string, m *azservicebus.ReceivedMessage) string {
	if m.SequenceNumber == nil {
		return validText(m.MessageID)
	}
	id := make([]byte, 0, 128) // for most names only the text is allocated
	id = append(append(id, queue...), '-')
	id = strconv.AppendInt(id, *m.SequenceNumber, 10)
	if m.EnqueuedTime != nil {
		id = strconv.AppendInt(append(id, '-'), m.EnqueuedTime.UnixMilli(), 36)
	}
	return string(id)
}

// foreignID returns the AMQP message id, which may have several types, as text.
func foreignID(m *azservicebus.ReceivedMessage) string {
	raw := m.RawAMQPMessage
	if raw.Properties == nil || raw.Properties.MessageID == nil {
		return ""
	}
	id, isCopy := m.ApplicationProperties[propertyMessageID].(string)
	if !isCopy {
		id = Text(raw.Properties.MessageID)
	}
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
		return []byte(Text(v)), nil
	}
}

// Text returns an application property of any AMQP type as text.
func Text(value any) string {
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
		if descriptor, value, ok := described(v); ok {
			return textOfDotNet(descriptor, value)
		}
		return fmt.Sprint(v)
	}
}

// described returns the parts of a described AMQP value. go-amqp's type for it is
// internal.
func described(v any) (descriptor, value any, ok bool) {
	s := reflect.Indirect(reflect.ValueOf(v))
	if s.Kind() != reflect.Struct || s.Type().Name() != "DescribedType" {
		return nil, nil, false
	}
	name, content := s.FieldByName("Descriptor"), s.FieldByName("Value")
	if !name.IsValid() || !content.IsValid() {
		return nil, nil, false
	}
	return name.Interface(), content.Interface(), true
}

// textOfDotNet returns a described value in .NET's format: TimeSpan and DateTimeOffset
// are ticks of 100 ns on the wire, Uri is text
// (https://learn.microsoft.com/azure/service-bus-messaging/service-bus-amqp-dotnet).
// Other values become their text without the descriptor.
func textOfDotNet(descriptor, value any) string {
	ticks, isNumber := transport.Integer(value)
	if isNumber {
		const second = 10_000_000
		switch fmt.Sprint(descriptor) {
		case "com.microsoft:timespan":
			return textOfTimeSpan(ticks)
		case "com.microsoft:datetime-offset":
			const epoch = 621355968000000000 // 1970, since the year 1
			ticks -= epoch
			return time.Unix(ticks/second, ticks%second*100).UTC().Format(time.RFC3339Nano)
		}
	}
	return Text(value)
}

// textOfTimeSpan returns ticks in .NET's constant format: [-][d.]hh:mm:ss[.fffffff].
func textOfTimeSpan(ticks int64) string {
	const second, day = 10_000_000, 24 * 60 * 60
	sign, size := "", uint64(ticks)
	if ticks < 0 {
		sign, size = "-", -size
	}
	days, fraction := size/second/day, size%second
	seconds := size / second % day
	s := sign
	if days > 0 {
		s += strconv.FormatUint(days, 10) + "."
	}
	s += fmt.Sprintf("%02d:%02d:%02d", seconds/3600, seconds/60%60, seconds%60)
	if fraction > 0 {
		s += fmt.Sprintf(".%07d", fraction)
	}
	return s
}

// Resent returns an unchanged copy of a received message, to be sent again, with the rest of its
// time and a new native id: a queue with duplicate detection would drop a copy with the same one.
func (c *Codec) Resent(r *Received, m *azservicebus.ReceivedMessage) *Outgoing {
	out := resent(m)
	if r.Expires.IsZero() {
		return out
	}
	if out.Header == nil {
		out.Header = &azservicebus.AMQPAnnotatedMessageHeader{Durable: true}
	}
	out.Properties.CreationTime, out.Properties.AbsoluteExpiryTime = nil, nil
	now := c.Clock.Now()
	expire(out, now, max(r.Expires.Sub(now), time.Millisecond))
	return out
}

func resent(m *azservicebus.ReceivedMessage) *Outgoing {
	raw := *m.RawAMQPMessage
	c := &Outgoing{ApplicationProperties: maps.Clone(raw.ApplicationProperties), Body: raw.Body, Footer: raw.Footer}
	c.Properties = &azservicebus.AMQPAnnotatedMessageProperties{}
	if raw.Properties != nil {
		*c.Properties = *raw.Properties
	}
	id := rand.Text()
	if before := foreignID(m); before != "" {
		if c.ApplicationProperties == nil {
			c.ApplicationProperties = map[string]any{}
		}
		c.ApplicationProperties[propertyMessageID] = before
	}
	if m.SessionID != nil && *m.SessionID == m.MessageID {
		c.Properties.GroupID = &id // a separate session
	}
	c.Properties.MessageID = id
	if raw.Header != nil {
		header := *raw.Header
		header.DeliveryCount = 0
		c.Header = &header
	}
	return c
}
