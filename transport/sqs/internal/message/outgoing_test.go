package message

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
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
		attrs[a.Name] = types.MessageAttributeValue{StringValue: &a.Value}
	}
	return &types.Message{Body: &m.Text, MessageAttributes: attrs}
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
				m, err := codec.Encode(t.Context(), c.out, c.limit)
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
	if _, err := (&Codec{}).Encode(t.Context(), large, 900); !errors.Is(err, core.ErrTooLarge) {
		t.Errorf("without a store: %v", err)
	}
	store := &bodies{stored: map[string][]byte{}}
	if _, err := (&Codec{Bodies: store}).Encode(t.Context(), outgoing("x", "a", strings.Repeat("x", 1000)), 900); !errors.Is(err, core.ErrTooLarge) {
		t.Errorf("with headers that are too large: %v", err)
	}
	store.err = broken
	_, err := (&Codec{Bodies: store}).Encode(t.Context(), large, 900)
	if _, ok := errors.AsType[*StoreError](err); !ok || !errors.Is(err, broken) {
		t.Errorf("with a store that fails: %v", err)
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
