package message

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
)

// Attributes of messages. Those that begin with NServiceBus, and S3BodyKey, are
// NServiceBus's, so that its endpoints and ours understand each other.
const (
	attrMessageID    = "NServiceBus.MessageId"
	attrHeaders      = "NServiceBus.AmazonSQS.Headers"      // JSON, in a Raw message
	AttrDelaySeconds = "NServiceBus.AmazonSQS.DelaySeconds" // in a queue of long delays
	attrType         = "MessageTypeFullName"                // of a foreign message
	attrBodyKey      = "S3BodyKey"                          // of a Raw message whose body is stored

	attrBody     = "Reprise.Body"     // encoding of a Raw message's body; absent: unchanged; binary: the body itself
	AttrDelay    = "Reprise.Delay"    // milliseconds by which SQS delays the message itself
	AttrWait     = "Reprise.Wait"     // milliseconds for which the receiver has to delay it
	AttrFailures = "Reprise.Failures" // header of that name of a copy
	AttrEnqueued = "Reprise.Enqueued" // when the copy that this one replaced became available, in milliseconds since 1970
	AttrLives    = "Reprise.Lives"    // milliseconds of TimeToBeReceived left when it was forwarded
	AttrDue      = "Reprise.Due"      // by the service's clock, in milliseconds since 1970, in a queue of long delays
)

// Headers that the adapter adds to a Wrapped message.
const (
	headerTimeToBeReceived = "NServiceBus.AmazonSQS.TimeToBeReceived"
	// headerPacked carries all headers, if they would be longer as JSON than the service
	// allows.
	headerPacked = "Reprise.Packed"
	// escapedHeader is put before an application's header name that would be taken for
	// one of these.
	escapedHeader = "Reprise.Escaped.SQS."
)

// emptyBody is NServiceBus's text for an empty body, since the service has no empty messages.
const emptyBody = "empty message"

// Ungrouped is the prefix of the group of a message to a FIFO queue without a group key.
// Waiting is that of the group in which a message alone waits until it is due.
const (
	Ungrouped = "reprise-ungrouped-"
	Waiting   = Ungrouped + "waiting-"
)

// Undelayed is the value of AttrWait in a copy that is delivered early as a malformed
// message. It is no longer than any other value, so that the copy is no larger.
const Undelayed = "-"

const (
	bodyBase64 = "base64"
	bodyEmpty  = "empty"
)

// Encoded is a message in the form that the service gets.
type Encoded struct {
	Text  string
	Attrs []Attr
	Trace string // AWSTraceHeader, which counts as nothing
	raw   bool
}

// Attr is an attribute. Its value is a string or, for a binary type, bytes.
type Attr struct{ Name, Value, Type string }

// IsBinary reports whether the value is bytes.
func (a *Attr) IsBinary() bool { return isBinary(a.Type) }

// Bytes returns the size of the message as the service counts it.
func (m *Encoded) Bytes() int {
	n := len(m.Text)
	for _, a := range m.Attrs {
		n += a.bytes()
	}
	return n
}

// bytes returns the size of the attribute as the service counts it.
func (a *Attr) bytes() int { return len(a.Name) + len(a.Value) + len(a.Type) }

// Add adds an attribute.
func (m *Encoded) Add(name, value string) { m.Attrs = append(m.Attrs, Attr{name, value, "String"}) }

// Encode writes a message in at most limit bytes, of which reserved are left for further attributes, as many as
// later.
//
// A copy of a received message has the form in which that came, if it was a raw text, and its sender's
// attributes, as far as the limits of bytes and attributes allow. The headers have all of them, as text.
//
// If the message does not fit in the format of the codec, its body goes to the store of bodies: all receivers know the
// store, and it changes nothing else. Without a store, text is Raw, which some readers of Wrapped may not know, but
// base64 needs a third more. A copy without headers has the last form, that of bodyAlone.
func (c *Codec) Encode(ctx context.Context, out *core.Outgoing, limit, reserved, later int) (*Encoded, error) {
	from := sourceOf(out)
	headers, room, size := outgoingHeaders(out), limit-reserved, math.MaxInt
	fitting := func(raw bool, bodyKey string) *Encoded {
		body := len(out.Body)
		if !raw {
			body = base64.StdEncoding.EncodedLen(body)
		}
		if bodyKey == "" && body > room { // nothing is written in vain
			size = min(size, body+headers.Bytes())
			return nil
		}
		m := write(out, headers, raw, bodyKey)
		size = min(size, m.Bytes())
		if m.Bytes() > room && headers.Len() > 0 { // a control character, and an empty header, take six bytes in JSON
			m = write(out, packed(headers), raw, bodyKey)
			size = min(size, m.Bytes())
		}
		if m.Bytes() > room {
			return nil
		}
		from.keep(m, MaxAttributes-later, room)
		return m
	}
	if c.Bodies == nil || c.LargeBodies == 0 || len(out.Body) < c.LargeBodies {
		if m := fitting(c.rawCopy(out, from), ""); m != nil {
			return m, nil
		}
	}
	if c.Bodies != nil {
		key := c.Bodies.BodyKey(rand.Text())
		m := fitting(c.Raw, key)
		if m == nil {
			return nil, tooLarge(size, room)
		}
		if err := c.Bodies.Put(ctx, key, out.Body); err != nil {
			return nil, fmt.Errorf("store the body of %d bytes, which is too large for the message: %w", len(out.Body), &StoreError{err})
		}
		return m, nil
	}
	if !c.Raw && isText(out.Body) {
		if m := fitting(true, ""); m != nil {
			return m, nil
		}
	}
	if out.Reason.IsCopy() && out.Headers.Len() == 0 && out.GroupKey == "" && len(out.Properties) == 0 && out.TimeToBeReceived == 0 && out.Delay == 0 {
		if m := bodyAlone(out.Body); m.Bytes() <= limit {
			return m, nil
		}
	}
	return nil, tooLarge(size, room)
}

// bodyAlone returns a message that has only a body, and is no larger than any message that is read with this body: text
// without attributes, as a foreign sender writes it, or else an attribute.
func bodyAlone(body []byte) *Encoded {
	if len(body) > 0 && isText(body) {
		text := string(body)
		if in := (&Codec{}).Read("", &types.Message{Body: &text}); bytes.Equal(in.Body, body) {
			return &Encoded{Text: text}
		}
	}
	return &Encoded{Text: "-", Attrs: []Attr{{attrBody, string(body), "Binary"}}}
}

// StoreError is an error of Config.Bodies. If the store is an Amazon service too, the
// codes of its errors do not concern queues and topics.
type StoreError struct{ error }

// Unwrap returns the error of the store.
func (e *StoreError) Unwrap() error { return e.error }

func tooLarge(size, limit int) error {
	return fmt.Errorf("%w; as the service counts it, with attributes and in base64", &core.TooLargeError{Limit: "the service's limit of a message", Max: limit, Size: size})
}

// write writes a message with these headers, Raw or Wrapped. If bodyKey is set, the body is
// stored elsewhere.
func write(out *core.Outgoing, headers core.Headers, raw bool, bodyKey string) *Encoded {
	m := &Encoded{Attrs: make([]Attr, 0, 4), raw: raw}
	m.Add(attrMessageID, attributeText(out.ID))
	if raw {
		m.Add(attrHeaders, string(transport.AppendHeadersJSON(nil, headers)))
		switch {
		case bodyKey != "":
			m.Add(attrBodyKey, bodyKey)
			m.Text = emptyBody
		case len(out.Body) == 0:
			m.Add(attrBody, bodyEmpty)
			m.Text = emptyBody
		case string(out.Body) != emptyBody && isText(out.Body):
			m.Text = string(out.Body)
		default:
			m.Add(attrBody, bodyBase64)
			m.Text = base64.StdEncoding.EncodeToString(out.Body)
		}
		return m
	}
	var b bytes.Buffer
	b.Grow(64 + headers.Bytes()*5/4 + base64.StdEncoding.EncodedLen(len(out.Body)))
	b.WriteString(`{"Headers":`)
	b.Write(transport.AppendHeadersJSON(b.AvailableBuffer(), headers))
	b.WriteString(`,"Body":"`)
	switch {
	case bodyKey != "":
		b.WriteString(`","S3BodyKey":"`)
		b.WriteString(escapedJSON(bodyKey))
	case len(out.Body) == 0:
		b.WriteString(emptyBody)
	default:
		b.Write(base64.StdEncoding.AppendEncode(b.AvailableBuffer(), out.Body))
	}
	b.WriteString(`"}`)
	m.Text = b.String()
	return m
}

// escapedJSON returns a text in the form that it has between the quotes of a JSON string.
func escapedJSON(s string) string {
	quoted, err := json.Marshal(s)
	if err != nil {
		return "" // encoding/json encodes every string
	}
	return string(quoted[1 : len(quoted)-1])
}

// outgoingHeaders returns the headers to write: those of the message and its fields that
// SQS does not have. Names that would be taken for the adapter's are escaped.
func outgoingHeaders(out *core.Outgoing) core.Headers {
	copied := *out
	for key := range out.Headers.All() {
		if isOurs(key) {
			copied.Headers = escaped(out.Headers)
			break
		}
	}
	h := transport.PackHeaders(&copied)
	if out.TimeToBeReceived > 0 {
		h.Set(headerTimeToBeReceived, timeSpan(out.TimeToBeReceived))
	}
	return h
}

// escaped returns the headers with other names for those that would be taken for the
// adapter's.
func escaped(h core.Headers) core.Headers {
	m := make(map[string]string, h.Len())
	for key, value := range h.All() {
		if isOurs(key) {
			key = escapedHeader + key
		}
		m[key] = value
	}
	return core.HeadersFromMap(m)
}

// isOurs reports whether an application's header would be taken for one of the adapter's.
func isOurs(key string) bool {
	return key == headerTimeToBeReceived || key == headerPacked || strings.HasPrefix(key, escapedHeader)
}

// packed returns headers that carry others in base64.
func packed(h core.Headers) core.Headers {
	var b []byte
	for key, value := range h.All() {
		b = binary.AppendUvarint(b, uint64(len(key)))
		b = append(b, key...)
		b = binary.AppendUvarint(b, uint64(len(value)))
		b = append(b, value...)
	}
	var carrier core.Headers
	carrier.Set(headerPacked, base64.StdEncoding.EncodeToString(b))
	return carrier
}

// unpacked returns the headers in a text that packed wrote.
func unpacked(text string) (core.Headers, error) {
	var h core.Headers
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return h, fmt.Errorf("the header %s: %w", headerPacked, err)
	}
	next := func() (string, bool) {
		n, size := binary.Uvarint(b)
		if size <= 0 || n > uint64(len(b)-size) {
			return "", false
		}
		s := string(b[size : size+int(n)])
		b = b[size+int(n):]
		return s, true
	}
	m := map[string]string{}
	for len(b) > 0 {
		key, ok := next()
		value, ok2 := next()
		if !ok || !ok2 || key == "" || !utf8.ValidString(key) || !utf8.ValidString(value) {
			return core.HeadersFromMap(m), fmt.Errorf("the header %s ends in the middle of a header, or has one that is not UTF-8", headerPacked)
		}
		m[key] = value
	}
	return core.HeadersFromMap(m), nil
}

// isText reports whether the service accepts a body unchanged: #x9 | #xA | #xD | #x20 to
// #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF (SendMessage, MessageBody).
func isText(body []byte) bool {
	if !utf8.Valid(body) {
		return false
	}
	for _, r := range string(body) {
		if !isCharacter(r) {
			return false
		}
	}
	return true
}

func isCharacter(r rune) bool {
	return r == '\t' || r == '\n' || r == '\r' || r >= ' ' && r != 0xFFFE && r != 0xFFFF
}

// attributeText returns a text as the value of an attribute, for people to read: the
// complete text is among the headers.
func attributeText(s string) string {
	s = strings.Map(func(r rune) rune {
		if !isCharacter(r) {
			return '?'
		}
		return r
	}, s)
	const limit = 256
	if len(s) > limit {
		s = strings.ToValidUTF8(s[:limit], "")
	}
	if s == "" {
		return "-"
	}
	return s
}

// GroupID returns a MessageGroupId for a group: the name itself if the service accepts it
// (letters, digits and punctuation, at most 128) and it is not one of the adapter's own,
// else its hash.
func GroupID(key string) string {
	const limit = 128
	if len(key) <= limit && !strings.HasPrefix(key, Ungrouped) {
		plain := true
		for i := range len(key) {
			if key[i] <= ' ' || key[i] > '~' {
				plain = false
				break
			}
		}
		if plain {
			return key
		}
	}
	sum := sha256.Sum256([]byte(key))
	return "sha256-" + hex.EncodeToString(sum[:])
}

// timeSpan formats a duration as .NET does: [d.]hh:mm:ss[.fffffff].
func timeSpan(d time.Duration) string {
	const tick = 100 * time.Nanosecond
	d = (d + tick - 1).Truncate(tick)
	var b strings.Builder
	if days := d / (24 * time.Hour); days > 0 {
		b.WriteString(strconv.FormatInt(int64(days), 10))
		b.WriteByte('.')
		d %= 24 * time.Hour
	}
	fmt.Fprintf(&b, "%02d:%02d:%02d", d/time.Hour, d/time.Minute%60, d/time.Second%60)
	if ticks := d % time.Second / tick; ticks > 0 {
		fmt.Fprintf(&b, ".%07d", ticks)
	}
	return b.String()
}
