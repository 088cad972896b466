package rabbitmq_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/url"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/transport/rabbitmq"
)

// everything returns a message with all that a publisher can set, but for the time to live, and
// a body that gzip has made.
func everything(t testing.TB, user, elsewhere string) amqp.Publishing {
	t.Helper()
	var body bytes.Buffer
	z := gzip.NewWriter(&body)
	if _, err := z.Write([]byte(`{"Number":7}`)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	return amqp.Publishing{
		Type: "orders.placed", ContentType: "application/json", ContentEncoding: "gzip", MessageId: "m-1", CorrelationId: "c-1", ReplyTo: "replies",
		Priority: 3, Timestamp: at, AppId: "shop", UserId: user, DeliveryMode: amqp.Persistent, Body: body.Bytes(),
		Headers: amqp.Table{
			"text": "ünï", "empty": "", "bool": true, "int8": int8(-3), "byte": byte(200), "int16": int16(-300), "uint16": uint16(65000), "int32": int32(-70000), "uint32": uint32(4000000000),
			"int64": int64(math.MinInt64), "float32": float32(0.1), "float64": 1e21, "decimal": amqp.Decimal{Scale: 2, Value: 1230}, "time": at, "bytes": []byte("\xff\x00"), "nil": nil,
			"array": []any{int64(1), "two", nil, true, amqp.Table{"a": []any{}}}, "table": amqp.Table{"a": int32(1), "b": amqp.Table{"c": nil}}, "CC": []any{elsewhere},
		},
	}
}

// described returns the properties and headers of a message that its publisher has set, with
// the types of the headers.
func described(d *amqp.Delivery) map[string]string {
	all := map[string]string{
		"type": d.Type, "content-type": d.ContentType, "content-encoding": d.ContentEncoding, "message-id": d.MessageId, "correlation-id": d.CorrelationId, "reply-to": d.ReplyTo,
		"priority": fmt.Sprint(d.Priority), "timestamp": d.Timestamp.UTC().String(), "app-id": d.AppId, "user-id": d.UserId, "delivery-mode": fmt.Sprint(d.DeliveryMode),
	}
	for key, value := range d.Headers {
		key = strings.TrimPrefix(key, "Reprise.Header.")
		if strings.HasPrefix(key, "Reprise.") || strings.HasPrefix(key, "NServiceBus.") || strings.HasPrefix(key, "x-") || strings.HasPrefix(key, "$.diagnostics.") {
			continue
		}
		if at, ok := value.(time.Time); ok {
			value = at.UTC()
		}
		all["header "+key] = fmt.Sprintf("%T %v", value, value)
	}
	return all
}

// unpacked is middleware that unpacks a body whose encoding a native property names.
func unpacked(next core.HandlerFunc) core.HandlerFunc {
	return func(ctx context.Context, m *core.Message) error {
		if d, _ := m.Native().(*amqp.Delivery); d.ContentEncoding == "gzip" {
			z, err := gzip.NewReader(bytes.NewReader(m.RawBody()))
			if err != nil {
				return err
			}
			body, err := io.ReadAll(z)
			if err != nil {
				return err
			}
			m.SetBody(body)
		}
		return next(ctx, m)
	}
}

// republish publishes a message as a tool does that knows nothing of Reprise: with all that it
// was received with.
func republish(t testing.TB, ch *amqp.Channel, d *amqp.Delivery, queue string) {
	t.Helper()
	p := amqp.Publishing{
		Headers: d.Headers, ContentType: d.ContentType, ContentEncoding: d.ContentEncoding, DeliveryMode: d.DeliveryMode, Priority: d.Priority, CorrelationId: d.CorrelationId,
		ReplyTo: d.ReplyTo, MessageId: d.MessageId, Timestamp: d.Timestamp, Type: d.Type, AppId: d.AppId, UserId: d.UserId, Body: d.Body,
	}
	if err := ch.PublishWithContext(t.Context(), "", queue, true, false, p); err != nil {
		t.Fatal(err)
	}
}

// channelAs returns a channel of the user in a URL.
func channelAs(t testing.TB, url string) *amqp.Channel {
	t.Helper()
	conn, err := amqp.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

// A foreign message is the same at each attempt, in the error queue, in the audit queue, where
// it is forwarded to, and when it has returned; it goes nowhere else a second time.
func TestNative_EachCopyHasWhatThePublisherSet(t *testing.T) {
	ofDelayQueues(t)
	t.Parallel()
	onBoth(t, func(t *testing.T, s *site) {
		s.withDelays()
		transport := s.provisioned(t, rabbitmq.Config{}, "billing", "error", "audit", "shipping", "elsewhere")
		u, err := url.Parse(s.PasswordURL(s.vhost))
		if err != nil {
			t.Fatal(err)
		}
		sent := everything(t, u.User.Username(), "elsewhere")
		seen := make(chan map[string]string, 100)
		runsSoFar := 0
		outcomes := []error{
			core.RetryAfter(errors.New("retried"), time.Second), core.Defer(errors.New("deferred"), time.Second), core.Refuse(errors.New("circuit is open"), time.Second),
			errors.New("retried with a delay"), core.GiveUp(errors.New("given up")),
		}
		ep, err := core.New("billing", transport, core.Config{
			Logger: slog.New(slog.DiscardHandler), AuditQueue: "audit", Middleware: []core.Middleware{core.MiddlewareFunc(unpacked)}, Concurrency: 1,
			Recoverability: core.Recoverability{Immediate: core.Immediate{NumberOfRetries: core.Off}, Delayed: core.Delayed{NumberOfRetries: 1, TimeIncrease: time.Second}},
		})
		if err != nil {
			t.Fatal(err)
		}
		core.Handle(ep, placedType, func(_ context.Context, m *core.Message, o order) error {
			d, _ := m.Native().(*amqp.Delivery)
			if o.Number != 7 {
				t.Errorf("the body is %+v", o)
			}
			seen <- described(d)
			if runsSoFar++; runsSoFar <= len(outcomes) {
				return outcomes[runsSoFar-1]
			}
			return m.Forward("shipping")
		})
		runs(t, ep)
		ch := channelAs(t, s.PasswordURL(s.vhost))
		if err := ch.PublishWithContext(t.Context(), "", "billing", true, false, sent); err != nil {
			t.Fatal(err)
		}
		want := described(&amqp.Delivery{
			Headers: sent.Headers, Type: sent.Type, ContentType: sent.ContentType, ContentEncoding: sent.ContentEncoding, MessageId: sent.MessageId, CorrelationId: sent.CorrelationId,
			ReplyTo: sent.ReplyTo, Priority: sent.Priority, Timestamp: sent.Timestamp, AppId: sent.AppId, UserId: sent.UserId, DeliveryMode: sent.DeliveryMode,
		})
		check := func(where string, got map[string]string) {
			t.Helper()
			for key := range want {
				if got[key] != want[key] {
					t.Errorf("%s: %s is %q, want %q", where, key, got[key], want[key])
				}
			}
			if len(got) != len(want) {
				t.Errorf("%s: there are %d properties and headers, want %d: %v", where, len(got), len(want), got)
			}
		}
		attempt := func(where string) {
			t.Helper()
			select {
			case got := <-seen:
				check(where, got)
			case <-time.After(patience):
				t.Fatalf("%s: there was no attempt", where)
			}
		}
		for i := range outcomes {
			attempt(fmt.Sprintf("attempt %d", i+1))
		}
		failed := next(t, consume(t, transport, core.ReceiverConfig{Queue: "error"}), 1)[0]
		in := failed.Incoming()
		native, _ := in.Native.(*amqp.Delivery)
		check("error queue", described(native))

		// It returns, from a program with a transport, and by a tool.
		mustSend(t, transport, core.Outgoing{ID: in.ID, Queue: in.Headers.Get(headers.FailedQ), Headers: in.Headers, Body: in.Body, Native: in.Native})
		attempt("returned by a program")
		republish(t, ch, native, "billing")
		attempt("returned by a tool")
		if err := failed.Complete(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, queue := range []string{"audit", "shipping"} {
			r := consume(t, transport, core.ReceiverConfig{Queue: queue})
			for range 2 {
				d := next(t, r, 1)[0]
				native, _ := d.Incoming().Native.(*amqp.Delivery)
				check(queue, described(native))
			}
		}
		if got := s.take(t, "elsewhere"); len(got) != 1 || got[string(sent.Body)] != 1 {
			t.Errorf("the queue in CC has %v, want one message", len(got))
		}
	})
}

// A message without a content type is handled again when it has returned, however often.
func TestNative_NoContentTypeIsInvented(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *site) {
		transport := s.provisioned(t, rabbitmq.Config{}, "billing", "error")
		ep, err := core.New("billing", transport, core.Config{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		attempts := make(chan string, 100)
		core.Handle(ep, placedType, func(_ context.Context, m *core.Message, _ order) error {
			d, _ := m.Native().(*amqp.Delivery)
			attempts <- d.ContentType
			return core.GiveUp(errors.New("fails always"))
		})
		runs(t, ep)
		ch := s.channel(t)
		r := consume(t, transport, core.ReceiverConfig{Queue: "error"})
		var foreign, own *amqp.Delivery
		foreign = &amqp.Delivery{Type: "orders.placed", Body: []byte(`{"Number":1}`)}
		mustSend(t, transport, core.Outgoing{ID: "own", Queue: "error", Headers: core.HeadersFromMap(map[string]string{headers.MessageTypes: "orders.placed"}), Body: []byte(`{"Number":2}`)})
		own, _ = next(t, r, 1)[0].Incoming().Native.(*amqp.Delivery)
		for name, d := range map[string]*amqp.Delivery{"foreign": foreign, "of Reprise": own} {
			for range 3 {
				republish(t, ch, d, "billing")
				moved := next(t, r, 1)[0]
				d, _ = moved.Incoming().Native.(*amqp.Delivery)
				select {
				case got := <-attempts:
					if got != "" || d.ContentType != "" {
						t.Errorf("%s: the content type is %q, and in the error queue %q; want none", name, got, d.ContentType)
					}
				default:
					t.Fatalf("%s: was moved without an attempt: %s", name, moved.Incoming().Headers.Get(headers.ExceptionMessage))
				}
				if err := moved.Complete(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

// The broker refuses the user-id of another user, and closes the channel. A copy has it only if it
// is that of the endpoint, and is not stuck if the endpoint has another name than its URL says.
func TestNative_UserID(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *site) {
		u, err := url.Parse(s.PasswordURL(s.vhost))
		if err != nil {
			t.Fatal(err)
		}
		other := "other." + s.vhost
		foreign := channelAs(t, s.user(t, "other", ".*", ".*", ".*"))
		for name, c := range map[string]struct {
			by     *amqp.Channel
			user   string // of the publisher
			claims string // the user's name as the transport has it, if not that of the URL
			want   string
		}{
			"of the endpoint":     {channelAs(t, s.PasswordURL(s.vhost)), u.User.Username(), "", u.User.Username()},
			"of another user":     {foreign, other, "", ""},
			"that is not its own": {foreign, other, other, ""},
		} {
			t.Run(name, func(t *testing.T) {
				queue := "billing " + name
				transport := s.provisioned(t, rabbitmq.Config{}, queue, "error "+name)
				ep, err := core.New(queue, transport, core.Config{Logger: slog.New(slog.DiscardHandler), Recoverability: core.Recoverability{ErrorQueue: "error " + name}})
				if err != nil {
					t.Fatal(err)
				}
				core.Handle(ep, placedType, func(context.Context, *core.Message, order) error { return core.GiveUp(errors.New("fails always")) })
				if c.claims != "" {
					rabbitmq.SetUser(transport, c.claims)
				}
				runs(t, ep)
				if err := c.by.PublishWithContext(t.Context(), "", queue, true, false, amqp.Publishing{Type: "orders.placed", MessageId: "m-1", UserId: c.user, Body: []byte(`{}`)}); err != nil {
					t.Fatal(err)
				}
				r := consume(t, transport, core.ReceiverConfig{Queue: "error " + name})
				d := next(t, r, 1)[0]
				if native, _ := d.Incoming().Native.(*amqp.Delivery); native.UserId != c.want {
					t.Errorf("user-id is %q, want %q", native.UserId, c.want)
				}
			})
		}
	})
}
