//go:build darwin || linux

package sqs_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	testserver "github.com/reprise-go/reprise/internal/testserver/sqs"
	"github.com/reprise-go/reprise/transport/sqs"
)

// awaitInFlight waits until the service has put n messages in flight, and all their answers have arrived.
func (s *site) awaitInFlight(t *testing.T, queue string, n int) {
	t.Helper()
	await(t, "the messages are received", func() bool { return len(s.contents(t, queue).InFlight) == n })
}

// With fewer calls of Receive than places, messages wait in the receiver. Those that have no place any more go back, with
// the count that they had.
func TestSetMaxInFlight_PutsBackMessagesThatWait(t *testing.T) {
	t.Parallel()
	for _, queue := range []string{"billing", "billing.fifo"} {
		t.Run(queue, func(t *testing.T) {
			t.Parallel()
			s := startSite(t, testserver.Config{})
			transport := s.provisioned(t, sqs.Config{NoLongDelays: true, VisibilityTimeout: 10 * time.Minute}, queue)
			const n = 10
			if err := transport.Send(t.Context(), messages(n, core.Outgoing{ID: "1", Queue: queue})...); err != nil {
				t.Fatal(err)
			}
			receiver := openReceiver(t, transport, queue, n)
			s.awaitInFlight(t, queue, n)
			first := take(t, receiver, 1)[0]
			for _, max := range []int{4, 1, 0} {
				receiver.SetMaxInFlight(max)
				inFlight := max // the first one is among them
				if max == 0 {
					inFlight = 1 // it is still handled
				}
				await(t, "the surplus is back", func() bool {
					c := s.contents(t, queue)
					return len(c.InFlight) == inFlight && len(c.Ready) == n-inFlight
				})
			}
			if err := first.Complete(t.Context()); err != nil {
				t.Fatal(err)
			}
			receiver.SetMaxInFlight(n)
			for _, d := range take(t, receiver, n-1) {
				if in := d.Incoming(); in.DeliveryCount != 1 || in.ID == first.Incoming().ID {
					t.Errorf("message %s is in delivery %d", in.ID, in.DeliveryCount)
				}
			}
		})
	}
}

// A message that has failed, and has no place any more, is replaced by a copy that the service counts from 1. Its header
// counts the failures, for all instances.
func TestSetMaxInFlight_KeepsCountOfFailures(t *testing.T) {
	t.Parallel()
	for before, after := range map[string]string{"": "1", "4": "5"} {
		t.Run(after, func(t *testing.T) {
			t.Parallel()
			s := startSite(t, testserver.Config{})
			transport := s.provisioned(t, sqs.Config{NoLongDelays: true, VisibilityTimeout: 10 * time.Minute}, "billing")
			var attributes map[string]types.MessageAttributeValue
			if before != "" { // it is such a copy itself
				attributes = map[string]types.MessageAttributeValue{"Reprise.Failures": text(before)}
			}
			s.put(t, "billing", "hello", attributes)
			receiver := openReceiver(t, transport, "billing", 1)
			if err := take(t, receiver, 1)[0].Abandon(t.Context(), errors.New("it failed")); err != nil {
				t.Fatal(err)
			}
			await(t, "the message is received once more", func() bool {
				c := s.contents(t, "billing")
				return len(c.InFlight) == 1 && c.InFlight[0].ReceiveCount == 2
			})
			receiver.SetMaxInFlight(0)
			await(t, "its copy is in the queue", func() bool {
				c := s.contents(t, "billing")
				return len(c.Ready) == 1 && c.Ready[0].ReceiveCount == 0 && len(c.InFlight) == 0
			})
			other := openReceiver(t, s.open(t, sqs.Config{NoLongDelays: true}), "billing", 1)
			in := take(t, other, 1)[0].Incoming()
			if in.DeliveryCount != 1 || in.Redelivered || in.Headers.Get(headers.Failures) != after {
				t.Errorf("another instance gets delivery %d, redelivered: %v, failures: %q", in.DeliveryCount, in.Redelivered, in.Headers.Get(headers.Failures))
			}
		})
	}
}

// The lock of a message that waits in the receiver may end. It is redelivered, and no handler has seen it before.
func TestReceive_MessageWaitsBeyondItsLock(t *testing.T) {
	t.Parallel()
	s := startSite(t, testserver.Config{})
	transport := s.provisioned(t, sqs.Config{NoLongDelays: true, VisibilityTimeout: 4 * time.Second}, "billing") // the receiver allows an answer a second
	s.put(t, "billing", "hello", nil)
	receiver := openReceiver(t, transport, "billing", 1)
	await(t, "the lock ends", func() bool {
		c := s.contents(t, "billing")
		return len(c.InFlight) == 0 && len(c.Ready) == 1 && c.Ready[0].ReceiveCount == 1 || len(c.InFlight) == 1 && c.InFlight[0].ReceiveCount > 1
	})
	d := take(t, receiver, 1)[0]
	if in := d.Incoming(); in.DeliveryCount != 1 || !in.Redelivered {
		t.Errorf("it is delivery %d, redelivered: %v", in.DeliveryCount, in.Redelivered)
	}
}

// A message that has waited for a Receive for long is locked anew before it is handed out, so that there is time to settle it.
func TestReceive_RenewsLockOfMessageThatWaited(t *testing.T) {
	t.Parallel()
	s := startSite(t, testserver.Config{})
	const visibility = 20 * time.Second
	transport := s.provisioned(t, sqs.Config{NoLongDelays: true, VisibilityTimeout: visibility}, "billing")
	if err := transport.Send(t.Context(), messages(3, core.Outgoing{ID: "1", Queue: "billing"})...); err != nil {
		t.Fatal(err)
	}
	receiver := openReceiver(t, transport, "billing", 3)
	s.awaitInFlight(t, "billing", 3)
	time.Sleep(visibility/2 + time.Second) // the adapter compares with the machine's clock
	deliveries := take(t, receiver, 3)
	if got := s.Requests("billing")["ChangeMessageVisibilityBatch"]; got == 0 || got > 3 {
		t.Errorf("the locks were renewed with %d requests", got)
	}
	for _, d := range deliveries {
		if in := d.Incoming(); in.DeliveryCount != 1 || in.Redelivered {
			t.Errorf("message %s is in delivery %d", in.ID, in.DeliveryCount)
		}
		if left := d.LockedUntil().Sub(s.contents(t, "billing").InFlight[0].Due); left > 0 {
			t.Errorf("LockedUntil of message %s is %v after the end of the lock", d.Incoming().ID, left)
		}
		if err := d.Complete(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// Close releases messages, as Release does: it is no attempt for the receivers of the same process.
func TestClose_CountsNoAttempt(t *testing.T) {
	t.Parallel()
	s := startSite(t, testserver.Config{})
	transport := s.provisioned(t, sqs.Config{NoLongDelays: true, VisibilityTimeout: 10 * time.Minute}, "billing")
	if err := transport.Send(t.Context(), messages(2, core.Outgoing{ID: "1", Queue: "billing"})...); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		receiver := openReceiver(t, transport, "billing", 2)
		s.awaitInFlight(t, "billing", 2)
		// One message is handed out, and the other one is not.
		if in := take(t, receiver, 1)[0].Incoming(); in.DeliveryCount != 1 {
			t.Errorf("message %s is in delivery %d", in.ID, in.DeliveryCount)
		}
		if err := receiver.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if c := s.contents(t, "billing"); len(c.Ready) != 2 {
			t.Fatalf("after Close the queue has %+v", c)
		}
	}
}

// While requests come back full, more pollers ask, as many as the places need. One watches an empty queue.
func TestRequests_NumberOfPollersFollowsLoad(t *testing.T) {
	t.Parallel()
	s := startStopped(t)
	transport := openConfigured(t, s.longPolls(sqs.Config{NoLongDelays: true, VisibilityTimeout: 10 * time.Minute}))
	if err := transport.Provision(t.Context(), core.Topology{InputQueue: "billing", Queues: []string{"billing"}}); err != nil {
		t.Fatal(err)
	}
	receiver := openReceiver(t, transport, "billing", 100)
	s.awaitPolls(t, "billing", 1)
	for _, c := range []struct{ messages, polls int }{
		{9, 1},    // is no full answer
		{20, 3},   // two full answers
		{100, 10}, // as many as the places need, although more answers were full
	} {
		if err := transport.Send(t.Context(), messages(c.messages, core.Outgoing{ID: "1", Queue: "billing"})...); err != nil {
			t.Fatal(err)
		}
		for _, d := range take(t, receiver, c.messages) {
			if err := d.Complete(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		s.awaitPolls(t, "billing", c.polls)
	}
	s.ResetRequests()
	const rounds = 3
	for round := range rounds {
		s.Advance(20 * time.Second) // the polls end without messages
		await(t, "the next poll begins", func() bool { return s.Requests("billing")["ReceiveMessage"] > round })
		s.awaitPolls(t, "billing", 1)
	}
	if got := s.Requests("billing")["ReceiveMessage"]; got != rounds {
		t.Errorf("%d rounds of polls without messages had %d requests", rounds, got)
	}
	await(t, "the pollers that are not needed have ended", func() bool { return sqs.Pollers(receiver) == 1 })
	s.closeDuringPolls(t, transport, receiver, func() { s.Advance(20 * time.Second) })
}

// gate is an HTTP client that holds requests of an operation up.
type gate struct {
	operation string
	arrived   chan struct{} // gets a value for each request
	open      chan struct{} // each request waits for a value

	mu        sync.Mutex
	deadlines []time.Time // of the requests
}

func newGate(operation string) *gate {
	return &gate{operation: operation, arrived: make(chan struct{}, 100), open: make(chan struct{}, 100)}
}

// Do implements aws.HTTPClient.
func (g *gate) Do(r *http.Request) (*http.Response, error) {
	if r.Header.Get("X-Amz-Target") == "AmazonSQS."+g.operation {
		deadline, _ := r.Context().Deadline()
		g.mu.Lock()
		g.deadlines = append(g.deadlines, deadline)
		g.mu.Unlock()
		g.arrived <- struct{}{}
		select {
		case <-g.open:
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	return http.DefaultClient.Do(r)
}

// isSettling reports whether a settlement of a delivery is in progress, or has succeeded.
func isSettling(d core.Delivery) bool {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	return errors.Is(d.Complete(ended), core.ErrSettled)
}

// A renewal that arrived after the return of a message would lock it again, or end a postponement early.
func TestSettle_ReturnWaitsForRenewal(t *testing.T) {
	t.Parallel()
	for name, settle := range map[string]func(context.Context, core.Delivery) error{
		"Abandon":  func(ctx context.Context, d core.Delivery) error { return d.Abandon(ctx, errors.New("it failed")) },
		"Release":  func(ctx context.Context, d core.Delivery) error { return d.Release(ctx) },
		"Postpone": func(ctx context.Context, d core.Delivery) error { return d.Postpone(ctx, time.Hour, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startSite(t, testserver.Config{})
			s.queue(t, "billing.fifo")
			held := newGate("ChangeMessageVisibilityBatch")
			cfg := configured(sqs.Config{NoLongDelays: true, VisibilityTimeout: 10 * time.Minute}, s.URL())
			cfg.AWS.HTTPClient = held
			transport := openConfigured(t, cfg)
			if err := transport.Send(t.Context(), core.Outgoing{ID: "m-1", Queue: "billing.fifo", GroupKey: "customer 7"}); err != nil {
				t.Fatal(err)
			}
			receiver := openReceiver(t, transport, "billing.fifo", 1)
			d := take(t, receiver, 1)[0]
			receiver.SetMaxInFlight(0)
			renewed, settled := make(chan error, 1), make(chan error, 1)
			go func() { renewed <- d.Renew(t.Context()) }()
			<-held.arrived
			go func() { settled <- settle(t.Context(), d) }()
			await(t, "the settlement has begun", func() bool { return isSettling(d) })
			select {
			case <-held.arrived:
				t.Error("the return left before the renewal was answered")
			case <-time.After(100 * time.Millisecond): // more than enough for a request that would leave at once
			}
			held.open <- struct{}{}
			if err := <-renewed; err != nil {
				t.Errorf("Renew: %v", err)
			}
			if err := d.Renew(t.Context()); !errors.Is(err, core.ErrSettled) {
				t.Errorf("a renewal during the return: %v", err)
			}
			held.open <- struct{}{}
			if err := <-settled; err != nil {
				t.Errorf("%s: %v", name, err)
			}
			c := s.contents(t, "billing.fifo")
			if name == "Postpone" {
				if len(c.InFlight) != 1 || c.InFlight[0].Due.Sub(s.Now()) < 50*time.Minute {
					t.Errorf("the queue has %+v", c)
				}
			} else if len(c.Ready) != 1 {
				t.Errorf("the queue has %+v", c)
			}
		})
	}
}

// A caller that gives up while a renewal is in progress has settled nothing.
func TestSettle_CallerGivesUpDuringRenewal(t *testing.T) {
	t.Parallel()
	s := startSite(t, testserver.Config{})
	s.queue(t, "billing")
	held := newGate("ChangeMessageVisibilityBatch")
	cfg := configured(sqs.Config{NoLongDelays: true, VisibilityTimeout: 10 * time.Minute}, s.URL())
	cfg.AWS.HTTPClient = held
	transport := openConfigured(t, cfg)
	s.put(t, "billing", "hello", nil)
	d := take(t, openReceiver(t, transport, "billing", 1), 1)[0]
	renewed := make(chan error, 1)
	go func() { renewed <- d.Renew(t.Context()) }()
	<-held.arrived
	ctx, cancel := context.WithCancel(t.Context())
	settled := make(chan error, 1)
	go func() { settled <- d.Release(ctx) }()
	await(t, "the settlement has begun", func() bool { return isSettling(d) })
	cancel()
	if err := <-settled; !errors.Is(err, context.Canceled) {
		t.Errorf("Release: %v", err)
	}
	held.open <- struct{}{}
	if err := <-renewed; err != nil {
		t.Errorf("Renew: %v", err)
	}
	if err := d.Complete(t.Context()); err != nil {
		t.Errorf("Complete: %v", err)
	}
}

// failOnce is an HTTP client whose first request for messages fails.
type failOnce struct {
	*gate
	first sync.Once
}

// Do implements aws.HTTPClient.
func (f *failOnce) Do(r *http.Request) (*http.Response, error) {
	response, err := f.gate.Do(r)
	if err == nil && r.Header.Get("X-Amz-Target") == "AmazonSQS."+f.operation {
		f.first.Do(func() {
			_ = response.Body.Close()
			response, err = nil, io.ErrUnexpectedEOF
		})
	}
	return response, err
}

// The SDK repeats a request for messages that failed, and the next attempt has all the time that a poll takes.
func TestReceive_EachAttemptHasTimeForPoll(t *testing.T) {
	t.Parallel()
	s := startSite(t, testserver.Config{})
	s.queue(t, "billing")
	client := &failOnce{gate: newGate("ReceiveMessage")}
	cfg := configured(sqs.Config{NoLongDelays: true}, s.URL())
	cfg.AWS.HTTPClient = client
	transport := openConfigured(t, cfg)
	close(client.open)
	receiver := openReceiver(t, transport, "billing", 1)
	for range 2 {
		select {
		case <-client.arrived:
		case <-time.After(patience):
			t.Fatal("the request is not repeated")
		}
	}
	client.mu.Lock()
	first, second := client.deadlines[0], client.deadlines[1]
	client.mu.Unlock()
	if !second.After(first) {
		t.Errorf("the first attempt may take until %v, and the second one until %v", first, second)
	}
	s.put(t, "billing", "hello", nil)
	take(t, receiver, 1)
}

// Long delays end late while the receiver cannot forward messages, so its observer is told.
func TestDelay_ReportsThatItCannotForward(t *testing.T) {
	t.Parallel()
	s := startSite(t, testserver.Config{})
	s.provisioned(t, sqs.Config{}, "billing")
	cfg := configured(sqs.Config{}, s.URL())
	cfg.AWS.RetryMaxAttempts = 1
	transport := openConfigured(t, cfg)
	seen := &outages{}
	receiver, err := transport.OpenReceiver(t.Context(), core.ReceiverConfig{
		Queue: "billing", Mode: core.TransactionReceiveOnly, MaxInFlight: 1, MaxDeliveries: 1000, ConnectionChanged: seen.ConnectionChanged,
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.sqs.DeleteQueue(t.Context(), &awssqs.DeleteQueueInput{QueueUrl: aws.String(s.QueueURL("billing-delay.fifo"))}); err != nil {
		t.Fatal(err)
	}
	await(t, "the missing queue is reported", func() bool { return seen.failures(`"billing-delay.fifo"`) > 0 })
	if said := seen.list()[0].Err.Error(); !strings.Contains(said, `"billing"`) || !strings.Contains(said, "15m0s") || !strings.Contains(said, "Provision") {
		t.Errorf("this is reported: %s", said)
	}
	s.put(t, "billing", "hello", nil)
	take(t, receiver, 1)                 // the others are received
	s.Advance(time.Minute + time.Second) // the name cannot be used for a minute
	s.provisioned(t, sqs.Config{}, "billing")
	await(t, "the end is reported", func() bool {
		changes := seen.list()
		return changes[len(changes)-1].Connected
	})
}
