//go:build darwin || linux

package asb_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver"
	"github.com/reprise-go/reprise/transport/asb"
)

// everything returns a message with all that a sender can set, but for the time to live.
func everything(body azservicebus.AMQPAnnotatedMessageBody) *azservicebus.AMQPAnnotatedMessage {
	at := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	return &azservicebus.AMQPAnnotatedMessage{
		Body:   body,
		Header: &azservicebus.AMQPAnnotatedMessageHeader{Durable: true, Priority: 7},
		Properties: &azservicebus.AMQPAnnotatedMessageProperties{
			MessageID: "m-1", CorrelationID: amqp.UUID{1}, ContentType: new("application/json"), ContentEncoding: new("gzip"), ReplyTo: new("replies"), ReplyToGroupID: new("session 9"),
			Subject: new("placed"), To: new("elsewhere"), UserID: []byte("me"), CreationTime: &at, GroupSequence: new(uint32(5)),
		},
		ApplicationProperties: map[string]any{
			headers.MessageTypes: "job", "text": "ünï", "bool": true, "int8": int8(-3), "uint8": uint8(200), "int16": int16(-300), "uint16": uint16(65000), "int32": int32(-70000), "uint32": uint32(4000000000),
			"int64": int64(-1 << 63), "uint64": uint64(1<<64 - 1), "float32": float32(0.1), "float64": 1e21, "time": at, "bytes": []byte{0xff, 0}, "uuid": amqp.UUID{2}, "nil": nil,
		},
		MessageAnnotations: map[any]any{"x-opt-partition-key": "p"},
		Footer:             map[any]any{"footer": "f"},
	}
}

// described returns the properties that the sender of a message has set.
func described(m *azservicebus.AMQPAnnotatedMessage) map[string]string {
	p := m.Properties
	text := func(s *string) string {
		if s == nil {
			return "none"
		}
		return *s
	}
	all := map[string]string{
		"correlation-id": fmt.Sprintf("%T %v", p.CorrelationID, p.CorrelationID), "content-type": text(p.ContentType), "content-encoding": text(p.ContentEncoding), "reply-to": text(p.ReplyTo),
		"reply-to-group-id": text(p.ReplyToGroupID), "subject": text(p.Subject), "to": text(p.To), "user-id": string(p.UserID), "priority": fmt.Sprint(m.Header.Priority),
		"partition key": fmt.Sprint(m.MessageAnnotations["x-opt-partition-key"]), "footer": fmt.Sprint(m.Footer), "body": fmt.Sprintf("%q %v %v", m.Body.Data, m.Body.Value, m.Body.Sequence),
	}
	if p.CreationTime != nil {
		all["creation time"] = p.CreationTime.UTC().String()
	}
	if p.GroupSequence != nil {
		all["group sequence"] = fmt.Sprint(*p.GroupSequence)
	}
	for _, key := range []string{headers.MessageTypes, "text", "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64", "time", "bytes", "uuid", "nil"} {
		value, has := m.ApplicationProperties[key]
		if at, ok := value.(time.Time); ok {
			value = at.UTC()
		}
		all["property "+key] = fmt.Sprintf("%v %T %v", has, value, value)
	}
	return all
}

// A foreign message is the same at each attempt, in the error queue, in the audit queue, where
// it is forwarded to, and when it has returned.
func TestNative_EachCopyHasWhatTheSenderSet(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]azservicebus.AMQPAnnotatedMessageBody{
		"data":          {Data: [][]byte{[]byte("body")}},
		"several parts": {Data: [][]byte{[]byte("bo"), []byte("dy")}},
		"text":          {Value: "body"},
		"sequence":      {Sequence: [][]any{{"body", int64(1)}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startSite(t, sbserver.Config{})
			transport := s.provisioned(t, asb.Config{}, "q", "error", "audit", "shipping")
			sent := everything(body)
			sendAnnotated(t, s, "q", sent)
			want := described(sent)
			check := func(where string, native any) {
				t.Helper()
				m, _ := native.(*azservicebus.ReceivedMessage)
				got := described(m.RawAMQPMessage)
				for key := range want {
					if got[key] != want[key] {
						t.Errorf("%s: %s is %q, want %q", where, key, got[key], want[key])
					}
				}
			}
			outcomes := []error{
				core.RetryAfter(errors.New("retried"), time.Millisecond), core.Defer(errors.New("deferred"), time.Millisecond), core.Refuse(errors.New("circuit is open"), time.Millisecond),
				errors.New("retried with a delay"), core.GiveUp(errors.New("given up")),
			}
			if name == "sequence" {
				outcomes = nil // it is malformed
			}
			attempts := 0
			ep, err := core.New("q", transport, core.Config{
				Logger: slog.New(slog.DiscardHandler), AuditQueue: "audit", Concurrency: 1,
				Recoverability: core.Recoverability{Immediate: core.Immediate{NumberOfRetries: core.Off}, Delayed: core.Delayed{NumberOfRetries: 1, TimeIncrease: time.Millisecond}},
			})
			if err != nil {
				t.Fatal(err)
			}
			core.Handle(ep, jobType, func(_ context.Context, m *core.Message, _ []byte) error {
				attempts++
				check(fmt.Sprintf("attempt %d", attempts), m.Native())
				if attempts <= len(outcomes) {
					return outcomes[attempts-1]
				}
				return m.Forward("shipping")
			})
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- ep.Run(ctx) }()
			failed := take(t, openReceiver(t, transport, "error", 1), 1)[0]
			in := failed.Incoming()
			check("error queue", in.Native)
			back := core.Outgoing{ID: in.ID, Queue: in.Headers.Get(headers.FailedQ), Headers: in.Headers, Body: in.Body, Native: in.Native}
			if name != "sequence" {
				if err := transport.Send(t.Context(), back); err != nil {
					t.Fatal(err)
				}
				for _, queue := range []string{"audit", "shipping"} {
					check(queue, take(t, openReceiver(t, transport, queue, 1), 1)[0].Incoming().Native)
				}
			}
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			if name != "sequence" && attempts != len(outcomes)+1 {
				t.Errorf("%d attempts, want %d", attempts, len(outcomes)+1)
			}
		})
	}
}

// sendAnnotated sends a message with the bare SDK.
func sendAnnotated(t *testing.T, s *site, queue string, m *azservicebus.AMQPAnnotatedMessage) {
	t.Helper()
	client, err := azservicebus.NewClientFromConnectionString(s.ConnectionString(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close(context.WithoutCancel(t.Context())) }()
	sender, err := client.NewSender(queue, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := sender.SendAMQPAnnotatedMessage(t.Context(), m, nil); err != nil {
		t.Fatal(err)
	}
}
