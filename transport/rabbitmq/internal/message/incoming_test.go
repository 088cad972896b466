package message

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/delays"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/header"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/names"
)

// delivered returns a publishing as it arrives.
func delivered(p *amqp.Publishing, exchange string) *amqp.Delivery {
	return &amqp.Delivery{
		Acknowledger: &amqp.Channel{}, Headers: maps.Clone(p.Headers), ContentType: p.ContentType, DeliveryMode: p.DeliveryMode,
		CorrelationId: p.CorrelationId, ReplyTo: p.ReplyTo, Expiration: p.Expiration, MessageId: p.MessageId, Timestamp: p.Timestamp, Type: p.Type,
		ContentEncoding: p.ContentEncoding, Priority: p.Priority, AppId: p.AppId, UserId: p.UserId, Exchange: exchange, Body: p.Body,
	}
}

// No header is added or missing.
func TestIncoming_OwnMessagesArriveAsSent(t *testing.T) {
	t.Parallel()
	f := NewFormat(Config{MessageType: func(string, *amqp.Delivery) string { return "none of ours" }})
	for name, out := range map[string]core.Outgoing{
		"standard":    standard(),
		"nothing":     {Queue: "billing"},
		"an id alone": {Queue: "billing", ID: "m1"},
		"late":        {Queue: "billing", ID: "m1", Headers: pairs(headers.MessageID, "m1"), Delay: time.Minute},
		"many":        {Queue: "billing", Headers: headersOf(1000, "v")},
		"awkward": {Queue: "billing", Headers: pairs(
			"CC", "a", "BCC", "b", "x-death", "c", "x-delivery-count", "d", "x-acquired-count", "e", "x-last-death-queue", "f", "Reprise.CopyID", "g@billing",
			"Reprise.Header.", "h", "Reprise.Header.CC", "i", "Reprise.Header.Reprise.Header.x", "j", header.Delay, "k", header.Confirmation, "l", header.Sequence, "m",
			"\x00", "\x00", "Örder ✓", "\uFFFD", "empty", "", callbackHeader, "n",
		)},
	} {
		for exchange, queue := range map[string]string{"": "billing", delays.Level(3): "billing", delays.DeliveryExchange: "billing", "topic:orders": "", "amq.topic": ""} {
			out := out
			if queue == "" {
				out.Queue, out.Topic = "", "orders"
			}
			p, err := f.Publishing(&out, "c1")
			if err != nil {
				t.Fatal(err)
			}
			d := delivered(&p, exchange)
			var in core.Incoming
			f.Incoming(d, "billing", &in)
			if in.Malformed != nil || !maps.Equal(in.Headers.Map(), out.Headers.Map()) {
				t.Errorf("%s by %q: %v, %v, want %v", name, exchange, in.Headers.Map(), in.Malformed, out.Headers.Map())
			}
			if in.NativeID != "c1@billing" {
				t.Errorf("%s by %q: the NativeID is %q", name, exchange, in.NativeID)
			}
			if in.ID != out.ID || string(in.Body) != string(out.Body) {
				t.Errorf("%s by %q: ID %q, body %q", name, exchange, in.ID, in.Body)
			}
			if in.Native != d || d.Acknowledger != nil {
				t.Errorf("%s by %q: Native is %v", name, exchange, in.Native)
			}
		}
	}
}

// A message has a NativeID only where it is certain which copy it is.
func TestIncoming_Copies(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ marked, exchange, want string }{
		{"c1@billing", "", "c1@billing"},
		{"c1@billing", "billing", "c1@billing"},
		{"c1@billing", "nsb.v2.delay-delivery", "c1@billing"},
		{"c1@error", "", ""}, // sent again from the error queue, headers and all
		{"c1@sales.billing", "", ""},
		{"c1", "topic:orders", "c1@billing"},
		{"c1", "amq.topic", "c1@billing"},
		{"c1", "nsb.v2.delay-level-00", "c1@billing"},
		{"c1", "", ""},
		{"c1", "billing", ""},
		{"", "", ""},
		{"@billing", "", ""},
		{"c1@", "topic:orders", ""},
	} {
		if got := nativeID(c.marked, c.exchange, "billing"); got != c.want {
			t.Errorf("%q by %q: %q, want %q", c.marked, c.exchange, got, c.want)
		}
	}
}

func TestIncoming_ForeignMessages(t *testing.T) {
	t.Parallel()
	const queue = "billing"
	f := NewFormat(Config{MessageType: func(queue string, d *amqp.Delivery) string { return "typeOf " + queue + " " + d.AppId }})
	for name, c := range map[string]struct {
		d    amqp.Delivery
		id   string
		want map[string]string
	}{
		"properties": {
			amqp.Delivery{MessageId: "m1", CorrelationId: "c", ReplyTo: "r", ContentType: "text/plain", Type: "T"}, "m1",
			map[string]string{headers.MessageID: "m1", headers.CorrelationID: "c", headers.ReplyToAddress: "r", headers.ContentType: "text/plain", headers.MessageTypes: "T"},
		},
		"headers count more": {
			amqp.Delivery{MessageId: "m1", CorrelationId: "c", ReplyTo: "r", ContentType: "text/plain", Type: "T", Headers: amqp.Table{
				headers.MessageID: "m2", headers.CorrelationID: "", headers.ReplyToAddress: "s", headers.ContentType: "text/html", headers.MessageTypes: "U",
			}}, "m2",
			map[string]string{headers.MessageID: "m2", headers.CorrelationID: "", headers.ReplyToAddress: "s", headers.ContentType: "text/html", headers.MessageTypes: "U"},
		},
		"the callback queue": {
			amqp.Delivery{MessageId: "m1", ReplyTo: "r", Type: "T", Headers: amqp.Table{callbackHeader: "cb", headers.ReplyToAddress: "s"}}, "m1",
			map[string]string{headers.MessageID: "m1", callbackHeader: "cb", headers.ReplyToAddress: "cb", headers.MessageTypes: "T"},
		},
		"a type by configuration": {
			amqp.Delivery{MessageId: "m1", AppId: "app"}, "m1",
			map[string]string{headers.MessageID: "m1", headers.MessageTypes: "typeOf billing app"},
		},
		"headers that brokers and clients add": {
			amqp.Delivery{MessageId: "m1", Type: "T", Headers: amqp.Table{
				"x-death": []any{amqp.Table{"count": int64(1)}}, "x-first-death-exchange": "", "x-first-death-queue": "q", "x-first-death-reason": "expired",
				"x-last-death-exchange": "", "x-last-death-queue": "q", "x-last-death-reason": "rejected", "x-delivery-count": int64(3), "x-acquired-count": int64(4),
				header.Delay: int32(5), header.Confirmation: "6", header.Sequence: []byte("7"), "x-other": int32(8), "CC": []any{"a", "b"},
			}}, "m1",
			map[string]string{headers.MessageID: "m1", headers.MessageTypes: "T", "x-other": "8", "CC": "a;b"},
		},
		"of ours, sent again by somebody": {
			amqp.Delivery{MessageId: "m1", Type: "T", Headers: amqp.Table{header.CopyID: "c1@error", "Reprise.Header.CC": "a", "k": "v"}}, "m1",
			map[string]string{headers.MessageID: "m1", headers.MessageTypes: "T", "CC": "a", "k": "v"},
		},
		"escaped by nobody": {
			amqp.Delivery{MessageId: "m1", Type: "T", Headers: amqp.Table{"Reprise.Header.CC": "a"}}, "m1",
			map[string]string{headers.MessageID: "m1", headers.MessageTypes: "T", "Reprise.Header.CC": "a"},
		},
	} {
		var in core.Incoming
		f.Incoming(&c.d, queue, &in)
		if in.Malformed != nil || !maps.Equal(in.Headers.Map(), c.want) {
			t.Errorf("%s: %v, %v, want %v", name, in.Headers.Map(), in.Malformed, c.want)
		}
		if in.ID != c.id || in.NativeID != "" {
			t.Errorf("%s: ID %q, NativeID %q", name, in.ID, in.NativeID)
		}
	}
	var in core.Incoming
	NewFormat(Config{}).Incoming(&amqp.Delivery{Body: []byte("a")}, queue, &in)
	if in.ID != "" || in.IDSent || in.Headers.Len() != 0 {
		t.Errorf("a message without anything: %q, %t, %v", in.ID, in.IDSent, in.Headers.Map())
	}
}

func TestIncoming_MalformedMessages(t *testing.T) {
	t.Parallel()
	f := NewFormat(Config{})
	for name, c := range map[string]struct {
		d    amqp.Delivery
		says string
		want map[string]string
	}{
		"an empty key":         {amqp.Delivery{Headers: amqp.Table{"": "v", "k": "v"}}, "a key is empty", map[string]string{"k": "v"}},
		"a value":              {amqp.Delivery{Headers: amqp.Table{"bad": "a\xff", "k": "v"}}, `"bad"`, map[string]string{"bad": "a\uFFFD", "k": "v"}},
		"a key":                {amqp.Delivery{Headers: amqp.Table{"\xff": "a", "k": "v"}}, `"\xff"`, map[string]string{"\uFFFD": "a", "k": "v"}},
		"deep in a table":      {amqp.Delivery{Headers: amqp.Table{"t": []any{amqp.Table{"a": "\xff"}}, "k": "v"}}, `"t"`, map[string]string{"t": "a=\uFFFD", "k": "v"}},
		"a property":           {amqp.Delivery{Type: "T\xff", Headers: amqp.Table{"k": "v"}}, "type is not UTF-8", map[string]string{headers.MessageTypes: "T\uFFFD", "k": "v"}},
		"the first of several": {amqp.Delivery{Headers: amqp.Table{"b": "\xff", "a": "\xff", "c": "\xff"}}, `"a"`, map[string]string{"a": "\uFFFD", "b": "\uFFFD", "c": "\uFFFD"}},
		"bytes are text":       {amqp.Delivery{Headers: amqp.Table{"b": []byte("\xff")}}, "", map[string]string{"b": "/w=="}},
	} {
		var in core.Incoming
		c.d.Body = []byte("body")
		f.Incoming(&c.d, "billing", &in)
		switch {
		case c.says == "":
			if in.Malformed != nil {
				t.Errorf("%s: %v", name, in.Malformed)
			}
		case in.Malformed == nil || !errors.Is(in.Malformed, core.ErrInvalidHeader) || !strings.Contains(in.Malformed.Error(), c.says):
			t.Errorf("%s: %v does not say %s", name, in.Malformed, c.says)
		}
		if !maps.Equal(in.Headers.Map(), c.want) || string(in.Body) != "body" {
			t.Errorf("%s: %v, %q, want %v", name, in.Headers.Map(), in.Body, c.want)
		}
	}
	var in core.Incoming
	f.Incoming(&amqp.Delivery{MessageId: "m\xff", Headers: amqp.Table{header.CopyID: "c1@billing", "bad": "\xff"}}, "billing", &in)
	if in.NativeID != "c1@billing" || in.ID != "m\uFFFD" || in.Malformed == nil {
		t.Errorf("one of ours: ID %q, NativeID %q, %v", in.ID, in.NativeID, in.Malformed)
	}
}

func TestIncoming_DeliveryCount(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		header      any
		redelivered bool
		want        int
	}{
		{nil, false, 1},
		{nil, true, 1},
		{int64(0), false, 1},
		{int64(1), true, 2},
		{int32(7), true, 8},
		{byte(7), true, 8},
		{int64(9), false, 1}, // its sender's
		{int64(-9), true, 1},
		{int64(math.MaxInt64), true, math.MaxInt32},
		{"7", true, 1},
	} {
		d := amqp.Delivery{Redelivered: c.redelivered}
		if c.header != nil {
			d.Headers = amqp.Table{"x-delivery-count": c.header}
		}
		if got := DeliveryCount(&d); got != c.want {
			t.Errorf("%T %v, redelivered %v: %d, want %d", c.header, c.header, c.redelivered, got, c.want)
		}
	}
}

// A sender's times are used as far as they are possible: a message that the broker delivers has
// not expired, and was not sent in the future.
func TestIncoming_ExpiresAt(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(d time.Duration) int64 { return now.Add(d).UnixMilli() }
	sent := func(ago time.Duration) string { return headers.FormatTime(now.Add(-ago)) }
	deaths := func(queues ...string) (list []any) {
		for _, queue := range queues {
			list = append(list, amqp.Table{"queue": queue, "reason": "expired"})
		}
		return list
	}
	const never = -1
	for name, c := range map[string]struct {
		expiration string
		timestamp  time.Time
		table      amqp.Table
		want       time.Duration // from now
	}{
		"no end":                            {"", time.Time{}, nil, never},
		"no end, and a time of sending":     {"", now, amqp.Table{headers.TimeSent: sent(0)}, never},
		"ours":                              {"10000", now, amqp.Table{header.ExpiresAt: at(4 * time.Second)}, 4 * time.Second},
		"ours, over already":                {"10000", now, amqp.Table{header.ExpiresAt: at(-time.Second)}, 10 * time.Second},
		"ours, too late":                    {"10000", now, amqp.Table{header.ExpiresAt: at(time.Hour)}, 10 * time.Second},
		"ours, no number":                   {"10000", time.Time{}, amqp.Table{header.ExpiresAt: "soon"}, 10 * time.Second},
		"ours, negative":                    {"10000", time.Time{}, amqp.Table{header.ExpiresAt: int64(-1)}, 10 * time.Second},
		"ours, delayed":                     {"", now, amqp.Table{header.ExpiresAt: at(4 * time.Second), header.Delay: int32(3), header.Death: deaths(delays.Level(0), delays.Level(1))}, 4 * time.Second},
		"ours, delayed for longer":          {"", now, amqp.Table{header.ExpiresAt: at(-4 * time.Second), header.Delay: int32(3), header.Death: deaths(delays.Level(1))}, -4 * time.Second},
		"ours, from a dead-letter queue":    {"", now, amqp.Table{header.ExpiresAt: at(-4 * time.Second), header.Death: deaths("billing")}, never},
		"delayed, then dead-lettered":       {"", now, amqp.Table{header.ExpiresAt: at(-4 * time.Second), header.Delay: int32(3), header.Death: deaths("billing", delays.Level(1))}, never},
		"delayed, with a forged history":    {"", now, amqp.Table{header.ExpiresAt: at(-4 * time.Second), header.Delay: int32(3), header.Death: []any{"x"}}, never},
		"of NServiceBus":                    {"10000", time.Time{}, amqp.Table{headers.TimeSent: sent(3 * time.Second)}, 7 * time.Second},
		"of NServiceBus, a clock behind":    {"10000", time.Time{}, amqp.Table{headers.TimeSent: sent(time.Hour)}, 10 * time.Second},
		"of NServiceBus, a clock ahead":     {"10000", time.Time{}, amqp.Table{headers.TimeSent: sent(-time.Hour)}, 10 * time.Second},
		"foreign, with a timestamp":         {"10000", now.Add(-3 * time.Second), nil, 7 * time.Second},
		"foreign, without":                  {"10000", time.Time{}, nil, 10 * time.Second},
		"foreign, for waiting consumers":    {"0", time.Time{}, nil, never},
		"foreign, no number":                {"soon", time.Time{}, nil, never},
		"foreign, longer than there can be": {"9223372036854775807", time.Time{}, nil, MaxExpiration},
	} {
		got := ExpiresAt(&amqp.Delivery{Expiration: c.expiration, Timestamp: c.timestamp, Headers: c.table}, now)
		if c.want == never && !got.IsZero() || c.want != never && !got.Equal(now.Add(c.want)) {
			t.Errorf("%s: it expires at %v, %v from now", name, got, got.Sub(now))
		}
	}
}

func FuzzIncoming(f *testing.F) {
	f.Add("key", "value", []byte("bytes"), int64(1), 1.5, "id", "type", "c1@billing", "")
	f.Add("", "\xff", []byte{0xff}, int64(-1), math.NaN(), "\xff", "a,b", "c1", "topic:x")
	f.Add("Reprise.Header.x-death", "x", []byte{}, int64(math.MaxInt64), 0.0, "", "", "@", delays.DeliveryExchange)
	f.Add("x-delivery-count", "x", []byte{}, int64(1<<62), 0.0, "", "", "c1@other", "amq.topic")
	f.Fuzz(func(t *testing.T, key, value string, raw []byte, number int64, float float64, id, messageType, marked, exchange string) {
		nested := amqp.Table{key: value, value: []any{number, float, raw, nil}}
		d := &amqp.Delivery{
			MessageId: id, Type: messageType, ReplyTo: value, CorrelationId: key, ContentType: value, Exchange: exchange, Redelivered: number%2 == 0, Body: raw,
			Headers: amqp.Table{key: value, "table": nested, "array": []any{nested, key}, "number": number, "float": float, "bytes": raw, "time": time.Unix(number, 0), header.CopyID: marked, header.Deliveries: number},
		}
		var in core.Incoming
		NewFormat(Config{MessageType: func(string, *amqp.Delivery) string { return value }}).Incoming(d, "billing", &in)
		if in.ID == "" && id != "" || !utf8.ValidString(in.ID) || string(in.Body) != string(raw) || in.Native != d {
			t.Errorf("ID %q, NativeID %q, Native %v", in.ID, in.NativeID, in.Native)
		}
		for k, v := range in.Headers.All() {
			if k == "" || !utf8.ValidString(k) || !utf8.ValidString(v) {
				t.Errorf("the header %q: %q", k, v)
			}
			if header.IsOfTransport(k) && !strings.HasPrefix(key, header.EscapePrefix) {
				t.Errorf("the header %q is left", k)
			}
		}
		bad := key == "" || !utf8.ValidString(key) || !utf8.ValidString(value)
		if bad != (in.Malformed != nil) && utf8.ValidString(id) && utf8.ValidString(messageType) {
			t.Errorf("Malformed is %v with the header %q: %q", in.Malformed, key, value)
		}
		if in.Malformed != nil && !errors.Is(in.Malformed, core.ErrInvalidHeader) {
			t.Errorf("Malformed is %v", in.Malformed)
		}
		d.Headers[header.ExpiresAt], d.Headers[header.Delay], d.Headers[header.Death], d.Expiration = number, nested, []any{nested, key}, value
		if now := time.Now(); d.Expiration != "" {
			if at := ExpiresAt(d, now); !at.IsZero() && (at.Before(now) || at.After(now.Add(MaxExpiration))) {
				t.Errorf("it expires at %v", at)
			}
		}
		if n := DeliveryCount(d); n < 1 || n > math.MaxInt32 {
			t.Errorf("the delivery count is %d", n)
		}
	})
}

func FuzzRoundTrip(f *testing.F) {
	f.Add("key", "value", "key2", "", "billing", []byte("body"))
	f.Add("Reprise.Header.Reprise.Header.", "\x00", "x-death", "a", "0.1.x", []byte{})
	f.Add("CC", "a", "BCC", "b", "a@b", []byte{0})
	f.Fuzz(func(t *testing.T, key, value, key2, value2, queue string, body []byte) {
		for _, text := range []string{key, value, key2, value2} {
			if !utf8.ValidString(text) {
				return // refused by transport.CheckOutgoing
			}
		}
		if _, err := names.Queue(queue); err != nil || key == "" || key2 == "" || len(key) > names.MaxShortString || len(key2) > names.MaxShortString {
			return
		}
		out := core.Outgoing{ID: "m1", Queue: queue, Headers: pairs(key, value, key2, value2), Body: body}
		format := NewFormat(Config{})
		p, err := format.Publishing(&out, "c1")
		if err != nil {
			if !errors.Is(err, core.ErrTooLarge) {
				t.Error(err)
			}
			return
		}
		for k := range p.Headers {
			if len(k) > names.MaxShortString || k == "CC" || k == "BCC" {
				t.Errorf("the broker takes no header %q", k)
			}
		}
		var in core.Incoming
		format.Incoming(delivered(&p, ""), queue, &in)
		if in.Malformed != nil || !maps.Equal(in.Headers.Map(), out.Headers.Map()) || in.NativeID != "c1@"+queue {
			t.Errorf("%q arrives as %q, %v, NativeID %q", out.Headers.Map(), in.Headers.Map(), in.Malformed, in.NativeID)
		}
	})
}

func BenchmarkIncoming(b *testing.B) {
	for _, n := range []int{0, 64, 65, 200, 1000} {
		f, out := NewFormat(Config{}), standard()
		if n > 0 {
			out.Headers = headersOf(n, "value")
		}
		p, err := f.Publishing(&out, "0123456789abcdef-12345")
		if err != nil {
			b.Fatal(err)
		}
		d := delivered(&p, "")
		b.Run(fmt.Sprintf("headers=%d", out.Headers.Len()), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				var in core.Incoming
				f.Incoming(d, "billing", &in)
			}
		})
	}
}

// It would be kept in memory, for thousands of messages.
func TestIncoming_LongCopyIDIsForeign(t *testing.T) {
	t.Parallel()
	f := NewFormat(Config{})
	for size, trusted := range map[int]bool{header.MaxCopyID: true, header.MaxCopyID + 1: false, 1 << 20: false} {
		marked := strings.Repeat("x", size-len("@billing")) + "@billing"
		var in core.Incoming
		f.Incoming(&amqp.Delivery{MessageId: "m1", Headers: amqp.Table{header.CopyID: marked, "k": "v"}}, "billing", &in)
		if (in.NativeID == marked) != trusted || !trusted && in.NativeID != "" {
			t.Errorf("%d bytes: a NativeID of %d bytes, want %t", size, len(in.NativeID), trusted)
		}
		if in.ID != "m1" || in.Headers.Get("k") != "v" || in.Malformed != nil {
			t.Errorf("%d bytes: %q, %v, %v", size, in.ID, in.Headers.Map(), in.Malformed)
		}
	}
}
