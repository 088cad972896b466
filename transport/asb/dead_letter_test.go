//go:build darwin || linux

package asb_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/broker"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/clock"
	"github.com/reprise-go/reprise/transport/asb"
)

func TestDeadLetterQueue_IsReceivedFrom(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	transport := s.provisioned(t, asb.Config{}, "q")
	if err := transport.Send(t.Context(), core.Outgoing{ID: "id", Queue: "q", Body: []byte("body"), Headers: headersOf("key", "value")}); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("ü", 4000)
	if err := take(t, openReceiver(t, transport, "q", 1), 1)[0].DeadLetter(t.Context(), core.DeadLetter{Reason: "a reason", Description: long}); err != nil {
		t.Fatal(err)
	}
	const dead = "q/$deadletterqueue"
	d := take(t, openReceiver(t, transport, dead, 1), 1)[0]
	in := d.Incoming()
	if string(in.Body) != "body" || in.Headers.Get("key") != "value" || in.Headers.Get("DeadLetterReason") != "a reason" ||
		!strings.HasPrefix(long, in.Headers.Get("DeadLetterErrorDescription")) || len(in.Headers.Get("DeadLetterErrorDescription")) < 4000 || len(in.Headers.Get("DeadLetterErrorDescription")) > 4096 {
		t.Errorf("it came as %q with %v", in.Body, in.Headers)
	}
	if err := transport.Send(t.Context(), core.Outgoing{ID: "id", Queue: dead}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a message to a dead-letter queue: %v", err)
	}
	if err := d.Complete(t.Context()); err != nil {
		t.Error(err)
	}
}

// The service does not observe the time to live of a dead letter.
func TestDeadLetterQueue_KeepsMessagesWhoseTimeToLiveHasEnded(t *testing.T) {
	t.Parallel()
	clock := clock.NewFake(time.Now())
	s := startSite(t, sbserver.Config{Broker: broker.Config{Clock: clock}})
	transport := s.provisioned(t, asb.Config{LockDuration: longestLock}, "q")
	if err := transport.Send(t.Context(), core.Outgoing{ID: "id", Queue: "q", Body: []byte("dead"), TimeToBeReceived: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if err := take(t, openReceiver(t, transport, "q", 1), 1)[0].DeadLetter(t.Context(), core.DeadLetter{Reason: "a reason"}); err != nil {
		t.Fatal(err)
	}
	clock.Advance(2 * time.Hour)
	d := take(t, openReceiver(t, transport, "q/$deadletterqueue", 1), 1)[0]
	if body := d.Incoming().Body; string(body) != "dead" {
		t.Errorf("%q came", body)
	}
	complete(t, d)
}

// The service counts no deliveries in a dead-letter queue, and keeps the count of the queue before.
func TestDeadLetterQueue_CountsItsOwnDeliveries(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	transport := s.provisioned(t, asb.Config{}, "q")
	send(t, transport, "q", "message")
	r := openReceiver(t, transport, "q", 1)
	for range 3 {
		if err := take(t, r, 1)[0].Abandon(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := take(t, r, 1)[0].DeadLetter(t.Context(), core.DeadLetter{Reason: "a reason"}); err != nil {
		t.Fatal(err)
	}
	dead := openReceiver(t, transport, "q/$deadletterqueue", 1)
	for i, end := range []func(d core.Delivery) error{
		func(d core.Delivery) error { return d.Abandon(t.Context(), nil) },
		func(d core.Delivery) error { return d.Release(t.Context()) },
		func(d core.Delivery) error { return d.Abandon(t.Context(), nil) },
		func(d core.Delivery) error { return d.Complete(t.Context()) },
	} {
		d := take(t, dead, 1)[0]
		in := d.Incoming()
		if want := []int{1, 2, 2, 3}[i]; in.DeliveryCount != want || !in.Redelivered {
			t.Errorf("it is delivery %d, redelivered %v; want %d", in.DeliveryCount, in.Redelivered, want)
		}
		if err := d.DeadLetter(t.Context(), core.DeadLetter{}); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("a dead letter is dead-lettered: %v", err)
		}
		if err := end(d); err != nil {
			t.Fatal(err)
		}
	}
}

// An endpoint on a dead-letter queue gives a message that always fails up, as on any queue.
func TestDeadLetterQueue_EndpointGivesUp(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	transport := s.provisioned(t, asb.Config{}, "q", "error")
	if err := transport.Send(t.Context(), core.Outgoing{ID: "id", Queue: "q", Headers: headersOf(headers.MessageTypes, "job")}); err != nil {
		t.Fatal(err)
	}
	if err := take(t, openReceiver(t, transport, "q", 1), 1)[0].DeadLetter(t.Context(), core.DeadLetter{Reason: "a reason"}); err != nil {
		t.Fatal(err)
	}
	ep, err := core.New("repair", transport, core.Config{
		InputQueue: "q/$deadletterqueue", Provision: core.ProvisionNever, Recoverability: core.Recoverability{Immediate: core.Immediate{NumberOfRetries: 2}},
	})
	if err != nil {
		t.Fatal(err)
	}
	var attempts atomic.Int64
	core.Handle(ep, jobType, func(context.Context, *core.Message, []byte) error {
		attempts.Add(1)
		return errors.New("fails")
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- ep.Run(ctx) }()
	take(t, openReceiver(t, transport, "error", 1), 1)
	if n := attempts.Load(); n != 3 {
		t.Errorf("it was tried %d times, want 3", n)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A message that is given up after a delayed retry is in the service's dead-letter queue with all that an error queue would
// tell, can be read there and sent back, and begins anew.
func TestDeadLetterQueue_ServesAsErrorQueue(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	transport := s.provisioned(t, asb.Config{}, "q", "error")
	ep, err := core.New("q", transport, core.Config{Recoverability: core.Recoverability{
		DeadLetter: true, Immediate: core.Immediate{NumberOfRetries: core.Off}, Delayed: core.Delayed{NumberOfRetries: 1, TimeIncrease: time.Millisecond},
	}})
	if err != nil {
		t.Fatal(err)
	}
	var attempts, retries atomic.Int64
	core.Handle(ep, jobType, func(_ context.Context, m *core.Message, _ []byte) error {
		retries.Store(int64(m.DelayedRetries))
		if attempts.Add(1) <= 2 {
			return errors.New("down for now")
		}
		return nil
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- ep.Run(ctx) }()
	if err := transport.Send(t.Context(), core.Outgoing{ID: "id", Queue: "q", Body: []byte(`"Ym9keQ=="`), Headers: headersOf(headers.MessageTypes, "job")}); err != nil {
		t.Fatal(err)
	}
	d := take(t, openReceiver(t, transport, "q/$deadletterqueue", 1), 1)[0]
	in := d.Incoming()
	for key, want := range map[string]string{
		headers.FailureReason: "RetriesExhausted", "DeadLetterReason": "RetriesExhausted", headers.FailedQ: "q", headers.ExceptionMessage: "down for now",
		headers.MessageTypes: "job", headers.Retries: "",
	} {
		if got := in.Headers.Get(key); got != want {
			t.Errorf("the dead letter has %s: %q, want %q", key, got, want)
		}
	}
	if err := transport.Send(t.Context(), core.Outgoing{ID: in.ID, Queue: in.Headers.Get(headers.FailedQ), Body: in.Body, Headers: in.Headers}); err != nil {
		t.Fatal(err)
	}
	if err := d.Complete(t.Context()); err != nil {
		t.Error(err)
	}
	await(t, "the dead letter is handled when it was sent back", func() bool { return attempts.Load() == 3 })
	if n := retries.Load(); n != 0 {
		t.Errorf("it comes back with %d delayed retries; its life begins anew", n)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
