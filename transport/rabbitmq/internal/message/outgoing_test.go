package message

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/delays"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/header"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/names"
)

func pairs(pairs ...string) (h core.Headers) {
	for i := 0; i < len(pairs); i += 2 {
		h.Set(pairs[i], pairs[i+1])
	}
	return h
}

func TestOutgoing_Publishing(t *testing.T) {
	t.Parallel()
	f := NewFormat(Config{})
	long := strings.Repeat("x", 256)
	for name, c := range map[string]struct {
		out  core.Outgoing
		want amqp.Publishing
	}{
		"to a queue": {
			core.Outgoing{ID: "m1", Queue: "billing", Headers: pairs("k", "v", "empty", ""), Body: []byte("body")},
			amqp.Publishing{MessageId: "m1", DeliveryMode: 2, Headers: amqp.Table{"k": "v", "empty": "", "Reprise.CopyID": "c1@billing", "Reprise.MessageID": "m1"}},
		},
		"to a topic": {
			core.Outgoing{Topic: "orders.placed"},
			amqp.Publishing{DeliveryMode: 2, Headers: amqp.Table{"Reprise.CopyID": "c1"}},
		},
		"properties from headers": {
			core.Outgoing{ID: "m1", Queue: "q", Headers: pairs(
				headers.MessageID, "m1", headers.CorrelationID, "corr", headers.ReplyToAddress, "shop",
				headers.ContentType, "application/json", headers.MessageTypes, "Sales.Placed, Sales, Version=1.0; Sales.IEvent",
			)},
			amqp.Publishing{MessageId: "m1", CorrelationId: "corr", ReplyTo: "shop", ContentType: "application/json", Type: "Sales.Placed", DeliveryMode: 2, Headers: amqp.Table{
				headers.MessageID: "m1", headers.CorrelationID: "corr", headers.ReplyToAddress: "shop",
				headers.ContentType: "application/json", headers.MessageTypes: "Sales.Placed, Sales, Version=1.0; Sales.IEvent", "Reprise.CopyID": "c1@q",
			}},
		},
		"a value too long for a property": {
			core.Outgoing{ID: long, Queue: "q", Headers: pairs(headers.CorrelationID, long, headers.ReplyToAddress, long, headers.ContentType, long, headers.MessageTypes, long)},
			amqp.Publishing{DeliveryMode: 2, Headers: amqp.Table{
				headers.CorrelationID: long, headers.ReplyToAddress: long, headers.ContentType: long, headers.MessageTypes: long, "Reprise.CopyID": "c1@q", "Reprise.MessageID": long,
			}},
		},
		"several types": {
			core.Outgoing{Queue: "q", Headers: pairs(headers.MessageTypes, " A ;B")},
			amqp.Publishing{Type: "A", DeliveryMode: 2, Headers: amqp.Table{headers.MessageTypes: " A ;B", "Reprise.CopyID": "c1@q"}},
		},
		"late": {
			core.Outgoing{Queue: "q", Delay: 1500 * time.Millisecond},
			amqp.Publishing{DeliveryMode: 2, Headers: amqp.Table{"NServiceBus.Transport.RabbitMQ.DelayInSeconds": int32(2), "Reprise.CopyID": "c1@q"}},
		},
		"with an end": {
			core.Outgoing{Queue: "q", TimeToBeReceived: 1500*time.Millisecond + 1},
			amqp.Publishing{Expiration: "1501", DeliveryMode: 2, Headers: amqp.Table{"Reprise.CopyID": "c1@q"}},
		},
		"with the last end that there is": {
			core.Outgoing{Queue: "q", TimeToBeReceived: MaxExpiration},
			amqp.Publishing{Expiration: "315360000000", DeliveryMode: 2, Headers: amqp.Table{"Reprise.CopyID": "c1@q"}},
		},
		"with an end after that": {
			core.Outgoing{Queue: "q", TimeToBeReceived: math.MaxInt64},
			amqp.Publishing{DeliveryMode: 2, Headers: amqp.Table{"Reprise.CopyID": "c1@q"}},
		},
		"late, with an end": {
			core.Outgoing{Queue: "q", Delay: time.Second, TimeToBeReceived: time.Minute},
			amqp.Publishing{DeliveryMode: 2, Headers: amqp.Table{"NServiceBus.Transport.RabbitMQ.DelayInSeconds": int32(1), "Reprise.CopyID": "c1@q"}},
		},
		"with an end at once": {
			core.Outgoing{Queue: "q", TimeToBeReceived: 1},
			amqp.Publishing{Expiration: "1", DeliveryMode: 2, Headers: amqp.Table{"Reprise.CopyID": "c1@q"}},
		},
		"application properties": {
			core.Outgoing{Queue: "q", Properties: map[string]string{"rabbitmq.delivery-mode": "transient", "rabbitmq.priority": "255", "sqs.group": "g"}},
			amqp.Publishing{Priority: 255, DeliveryMode: 1, Headers: amqp.Table{
				"Reprise.CopyID": "c1@q", "Reprise.Properties": `{"rabbitmq.delivery-mode":"transient","rabbitmq.priority":"255","sqs.group":"g"}`,
			}},
		},
		"persistent": {
			core.Outgoing{Queue: "q", Properties: map[string]string{"rabbitmq.delivery-mode": "persistent", "rabbitmq.priority": "0"}},
			amqp.Publishing{DeliveryMode: 2, Headers: amqp.Table{
				"Reprise.CopyID": "c1@q", "Reprise.Properties": `{"rabbitmq.delivery-mode":"persistent","rabbitmq.priority":"0"}`,
			}},
		},
		"with a group": {
			core.Outgoing{Queue: "q", GroupKey: "customer 7", Headers: pairs("Reprise.GroupKey", "the application's")},
			amqp.Publishing{DeliveryMode: 2, Headers: amqp.Table{
				"Reprise.CopyID": "c1@q", "Reprise.GroupKey": "customer 7", "Reprise.Escaped.Reprise.GroupKey": "the application's",
			}},
		},
		"headers that mean something to the broker": {
			core.Outgoing{Queue: "q", Headers: pairs("CC", "a", "BCC", "b", "Cc", "c", "x-death", "d", "x-first-death-queue", "e", "x-delivery-count", "9", "x-other", "f", "Reprise.CopyID", "g", "Reprise.Header.CC", "h", "Reprise.Deferrals", "i")},
			amqp.Publishing{DeliveryMode: 2, Headers: amqp.Table{
				"Reprise.Header.CC": "a", "Reprise.Header.BCC": "b", "Cc": "c", "Reprise.Header.x-death": "d", "Reprise.Header.x-first-death-queue": "e",
				"Reprise.Header.x-delivery-count": "9", "x-other": "f", "Reprise.Header.Reprise.CopyID": "g", "Reprise.Header.Reprise.Header.CC": "h", "Reprise.Deferrals": "i", "Reprise.CopyID": "c1@q",
			}},
		},
	} {
		for range 2 { // the second time in a table that was used
			before := time.Now()
			got, err := f.Publishing(&c.out, "c1")
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if got.Timestamp.Before(before) || got.Timestamp.After(time.Now()) || string(got.Body) != string(c.out.Body) {
				t.Errorf("%s: sent at %v with the body %q", name, got.Timestamp, got.Body)
			}
			if life := c.out.TimeToBeReceived; life > 0 && life <= MaxExpiration {
				if end := got.Headers[header.ExpiresAt]; end != got.Timestamp.Add(life).UnixMilli() {
					t.Errorf("%s: it ends at %v", name, end)
				}
				delete(got.Headers, header.ExpiresAt)
			}
			if !maps.Equal(got.Headers, c.want.Headers) {
				t.Errorf("%s: the headers are %v, want %v", name, got.Headers, c.want.Headers)
			}
			f.Recycle(got.Headers)
			got.Headers, got.Timestamp, got.Body = nil, time.Time{}, nil
			c.want.Headers = maps.Clone(c.want.Headers)
			want := c.want
			want.Headers = nil
			if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
				t.Errorf("%s: %+v, want %+v", name, got, want)
			}
		}
	}
}

func TestOutgoing_Refused(t *testing.T) {
	t.Parallel()
	f := NewFormat(Config{})
	many := func(n int) (h core.Headers) {
		m := map[string]string{}
		for i := range n {
			m[fmt.Sprintf("%x", i)] = ""
		}
		return core.HeadersFromMap(m)
	}
	large := func(n int) core.Headers { return pairs("k", strings.Repeat("x", n)) }
	for name, c := range map[string]struct {
		out   core.Outgoing
		is    error
		wants []string
	}{
		"an unknown property":   {core.Outgoing{Queue: "q", Properties: map[string]string{"rabbitmq.prioritty": "1"}}, nil, []string{"no property rabbitmq.prioritty", "rabbitmq.priority"}},
		"a bad delivery mode":   {core.Outgoing{Queue: "q", Properties: map[string]string{"rabbitmq.delivery-mode": "2"}}, nil, []string{"rabbitmq.delivery-mode", `"2"`, "transient"}},
		"a bad priority":        {core.Outgoing{Queue: "q", Properties: map[string]string{"rabbitmq.priority": "256"}}, nil, []string{"rabbitmq.priority", `"256"`, "255"}},
		"too many headers":      {core.Outgoing{Queue: "q", Headers: many(maxHeaders + 1)}, core.ErrTooLarge, []string{"8161", "8160"}},
		"headers over a frame":  {core.Outgoing{Queue: "q", Headers: large(126 << 10)}, core.ErrTooLarge, []string{"MaxHeaderBytes"}},
		"many, over a frame":    {core.Outgoing{Queue: "q", Headers: headersOf(8000, "0123456789")}, core.ErrTooLarge, []string{"MaxHeaderBytes"}},
		"late, over a frame":    {core.Outgoing{Queue: "q", Delay: delays.Max, Headers: large(120 << 10)}, core.ErrTooLarge, []string{"MaxHeaderBytes"}},
		"a key that is escaped": {core.Outgoing{Queue: "q", Headers: pairs("x-first-death-"+strings.Repeat("k", 230), "")}, core.ErrTooLarge, []string{"MaxHeaderKeyBytes"}},
	} {
		p, err := f.Publishing(&c.out, "c1")
		if err == nil || p.Headers != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("%s: %v does not match %v", name, err, c.is)
		}
		for _, want := range c.wants {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v does not say %q", name, err, want)
			}
		}
	}
	for name, out := range map[string]core.Outgoing{
		"as many headers as there may be":     {Queue: "q", Headers: many(maxHeaders)},
		"a frame nearly full":                 {Queue: "q", Headers: large(120 << 10)},
		"late, with the most that is claimed": {Queue: strings.Repeat("q", names.MaxQueue), Delay: delays.Max, Headers: large(64<<10 - 1)},
	} {
		if _, err := f.Publishing(&out, "c1"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	f.SetFrameMax(0)
	out := core.Outgoing{Queue: "q", Headers: large(1 << 20)}
	if _, err := f.Publishing(&out, "c1"); err != nil {
		t.Errorf("a frame without limit: %v", err)
	}
	f.SetFrameMax(4096)
	out.Headers = large(1000)
	if _, err := f.Publishing(&out, "c1"); err != nil {
		t.Errorf("the smallest frame that AMQP allows: %v", err)
	}
}

// headersOf returns n headers with the value.
func headersOf(n int, value string) core.Headers {
	m := make(map[string]string, n)
	for i := range n {
		m[fmt.Sprintf("Header.%05d", i)] = value
	}
	return core.HeadersFromMap(m)
}

// standard is a message as an endpoint sends it.
func standard() core.Outgoing {
	return core.Outgoing{ID: "c0a8e3a0-7d6c-4f0e-9d55-2f5f3f1f0a11", Queue: "billing", Body: make([]byte, 256), Headers: pairs(
		headers.MessageID, "c0a8e3a0-7d6c-4f0e-9d55-2f5f3f1f0a11", headers.ConversationID, "5f2b5d9e-95a3-4f0e-9d55-2f5f3f1f0a11",
		headers.CorrelationID, "c0a8e3a0-7d6c-4f0e-9d55-2f5f3f1f0a11", headers.MessageIntent, "Send", headers.MessageTypes, "orders.PlaceOrder",
		headers.ContentType, "application/json", headers.ReplyToAddress, "shop", headers.OriginatingEndpoint, "shop",
		headers.OriginatingMachine, "shop-7f9c4d", headers.HostID, "8b1a9953c4611296a827abf8c47804d7", headers.TimeSent, "2026-08-21 09:05:07:123456 Z",
	)}
}

func BenchmarkPublishing(b *testing.B) {
	f, out := NewFormat(Config{}), standard()
	b.ReportAllocs()
	for b.Loop() {
		p, err := f.Publishing(&out, "0123456789abcdef-12345")
		if err != nil {
			b.Fatal(err)
		}
		f.Recycle(p.Headers)
	}
}
