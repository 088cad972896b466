//go:build darwin || linux

package asb_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver"
	"github.com/reprise-go/reprise/transport/asb"
)

// unreadable returns messages at which the SDK panics.
func unreadable() []*azservicebus.AMQPAnnotatedMessage {
	var messages []*azservicebus.AMQPAnnotatedMessage
	add := func(change func(m *azservicebus.AMQPAnnotatedMessage)) {
		id := fmt.Sprint("unreadable-", len(messages))
		m := &azservicebus.AMQPAnnotatedMessage{
			ApplicationProperties: map[string]any{headers.MessageTypes: "unknown"},
			Properties:            &azservicebus.AMQPAnnotatedMessageProperties{MessageID: id},
			MessageAnnotations:    map[any]any{},
			Body:                  azservicebus.AMQPAnnotatedMessageBody{Data: [][]byte{[]byte("body")}},
		}
		change(m)
		messages = append(messages, m)
	}
	for _, key := range []string{"DeadLetterReason", "DeadLetterErrorDescription"} {
		for _, value := range []any{int64(5), true, nil, []any{[]any{"nested"}}, 1.5} {
			add(func(m *azservicebus.AMQPAnnotatedMessage) { m.ApplicationProperties[key] = value })
		}
	}
	for _, key := range []string{"x-opt-deadletter-source", "x-opt-enqueue-sequence-number"} {
		for _, value := range []any{true, []byte("binary"), []any{[]any{"nested"}}} {
			add(func(m *azservicebus.AMQPAnnotatedMessage) { m.MessageAnnotations[key] = value })
		}
	}
	return messages
}

// sendUnreadable sends messages with the bare SDK, each in a session if session is not nil.
func sendUnreadable(t *testing.T, s *site, queue string, session func(i int) string, messages ...*azservicebus.AMQPAnnotatedMessage) {
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
	for i, m := range messages {
		if session != nil {
			id := session(i)
			m.Properties.GroupID = &id
		}
		if err := sender.SendAMQPAnnotatedMessage(t.Context(), m, nil); err != nil {
			t.Fatalf("send message %d: %v", i, err)
		}
	}
}

// There are more of them than an endpoint may have unsettled, and than a receiver keeps sessions locked without a place.
func TestUnreadable_MessagesAreHandledBesideOthers(t *testing.T) {
	t.Parallel()
	for _, queue := range []string{"plain", "sessions"} {
		t.Run(queue, func(t *testing.T) {
			t.Parallel()
			const good = 30
			s := startSite(t, sbserver.Config{})
			cfg := asb.Config{}
			var session func(i int) string
			if queue == "sessions" {
				cfg.SessionQueues = []string{"q"}
				session = func(i int) string { return fmt.Sprint("session-", i) }
			}
			transport := s.provisioned(t, cfg, "q", "error")
			bad := unreadable()
			for kinds := len(bad); len(bad) < 1010; {
				m := *bad[len(bad)%kinds]
				m.Properties = &azservicebus.AMQPAnnotatedMessageProperties{MessageID: fmt.Sprint("unreadable-", len(bad))}
				bad = append(bad, &m)
			}
			sendUnreadable(t, s, "q", session, bad...)
			for i := range good {
				if err := transport.Send(t.Context(), core.Outgoing{ID: fmt.Sprint(i), Queue: "q", GroupKey: "session-0", Headers: headersOf(headers.MessageTypes, "job")}); err != nil {
					t.Fatal(err)
				}
			}
			var handled atomic.Int32
			ep := runJobs(t, transport, core.Recoverability{
				Immediate: core.Immediate{NumberOfRetries: core.Off}, Delayed: core.Delayed{NumberOfRetries: core.Off},
			}, func(*core.Message) error {
				handled.Add(1)
				return nil
			})
			await(t, "all good messages are handled", func() bool { return handled.Load() == good })
			await(t, "all others are in the error queue", func() bool { return s.length(t, "error") == len(bad) })
			if h := ep.Health(); !h.Connected {
				t.Errorf("the endpoint is not connected: %v", h.ConnectionError)
			}
			var reasons []string
			for _, d := range take(t, openReceiver(t, transport, "error", 1100), len(bad)) {
				if reason, has := d.Incoming().Headers.Lookup("deadLetterReason"); has {
					reasons = append(reasons, reason)
				}
			}
			if !slices.Contains(reasons, "5") || !slices.Contains(reasons, "true") {
				t.Errorf("the values of DeadLetterReason in the error queue are %q", slices.Compact(slices.Sorted(slices.Values(reasons))))
			}
		})
	}
}

// In this mode the service forgets the message that it sends, and a purge has to see all messages.
func TestUnreadable_MessagesAreReceivedInModeNoneAndPurged(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	transport := s.provisioned(t, asb.Config{}, "q")
	bad := unreadable()
	sendUnreadable(t, s, "q", nil, bad...)
	if err := transport.Check(t.Context(), core.Topology{InputQueue: "q", Queues: []string{"q"}}); err != nil {
		t.Errorf("Check: %v", err)
	}
	r, err := transport.OpenReceiver(t.Context(), core.ReceiverConfig{Queue: "q", Mode: core.TransactionNone, MaxInFlight: 8})
	if err != nil {
		t.Fatal(err)
	}
	take(t, r, len(bad))
	if err := r.Close(t.Context()); err != nil {
		t.Error(err)
	}
	sendUnreadable(t, s, "q", nil, bad...)
	if n, err := transport.Purge(t.Context(), "q"); n != len(bad) || err != nil {
		t.Errorf("Purge removed %d messages of %d: %v", n, len(bad), err)
	}
}

// The message takes several frames, and the value is in the second one.
func TestUnreadable_LargeMessageIsHandled(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	transport := s.provisioned(t, asb.Config{LockDuration: 5 * time.Minute}, "q")
	m := unreadable()[0]
	m.MessageAnnotations["padding"] = string(make([]byte, 70<<10))
	m.Body.Data = [][]byte{make([]byte, 100<<10)}
	sendUnreadable(t, s, "q", nil, m)
	in := take(t, openReceiver(t, transport, "q", 1), 1)[0].Incoming()
	if in.Headers.Get("deadLetterReason") != "5" || len(in.Body) != 100<<10 || in.Malformed != nil {
		t.Errorf("it arrived with %v, %d bytes, malformed: %v", in.Headers, len(in.Body), in.Malformed)
	}
}
