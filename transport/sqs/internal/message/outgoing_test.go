package message

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

// bodies is a store of bodies in memory, which chooses their keys.
type bodies struct {
	stored map[string][]byte
	err    error
}

func (b *bodies) BodyKey(string) string { return `prefix/"1"` }

func (b *bodies) Put(_ context.Context, key string, body []byte) error {
	if b.err == nil {
		b.stored[key] = body
	}
	return b.err
}

func (b *bodies) Get(_ context.Context, key string, _ int) ([]byte, error) {
	body, ok := b.stored[key]
	if b.err == nil && !ok {
		return nil, fs.ErrNotExist
	}
	return body, b.err
}

// asReceived returns an encoded message as the service delivers it.
func asReceived(m *Encoded) *types.Message {
	attrs := map[string]types.MessageAttributeValue{}
	for _, a := range m.Attrs {
		if a.IsBinary() {
			attrs[a.Name] = types.MessageAttributeValue{DataType: &a.Type, BinaryValue: []byte(a.Value)}
		} else {
			attrs[a.Name] = types.MessageAttributeValue{DataType: &a.Type, StringValue: &a.Value}
		}
	}
	return &types.Message{Body: &m.Text, MessageAttributes: attrs, Attributes: map[string]string{"AWSTraceHeader": m.Trace}}
}

func outgoing(body string, pairs ...string) *core.Outgoing {
	out := &core.Outgoing{ID: "m-1", Body: []byte(body), TimeToBeReceived: time.Minute}
	out.Headers.Set(headers.MessageID, "m-1")
	for i := 0; i+1 < len(pairs); i += 2 {
		out.Headers.Set(pairs[i], pairs[i+1])
	}
	return out
}

func TestEncode_RoundTrip(t *testing.T) {
	t.Parallel()
	many := strings.Repeat("\x01", 200) // six times as long in JSON
	for _, raw := range []bool{false, true} {
		for name, c := range map[string]struct {
			out    *core.Outgoing
			limit  int
			stored bool
		}{
			"text":                            {out: outgoing("hello")},
			"no body":                         {out: outgoing("")},
			"the text for no body":            {out: outgoing("empty message")},
			"binary":                          {out: outgoing("\x00\xff")},
			"headers":                         {out: outgoing("hello", "a", `quoted " \ é`)},
			"a header of the adapter":         {out: outgoing("hello", "Reprise.Packed", "x", "Reprise.Escaped.SQS.a", "y")},
			"headers that are long in JSON":   {out: outgoing("hello", "a", many), limit: 900},
			"a body that does not fit":        {out: outgoing(strings.Repeat("x", 1000)), limit: 900, stored: true},
			"a body that is above the choice": {out: outgoing(strings.Repeat("x", 500)), stored: true},
		} {
			t.Run(fmt.Sprintf("raw=%t/%s", raw, name), func(t *testing.T) {
				t.Parallel()
				store := &bodies{stored: map[string][]byte{}}
				codec := &Codec{Raw: raw, Bodies: store, LargeBodies: 500}
				if c.limit == 0 {
					c.limit = 1 << 20
				}
				m, err := codec.Encode(t.Context(), c.out, c.limit, 0, 0)
				if err != nil {
					t.Fatal(err)
				}
				if n := m.Bytes(); n > c.limit {
					t.Errorf("it has %d bytes, and the limit is %d", n, c.limit)
				}
				in := codec.Read("billing", asReceived(m))
				if stored := in.BodyKey != ""; stored != c.stored || len(store.stored) > 0 != c.stored {
					t.Errorf("the body has the key %q", in.BodyKey)
				}
				if read, err := in.FetchBody(t.Context(), store, 1000); err != nil || read != c.stored {
					t.Fatalf("the body is read: %v, %v", read, err)
				}
				if in.Malformed != nil || in.ID != "m-1" || !bytes.Equal(in.Body, c.out.Body) || in.TTL != time.Minute {
					t.Errorf("read %+v", in)
				}
				for key, value := range c.out.Headers.All() {
					if got := in.Headers.Get(key); got != value {
						t.Errorf("the header %q is %q, want %q", key, got, value)
					}
				}
			})
		}
	}
}

func TestEncode_RefusesMessages(t *testing.T) {
	t.Parallel()
	broken := errors.New("disk full")
	large := outgoing(strings.Repeat("x", 1000))
	if _, err := (&Codec{}).Encode(t.Context(), large, 900, 0, 0); !errors.Is(err, core.ErrTooLarge) {
		t.Errorf("without a store: %v", err)
	}
	store := &bodies{stored: map[string][]byte{}}
	if _, err := (&Codec{Bodies: store}).Encode(t.Context(), outgoing("x", "a", strings.Repeat("x", 1000)), 900, 0, 0); !errors.Is(err, core.ErrTooLarge) {
		t.Errorf("with headers that are too large: %v", err)
	}
	store.err = broken
	_, err := (&Codec{Bodies: store}).Encode(t.Context(), large, 900, 0, 0)
	if _, ok := errors.AsType[*StoreError](err); !ok || !errors.Is(err, broken) {
		t.Errorf("with a store that fails: %v", err)
	}
}

const (
	wrapperText  = `{"Headers":{"NServiceBus.MessageId":"m-1"},"Body":"aGVsbG8="}`
	envelopeText = `{"Type":"Notification","TopicArn":"arn","Message":"hello"}`
)

// A message that does not fit in its format is written in another one.
func TestEncode_LastForms(t *testing.T) {
	t.Parallel()
	const limit, reserved = 1500, 200
	x := strings.Repeat("x", 1000)
	attribute := func(b string) *Encoded {
		return &Encoded{Text: "-", Attrs: []Attr{{attrBody, b, "Binary"}}}
	}
	bare := func(body string) *core.Outgoing {
		return &core.Outgoing{ID: "m-1", Body: []byte(body), Reason: core.ReasonMoveToError}
	}
	with := func(out *core.Outgoing, change func(*core.Outgoing)) *core.Outgoing {
		change(out)
		return out
	}
	for name, c := range map[string]struct {
		out  *core.Outgoing
		raw  bool     // it is written Raw
		want *Encoded // if not nil
		fits bool
	}{
		"a third more would fit":           {out: outgoing(x[:700]), fits: true},
		"text":                             {out: outgoing(x), raw: true, fits: true},
		"text of an application's object":  {out: outgoing(`{"Headers":{},"Body":"` + x + `"}`), raw: true, fits: true},
		"text that begins as an envelope":  {out: outgoing(envelopeText + x), raw: true, fits: true},
		"an envelope":                      {out: outgoing(envelopeText + strings.Repeat(" ", 900)), raw: true, fits: true},
		"a wrapper":                        {out: outgoing(wrapperText + strings.Repeat(" ", 900)), raw: true, fits: true},
		"text and long headers":            {out: outgoing(x, "a", strings.Repeat("\x01", 60)), raw: true, fits: true},
		"binary":                           {out: outgoing("\xff" + x)},
		"text and no room for its headers": {out: outgoing(strings.Repeat("x", limit-reserved-100))},

		"no headers":               {out: bare(x[:900]), fits: true},
		"no headers, Raw":          {out: bare(x), raw: true, fits: true},
		"the body alone":           {out: bare(strings.Repeat("x", limit)), want: &Encoded{Text: strings.Repeat("x", limit)}, fits: true},
		"one byte more":            {out: bare(strings.Repeat("x", limit+1))},
		"a wrapper alone":          {out: bare(strings.Repeat(" ", 1400) + wrapperText), want: attribute(strings.Repeat(" ", 1400) + wrapperText), fits: true},
		"an envelope alone":        {out: bare(envelopeText + strings.Repeat(" ", 1400)), want: attribute(envelopeText + strings.Repeat(" ", 1400)), fits: true},
		"binary alone":             {out: bare("\x00" + strings.Repeat("x", 1400)), want: attribute("\x00" + strings.Repeat("x", 1400)), fits: true},
		"binary, one byte more":    {out: bare("\x00" + strings.Repeat("x", limit-19))},
		"an application's message": {out: with(bare(strings.Repeat("x", limit)), func(out *core.Outgoing) { out.Reason = core.ReasonApplication })},
		"a delayed copy":           {out: with(bare(strings.Repeat("x", limit)), func(out *core.Outgoing) { out.Delay = time.Second })},
		"a copy of a group":        {out: with(bare(strings.Repeat("x", limit)), func(out *core.Outgoing) { out.GroupKey = "g" })},
		"a copy with a property":   {out: with(bare(strings.Repeat("x", limit)), func(out *core.Outgoing) { out.Properties = map[string]string{"a": "b"} })},
		"a copy with a header":     {out: with(bare(strings.Repeat("x", limit)), func(out *core.Outgoing) { out.Headers.Set("a", "b") })},
	} {
		codec := &Codec{}
		m, err := codec.Encode(t.Context(), c.out, limit, reserved, 0)
		if !c.fits {
			if large, ok := errors.AsType[*core.TooLargeError](err); !ok || large.Size <= large.Max {
				t.Errorf("%s: the error is %v", name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		bound := limit - reserved
		if c.want != nil {
			bound = limit
			if m.Text != c.want.Text || !slices.Equal(m.Attrs, c.want.Attrs) {
				t.Errorf("%s: it is written as %.100q with %.100v", name, m.Text, m.Attrs)
			}
		} else if raw := slices.ContainsFunc(m.Attrs, func(a Attr) bool { return a.Name == attrHeaders }); raw != c.raw {
			t.Errorf("%s: Raw: %t", name, raw)
		}
		in := codec.Read("error", asReceived(m))
		if m.Bytes() > bound || in.Malformed != nil || in.Enveloped || !bytes.Equal(in.Body, c.out.Body) || !maps.Equal(in.Headers.Map(), c.out.Headers.Map()) {
			t.Errorf("%s: %d bytes are read as %.100q with %q, malformed: %v", name, m.Bytes(), in.Body, in.Headers.Map(), in.Malformed)
		}
	}
}

// The receivers know the store of bodies, but perhaps not Raw.
func TestEncode_StoreBeforeOtherFormats(t *testing.T) {
	t.Parallel()
	store := &bodies{stored: map[string][]byte{}}
	codec := &Codec{Bodies: store}
	for _, out := range []*core.Outgoing{outgoing(strings.Repeat("x", 1000)), {ID: "m-1", Body: bytes.Repeat([]byte("x"), 1300), Reason: core.ReasonMoveToError}} {
		m, err := codec.Encode(t.Context(), out, 1300, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		in := codec.Read("billing", asReceived(m))
		if in.BodyKey == "" || !strings.HasPrefix(m.Text, wrapperStart) || in.ID != "m-1" {
			t.Errorf("it is written as %.100q with %.100v", m.Text, m.Attrs)
		}
	}
}

func TestFetchBody_Fails(t *testing.T) {
	t.Parallel()
	broken := errors.New("timeout")
	stored := &bodies{stored: map[string][]byte{"key": []byte("0123456789"), "a\nb": {}, "\xff": {}, strings.Repeat("k", 1025): {}}}
	for name, c := range map[string]struct {
		store     BodyStore
		key       string
		malformed string // in the error; "": it is not malformed
		err       error
	}{
		"no store":                     {key: "key", malformed: "set Config.Bodies"},
		"no body":                      {store: &bodies{}, key: "key", malformed: "not exist"},
		"the store is down":            {store: &bodies{err: broken}, key: "key", err: broken},
		"a body above the limit":       {store: stored, key: "key", malformed: "it has 10 bytes, and Config.MaxMessageBytes is 9"},
		"a key that is too long":       {store: stored, key: strings.Repeat("k", 1025), malformed: "1025 bytes"},
		"a key of a control character": {store: stored, key: "a\nb", malformed: "control"},
		"a key that is not UTF-8":      {store: stored, key: "\xff", malformed: "UTF-8"},
	} {
		in := &Received{BodyKey: c.key}
		read, err := in.FetchBody(t.Context(), c.store, 9)
		if read || !errors.Is(err, c.err) || (in.Malformed != nil) != (c.malformed != "") {
			t.Errorf("%s: read: %v, %v, malformed: %v", name, read, err, in.Malformed)
			continue
		}
		if in.Malformed != nil && (!strings.Contains(in.Malformed.Error(), c.malformed) || len(in.Malformed.Error()) > 1000) {
			t.Errorf("%s: malformed: %v", name, in.Malformed)
		}
	}
}

func TestGroupID(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ key, want string }{
		{"customer-7", "customer-7"},
		{strings.Repeat("x", 128), strings.Repeat("x", 128)},
		{strings.Repeat("x", 129), "sha256-"},
		{"with space", "sha256-"},
		{"é", "sha256-"},
	} {
		if got := GroupID(c.key); !strings.HasPrefix(got, c.want) || len(got) > 128 {
			t.Errorf("%q: %q, want %q", c.key, got, c.want)
		}
	}
}

func TestTimeSpan_IsThatOfNET(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		90 * time.Second:                       "00:01:30",
		49*time.Hour + 100*time.Nanosecond:     "2.01:00:00.0000001",
		time.Nanosecond:                        "00:00:00.0000001",
		23*time.Hour + 1500*time.Millisecond:   "23:00:01.5000000",
		24*time.Hour - 100*time.Nanosecond + 1: "1.00:00:00",
	} {
		if got := timeSpan(d); got != want {
			t.Errorf("%d: %s, want %s", d, got, want)
		}
	}
}
