package rabbitmq_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/rabbitmq"
)

// nested returns tables within each other.
func nested(depth int) amqp.Table {
	table := amqp.Table{"end": "here"}
	for range depth {
		table = amqp.Table{"a": table}
	}
	return table
}

// undecodable are headers that amqp091-go writes and does not read.
func undecodable() map[string]amqp.Table {
	many := amqp.Table{}
	for i := range 9_000 {
		many[strconv.Itoa(i)] = true
	}
	return map[string]amqp.Table{
		"200 nested tables": {"a": nested(200), "x": "kept"},
		"33 nested tables":  {"a": nested(33), "x": "kept"},
		"a long array":      {"a": make([]any, 9_000), "x": "kept"},
		"9,000 headers":     many,
	}
}

// They reach the error queue with what can be read of them, and cost the other messages in
// their queue nothing.
func TestUndecodable_MessagesAreMoved(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *site) {
		for _, kind := range []rabbitmq.QueueType{rabbitmq.Quorum, rabbitmq.Classic} {
			queue, errorQueue := fmt.Sprintf("billing-%v", kind), fmt.Sprintf("error-%v", kind)
			transport := s.provisioned(t, rabbitmq.Config{QueueType: kind}, queue, errorQueue)
			w := &connections{}
			ep, err := core.New(queue, transport, core.Config{
				Logger:         slog.New(slog.DiscardHandler),
				Observers:      []core.Observer{{ConnectionChanged: w.ConnectionChanged}},
				Recoverability: core.Recoverability{ErrorQueue: errorQueue},
			})
			if err != nil {
				t.Fatal(err)
			}
			var mu sync.Mutex
			counts := map[int]int{} // of deliveries, by number
			core.Handle(ep, placedType, func(_ context.Context, m *core.Message, body order) error {
				mu.Lock()
				defer mu.Unlock()
				counts[body.Number] = m.Attempt
				return nil
			})
			ch := s.channel(t)
			good := 0
			publish := func(headers amqp.Table, body string) {
				t.Helper()
				if err := ch.PublishWithContext(t.Context(), "", queue, true, false, amqp.Publishing{
					Headers: headers, Type: "orders.placed", ContentType: "application/json", CorrelationId: "c-1", DeliveryMode: amqp.Persistent, Body: []byte(body),
				}); err != nil {
					t.Fatal(err)
				}
			}
			for name, headers := range undecodable() {
				for range 5 {
					good++
					publish(nil, fmt.Sprintf(`{"Number":%d}`, good))
				}
				publish(headers, name)
			}
			runs(t, ep)
			awaitTrue(t, "the others are handled", func() bool { mu.Lock(); defer mu.Unlock(); return len(counts) == good })
			awaitTrue(t, "none is left", func() bool { ready, unacked := s.depth(t, queue); return ready+unacked == 0 })
			mu.Lock()
			for number, n := range counts {
				if n != 1 {
					t.Errorf("%v: message %d was delivered %d times", kind, number, n)
				}
			}
			mu.Unlock()
			if lost := w.lost(); lost != nil {
				t.Errorf("%v: a connection was lost: %v", kind, lost)
			}

			r := consume(t, transport, core.ReceiverConfig{Queue: errorQueue})
			want := undecodable()
			for len(want) > 0 {
				for _, d := range next(t, r, 10) {
					in := d.Incoming()
					headers, ok := want[string(in.Body)]
					if !ok {
						t.Errorf("%v: this is in the error queue: %s", kind, in.Body)
						continue
					}
					delete(want, string(in.Body))
					wantMoved(t, in, queue, headers)
				}
			}
		}
	})
}

// wantMoved checks a message in the error queue whose headers could not be decoded.
func wantMoved(t *testing.T, in *core.Incoming, from string, headers amqp.Table) {
	t.Helper()
	for key, text := range map[string]string{
		"NServiceBus.FailedQ":               from,
		"NServiceBus.CorrelationId":         "c-1",
		"NServiceBus.EnclosedMessageTypes":  "orders.placed",
		"NServiceBus.ExceptionInfo.Message": "",
	} {
		if got := in.Headers.Get(key); text != "" && got != text {
			t.Errorf("%s: the header %s is %q, want %q", in.Body, key, got, text)
		}
	}
	if cause := in.Headers.Get("NServiceBus.ExceptionInfo.Message"); !strings.Contains(cause, "cannot decode the headers") {
		t.Errorf("%s: the cause is %q", in.Body, cause)
	}
	if _, has := headers["x"]; has && in.Headers.Get("x") != "kept" {
		t.Errorf("%s: a header that can be decoded is %q", in.Body, in.Headers.Get("x"))
	}
	if deep, has := headers["a"].(amqp.Table); has {
		if got, want := in.Headers.Get("a"), strings.Repeat("a=", depthOf(deep))+"end=here"; got != want {
			t.Errorf("%s: the header is %q, want %q", in.Body, got, want)
		}
	}
	raw, err := base64.StdEncoding.DecodeString(in.Headers.Get("Reprise.RawHeaders"))
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		t.Fatalf("%s: Reprise.RawHeaders: %v", in.Body, err)
	}
	table, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	for key := range headers {
		if !bytes.Contains(table, []byte(key)) {
			t.Errorf("%s: Reprise.RawHeaders lacks the header %q", in.Body, key)
			break
		}
	}
}

func depthOf(table amqp.Table) int {
	if within, ok := table["a"].(amqp.Table); ok {
		return 1 + depthOf(within)
	}
	return 0
}

// connections notes the connections that an endpoint loses.
type connections struct{ watch }

func (w *connections) lost() error {
	for _, change := range w.all() {
		if !change.Connected {
			return change.Err
		}
	}
	return nil
}

// They arrive unchanged.
func TestUndecodable_HeadersAtTheLimitAreDecoded(t *testing.T) {
	t.Parallel()
	onNewest(t, func(t *testing.T, s *site) {
		transport := s.provisioned(t, rabbitmq.Config{}, "billing")
		many := amqp.Table{}
		for i := range 8192 {
			many[strconv.Itoa(i)] = "x"
		}
		ch := s.channel(t)
		for _, headers := range []amqp.Table{many, {"0": nested(31)}, {"0": make([]any, 8192)}} {
			if err := ch.PublishWithContext(t.Context(), "", "billing", true, false, amqp.Publishing{Headers: headers}); err != nil {
				t.Fatal(err)
			}
		}
		r := consume(t, transport, core.ReceiverConfig{Queue: "billing"})
		for range 3 {
			in := next(t, r, 1)[0].Incoming()
			if in.Malformed != nil || in.Headers.Get("0") == "" {
				t.Errorf("the header is %.40q, the message malformed: %v", in.Headers.Get("0"), in.Malformed)
			}
		}
	})
}

// At a redelivery the broker adds its count to the headers. That does not end the
// connection.
func TestUndecodable_HeadersThatGrowBeyondTheFrame(t *testing.T) {
	t.Parallel()
	onNewest(t, func(t *testing.T, s *site) {
		transport := s.provisioned(t, rabbitmq.Config{}, "billing")
		const frame = 128 << 10
		ch := s.channel(t)
		value := strings.Repeat("x", frame-8-14-4-(1+1+1+4)-1)
		if err := ch.PublishWithContext(t.Context(), "", "billing", true, false, amqp.Publishing{
			Headers: amqp.Table{"a": value}, DeliveryMode: amqp.Persistent, Body: []byte("1"),
		}); err != nil {
			t.Fatal(err)
		}
		w := &watch{}
		r := consume(t, transport, core.ReceiverConfig{Queue: "billing", ConnectionChanged: w.ConnectionChanged})
		for attempt := range 3 {
			d := next(t, r, 1)[0]
			in := d.Incoming()
			if in.DeliveryCount != attempt+1 {
				t.Errorf("delivery %d has the count %d", attempt+1, in.DeliveryCount)
			}
			got := in.Headers.Get("a")
			if attempt == 0 && (in.Malformed != nil || got != value) {
				t.Errorf("delivery 1 is malformed: %v; the header has %d bytes, want %d", in.Malformed, len(got), len(value))
			}
			if attempt > 0 && (in.Malformed == nil || len(got) < len(value)/2 || !strings.HasPrefix(value, got)) {
				t.Errorf("delivery %d is malformed: %v; the header has %d bytes of %d", attempt+1, in.Malformed, len(got), len(value))
			}
			if err := d.Abandon(t.Context(), errors.New("failed")); err != nil {
				t.Fatal(err)
			}
		}
		if changes := w.all(); len(changes) > 0 {
			t.Errorf("the connection was lost: %v", changes)
		}
	})
}
