//go:build darwin || linux

package sqs_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
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

// Any sender can write the attributes that tell how long a message is to wait. These tests
// are about the effects.

type attributes = map[string]types.MessageAttributeValue

// milliseconds is the value of an attribute.
func milliseconds(d time.Duration) types.MessageAttributeValue {
	return text(strconv.FormatInt(d.Milliseconds(), 10))
}

// putInGroup sends a message to a FIFO queue with the bare SDK.
func (s *site) putInGroup(t *testing.T, queue, group, body string, attributes attributes) {
	t.Helper()
	if _, err := s.sqs.SendMessage(t.Context(), &awssqs.SendMessageInput{
		QueueUrl: aws.String(s.QueueURL(queue)), MessageBody: &body, MessageAttributes: attributes,
		MessageGroupId: &group, MessageDeduplicationId: aws.String(strconv.FormatInt(time.Now().UnixNano(), 10)),
	}); err != nil {
		t.Fatal(err)
	}
}

// runEndpoint runs an endpoint, whose handler gets the bodies, until the test ends.
func runEndpoint(t *testing.T, transport core.Transport, queue string, cfg core.Config, handle func(body string) error) *core.Endpoint {
	t.Helper()
	return runMessages(t, transport, queue, cfg, func(m *core.Message) error { return handle(string(m.RawBody())) })
}

// runMessages runs an endpoint, whose handler gets the messages, until the test ends.
func runMessages(t *testing.T, transport core.Transport, queue string, cfg core.Config, handle func(m *core.Message) error) *core.Endpoint {
	t.Helper()
	cfg.Logger, cfg.Recoverability.ErrorQueue = slog.New(slog.DiscardHandler), "error"
	endpoint, err := core.New(queue, transport, cfg)
	if err != nil {
		t.Fatal(err)
	}
	core.HandleDefault(endpoint, func(_ context.Context, m *core.Message) error { return handle(m) })
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- endpoint.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return endpoint
}

// A message that waits is not in the group of others: a sender may have put it there, or a FIFO topic.
func TestDelay_DoesNotBlockItsGroup(t *testing.T) {
	t.Parallel()
	const wait = 10 * time.Hour
	for name, c := range map[string]struct {
		group string
		send  func(t *testing.T, s *site, transport *sqs.Transport)
		key   string // GroupKey of the delayed message in the end
	}{
		"an attribute of a sender": {"customer-7", func(t *testing.T, s *site, _ *sqs.Transport) {
			s.putInGroup(t, "billing.fifo", "customer-7", "late", attributes{"Reprise.Wait": milliseconds(wait)})
		}, ""},
		"a group with a name of the adapter's": {"reprise-ungrouped-x", func(t *testing.T, s *site, _ *sqs.Transport) {
			s.putInGroup(t, "billing.fifo", "reprise-ungrouped-x", "late", attributes{"Reprise.Wait": milliseconds(wait)})
		}, ""},
		"a delayed event": {"customer-7", func(t *testing.T, _ *site, transport *sqs.Transport) {
			if err := transport.Subscribe(t.Context(), "billing.fifo", "Order.fifo"); err != nil {
				t.Fatal(err)
			}
			if err := transport.Send(t.Context(), core.Outgoing{
				ID: "m-1", Topic: "Order.fifo", Body: []byte("late"), GroupKey: "customer-7", Delay: wait, Headers: headersOf(headers.MessageID, "m-1"),
			}); err != nil {
				t.Fatal(err)
			}
		}, "customer-7"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startSite(t, testserver.Config{})
			transport := s.provisioned(t, sqs.Config{VisibilityTimeout: 10 * time.Minute}, "billing.fifo")
			c.send(t, s, transport)
			await(t, "the delayed message arrives", func() bool { return len(s.contents(t, "billing.fifo").Ready) == 1 })
			const others = 10
			for i := range others {
				s.putInGroup(t, "billing.fifo", c.group, fmt.Sprint(i), nil)
			}
			receiver := openReceiver(t, transport, "billing.fifo", 2)
			for i := range others {
				d := take(t, receiver, 1)[0]
				if body := string(d.Incoming().Body); body != fmt.Sprint(i) {
					t.Fatalf("message %q arrived, want %d", body, i)
				}
				if err := d.Complete(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			await(t, "the delayed message waits", func() bool {
				c := s.contents(t, "billing.fifo")
				return len(c.Ready) == 0 && len(c.InFlight) == 1 && c.InFlight[0].Due.Sub(s.Now()) > wait-time.Hour
			})
			s.Advance(wait)
			if in := take(t, receiver, 1)[0].Incoming(); string(in.Body) != "late" || in.GroupKey != c.key || in.Malformed != nil {
				t.Errorf("after the delay this arrived: %q of the group %q, malformed: %v", in.Body, in.GroupKey, in.Malformed)
			}
		})
	}
}

// Each copy of a message in an envelope of SNS has the envelope, with the delay in it.
func TestDelay_InEnvelopeEnds(t *testing.T) {
	t.Parallel()
	for queue, delays := range map[string][]time.Duration{"billing": {time.Minute, time.Hour}, "billing.fifo": {time.Minute}} {
		for _, delay := range delays {
			t.Run(queue+" "+delay.String(), func(t *testing.T) {
				t.Parallel()
				s := startSite(t, testserver.Config{})
				transport := s.provisioned(t, sqs.Config{NoLongDelays: true, VisibilityTimeout: 10 * time.Minute}, queue)
				envelope := fmt.Sprintf(`{"Type":"Notification","TopicArn":"arn:aws:sns:us-east-1:1:t","Message":"hello","MessageAttributes":{"Reprise.Wait":{"Type":"String","Value":"%d"}}}`, delay.Milliseconds())
				if queue == "billing" {
					s.put(t, queue, envelope, nil)
				} else {
					s.putInGroup(t, queue, "customer-7", envelope, nil)
				}
				receiver := openReceiver(t, transport, queue, 1)
				await(t, "the message is delayed", func() bool {
					c := s.contents(t, queue)
					waiting := slices.Concat(c.Delayed, c.InFlight)
					return len(waiting) == 1 && waiting[0].Due.Sub(s.Now()) > delay-30*time.Second && waiting[0].Due.Sub(s.Now()) != 10*time.Minute
				})
				s.Advance(delay)
				d := take(t, receiver, 1)[0]
				if in := d.Incoming(); string(in.Body) != "hello" || in.Malformed != nil {
					t.Errorf("this arrived: %q, malformed: %v", in.Body, in.Malformed)
				}
				if err := d.Complete(t.Context()); err != nil {
					t.Error(err)
				}
				if c := s.contents(t, queue); len(c.Ready)+len(c.Delayed)+len(c.InFlight) > 0 {
					t.Errorf("the queue has %+v", c)
				}
			})
		}
	}
}

func TestDelay_MaxDelay(t *testing.T) {
	t.Parallel()
	const limit = 40 * time.Minute
	warned := func(t *testing.T, transport *sqs.Transport) {
		t.Helper()
		if texts := transport.Warnings(); len(texts) != 1 || !strings.Contains(texts[0], "Config.MaxDelay") || !strings.Contains(texts[0], "40m0s") {
			t.Errorf("the warnings are %q", texts)
		}
	}
	for name, value := range map[string]string{
		"NServiceBus.AmazonSQS.DelaySeconds": "9223372035", "Reprise.Delay": "9223372036854", "Reprise.Due": "9223372036854775807",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startStopped(t)
			transport := s.provisioned(t, sqs.Config{MaxDelay: limit}, "billing")
			receiver := openReceiver(t, transport, "billing", 10)
			s.putInGroup(t, "billing-delay.fifo", "x", "hello", attributes{name: text(value)})
			s.arrives(t, receiver, s.Now().Add(limit))
			warned(t, transport)
			s.closeOnStoppedClock(t, transport, receiver)
		})
	}
	for _, queue := range []string{"billing", "billing.fifo"} {
		t.Run("Reprise.Wait in "+queue, func(t *testing.T) {
			t.Parallel()
			s := startSite(t, testserver.Config{})
			transport := s.provisioned(t, sqs.Config{MaxDelay: limit, NoLongDelays: true}, queue)
			wait := attributes{"Reprise.Wait": text("9223372036854")}
			if queue == "billing" {
				s.put(t, queue, "hello", wait)
			} else {
				s.putInGroup(t, queue, "customer-7", "hello", wait)
			}
			receiver := openReceiver(t, transport, queue, 1)
			await(t, "the message waits", func() bool {
				c := s.contents(t, queue)
				return len(c.InFlight) == 1 && c.InFlight[0].Due.Sub(s.Now()) > limit-time.Minute
			})
			if left := s.contents(t, queue).InFlight[0].Due.Sub(s.Now()); left > limit+time.Second {
				t.Errorf("the message waits for %v", left)
			}
			s.Advance(limit + time.Second)
			take(t, receiver, 1)
			warned(t, transport)
		})
	}
	t.Run("Send", func(t *testing.T) {
		t.Parallel()
		s := startSite(t, testserver.Config{})
		transport := s.provisioned(t, sqs.Config{MaxDelay: limit}, "billing")
		out := core.Outgoing{ID: "m-1", Queue: "billing", Delay: limit}
		if err := transport.Send(t.Context(), out); err != nil {
			t.Error(err)
		}
		out.Delay++
		if r := resultsOf(t, transport.Send(t.Context(), out), 1)[0]; r.State != core.SendRefused || !errors.Is(r.Err, errors.ErrUnsupported) {
			t.Errorf("a message with a delay above MaxDelay is %v: %v", r.State, r.Err)
		}
		for cfg, want := range map[*sqs.Config]time.Duration{
			{}: 10 * 8766 * time.Hour, {MaxDelay: limit}: limit, {NoLongDelays: true}: 15 * time.Minute, {NoLongDelays: true, MaxDelay: time.Minute}: time.Minute,
		} {
			if got := s.open(t, *cfg).Capabilities().MaxDelay; got != want {
				t.Errorf("with %v Capabilities.MaxDelay is %v, want %v", cfg, got, want)
			}
		}
	})
}

// many returns attributes, as many as a message may have.
func many(given attributes) attributes {
	for i := 0; len(given) < 10; i++ {
		given["a"+strconv.Itoa(i)] = text("b")
	}
	return given
}

// failure returns the reason for which a message was moved to the error queue.
func failure(t *testing.T, transport core.Transport) string {
	t.Helper()
	in := take(t, openReceiver(t, transport, "error", 1), 1)[0].Incoming()
	return in.Headers.Get(headers.ExceptionMessage)
}

// Attributes that leave no room for those of a copy that waits become headers alone.
func TestDelay_OfMessageWithTenAttributes(t *testing.T) {
	t.Parallel()
	own := `{"NServiceBus.MessageId":"m-1","NServiceBus.AmazonSQS.TimeToBeReceived":"1.00:00:00"}`
	for name, c := range map[string]struct {
		sent attributes
		body string // that arrives
	}{
		"raw":         {attributes{headersAttribute: text(own)}, "hello"},
		"foreign":     {attributes{"n": {DataType: aws.String("Number"), StringValue: aws.String("1")}}, "hello"},
		"stored body": {attributes{headersAttribute: text(own), "S3BodyKey": text("key")}, "a large body"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startSite(t, testserver.Config{})
			bodies := newStoredBodies()
			bodies.bodies["key"] = []byte("a large body")
			transport := s.provisioned(t, sqs.Config{NoLongDelays: true, Bodies: bodies}, "billing")
			c.sent["Reprise.Wait"] = milliseconds(10 * time.Minute)
			s.put(t, "billing", "hello", many(c.sent))
			receiver := openReceiver(t, transport, "billing", 1)
			await(t, "its copy waits", func() bool {
				c := s.contents(t, "billing")
				return len(c.Delayed) == 1 && len(c.InFlight) == 0
			})
			s.Advance(10 * time.Minute)
			in := take(t, receiver, 1)[0].Incoming()
			if in.Malformed != nil || string(in.Body) != c.body || in.ID != "m-1" && name != "foreign" {
				t.Errorf("the message %q arrives with the body %q, malformed: %v", in.ID, in.Body, in.Malformed)
			}
			if got := in.Headers.Get("n") + in.Headers.Get("a0"); name == "foreign" && got != "1b" {
				t.Errorf("the headers are %q", in.Headers.Map())
			}
		})
	}
}

// SQS refuses a copy with more bytes than it allows. The message has them with other attributes than those of its copy.
func TestDelay_CopyWouldBeRefused(t *testing.T) {
	t.Parallel()
	envelope := `{"Type":"Notification","TopicArn":"arn:aws:sns:us-east-1:1:t","Message":"hello","MessageAttributes":{"Reprise.Wait":{"Type":"String","Value":"600000"}}}`
	wait := attributes{"Reprise.Wait": text("600000")}
	for name, c := range map[string]struct {
		body       string
		attributes attributes
	}{
		"bytes":             {strings.Repeat("x", 1<<20-len("Reprise.Wait"+"600000"+"String")), wait},
		"bytes in envelope": {envelope + strings.Repeat(" ", 1<<20-len(envelope)), nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startSite(t, testserver.Config{})
			transport := s.provisioned(t, sqs.Config{NoLongDelays: true}, "billing")
			s.put(t, "billing", c.body, c.attributes)
			if in := take(t, openReceiver(t, transport, "billing", 1), 1)[0].Incoming(); in.Malformed == nil || !strings.Contains(in.Malformed.Error(), "bytes with its attributes") {
				t.Errorf("malformed: %v", in.Malformed)
			}
		})
	}
	// The service may refuse a message for another reason.
	t.Run("by the service", func(t *testing.T) {
		t.Parallel()
		s := startSite(t, testserver.Config{})
		transport := s.provisioned(t, sqs.Config{NoLongDelays: true}, "billing")
		s.put(t, "billing", strings.Repeat("x", 2000), attributes{"Reprise.Wait": text("60000")})
		s.setAttribute(t, "billing", "MaximumMessageSize", "1024")
		if in := take(t, openReceiver(t, transport, "billing", 1), 1)[0].Incoming(); in.Malformed == nil || !strings.Contains(in.Malformed.Error(), "the service refused it") {
			t.Errorf("malformed: %v", in.Malformed)
		}
	})
}

// The copy for the next 15 minutes has other attributes than the message, and more bytes. Messages beside it are not held up.
func TestDelay_LongCopyWouldBeRefused(t *testing.T) {
	t.Parallel()
	s := startSite(t, testserver.Config{})
	transport := s.provisioned(t, sqs.Config{}, "billing", "error")
	handled := make(chan string, 10)
	endpoint := runEndpoint(t, transport, "billing", core.Config{}, func(body string) error {
		handled <- body
		return nil
	})
	delay := milliseconds(time.Hour)
	s.setAttribute(t, "billing-delay.fifo", "MaximumMessageSize", "1024")
	s.putInGroup(t, "billing-delay.fifo", "x", strings.Repeat("x", 1<<10-len("Reprise.Delay"+*delay.StringValue+"String")), attributes{"Reprise.Delay": delay})
	s.putInGroup(t, "billing-delay.fifo", "y", "beside it", attributes{"Reprise.Delay": milliseconds(20 * time.Minute)})
	s.Advance(15 * time.Minute)
	if text := failure(t, transport); !strings.Contains(text, "its delay cannot be honoured") {
		t.Errorf("the message failed because of: %s", text)
	}
	await(t, "the other message is forwarded", func() bool { return len(s.contents(t, "billing").Delayed) == 1 })
	s.Advance(5 * time.Minute)
	select {
	case body := <-handled:
		if body != "beside it" {
			t.Errorf("%q is handled", body)
		}
	case <-time.After(patience):
		t.Fatal("the other message is not handled")
	}
	if state := endpoint.Health(); !state.Connected {
		t.Errorf("the endpoint reports an outage: %+v", state)
	}
	await(t, "the queue of long delays is empty", func() bool { // copies arrive before their originals are deleted
		c := s.contents(t, "billing-delay.fifo")
		return len(c.Ready)+len(c.Delayed)+len(c.InFlight) == 0
	})
}

// The groups in which messages wait are the adapter's alone.
func TestSend_GroupKeyWithTheNameOfTheAdapters(t *testing.T) {
	t.Parallel()
	s := startSite(t, testserver.Config{})
	transport := s.provisioned(t, sqs.Config{NoLongDelays: true}, "billing.fifo")
	receiver := openReceiver(t, transport, "billing.fifo", 1)
	for _, key := range []string{"reprise-ungrouped-", "reprise-ungrouped-waiting-x"} {
		if err := transport.Send(t.Context(), core.Outgoing{ID: "m-1", Queue: "billing.fifo", GroupKey: key}); err != nil {
			t.Fatal(err)
		}
		d := take(t, receiver, 1)[0]
		if got := d.Incoming().GroupKey; got != key {
			t.Errorf("the group key is %q, want %q", got, key)
		}
		if group := s.contents(t, "billing.fifo").InFlight[0].GroupID; strings.HasPrefix(group, "reprise-") {
			t.Errorf("the group of the key %q is %q", key, group)
		}
		if err := d.Complete(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
