//go:build darwin || linux

package asb_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver"
	"github.com/reprise-go/reprise/transport/asb"
)

// This file has tests of properties that only the adapter should write, and that any sender can write.

// sendAllForeign sends messages with the bare SDK, in batches.
func sendAllForeign(t *testing.T, s *site, queue string, messages ...*azservicebus.Message) {
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
	for len(messages) > 0 {
		batch, err := sender.NewMessageBatch(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for ; n < len(messages) && err == nil; n++ {
			err = batch.AddMessage(messages[n], nil)
		}
		if err != nil {
			n--
		}
		if n == 0 {
			t.Fatal(err)
		}
		if err := sender.SendMessageBatch(t.Context(), batch, nil); err != nil {
			t.Fatal(err)
		}
		messages = messages[n:]
	}
}

// runJobs runs an endpoint of the queue "q" until the end of the test.
func runJobs(t *testing.T, transport core.Transport, r core.Recoverability, handle func(m *core.Message) error) *core.Endpoint {
	t.Helper()
	return runConfigured(t, transport, core.Config{Recoverability: r}, handle)
}

// runConfigured is runJobs with a configuration.
func runConfigured(t *testing.T, transport core.Transport, cfg core.Config, handle func(m *core.Message) error) *core.Endpoint {
	t.Helper()
	cfg.Logger = slog.New(slog.DiscardHandler)
	ep, err := core.New("q", transport, cfg)
	if err != nil {
		t.Fatal(err)
	}
	core.Handle(ep, jobType, func(_ context.Context, m *core.Message, _ []byte) error { return handle(m) })
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- ep.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return ep
}

// job is a message that an endpoint of runJobs handles.
func job(properties map[string]any) *azservicebus.Message {
	m := &azservicebus.Message{Body: []byte("body"), ApplicationProperties: map[string]any{headers.MessageTypes: "job"}}
	maps.Copy(m.ApplicationProperties, properties)
	return m
}

// length returns the number of messages in a queue.
func (s *site) length(t *testing.T, queue string) int {
	t.Helper()
	info, err := s.Broker().Queue(queue)
	if err != nil {
		t.Fatal(err)
	}
	return info.Runtime.Active
}

// More messages than an endpoint may have unsettled.
func TestReserved_PropertiesOfASenderDoNotStopAnEndpoint(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	transport := s.provisioned(t, asb.Config{}, "q", "error")
	const bad, good = 1010, 30
	messages := make([]*azservicebus.Message, bad)
	for i := range messages {
		key := []string{"Reprise.StateOf", "Reprise.Released", "Reprise.NotBefore", "Reprise.Failed"}[i%4]
		messages[i] = job(map[string]any{headers.MessageTypes: "unknown", key: "a text"})
	}
	sendAllForeign(t, s, "q", messages...)
	for i := range good {
		if err := transport.Send(t.Context(), core.Outgoing{ID: fmt.Sprint(i), Queue: "q", Headers: headersOf(headers.MessageTypes, "job")}); err != nil {
			t.Fatal(err)
		}
	}
	var handled atomic.Int32
	runJobs(t, transport, core.Recoverability{
		Immediate: core.Immediate{NumberOfRetries: core.Off}, Delayed: core.Delayed{NumberOfRetries: 1, TimeIncrease: 10 * time.Millisecond},
	}, func(*core.Message) error {
		handled.Add(1)
		return nil
	})
	await(t, "all good messages are handled", func() bool { return handled.Load() == good })
	await(t, "all bad messages are in the error queue", func() bool { return s.length(t, "error") == bad })
	await(t, "the queue is empty", func() bool { return s.length(t, "q") == 0 })
	for i, d := range take(t, openReceiver(t, transport, "error", bad), bad) {
		if h := d.Incoming().Headers; slices.Contains(slices.Collect(maps.Values(h.Map())), "a text") {
			t.Fatalf("copy %d in the error queue has the property: %v", i, h)
		}
	}
}

func TestHeaders_WithNamesOfOwnPropertiesArriveInEveryCopy(t *testing.T) {
	t.Parallel()
	want := map[string]string{"Reprise.Escaped.Reprise.Released": "4"}
	for i, key := range []string{"Reprise.StateOf", "Reprise.Released", "Reprise.NotBefore", "Reprise.Failed", "Reprise.NativeMessageID"} {
		want[key] = fmt.Sprint(i)
	}
	check := func(t *testing.T, copied string, h core.Headers) {
		t.Helper()
		for key, value := range want {
			if got, has := h.Lookup(key); !has || got != value {
				t.Errorf("%s has the header %s: %q, %v; want %q", copied, key, got, has, value)
			}
		}
	}
	for where, letters := range map[string]bool{"error": false, "q/$deadletterqueue": true} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			s := startSite(t, sbserver.Config{})
			transport := s.provisioned(t, asb.Config{}, "q", "error")
			h := core.HeadersFromMap(want)
			h.Set(headers.MessageTypes, "job")
			if err := transport.Send(t.Context(), core.Outgoing{ID: "id", Queue: "q", Headers: h}); err != nil {
				t.Fatal(err)
			}
			var attempts atomic.Int32
			runJobs(t, transport, core.Recoverability{
				DeadLetter: letters, Immediate: core.Immediate{NumberOfRetries: 1}, Delayed: core.Delayed{NumberOfRetries: 1, TimeIncrease: 10 * time.Millisecond},
			}, func(m *core.Message) error {
				check(t, fmt.Sprint("attempt ", attempts.Add(1)), m.Headers)
				return errors.New("it always fails")
			})
			check(t, "the failed message", take(t, openReceiver(t, transport, where, 1), 1)[0].Incoming().Headers)
			if n := attempts.Load(); n != 4 {
				t.Errorf("there were %d attempts, want 4", n)
			}
		})
	}
}

// More sessions than a receiver keeps locked without a place. The sender guesses the numbers of its messages.
func TestNotBefore_OfASenderBlocksNoGroup(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	transport := s.provisioned(t, asb.Config{SessionQueues: []string{"q"}}, "q", "error")
	const forged, good = 1100, 20
	postponed := func(session string, sequence int) *azservicebus.Message {
		due := time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)
		if sequence%2 == 1 {
			due = time.Now().Add(20 * 24 * time.Hour) // which a message may wait
		}
		m := job(map[string]any{headers.MessageTypes: "unknown", "Reprise.NotBefore": due.UnixMilli(), "Reprise.StateOf": int64(sequence), "Reprise.Released": int64(1)})
		m.SessionID = &session
		return m
	}
	messages := []*azservicebus.Message{postponed("customer-7", 1)}
	for i := 1; i < forged; i++ {
		messages = append(messages, postponed(fmt.Sprint("forged-", i), i+1))
	}
	for _, m := range messages { // a batch has one session
		sendAllForeign(t, s, "q", m)
	}
	for i := range good {
		if err := transport.Send(t.Context(), core.Outgoing{ID: fmt.Sprint(i), Queue: "q", GroupKey: "customer-7", Headers: headersOf(headers.MessageTypes, "job")}); err != nil {
			t.Fatal(err)
		}
	}
	var handled atomic.Int32
	ep := runJobs(t, transport, core.Recoverability{
		Immediate: core.Immediate{NumberOfRetries: 1}, Delayed: core.Delayed{NumberOfRetries: core.Off},
	}, func(*core.Message) error {
		handled.Add(1)
		return nil
	})
	await(t, "the other messages of the group are handled", func() bool { return handled.Load() == good })
	await(t, "all forged messages are in the error queue", func() bool { return s.length(t, "error") == forged })
	if h := ep.Health(); !h.Connected {
		t.Errorf("the endpoint is not connected: %v", h.ConnectionError)
	}
}

func TestPostpone_IsLimited(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	transport := s.provisioned(t, asb.Config{SessionQueues: []string{"q"}, MaxPostpone: time.Hour, LockDuration: longestLock}, "q", "error")
	groups(t, transport, "a")
	r := openReceiver(t, transport, "q", 1)
	d := take(t, r, 1)[0]
	if err := d.Postpone(t.Context(), time.Hour+time.Second, nil); !errors.Is(err, errors.ErrUnsupported) {
		t.Fatalf("Postpone by more than the limit: %v", err)
	}
	if err := d.Postpone(t.Context(), time.Hour, nil); err != nil {
		t.Fatal(err)
	}
	if err := r.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if warnings := transport.Warnings(); len(warnings) > 0 {
		t.Errorf("it warns: %q", warnings)
	}
	// A process with a lower limit does not wait for as long.
	lower := s.open(t, asb.Config{SessionQueues: []string{"q"}, MaxPostpone: time.Minute})
	warnings := make(chan string, 10)
	r, err := lower.OpenReceiver(t.Context(), core.ReceiverConfig{
		Queue: "q", Mode: core.TransactionReceiveOnly, MaxInFlight: 1, MaxDeliveries: 1000, Warn: func(text string) { warnings <- text },
	})
	if err != nil {
		t.Fatal(err)
	}
	complete(t, take(t, r, 1)[0])
	if len(warnings) != 1 || !strings.Contains(<-warnings, "Config.MaxPostpone") {
		t.Error("it does not warn once of the message that was due later")
	}
}

// A delayed retry beyond the limit is a move to the error queue, which frees the group.
func TestPostpone_BeyondTheLimitMovesTheMessage(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	transport := s.provisioned(t, asb.Config{SessionQueues: []string{"q"}, MaxPostpone: time.Hour}, "q", "error")
	for _, id := range []string{"bad", "good"} {
		if err := transport.Send(t.Context(), core.Outgoing{ID: id, Queue: "q", GroupKey: "group", Headers: headersOf(headers.MessageTypes, "job")}); err != nil {
			t.Fatal(err)
		}
	}
	good := make(chan struct{})
	runJobs(t, transport, core.Recoverability{
		Immediate: core.Immediate{NumberOfRetries: core.Off}, Delayed: core.Delayed{NumberOfRetries: 1, TimeIncrease: 2 * time.Hour},
	}, func(m *core.Message) error {
		if m.ID == "bad" {
			return errors.New("it always fails")
		}
		close(good)
		return nil
	})
	select {
	case <-good:
	case <-time.After(patience):
		t.Fatal("the group is blocked")
	}
	await(t, "the failed message is in the error queue", func() bool { return s.length(t, "error") == 1 })
}

func TestSessions_BeyondTheLimitOfPostponedOnesAreHandedBack(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	transport := s.ordered(t, longestLock)
	groups(t, transport, "a", "b", "c", "d")
	var told changes
	r, err := transport.OpenReceiver(t.Context(), core.ReceiverConfig{
		Queue: "q", Mode: core.TransactionReceiveOnly, MaxInFlight: 2, MaxDeliveries: 1000, ConnectionChanged: told.ConnectionChanged,
	})
	if err != nil {
		t.Fatal(err)
	}
	asb.SetMaxPostponed(r, 2)
	for range 4 {
		if err := take(t, r, 1)[0].Postpone(t.Context(), time.Hour, errors.New("failed")); err != nil {
			t.Fatal(err)
		}
	}
	await(t, "the observer is told", func() bool { return len(told.outages()) > 0 })
	for _, group := range []string{"e", "f", "g"} {
		groups(t, transport, group)
		complete(t, take(t, r, 1)[0])
	}
	if n := s.Count(sbserver.OpAbandon, "q"); n != 4 {
		t.Errorf("%d messages were given back, want those that were postponed: each further one is counted by the service", n)
	}
}
