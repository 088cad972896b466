package message

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/transport"
)

// Received is a message of the service as the adapter reads it.
type Received struct {
	core.Incoming
	BodyKey      string        // of a body that is stored elsewhere; else ""
	Sent         time.Time     // by the service's clock
	ReceiveCount int           // how often this copy was received
	First        time.Time     // when it was first received, by that clock
	Wait         time.Duration // by which the receiver has to delay it
	WaitsAlone   bool          // no other message is in its group
	Enveloped    bool          // some of its attributes are in an envelope of SNS
	TTL          time.Duration // TimeToBeReceived; 0: none
}

// Expired reports whether the message is past its time to be received, by the service's clock.
func (r *Received) Expired(now time.Time) bool {
	return r.TTL > 0 && !r.Sent.IsZero() && now.After(r.Sent.Add(r.TTL))
}

// Read reads a message of any supported shape: a Raw one of ours or of NServiceBus, a
// foreign one, a Wrapped one, each of them in the envelope that SNS puts around a
// message without raw delivery, and a body alone.
func (c *Codec) Read(queue string, m *types.Message) *Received {
	r := &Received{}
	r.Native = m
	r.NativeID = value(m.MessageId)
	r.Sent = milliseconds(m.Attributes[string(types.MessageSystemAttributeNameSentTimestamp)])
	r.First = milliseconds(m.Attributes[string(types.MessageSystemAttributeNameApproximateFirstReceiveTimestamp)])
	r.DeliveryCount, r.ReceiveCount = 1, 1
	if n, err := strconv.Atoi(m.Attributes[string(types.MessageSystemAttributeNameApproximateReceiveCount)]); err == nil && n > 1 {
		r.DeliveryCount, r.ReceiveCount = n, n
	}
	r.Redelivered = r.DeliveryCount > 1
	text, attrs := value(m.Body), Attributes(m)
	around := envelopeOf(text, attrs)
	if around != nil {
		text, r.Enveloped = *around.Message, true
		inside := around.attributes()
		maps.Copy(inside, attrs) // a copy of the envelope has the current values beside it
		attrs = inside
	}
	r.Wait = ParseMilliseconds(attrs[AttrWait])
	r.WaitsAlone = strings.HasPrefix(m.Attributes[string(types.MessageSystemAttributeNameMessageGroupId)], Waiting)
	r.EnqueuedAt = r.enqueuedAt(attrs)

	switch inHeaders, has := attrs[attrHeaders]; {
	case has:
		r.readRaw(text, inHeaders, attrs)
	case attrs[attrType] != "" || !r.readWrapped(text, attrs):
		r.readForeign(text, attrs)
		if alone := m.MessageAttributes[attrBody].BinaryValue; len(alone) > 0 {
			r.Body = bytes.Clone(alone)
		}
		r.readFacts(around, m.Attributes[string(types.MessageSystemAttributeNameAWSTraceHeader)])
	}
	r.finish(c, queue, m, attrs)
	return r
}

// enqueuedAt returns when the message became available. Any sender can write the
// attributes, so the time is one that is possible: no earlier than
// [Retention] before it was sent, and no later than its first delivery.
func (r *Received) enqueuedAt(attrs map[string]string) time.Time {
	if r.Sent.IsZero() {
		return time.Time{}
	}
	at := r.Sent.Add(ParseMilliseconds(attrs[AttrDelay]))
	if replaced := milliseconds(attrs[AttrEnqueued]); !replaced.IsZero() {
		at = replaced
		if oldest := r.Sent.Add(-Retention); at.Before(oldest) {
			at = oldest
		}
		if at.After(r.Sent) {
			at = r.Sent
		}
	}
	if !r.First.IsZero() && at.After(r.First) {
		at = r.First
	}
	return at
}

// Retention is the longest time for which the service keeps a message.
const Retention = 14 * 24 * time.Hour

// finish reads the parts that all shapes share.
func (r *Received) finish(c *Codec, queue string, m *types.Message, attrs map[string]string) {
	if attrs[AttrWait] == Undelayed {
		r.Malformed = errors.Join(r.Malformed, errors.New("its delay cannot be honoured, because SQS allows no copy of it that waits for the rest; send it with fewer attributes or a smaller body"))
	}
	if text, ok := r.Headers.Lookup(headerPacked); ok {
		h, err := unpacked(text)
		r.Malformed = errors.Join(r.Malformed, err)
		r.Headers = h
	}
	if text, ok := r.Headers.Lookup(headerTimeToBeReceived); ok {
		if d, ok := transport.ParseTimeSpan(text); ok && d > 0 {
			r.TTL = d
		}
		r.Headers.Del(headerTimeToBeReceived)
	}
	if d := ParseMilliseconds(attrs[AttrLives]); d > 0 {
		r.TTL = d
	}
	transport.UnpackHeaders(&r.Incoming)
	r.unescape()
	if n := number(attrs[AttrFailures]); n > 0 && n <= maxFailures {
		r.Headers.Set(headers.Failures, strconv.FormatInt(n, 10))
	}
	if r.GroupKey == "" {
		// A message to a FIFO queue without a group key has a separate group.
		if id := m.Attributes[string(types.MessageSystemAttributeNameMessageGroupId)]; id != "" && !strings.HasPrefix(id, Ungrouped) {
			r.GroupKey = id
		}
	}
	if id := attrs[attrMessageID]; r.ID == "" {
		r.ID, r.IDSent = id, id != ""
	}
	if r.ID == "" {
		r.ID = r.NativeID
	}
	if c.MessageType != nil && r.Headers.Get(headers.MessageTypes) == "" {
		if name := c.MessageType(queue, m); name != "" {
			r.Headers.Set(headers.MessageTypes, name)
		}
	}
}

// maxFailures is more than a message fails.
const maxFailures = 1_000_000

// Failures returns the number of failed attempts at earlier copies of the message.
func (r *Received) Failures() int {
	if n := number(r.Headers.Get(headers.Failures)); n > 0 && n <= maxFailures {
		return int(n)
	}
	return 0
}

// unescape restores the names of the application's headers.
func (r *Received) unescape() {
	for key := range r.Headers.All() {
		if strings.HasPrefix(key, escapedHeader) {
			restored := map[string]string{}
			for key, v := range r.Headers.All() {
				if name := strings.TrimPrefix(key, escapedHeader); name != "" { // a foreign sender's may be
					key = name
				}
				restored[key] = v
			}
			r.Headers = core.HeadersFromMap(restored)
			return
		}
	}
}

func (r *Received) readRaw(text, packed string, attrs map[string]string) {
	h, err := transport.ParseHeadersJSON([]byte(packed))
	if err != nil {
		r.Malformed = fmt.Errorf("the attribute %s: %w", attrHeaders, err)
	}
	r.Headers = h
	r.BodyKey = attrs[attrBodyKey]
	switch {
	case r.BodyKey != "":
	case attrs[attrBody] == bodyEmpty, text == emptyBody:
	case attrs[attrBody] == bodyBase64:
		body, err := decode(text)
		if err != nil {
			r.Malformed = errors.Join(r.Malformed, fmt.Errorf("the body: %w", err))
			body = []byte(text)
		}
		r.Body = body
	default:
		r.Body = []byte(text)
	}
}

// readForeign reads a message of a sender that uses neither format: its body unchanged,
// and its attributes as headers.
func (r *Received) readForeign(text string, attrs map[string]string) {
	h := make(map[string]string, len(attrs)+4)
	for name, v := range attrs {
		switch {
		case name == "" || strings.HasPrefix(name, "Reprise.") || name == attrBodyKey:
		case name == attrType:
			h[headers.MessageTypes] = v
		default:
			h[name] = v
		}
	}
	r.Headers = core.HeadersFromMap(h)
	if r.BodyKey = attrs[attrBodyKey]; r.BodyKey == "" {
		r.Body = []byte(text)
	}
}

// readFacts adds headers with the values that SNS and SQS have beside a foreign message.
func (r *Received) readFacts(around *envelope, trace string) {
	set := func(name, value string) {
		if value != "" && len(value) <= maxFact {
			r.Headers.Set(name, value)
		}
	}
	set(headerTrace, trace)
	if around != nil {
		set(headerSubject, around.Subject)
		set(headerTopic, around.TopicArn)
		set(headerTimestamp, around.Timestamp)
	}
}

// Headers with values of SNS and SQS. None of these values is longer than maxFact bytes: a longer
// one is a sender's.
const (
	headerSubject   = "AmazonSNS.Subject"
	headerTopic     = "AmazonSNS.TopicArn"
	headerTimestamp = "AmazonSNS.Timestamp"
	headerTrace     = "AmazonSQS.AWSTraceHeader"
	maxFact         = 512
)

// readWrapped reads the JSON object that NServiceBus writes, and reports whether the text
// is one.
func (r *Received) readWrapped(text string, attrs map[string]string) bool {
	if h, body, ok := parseWritten(text); ok {
		if !isWrapper(h, attrs) {
			return false
		}
		r.Headers, r.Body = h, body
		return true
	}
	if !strings.HasPrefix(strings.TrimLeft(text, " \t\r\n"), "{") {
		return false
	}
	var w struct {
		Headers   json.RawMessage
		Body      *string
		S3BodyKey *string
	}
	if err := json.Unmarshal([]byte(text), &w); err != nil || len(w.Headers) == 0 || w.Headers[0] != '{' || w.Body == nil && w.S3BodyKey == nil {
		return false
	}
	h, err := transport.ParseHeadersJSON(w.Headers)
	if !isWrapper(h, attrs) {
		return false
	}
	r.Headers = h
	if err != nil {
		r.Malformed = fmt.Errorf("the member Headers: %w", err)
	}
	r.BodyKey = value(w.S3BodyKey)
	if body := value(w.Body); r.BodyKey == "" && body != emptyBody {
		if r.Body, err = decode(body); err != nil {
			r.Malformed = errors.Join(r.Malformed, fmt.Errorf("the member Body is not base64: %w", err))
			r.Body = []byte(text)
		}
	}
	return true
}

// isWrapper reports whether an object with these headers is a message, and not an
// application's object that happens to have the same members.
func isWrapper(h core.Headers, attrs map[string]string) bool {
	_, ours := attrs[attrMessageID]
	return ours || h.Get(headers.MessageID) != "" || h.Get(headerPacked) != ""
}

// wrapperStart is the beginning of a Wrapped message. No envelope of SNS begins with it.
const wrapperStart = `{"Headers":`

// parseWritten reads {"Headers":{...},"Body":"base64"}, the form in which the adapter
// writes nearly every message, in a third of the time that encoding/json needs. It
// returns false for any other text, valid or not.
func parseWritten(text string) (h core.Headers, body []byte, ok bool) {
	if text, ok = strings.CutPrefix(text, wrapperStart); !ok {
		return h, nil, false
	}
	if text, ok = strings.CutSuffix(text, `"}`); !ok {
		return h, nil, false
	}
	encoded := text[strings.LastIndexByte(text, '"')+1:] // base64 has no quotes
	if text, ok = strings.CutSuffix(text[:len(text)-len(encoded)], `,"Body":"`); !ok {
		return h, nil, false
	}
	if strings.IndexByte(encoded, '\r') >= 0 || strings.IndexByte(encoded, '\n') >= 0 { // base64 ignores them, but JSON refuses them
		return h, nil, false
	}
	body, err := decode(encoded)
	if err != nil {
		return h, nil, false
	}
	h, err = transport.ParseHeadersJSON([]byte(text)) // which refuses text after the object
	return h, body, err == nil
}

// FetchBody gets the body of a message that is stored elsewhere, of at most limit bytes, and
// reports whether the store had it. If the body does not exist, the message is malformed;
// after any other error the body may be found the next time.
func (r *Received) FetchBody(ctx context.Context, bodies BodyStore, limit int) (read bool, err error) {
	switch {
	case r.BodyKey == "":
		return false, nil
	case bodies == nil:
		err = errors.New("set Config.Bodies to the store that its sender uses")
	case !isBodyKey(r.BodyKey):
		err = fmt.Errorf("no body has this key of %d bytes, because a key is UTF-8 of at most %d bytes without control characters", len(r.BodyKey), maxBodyKey)
	default:
		var body []byte
		switch body, err = bodies.Get(ctx, r.BodyKey, limit); {
		case err == nil && len(body) <= limit:
			r.Body = body
			return true, nil
		case err == nil:
			err = fmt.Errorf("it has %d bytes, and Config.MaxMessageBytes is %d", len(body), limit)
		case !errors.Is(err, fs.ErrNotExist):
			return false, fmt.Errorf("fetch the body under the key %.200q: %w", r.BodyKey, err)
		}
	}
	r.Malformed = errors.Join(r.Malformed, fmt.Errorf("its body is stored under the key %.200q: %w", r.BodyKey, err))
	return false, nil
}

// maxBodyKey is the longest key of a stored body, in bytes, as in S3.
const maxBodyKey = 1024

func isBodyKey(key string) bool {
	return len(key) <= maxBodyKey && utf8.ValidString(key) && strings.IndexFunc(key, unicode.IsControl) < 0
}

// envelope is the JSON object in which SNS puts a message for a subscription without raw
// delivery.
type envelope struct {
	Type, TopicArn, Subject, Timestamp string
	Message                            *string
	MessageAttributes                  map[string]struct{ Type, Value string }
}

// envelopeOf returns the envelope of SNS that a text is, or nil. SNS writes no attributes beside it,
// and a sender who writes one of these has put its message there.
func envelopeOf(text string, attrs map[string]string) *envelope {
	if !strings.HasPrefix(text, "{") || strings.HasPrefix(text, wrapperStart) || !strings.Contains(text, `"Notification"`) {
		return nil
	}
	for _, name := range [...]string{attrHeaders, attrMessageID, attrType} {
		if _, has := attrs[name]; has {
			return nil
		}
	}
	e := &envelope{}
	if json.Unmarshal([]byte(text), e) != nil || e.Type != "Notification" || e.TopicArn == "" || e.Message == nil {
		return nil
	}
	return e
}

// attributes returns the attributes of the message in the envelope as text.
func (e *envelope) attributes() map[string]string {
	attrs := make(map[string]string, len(e.MessageAttributes))
	for name, a := range e.MessageAttributes {
		attrs[name] = a.Value
		if isBinary(a.Type) {
			if b, err := decode(a.Value); err == nil {
				attrs[name] = textOf(b)
			}
		}
	}
	return attrs
}

// Attributes returns the attributes of a message as text.
func Attributes(m *types.Message) map[string]string {
	attrs := make(map[string]string, len(m.MessageAttributes))
	for name, a := range m.MessageAttributes {
		if a.StringValue != nil {
			attrs[name] = *a.StringValue
		} else {
			attrs[name] = textOf(a.BinaryValue)
		}
	}
	return attrs
}

// isBinary reports whether a type of attributes has bytes. A label may follow the type.
func isBinary(dataType string) bool {
	kind, _, _ := strings.Cut(dataType, ".")
	return kind == "Binary"
}

// textOf returns bytes as text: as they are if they are UTF-8, otherwise in base64.
func textOf(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	return base64.StdEncoding.EncodeToString(b)
}

func decode(text string) ([]byte, error) { return base64.StdEncoding.DecodeString(text) }

func value(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func milliseconds(text string) time.Time {
	n := number(text)
	if n <= 0 {
		return time.Time{}
	}
	return time.UnixMilli(n)
}

// ParseMilliseconds parses milliseconds.
func ParseMilliseconds(text string) time.Duration {
	n := number(text)
	if n <= 0 || n > int64((1<<63-1)/time.Millisecond) {
		return 0
	}
	return time.Duration(n) * time.Millisecond
}

// number returns 0 for a text that is not a number. Most messages have no such attribute,
// and the error of strconv would cost two allocations.
func number(text string) int64 {
	if text == "" {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
