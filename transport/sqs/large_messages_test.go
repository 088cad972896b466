//go:build darwin || linux

package sqs_test

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/internal/testserver/fauxqs"
	testserver "github.com/reprise-go/reprise/internal/testserver/sqs"
	"github.com/reprise-go/reprise/transport/sqs"
)

// largest is the size of the largest message that SQS accepts, with its attributes.
const largest = 1 << 20

// onServers runs a test on our server and, but in short runs, on fauxqs, with queues that allow
// messages of at most limit bytes.
func onServers(t *testing.T, limit int, f func(t *testing.T, s *service, transport core.Transport)) {
	t.Helper()
	run := func(t *testing.T, s *service) {
		t.Helper()
		transport := openConfigured(t, s.configured(sqs.Config{NoLongDelays: true}, s.network))
		if err := transport.Provision(t.Context(), core.Topology{InputQueue: "billing", Queues: []string{"billing", "error"}}); err != nil {
			t.Fatal(err)
		}
		for _, queue := range []string{"billing", "error"} {
			if _, err := s.client().SetQueueAttributes(t.Context(), &awssqs.SetQueueAttributesInput{
				QueueUrl: s.url(t, queue), Attributes: map[string]string{"MaximumMessageSize": strconv.Itoa(limit)},
			}); err != nil {
				t.Fatal(err)
			}
		}
		f(t, s, transport)
	}
	t.Run("our server", func(t *testing.T) {
		t.Parallel()
		run(t, newService(t, startSite(t, testserver.Config{}).URL()))
	})
	t.Run("fauxqs", func(t *testing.T) {
		if testing.Short() {
			t.Skip("another server for the same: not in short runs")
		}
		t.Parallel()
		run(t, newService(t, fauxqs.StartFor(t).URL()))
	})
}

// foreign is a message of a sender that knows nothing of Reprise.
type foreign struct {
	body       string
	attributes attributes
}

// sized returns a message whose body begins with a name, of a size as SQS counts it.
func sized(name string, size int, given attributes) foreign {
	for name, v := range given {
		size -= len(name) + len(*v.DataType) + len(*v.StringValue)
	}
	name += " "
	return foreign{name + strings.Repeat("x", size-len(name)), given}
}

// send sends messages with the bare SDK, as many with a request as it allows.
func (s *service) send(t *testing.T, queue string, messages ...foreign) {
	t.Helper()
	client, url := s.client(), s.url(t, queue)
	for len(messages) > 0 {
		in, bytes := &awssqs.SendMessageBatchInput{QueueUrl: url}, 0
		for len(messages) > 0 && len(in.Entries) < 10 {
			m := messages[0]
			size := len(m.body)
			for name, v := range m.attributes {
				size += len(name) + len(*v.DataType) + len(*v.StringValue)
			}
			if bytes += size; bytes > largest && len(in.Entries) > 0 {
				break
			}
			in.Entries = append(in.Entries, types.SendMessageBatchRequestEntry{
				Id: aws.String(strconv.Itoa(len(in.Entries))), MessageBody: &m.body, MessageAttributes: m.attributes,
			})
			messages = messages[1:]
		}
		out, err := client.SendMessageBatch(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		if len(out.Failed) > 0 {
			t.Fatalf("the server refused a message: %s", *out.Failed[0].Message)
		}
	}
}

// receive receives and deletes n messages with the bare SDK.
func (s *service) receive(t *testing.T, queue string, n int) (received []types.Message) {
	t.Helper()
	client, url := s.client(), s.url(t, queue)
	for deadline := time.Now().Add(patience); len(received) < n; {
		out, err := client.ReceiveMessage(t.Context(), &awssqs.ReceiveMessageInput{
			QueueUrl: url, MaxNumberOfMessages: 10, WaitTimeSeconds: 1, MessageAttributeNames: []string{"All"},
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range out.Messages {
			if _, err := client.DeleteMessage(t.Context(), &awssqs.DeleteMessageInput{QueueUrl: url, ReceiptHandle: m.ReceiptHandle}); err != nil {
				t.Fatal(err)
			}
		}
		if received = append(received, out.Messages...); len(out.Messages) == 0 && time.Now().After(deadline) {
			t.Fatalf("%d of %d messages arrived in %q", len(received), n, queue)
		}
	}
	return received
}

// failing is the configuration of an endpoint without immediate retries.
func failing(delayed core.Delayed) core.Config {
	return core.Config{Recoverability: core.Recoverability{Immediate: core.Immediate{NumberOfRetries: core.Off}, Delayed: delayed}, Concurrency: 100}
}

var (
	noDelayed = core.Delayed{NumberOfRetries: core.Off}
	errFails  = errors.New("the handler fails")
)

// A queue may allow less than SQS. Each message is as large as the queue allows, and there are more of them than
// an endpoint keeps when it cannot move them.
func TestLargeMessages_FailedOnesDoNotStopTheEndpoint(t *testing.T) {
	if testing.Short() {
		t.Skip("sends a message in each of its forms, 1,100 times: not in short runs")
	}
	t.Parallel()
	const bad, good, limit = 1_100, 50, 4 << 10
	onServers(t, limit, func(t *testing.T, s *service, transport core.Transport) {
		above := sized("bad", limit+1, nil)
		out, err := s.client().SendMessageBatch(t.Context(), &awssqs.SendMessageBatchInput{
			QueueUrl: s.url(t, "billing"), Entries: []types.SendMessageBatchRequestEntry{{Id: aws.String("0"), MessageBody: &above.body}},
		})
		if err != nil || len(out.Failed) != 1 {
			t.Fatalf("the server does not refuse a message above the limit: %v", err)
		}
		var messages []foreign
		want := map[string]bool{}
		for i := range bad {
			name := fmt.Sprintf("bad %d", i)
			m := [...]foreign{
				sized(name, limit, nil),
				sized(name, limit-100, nil),
				sized(name, limit, attributes{"color": text("red"), "note": text(strings.Repeat("n", 1000))}),
				sized(name, limit*7/8, nil),
			}[i%4]
			messages = append(messages, m)
			want[m.body] = true
			if i%(bad/good) == 0 {
				messages = append(messages, foreign{body: "good"})
			}
		}
		var handled atomic.Int64
		endpoint := runEndpoint(t, transport, "billing", failing(noDelayed), func(body string) error {
			if body == "good" {
				handled.Add(1)
				return nil
			}
			return errFails
		})
		s.send(t, "billing", messages...)
		for _, m := range s.receive(t, "error", bad) {
			if !want[*m.Body] {
				t.Errorf("a message that was not sent, or a second time, is in the error queue: %.100q", *m.Body)
			}
			delete(want, *m.Body)
		}
		await(t, "the good messages are handled", func() bool { return handled.Load() == good })
		if state := endpoint.Health(); state.Stalled || state.Unsettled > 0 {
			t.Errorf("the endpoint keeps %d messages, stalled: %t", state.Unsettled, state.Stalled)
		}
	})
}

func TestLargeMessages_FailedOneOfAnySize(t *testing.T) {
	t.Parallel()
	onServers(t, largest, func(t *testing.T, s *service, transport core.Transport) {
		messages := map[string]foreign{
			"the largest":                sized("bad", largest, nil),
			"100 bytes less":             sized("bad", largest-100, nil),
			"with attributes":            sized("bad", largest, attributes{"color": text("red")}),
			"room for failure headers":   sized("bad", 900_000, nil),
			"and with attributes":        sized("bad", 900_000, attributes{"color": text("red")}),
			"a wrapped copy would do":    sized("bad", 600_000, nil),
			"two bytes for most letters": {body: "bad " + strings.Repeat("é", 500_000)},
		}
		runEndpoint(t, transport, "billing", failing(noDelayed), func(string) error { return errFails })
		operator := openReceiver(t, transport, "error", 1)
		for name, m := range messages {
			s.send(t, "billing", m)
			d := take(t, operator, 1)[0]
			in := d.Incoming()
			if string(in.Body) != m.body || in.Malformed != nil {
				t.Errorf("%s: the body has %d bytes, want %d; malformed: %v", name, len(in.Body), len(m.body), in.Malformed)
			}
			if len(m.body) < largest-200 {
				if in.Headers.Get(headers.FailedQ) != "billing" || in.Headers.Get(headers.ExceptionMessage) != errFails.Error() {
					t.Errorf("%s: the headers are %q", name, in.Headers.Map())
				}
				if v, sent := m.attributes["color"]; sent && in.Headers.Get("color") != *v.StringValue {
					t.Errorf("%s: the attribute of the sender is missing in %q", name, in.Headers.Map())
				}
			}
			if err := d.Complete(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestLargeMessages_DelayedRetry(t *testing.T) {
	t.Parallel()
	onServers(t, largest, func(t *testing.T, s *service, transport core.Transport) {
		m := sized("bad", 900_000, attributes{"color": text("red")})
		attempts := make(chan string, 10)
		runEndpoint(t, transport, "billing", failing(core.Delayed{NumberOfRetries: 1, TimeIncrease: time.Second}), func(body string) error {
			attempts <- body
			return errFails
		})
		s.send(t, "billing", m)
		in := take(t, openReceiver(t, transport, "error", 1), 1)[0].Incoming()
		if len(attempts) != 2 {
			t.Fatalf("it was attempted %d times", len(attempts))
		}
		if first, second := <-attempts, <-attempts; first != m.body || second != m.body || string(in.Body) != m.body {
			t.Errorf("the bodies have %d, %d and %d bytes, want %d", len(first), len(second), len(in.Body), len(m.body))
		}
		if trace := headers.ParseAttempts(in.Headers.Get(headers.Attempts)); len(trace) != 2 || in.Headers.Get("color") != "red" {
			t.Errorf("the headers are %q", in.Headers.Map())
		}
	})
}

// Bodies that need more room in a copy than in the message of their sender: bytes, and texts that would be read as
// something else without their attributes.
func TestLargeMessages_FailedOnesWithBodiesThatAreNoText(t *testing.T) {
	t.Parallel()
	const limit = 4 << 10
	s := startSite(t, testserver.Config{})
	transport := s.provisioned(t, sqs.Config{NoLongDelays: true}, "billing", "error")
	for _, queue := range []string{"billing", "error"} {
		s.setAttribute(t, queue, "MaximumMessageSize", strconv.Itoa(limit))
	}
	runEndpoint(t, transport, "billing", failing(noDelayed), func(string) error { return errFails })
	operator := openReceiver(t, transport, "error", 1)
	bytes := "\xff" + strings.Repeat("\x00", 3032)
	wrapper := func(body string) string {
		return `{"Headers":{"NServiceBus.MessageId":"m"},"Body":"` + base64.StdEncoding.EncodeToString([]byte(body)) + `"}`
	}
	filled := func(body string, attributes attributes) foreign {
		size := limit - len(body)
		for name, v := range attributes {
			size -= len(name) + len(*v.DataType) + len(*v.StringValue)
		}
		return foreign{body + strings.Repeat(" ", size), attributes}
	}
	envelope, end := `{"Type":"Notification","TopicArn":"arn","Message":"\u0000`, `"}`
	inner := strings.Repeat("x", limit-len(envelope+end))
	for name, c := range map[string]struct {
		sent foreign
		body string // "": as it was sent
	}{
		"bytes in a wrapper":                                  {filled(wrapper(bytes), nil), bytes},
		"a wrapper as a Raw body":                             {sent: filled(wrapper(bytes[:3000]), attributes{headersAttribute: text("{}")})},
		"a wrapper as a foreign body":                         {sent: filled(wrapper(bytes[:3000]), attributes{"MessageTypeFullName": text("a")})},
		"a character in an envelope that no message may have": {foreign{body: envelope + inner + end}, "\x00" + inner},
	} {
		s.put(t, "billing", c.sent.body, c.sent.attributes)
		d := take(t, operator, 1)[0]
		if in, want := d.Incoming(), cmp.Or(c.body, c.sent.body); string(in.Body) != want || in.Malformed != nil {
			t.Errorf("%s: the body has %d bytes, want %d; malformed: %v", name, len(in.Body), len(want), in.Malformed)
		}
		if err := d.Complete(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// A queue may allow less than SQS.
func TestSend_QueueAllowsLess(t *testing.T) {
	t.Parallel()
	const limit = 4 << 10
	large := strings.Repeat("x", 3500)
	for name, c := range map[string]struct {
		queue  string
		bodies []string
		store  bool
		format map[string]int // of the messages in the queue
		sent   bool
	}{
		"a text":                                {"billing", []string{large}, false, map[string]int{"Raw": 1}, true},
		"texts":                                 {"billing", []string{large, "small", large}, false, map[string]int{"Raw": 2, "Wrapped": 1}, true},
		"bytes":                                 {"billing", []string{"\xff" + large}, false, nil, false},
		"with a store":                          {"billing", []string{large, "\xff" + large}, true, map[string]int{"stored": 2}, true},
		"a text larger than the queue":          {"billing", []string{large + large}, false, nil, false},
		"in order":                              {"billing.fifo", []string{large}, false, map[string]int{"Raw": 1}, true},
		"in order, and the next one would pass": {"billing.fifo", []string{"small", large, "small"}, false, map[string]int{"Wrapped": 2}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startSite(t, testserver.Config{})
			cfg := sqs.Config{NoLongDelays: true}
			if c.store {
				cfg.Bodies = newStoredBodies()
			}
			transport := s.provisioned(t, cfg, c.queue)
			s.setAttribute(t, c.queue, "MaximumMessageSize", strconv.Itoa(limit))
			out := messages(len(c.bodies), core.Outgoing{Queue: c.queue, GroupKey: "g"})
			for i := range out {
				out[i].Body = []byte(c.bodies[i])
			}
			err := transport.Send(t.Context(), out...)
			if c.sent && err != nil || !c.sent && (!errors.Is(err, core.ErrTooLarge) || errors.Is(err, core.ErrUnavailable) || !strings.Contains(err.Error(), "MaximumMessageSize")) {
				t.Errorf("the error is %v", err)
			}
			format := map[string]int{}
			for _, m := range s.contents(t, c.queue).Ready {
				switch {
				case strings.Contains(m.Body, "S3BodyKey"):
					format["stored"]++
				case strings.HasPrefix(m.Body, `{"Headers":`):
					format["Wrapped"]++
				default:
					format["Raw"]++
				}
			}
			if !maps.Equal(format, c.format) {
				t.Errorf("the queue has %v, want %v", format, c.format)
			}
		})
	}
}

func TestPublish_LargeText(t *testing.T) {
	t.Parallel()
	s := startSite(t, testserver.Config{})
	transport := s.provisioned(t, sqs.Config{NoLongDelays: true}, "billing")
	if err := transport.Subscribe(t.Context(), "billing", "Order"); err != nil {
		t.Fatal(err)
	}
	body := strings.Repeat("x", 250<<10)
	if err := transport.Send(t.Context(), core.Outgoing{ID: "m-1", Topic: "Order", Body: []byte(body), Headers: headersOf(headers.MessageID, "m-1", "a", "b")}); err != nil {
		t.Fatal(err)
	}
	in := take(t, openReceiver(t, transport, "billing", 1), 1)[0].Incoming()
	if string(in.Body) != body || in.ID != "m-1" || in.Headers.Get("a") != "b" || in.Malformed != nil {
		t.Errorf("message %q with %d bytes and %q arrived, malformed: %v", in.ID, len(in.Body), in.Headers.Map(), in.Malformed)
	}
}

// A message that waits for hours, or at its receiver, is sent on as it is.
func TestLargeMessages_AreDelayed(t *testing.T) {
	t.Parallel()
	send := func(t *testing.T, transport core.Transport, queue string, delay time.Duration) (body string) {
		t.Helper()
		body = strings.Repeat("x", 1_000_000)
		if err := transport.Send(t.Context(), core.Outgoing{ID: "m-1", Queue: queue, Body: []byte(body), Delay: delay, Reason: core.ReasonDelayedRetry}); err != nil {
			t.Fatal(err)
		}
		return body
	}
	t.Run("for hours", func(t *testing.T) {
		t.Parallel()
		s := startStopped(t)
		transport := s.provisioned(t, sqs.Config{}, "billing")
		receiver := openReceiver(t, transport, "billing", 10)
		body := send(t, transport, "billing", time.Hour)
		if in := s.arrives(t, receiver, s.Now().Add(time.Hour)).Incoming(); string(in.Body) != body || in.ID != "m-1" || in.Malformed != nil {
			t.Errorf("message %q with %d bytes arrived, malformed: %v", in.ID, len(in.Body), in.Malformed)
		}
		s.closeOnStoppedClock(t, transport, receiver)
	})
	t.Run("at the receiver", func(t *testing.T) {
		t.Parallel()
		s := startSite(t, testserver.Config{})
		transport := s.provisioned(t, sqs.Config{NoLongDelays: true}, "billing.fifo")
		receiver := openReceiver(t, transport, "billing.fifo", 1)
		body := send(t, transport, "billing.fifo", 10*time.Minute)
		await(t, "the message waits", func() bool {
			c := s.contents(t, "billing.fifo")
			return len(c.InFlight) == 1 && c.InFlight[0].Due.Sub(s.Now()) > 5*time.Minute
		})
		s.Advance(10 * time.Minute)
		if in := take(t, receiver, 1)[0].Incoming(); string(in.Body) != body || in.ID != "m-1" || in.Malformed != nil {
			t.Errorf("message %q with %d bytes arrived, malformed: %v", in.ID, len(in.Body), in.Malformed)
		}
	})
}
