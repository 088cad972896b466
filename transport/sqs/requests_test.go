//go:build darwin || linux

package sqs_test

import (
	"context"
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	testserver "github.com/reprise-go/reprise/internal/testserver/sqs"
	"github.com/reprise-go/reprise/transport/sqs"
)

// longPolls is a configuration whose polls end with the server's clock, and not within a test.
func (s *site) longPolls(cfg sqs.Config) sqs.Config {
	cfg = configured(cfg, s.URL())
	cfg.WaitTime = 20 * time.Second
	return cfg
}

// awaitPolls waits until n polls wait at a queue.
func (s *site) awaitPolls(t *testing.T, queue string, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := s.AwaitPolls(ctx, queue, n); err != nil {
		t.Fatal(err)
	}
}

// An idle receiver costs one request in 20 seconds for each of its two queues, however many messages it may have in
// flight.
func TestRequests_OfIdleReceiver(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		noLongDelays bool
		queues       []string
	}{
		"with long delays":    {false, []string{"billing", "billing-delay.fifo"}},
		"without long delays": {true, []string{"billing"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startStopped(t)
			transport := openConfigured(t, s.longPolls(sqs.Config{NoLongDelays: c.noLongDelays}))
			if err := transport.Provision(t.Context(), core.Topology{InputQueue: "billing", Queues: []string{"billing"}}); err != nil {
				t.Fatal(err)
			}
			receiver := openReceiver(t, transport, "billing", 100)
			// Calls of Receive wait for messages without further requests.
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 10)
			for range cap(ended) {
				go func() {
					_, err := receiver.Receive(ctx, make([]core.Delivery, 10))
					ended <- err
				}()
			}
			for _, queue := range c.queues {
				s.awaitPolls(t, queue, 1)
			}
			s.ResetRequests()
			const rounds = 30
			for round := range rounds {
				s.Advance(20 * time.Second)
				for _, queue := range c.queues {
					await(t, "the next poll begins", func() bool { return s.Requests(queue)["ReceiveMessage"] > round })
					s.awaitPolls(t, queue, 1)
				}
			}
			if got, want := s.Requests(""), map[string]int{"ReceiveMessage": rounds * len(c.queues)}; !maps.Equal(got, want) {
				t.Errorf("in %d rounds of polls there were these requests: %v, want %v", rounds, got, want)
			}
			cancel()
			for range cap(ended) {
				if err := <-ended; !errors.Is(err, context.Canceled) {
					t.Errorf("a Receive ended with: %v", err)
				}
			}
			s.closeDuringPolls(t, transport, receiver, func() { s.Advance(20 * time.Second) })
		})
	}
}

// closeDuringPolls closes a transport, and ends the polls of its receiver once that has begun to close.
func (s *site) closeDuringPolls(t *testing.T, transport *sqs.Transport, r core.Receiver, end func()) {
	t.Helper()
	closed := make(chan error, 1)
	go func() { closed <- transport.Close(t.Context()) }()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		_, err := r.Receive(ctx, make([]core.Delivery, 1))
		if errors.Is(err, core.ErrClosed) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	select {
	case err := <-closed:
		t.Fatalf("Close returned before the polls: %v", err)
	default:
	}
	end()
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
}

// The service goes on with a poll whose client has gone, and locks a message that no receiver gets. So Close waits for
// the poll, and releases its messages.
func TestClose_WaitsForPolls(t *testing.T) {
	t.Parallel()
	s := startSite(t, testserver.Config{CancelledPollsReceive: true})
	transport := openConfigured(t, s.longPolls(sqs.Config{NoLongDelays: true, VisibilityTimeout: 10 * time.Minute}))
	if err := transport.Provision(t.Context(), core.Topology{InputQueue: "billing", Queues: []string{"billing"}}); err != nil {
		t.Fatal(err)
	}
	receiver := openReceiver(t, transport, "billing", 10)
	s.awaitPolls(t, "billing", 1)
	s.closeDuringPolls(t, transport, receiver, func() { s.put(t, "billing", "hello", nil) })
	c := s.contents(t, "billing")
	if len(c.Ready) != 1 || len(c.InFlight) > 0 || c.Ready[0].ReceiveCount != 1 {
		t.Errorf("the queue has %+v", c)
	}
}

// The end of the context cuts polls off.
func TestClose_WithEndedContext(t *testing.T) {
	t.Parallel()
	s := startStopped(t)
	transport := openConfigured(t, s.longPolls(sqs.Config{NoLongDelays: true}))
	if err := transport.Provision(t.Context(), core.Topology{InputQueue: "billing", Queues: []string{"billing"}}); err != nil {
		t.Fatal(err)
	}
	openReceiver(t, transport, "billing", 10)
	s.awaitPolls(t, "billing", 1)
	ctx, cancel := context.WithCancel(t.Context())
	closed := make(chan error, 1)
	go func() { closed <- transport.Close(ctx) }()
	cancel()
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(30 * time.Second): // after 35 s the poll ends by itself
		t.Fatal("Close waits although its context has ended")
	}
	s.awaitPolls(t, "billing", 0)
}

// A paused receiver makes no requests for messages. It releases those of a poll in progress, with the count that they had.
func TestPause_ReleasesMessagesOfPoll(t *testing.T) {
	t.Parallel()
	s := startStopped(t)
	transport := openConfigured(t, s.longPolls(sqs.Config{NoLongDelays: true}))
	if err := transport.Provision(t.Context(), core.Topology{InputQueue: "billing", Queues: []string{"billing"}}); err != nil {
		t.Fatal(err)
	}
	receiver := openReceiver(t, transport, "billing", 10)
	s.awaitPolls(t, "billing", 1)
	receiver.SetMaxInFlight(0)
	s.ResetRequests()
	if err := transport.Send(t.Context(), core.Outgoing{ID: "m-1", Queue: "billing", Body: []byte("hello")}); err != nil {
		t.Fatal(err)
	}
	await(t, "the message is back", func() bool {
		c := s.contents(t, "billing")
		return len(c.Ready) == 1 && len(c.InFlight) == 0 && s.Requests("billing")["DeleteMessageBatch"] == 1
	})
	if got := s.Requests("billing")["ReceiveMessage"]; got > 0 {
		t.Errorf("the paused receiver made %d requests for messages", got)
	}
	receiver.SetMaxInFlight(10)
	in := take(t, receiver, 1)[0].Incoming()
	if in.ID != "m-1" || string(in.Body) != "hello" || in.DeliveryCount != 1 {
		t.Errorf("after the pause this arrived: %+v", in)
	}
	s.awaitPolls(t, "billing", 1)
	s.closeDuringPolls(t, transport, receiver, func() { s.Advance(20 * time.Second) })
}

// Requests ask for as many messages as there are free slots, up to ten each.
func TestRequests_OfBusyReceiver(t *testing.T) {
	t.Parallel()
	s := startStopped(t)
	transport := openConfigured(t, s.longPolls(sqs.Config{NoLongDelays: true, VisibilityTimeout: 10 * time.Minute}))
	if err := transport.Provision(t.Context(), core.Topology{InputQueue: "billing", Queues: []string{"billing"}}); err != nil {
		t.Fatal(err)
	}
	const n, slots = 100, 25
	if err := transport.Send(t.Context(), messages(n, core.Outgoing{ID: "1", Queue: "billing"})...); err != nil {
		t.Fatal(err)
	}
	s.ResetRequests()
	receiver := openReceiver(t, transport, "billing", slots)
	take(t, receiver, slots)
	// None is settled, so there is no slot for another.
	if c := s.contents(t, "billing"); len(c.InFlight) != slots || len(c.Ready) != n-slots {
		t.Errorf("%d messages are in flight with %d slots", len(c.InFlight), slots)
	}
	if got := s.Requests("billing")["ReceiveMessage"]; got != 3 {
		t.Errorf("%d messages came with %d requests, want 3", slots, got)
	}
	if err := receiver.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}
