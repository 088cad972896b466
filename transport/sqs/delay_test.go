//go:build darwin || linux

package sqs_test

import (
	"context"
	"errors"
	"slices"
	"strings"
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

// startStopped starts a server whose clock moves with Advance alone.
func startStopped(t *testing.T) *site {
	t.Helper()
	stopped := time.Now().Truncate(time.Millisecond)
	return startSite(t, testserver.Config{Now: func() time.Time { return stopped }})
}

// closeOnStoppedClock closes a transport whose receiver has polls that wait, and ends them.
func (s *site) closeOnStoppedClock(t *testing.T, transport *sqs.Transport, r core.Receiver) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, queue := range []string{"billing", "billing-delay.fifo"} {
		if err := s.AwaitPolls(ctx, queue, 1); err != nil {
			t.Fatal(err)
		}
	}
	closed := make(chan error, 1)
	go func() { closed <- transport.Close(t.Context()) }()
	for {
		_, err := r.Receive(t.Context(), make([]core.Delivery, 1))
		if errors.Is(err, core.ErrClosed) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	s.Advance(time.Second) // Config.WaitTime
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
}

// hop moves the clock to the time when the one message in "billing-delay.fifo" is received, and waits until it is in
// a queue again. It returns the message if that is "billing".
func (s *site) hop(t *testing.T) (arrived testserver.Message, ok bool) {
	t.Helper()
	waiting := s.contents(t, "billing-delay.fifo")
	if len(waiting.Delayed) != 1 || len(waiting.Ready)+len(waiting.InFlight) > 0 {
		t.Fatalf("the queue of long delays has %+v", waiting)
	}
	before := waiting.Delayed[0]
	s.Advance(before.Due.Sub(s.Now()))
	await(t, "the message is forwarded", func() bool {
		waiting := s.contents(t, "billing-delay.fifo")
		if len(waiting.Ready)+len(waiting.InFlight) > 0 || len(waiting.Delayed) == 1 && waiting.Delayed[0].ID == before.ID {
			return false
		}
		c := s.contents(t, "billing")
		if found := slices.Concat(c.Delayed, c.Ready); len(waiting.Delayed) == 0 && len(found) == 1 {
			arrived, ok = found[0], true
		}
		return ok || len(waiting.Delayed) == 1
	})
	return arrived, ok
}

// arrives moves the clock until a message that waits in "billing-delay.fifo" is delivered, and verifies that this is when it is due.
func (s *site) arrives(t *testing.T, receiver core.Receiver, due time.Time) core.Delivery {
	t.Helper()
	for {
		m, ok := s.hop(t)
		if !ok {
			if s.Now().After(due) {
				t.Fatalf("it is %v, and the message that is due at %v still waits", s.Now(), due)
			}
			continue
		}
		// To the second, and never early.
		if lateness := m.Due.Sub(due); lateness < 0 || lateness >= time.Second {
			t.Errorf("the message is delivered at %v, and is due at %v: %v late", m.Due, due, lateness)
		}
		s.Advance(m.Due.Sub(s.Now()))
		d := take(t, receiver, 1)[0]
		if at := d.Incoming().EnqueuedAt; !at.Equal(m.Due) {
			t.Errorf("EnqueuedAt is %v, want %v", at, m.Due)
		}
		return d
	}
}

func TestDelay_LongerThan15Minutes(t *testing.T) {
	t.Parallel()
	for _, delay := range []time.Duration{
		15*time.Minute + time.Second, 15*time.Minute + 500*time.Millisecond, 20 * time.Minute, 30 * time.Minute, 30*time.Minute + time.Second, 45 * time.Minute, 3*time.Hour + 7*time.Second,
	} {
		t.Run(delay.String(), func(t *testing.T) {
			t.Parallel()
			s := startStopped(t)
			transport := s.provisioned(t, sqs.Config{}, "billing")
			receiver := openReceiver(t, transport, "billing", 10)
			due := s.Now().Add(delay)
			out := core.Outgoing{
				ID: "m-1", Queue: "billing", Body: []byte("hello"), Delay: delay, GroupKey: "customer 7",
				Headers: headersOf(headers.MessageID, "m-1", "a", "b"),
			}
			if err := transport.Send(t.Context(), out); err != nil {
				t.Fatal(err)
			}
			d := s.arrives(t, receiver, due)
			in := d.Incoming()
			if in.ID != "m-1" || string(in.Body) != "hello" || in.Headers.Get("a") != "b" || in.GroupKey != "customer 7" || in.DeliveryCount != 1 {
				t.Errorf("this arrived: %+v", in)
			}
			if err := d.Complete(t.Context()); err != nil {
				t.Error(err)
			}
			s.closeOnStoppedClock(t, transport, receiver)
		})
	}
}

// Any instance of the endpoint forwards the message on the next hop: the queue has all that is needed.
func TestDelay_SurvivesReopening(t *testing.T) {
	t.Parallel()
	s := startStopped(t)
	transport := s.provisioned(t, sqs.Config{}, "billing")
	due := s.Now().Add(70 * time.Minute)
	if err := transport.Send(t.Context(), core.Outgoing{ID: "m-1", Queue: "billing", Delay: 70 * time.Minute}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		receiver := openReceiver(t, transport, "billing", 10)
		if _, arrived := s.hop(t); arrived {
			t.Fatalf("the message arrived %v early", due.Sub(s.Now()))
		}
		s.closeOnStoppedClock(t, transport, receiver)
		transport = s.open(t, sqs.Config{})
	}
	receiver := openReceiver(t, transport, "billing", 10)
	s.arrives(t, receiver, due)
	s.closeOnStoppedClock(t, transport, receiver)
}

// A message that an instance received, and could not send on before it ended, is sent on by the next instance, and arrives on
// time: after further hops, and after the last one. The machine's clock differs from the service's.
func TestDelay_SurvivesEndDuringHop(t *testing.T) {
	t.Parallel()
	for name, delay := range map[string]time.Duration{"first hop": 70 * time.Minute, "last hop": 25 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startStopped(t)
			transport := s.provisioned(t, sqs.Config{}, "billing")
			receiver := openReceiver(t, transport, "billing", 10)
			due := s.Now().Add(delay)
			if err := transport.Send(t.Context(), core.Outgoing{ID: "m-1", Queue: "billing", Delay: delay}); err != nil {
				t.Fatal(err)
			}
			failed := s.Reject(testserver.Match{Operation: "SendMessageBatch", Times: -1}, testserver.AccessDenied)
			before := s.contents(t, "billing-delay.fifo").Delayed[0]
			s.Advance(before.Due.Sub(s.Now()))
			select {
			case <-failed:
			case <-time.After(patience):
				t.Fatal("the message is not sent on")
			}
			closed := make(chan error, 1)
			go func() { closed <- transport.Close(t.Context()) }()
			await(t, "the receiver begins to close", func() bool {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
				defer cancel()
				_, err := receiver.Receive(ctx, make([]core.Delivery, 1))
				return errors.Is(err, core.ErrClosed)
			})
			s.Advance(time.Second) // Config.WaitTime
			if err := <-closed; err != nil {
				t.Fatal(err)
			}
			s.ClearFaults()
			s.Advance(30 * time.Second) // a lock that was left ends
			transport = s.open(t, sqs.Config{})
			receiver = openReceiver(t, transport, "billing", 10)
			var sent testserver.Message
			await(t, "the next instance sends the message on", func() bool {
				c, long := s.contents(t, "billing"), s.contents(t, "billing-delay.fifo")
				found := slices.Concat(c.Delayed, long.Delayed)
				if len(found) != 1 || found[0].ID == before.ID || len(long.Ready)+len(long.InFlight) > 0 {
					return false
				}
				sent = found[0]
				return true
			})
			if delay > 30*time.Minute {
				s.arrives(t, receiver, due)
			} else if lateness := sent.Due.Sub(due); lateness < 0 || lateness > 2*time.Second { // the next instance knows the time to the second
				t.Errorf("the message is delivered at %v, and is due at %v: %v late", sent.Due, due, lateness)
			}
			s.closeOnStoppedClock(t, transport, receiver)
		})
	}
}

// The time between receiving a message and sending it on does not add up over the hops.
func TestDelay_SlowHops(t *testing.T) {
	t.Parallel()
	s := startStopped(t)
	transport := s.provisioned(t, sqs.Config{}, "billing")
	receiver := openReceiver(t, transport, "billing", 10)
	due := s.Now().Add(70 * time.Minute)
	if err := transport.Send(t.Context(), core.Outgoing{ID: "m-1", Queue: "billing", Delay: 70 * time.Minute}); err != nil {
		t.Fatal(err)
	}
	s.DelayAnswer(testserver.Match{Operation: "ReceiveMessage", Name: "billing-delay.fifo", Times: -1}, 500*time.Millisecond)
	for range 2 {
		before := s.contents(t, "billing-delay.fifo").Delayed[0]
		s.Advance(before.Due.Sub(s.Now()))
		await(t, "the message is received", func() bool {
			c := s.contents(t, "billing-delay.fifo")
			return len(c.InFlight) == 1 || len(c.Delayed) == 1 && c.Delayed[0].ID != before.ID
		})
		s.Advance(7 * time.Second) // before it is sent on
		await(t, "the message is forwarded", func() bool {
			c := s.contents(t, "billing-delay.fifo")
			return len(c.InFlight) == 0 && len(c.Delayed) == 1 && c.Delayed[0].ID != before.ID
		})
	}
	s.ClearFaults()
	s.arrives(t, receiver, due)
	s.closeOnStoppedClock(t, transport, receiver)
}

// NServiceBus endpoints send to the same queue of long delays.
func TestDelay_SentByNServiceBus(t *testing.T) {
	t.Parallel()
	s := startStopped(t)
	transport := s.provisioned(t, sqs.Config{}, "billing")
	receiver := openReceiver(t, transport, "billing", 10)
	due := s.Now().Add(40 * time.Minute)
	if _, err := s.sqs.SendMessage(t.Context(), &awssqs.SendMessageInput{
		QueueUrl: aws.String(s.QueueURL("billing-delay.fifo")), MessageBody: aws.String(wrapperOfNServiceBus),
		MessageGroupId: aws.String("c2f02269"), MessageDeduplicationId: aws.String("c2f02269"),
		MessageAttributes: map[string]types.MessageAttributeValue{"NServiceBus.AmazonSQS.DelaySeconds": text("2400"), "tenant": text("7")},
	}); err != nil {
		t.Fatal(err)
	}
	if _, arrived := s.hop(t); arrived {
		t.Fatal("the message arrived early")
	}
	if got := s.contents(t, "billing-delay.fifo").Delayed[0].Attributes["NServiceBus.AmazonSQS.DelaySeconds"]; got != "1500" {
		t.Errorf("an NServiceBus endpoint would take the rest of the delay for %q seconds, want 1500", got)
	}
	d := s.arrives(t, receiver, due)
	m := d.Incoming().Native.(*types.Message)
	if attributes := stringsOf(t, m); *m.Body != wrapperOfNServiceBus || attributes["tenant"] != "7" || attributes["NServiceBus.AmazonSQS.DelaySeconds"] != "" {
		t.Errorf("this arrived: %q with %q", *m.Body, attributes)
	}
	s.closeOnStoppedClock(t, transport, receiver)
}

// The time to be received counts from the send, over all hops.
func TestDelay_ExpiresInBetween(t *testing.T) {
	t.Parallel()
	s := startStopped(t)
	transport := s.provisioned(t, sqs.Config{}, "billing")
	receiver := openReceiver(t, transport, "billing", 10)
	if err := transport.Send(t.Context(), core.Outgoing{ID: "m-1", Queue: "billing", Delay: time.Hour, TimeToBeReceived: 40 * time.Minute}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, arrived := s.hop(t); arrived {
			t.Fatal("the message arrived early")
		}
	}
	s.Advance(15 * time.Minute)
	await(t, "the message is deleted", func() bool {
		c := s.contents(t, "billing-delay.fifo")
		return len(c.Ready)+len(c.Delayed)+len(c.InFlight) == 0
	})
	if c := s.contents(t, "billing"); len(c.Ready)+len(c.Delayed)+len(c.InFlight) > 0 {
		t.Errorf("it is in the queue: %+v", c)
	}
	s.closeOnStoppedClock(t, transport, receiver)
}

func TestDelay_Of15MinutesAtMost(t *testing.T) {
	t.Parallel()
	s := startStopped(t)
	transport := s.provisioned(t, sqs.Config{}, "billing")
	for delay, want := range map[time.Duration]time.Duration{
		time.Nanosecond: time.Second, time.Second: time.Second, 1500 * time.Millisecond: 2 * time.Second,
		15*time.Minute - 1: 15 * time.Minute, 15 * time.Minute: 15 * time.Minute,
	} {
		if err := transport.Send(t.Context(), core.Outgoing{ID: delay.String(), Queue: "billing", Delay: delay}); err != nil {
			t.Errorf("%v: %v", delay, err)
			continue
		}
		for _, m := range s.contents(t, "billing").Delayed {
			if got := m.Due.Sub(s.Now()); m.Attributes["NServiceBus.MessageId"] == delay.String() && got != want {
				t.Errorf("a message with a delay of %v is delayed by %v, want %v", delay, got, want)
			}
		}
	}
	if n := len(s.contents(t, "billing").Delayed); n != 5 {
		t.Errorf("%d messages are delayed", n)
	}
}

func TestDelay_QueueOfLongDelaysIsMissing(t *testing.T) {
	t.Parallel()
	s := startSite(t, testserver.Config{})
	s.provisioned(t, sqs.Config{NoLongDelays: true, QueuePrefix: "test-"}, "billing")
	transport := s.open(t, sqs.Config{QueuePrefix: "test-"})
	out := core.Outgoing{ID: "m-1", Queue: "billing", Delay: 16 * time.Minute}
	r := resultsOf(t, transport.Send(t.Context(), out), 1)[0]
	if r.State != core.SendRefused || !errors.Is(r.Err, errors.ErrUnsupported) || errors.Is(r.Err, core.ErrQueueNotFound) {
		t.Errorf("the message is %v: %v", r.State, r.Err)
	}
	for _, said := range []string{"16m0s", `"billing"`, `"test-billing-delay.fifo"`, "Provision", "Config.NoLongDelays"} {
		if !strings.Contains(r.Err.Error(), said) {
			t.Errorf("the error does not say %s: %v", said, r.Err)
		}
	}
	out.Delay = 15 * time.Minute
	if err := transport.Send(t.Context(), out); err != nil {
		t.Error(err)
	}
	out.Queue, out.Delay = "nowhere", 16*time.Minute
	if r := resultsOf(t, transport.Send(t.Context(), out), 1)[0]; !errors.Is(r.Err, core.ErrQueueNotFound) {
		t.Errorf("the error of a queue that does not exist is: %v", r.Err)
	}
}

// An endpoint learns at its start that it cannot honour long delays.
func TestCheck_QueueOfLongDelaysIsMissing(t *testing.T) {
	t.Parallel()
	s := startSite(t, testserver.Config{})
	short := s.provisioned(t, sqs.Config{NoLongDelays: true, QueuePrefix: "test-"}, "billing", "error")
	own := core.Topology{InputQueue: "billing", Queues: []string{"billing", "error"}}
	if err := short.Check(t.Context(), own); err != nil {
		t.Errorf("without long delays: %v", err)
	}
	transport := s.open(t, sqs.Config{QueuePrefix: "test-"})
	err := transport.Check(t.Context(), own)
	if !errors.Is(err, core.ErrQueueNotFound) {
		t.Fatalf("the error is: %v", err)
	}
	for _, said := range []string{`"billing"`, `"test-billing-delay.fifo"`, "15m0s", "Provision", "NoLongDelays"} {
		if !strings.Contains(err.Error(), said) {
			t.Errorf("the error does not say %s: %v", said, err)
		}
	}
	if strings.Contains(err.Error(), "error-delay") {
		t.Errorf("the error is about a queue that is not the endpoint's: %v", err)
	}
	if err := transport.Provision(t.Context(), own); err != nil {
		t.Fatal(err)
	}
	if err := transport.Check(t.Context(), own); err != nil {
		t.Errorf("after Provision: %v", err)
	}
}

func TestDelay_NoLongDelays(t *testing.T) {
	t.Parallel()
	s := startSite(t, testserver.Config{})
	s.provisioned(t, sqs.Config{}, "with") // has a queue of long delays
	transport := s.provisioned(t, sqs.Config{NoLongDelays: true}, "billing")
	if queues := s.Queues(); !slices.Equal(queues, []string{"billing", "with", "with-delay.fifo"}) {
		t.Errorf("these queues were created: %q", queues)
	}
	if limit := transport.Capabilities().MaxDelay; limit != 15*time.Minute {
		t.Errorf("Capabilities.MaxDelay is %v", limit)
	}
	s.ResetRequests()
	err := transport.Send(t.Context(), core.Outgoing{ID: "m-1", Queue: "with", Delay: 15*time.Minute + 1})
	if r := resultsOf(t, err, 1)[0]; r.State != core.SendRefused || !errors.Is(r.Err, errors.ErrUnsupported) {
		t.Errorf("the message is %v: %v", r.State, r.Err)
	}
	openReceiver(t, transport, "with", 10)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := s.AwaitPolls(ctx, "with", 1); err != nil {
		t.Fatal(err)
	}
	if requests := s.Requests("with-delay.fifo"); len(requests) > 0 {
		t.Errorf("there were these requests for the queue of long delays: %v", requests)
	}
	if n := s.Requests("")["SendMessageBatch"]; n > 0 {
		t.Errorf("%d requests sent messages", n)
	}
}
