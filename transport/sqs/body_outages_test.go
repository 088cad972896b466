//go:build darwin || linux

package sqs_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	testserver "github.com/reprise-go/reprise/internal/testserver/sqs"
	"github.com/reprise-go/reprise/transport/sqs"
)

// awaitFailure waits until a body could not be fetched.
func (b *storedBodies) awaitFailure(t *testing.T) {
	t.Helper()
	select {
	case <-b.failed:
	case <-time.After(patience):
		t.Fatal("no body is fetched")
	}
}

func TestBodies_OutageUsesUpNoAttempts(t *testing.T) {
	t.Parallel()
	bodies := newStoredBodies()
	bodies.fail(errors.New("the store is down"))
	s, transport, r := storing(t, sqs.Config{Bodies: bodies, VisibilityTimeout: 30 * time.Second})
	sendBody(t, transport, "a large body")
	const failures = 10 // half of them of the body by which the adapter tests the store
	for n := range failures {
		bodies.awaitFailure(t)
		if n == failures-1 {
			bodies.fail(nil)
		}
		s.Advance(10 * time.Minute) // the message is available again
	}
	in := take(t, r, 1)[0].Incoming()
	if in.Malformed != nil || string(in.Body) != "a large body" {
		t.Errorf("got the body %q, malformed: %v", in.Body, in.Malformed)
	}
	if in.DeliveryCount != 1 {
		t.Errorf("the delivery count is %d after an outage of the store, want 1", in.DeliveryCount)
	}
}

// Redeliveries during an outage of the store count as attempts for other instances, so there are few of them: each message is
// locked for longer each time, up to 5 minutes, with any visibility timeout.
func TestBodies_LocksGrowDuringOutage(t *testing.T) {
	t.Parallel()
	for _, visibility := range []time.Duration{10 * time.Second, 10 * time.Minute} {
		t.Run(visibility.String(), func(t *testing.T) {
			t.Parallel()
			bodies := newStoredBodies()
			bodies.fail(errors.New("the store is down"))
			s := startStopped(t)
			s.queue(t, "orders")
			transport := openConfigured(t, configured(sqs.Config{Bodies: bodies, LargeBodies: 1, NoLongDelays: true, VisibilityTimeout: visibility}, s.URL()))
			sendBody(t, transport, "a large body")
			receiver := openReceiver(t, transport, "orders", 10)
			for i, seconds := range []int{5, 10, 20, 40, 80, 160, 300, 300} {
				bodies.awaitFailure(t)
				wait := time.Duration(seconds) * time.Second
				due := s.Now().Add(wait)
				await(t, fmt.Sprintf("after failure %d the message is locked for %v", i+1, wait), func() bool {
					c := s.contents(t, "orders")
					return len(c.InFlight) == 1 && c.InFlight[0].Due.Equal(due)
				})
				s.Advance(wait)
			}
			bodies.fail(nil)
			if err := receiver.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// A queue full of messages whose bodies cannot be fetched is not received in vain: a pause follows each request.
func TestBodies_PausesDuringOutage(t *testing.T) {
	t.Parallel()
	bodies := newStoredBodies()
	bodies.fail(errors.New("the store is down"))
	s := startSite(t, testserver.Config{})
	s.queue(t, "orders")
	transport := openConfigured(t, configured(sqs.Config{Bodies: bodies, LargeBodies: 10, NoLongDelays: true}, s.URL()))
	const n = 200
	if err := transport.Send(t.Context(), messages(n, core.Outgoing{ID: "1", Queue: "orders", Body: []byte("a large body")})...); err != nil {
		t.Fatal(err)
	}
	seen := &outages{}
	receiver, err := transport.OpenReceiver(t.Context(), core.ReceiverConfig{
		Queue: "orders", Mode: core.TransactionReceiveOnly, MaxInFlight: 10, MaxDeliveries: 1000, ConnectionChanged: seen.ConnectionChanged,
	})
	if err != nil {
		t.Fatal(err)
	}
	// One request follows each failure, after a pause that grows.
	await(t, "the bodies of 6 requests could not be fetched", func() bool { return seen.failures("the store is down") >= 6 })
	if requests, failures := s.Requests("orders")["ReceiveMessage"], seen.failures("the store is down"); requests > failures+1 {
		t.Errorf("%d requests for messages began during %d failures of the store", requests, failures)
	}
	longest := time.Duration(0)
	seen.mu.Lock()
	changes, times := slices.Clone(seen.changes), slices.Clone(seen.times)
	seen.mu.Unlock()
	for i, c := range changes[:len(changes)-1] {
		longest = max(longest, c.RetryIn)
		if pause := times[i+1].Sub(times[i]); pause < c.RetryIn {
			t.Errorf("failure %d followed after %v, and the pause is %v", i+2, pause, c.RetryIn)
		}
	}
	if longest < 400*time.Millisecond { // half of 50 ms, doubled four times
		t.Errorf("the longest pause is %v", longest)
	}
	bodies.fail(nil)
	for _, d := range take(t, receiver, 10) {
		if in := d.Incoming(); string(in.Body) != "a large body" || in.DeliveryCount != 1 {
			t.Fatalf("after the outage this arrived: delivery %d with the body %q", in.DeliveryCount, in.Body)
		}
	}
}

// An outage of the store goes on although requests to SQS succeed. It ends with the first body that is fetched.
func TestBodies_OutageIsReportedUntilStoreAnswers(t *testing.T) {
	t.Parallel()
	bodies := newStoredBodies()
	bodies.fail(errors.New("the store is down"))
	s := startSite(t, testserver.Config{})
	s.queue(t, "orders")
	cfg := s.unrepeated(sqs.Config{Bodies: bodies, LargeBodies: 10})
	transport := openConfigured(t, cfg)
	seen := &outages{}
	receiver, err := transport.OpenReceiver(t.Context(), core.ReceiverConfig{
		Queue: "orders", Mode: core.TransactionReceiveOnly, MaxInFlight: 10, MaxDeliveries: 1000, ConnectionChanged: seen.ConnectionChanged,
	})
	if err != nil {
		t.Fatal(err)
	}
	sendBody(t, transport, "a large body")
	await(t, "the outage of the store is reported", func() bool { return seen.failures("the store is down") > 0 })
	first := seen.list()[0].Since
	// An outage of SQS begins and ends.
	s.Reject(testserver.Match{Operation: "ReceiveMessage", Name: "orders", Times: 2}, testserver.InternalFailure)
	await(t, "the outage of SQS is reported", func() bool { return seen.failures("internal error") == 2 })
	sendBody(t, transport, "small")
	if body := string(take(t, receiver, 1)[0].Incoming().Body); body != "small" {
		t.Fatalf("this arrived: %q", body)
	}
	for _, c := range seen.list() {
		if c.Connected || !c.Since.Equal(first) {
			t.Errorf("during the outage of the store this was reported: %+v", c)
		}
	}
	bodies.fail(nil)
	s.Advance(10 * time.Minute) // the locks end
	for range 2 {
		if in := take(t, receiver, 1)[0].Incoming(); string(in.Body) == "a large body" {
			break
		}
	}
	changes := seen.list()
	if last := changes[len(changes)-1]; !last.Connected || !last.Since.Equal(first) {
		t.Errorf("after the outage this was reported last: %+v", last)
	}
}

// A receiver that closes does not wait for bodies. Their messages go back, and have not been attempted.
func TestBodies_CloseDuringFetch(t *testing.T) {
	t.Parallel()
	bodies := newStoredBodies()
	bodies.hangs = true
	s := startSite(t, testserver.Config{})
	s.queue(t, "orders")
	cfg := configured(sqs.Config{Bodies: bodies, LargeBodies: 10, NoLongDelays: true, VisibilityTimeout: 10 * time.Minute}, s.URL())
	transport := openConfigured(t, cfg)
	sendBody(t, transport, "a large body")
	receiver := openReceiver(t, transport, "orders", 10)
	await(t, "the message is received", func() bool { return len(s.contents(t, "orders").InFlight) == 1 })
	if err := receiver.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if c := s.contents(t, "orders"); len(c.Ready) != 1 {
		t.Fatalf("the queue has %+v", c)
	}
	bodies.hangs = false // no receiver reads it
	if in := take(t, openReceiver(t, transport, "orders", 10), 1)[0].Incoming(); in.DeliveryCount != 1 || string(in.Body) != "a large body" {
		t.Errorf("this arrived: delivery %d with the body %q", in.DeliveryCount, in.Body)
	}
}
