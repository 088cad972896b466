//go:build darwin || linux

package sqs_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/reprise-go/reprise/internal/leaks"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"

	server "github.com/reprise-go/reprise/internal/testserver/sqs"
)

// TestMain fails when tests left goroutines of our packages behind.
func TestMain(m *testing.M) {
	if path := os.Getenv(childVariable); path != "" {
		os.Exit(child(path))
	}
	leaks.Main(m)
}

// A fixture is a server and clients of it that do not retry.
type fixture struct {
	*testing.T
	*server.Server
	sqs *sqs.Client
	sns *sns.Client

	transport *http.Transport
}

// restart restarts the server. The clients get new connections.
func (f *fixture) restart() {
	f.Helper()
	if err := f.Restart(); err != nil {
		f.Fatal(err)
	}
	f.transport.CloseIdleConnections()
}

// start starts a server for a test, which runs in parallel with others. Its clock stands
// still but for Advance, unless the test gives it another.
func start(t *testing.T, cfg server.Config) *fixture {
	t.Helper()
	t.Parallel()
	if cfg.Now == nil {
		now := time.Now()
		cfg.Now = func() time.Time { return now }
	}
	s := server.StartFor(t, cfg)
	transport := &http.Transport{MaxIdleConnsPerHost: 16}
	t.Cleanup(transport.CloseIdleConnections)
	return &fixture{t, s, newSQS(s.URL(), transport), newSNS(s.URL(), transport), transport}
}

var keys = credentials.NewStaticCredentialsProvider("AKIATEST", "secret", "")

func newSQS(url string, transport http.RoundTripper, options ...func(*sqs.Options)) *sqs.Client {
	return sqs.New(sqs.Options{
		BaseEndpoint: &url, Region: "us-east-1", Credentials: keys, HTTPClient: server.ForSDK(transport), Retryer: aws.NopRetryer{},
	}, options...)
}

func newSNS(url string, transport http.RoundTripper) *sns.Client {
	return sns.New(sns.Options{
		BaseEndpoint: &url, Region: "us-east-1", Credentials: keys, HTTPClient: server.ForSDK(transport), Retryer: aws.NopRetryer{},
	})
}

// queue creates a queue and returns its URL. The attributes are pairs of name and value.
func (f *fixture) queue(name string, attributes ...string) string {
	f.Helper()
	out, err := f.sqs.CreateQueue(f.Context(), &sqs.CreateQueueInput{QueueName: &name, Attributes: pairs(attributes)})
	if err != nil {
		f.Fatal(err)
	}
	return *out.QueueUrl
}

// fifo creates a FIFO queue and returns its URL.
func (f *fixture) fifo(name string, attributes ...string) string {
	f.Helper()
	return f.queue(name, append([]string{"FifoQueue", "true"}, attributes...)...)
}

func pairs(list []string) map[string]string {
	m := map[string]string{}
	for i := 0; i+1 < len(list); i += 2 {
		m[list[i]] = list[i+1]
	}
	return m
}

// send sends a message and returns its id.
func (f *fixture) send(url, body string, change ...func(*sqs.SendMessageInput)) string {
	f.Helper()
	in := &sqs.SendMessageInput{QueueUrl: &url, MessageBody: &body}
	for _, c := range change {
		c(in)
	}
	out, err := f.sqs.SendMessage(f.Context(), in)
	if err != nil {
		f.Fatal(err)
	}
	return *out.MessageId
}

// toGroup sends to a group of a FIFO queue, with a deduplication id unless that is "".
func toGroup(group, deduplication string) func(*sqs.SendMessageInput) {
	return func(in *sqs.SendMessageInput) {
		in.MessageGroupId = &group
		if deduplication != "" {
			in.MessageDeduplicationId = &deduplication
		}
	}
}

// receive receives up to 10 messages with all attributes, without waiting.
func (f *fixture) receive(url string, change ...func(*sqs.ReceiveMessageInput)) []types.Message {
	f.Helper()
	in := &sqs.ReceiveMessageInput{
		QueueUrl: &url, MaxNumberOfMessages: 10, MessageAttributeNames: []string{"All"},
		MessageSystemAttributeNames: []types.MessageSystemAttributeName{"All"},
	}
	for _, c := range change {
		c(in)
	}
	out, err := f.sqs.ReceiveMessage(f.Context(), in)
	if err != nil {
		f.Fatal(err)
	}
	return out.Messages
}

func maxMessages(n int32) func(*sqs.ReceiveMessageInput) {
	return func(in *sqs.ReceiveMessageInput) { in.MaxNumberOfMessages = n }
}

func waiting(seconds int32) func(*sqs.ReceiveMessageInput) {
	return func(in *sqs.ReceiveMessageInput) { in.WaitTimeSeconds = seconds }
}

// one receives exactly one message.
func (f *fixture) one(url string, change ...func(*sqs.ReceiveMessageInput)) types.Message {
	f.Helper()
	got := f.receive(url, change...)
	if len(got) != 1 {
		f.Fatalf("received %q, want one message", bodies(got))
	}
	return got[0]
}

// gets fails unless a receive gets messages with these bodies, in this order.
func (f *fixture) gets(url string, want ...string) []types.Message {
	f.Helper()
	got := f.receive(url)
	if fmt.Sprint(bodies(got)) != fmt.Sprint(want) {
		f.Fatalf("received %q, want %q", bodies(got), want)
	}
	return got
}

func bodies(messages []types.Message) []string {
	b := []string{}
	for _, m := range messages {
		b = append(b, *m.Body)
	}
	return b
}

func (f *fixture) delete(url string, m types.Message) {
	f.Helper()
	if _, err := f.sqs.DeleteMessage(f.Context(), &sqs.DeleteMessageInput{QueueUrl: &url, ReceiptHandle: m.ReceiptHandle}); err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) setVisibility(url string, m types.Message, seconds int32) {
	f.Helper()
	if err := f.changeVisibility(url, *m.ReceiptHandle, seconds); err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) changeVisibility(url, handle string, seconds int32) error {
	_, err := f.sqs.ChangeMessageVisibility(f.Context(), &sqs.ChangeMessageVisibilityInput{QueueUrl: &url, ReceiptHandle: &handle, VisibilityTimeout: seconds})
	return err
}

// attributes returns all attributes of a queue.
func (f *fixture) attributes(url string) map[string]string {
	f.Helper()
	out, err := f.sqs.GetQueueAttributes(f.Context(), &sqs.GetQueueAttributesInput{QueueUrl: &url, AttributeNames: []types.QueueAttributeName{"All"}})
	if err != nil {
		f.Fatal(err)
	}
	return out.Attributes
}

func (f *fixture) setAttributes(url string, attributes ...string) error {
	_, err := f.sqs.SetQueueAttributes(f.Context(), &sqs.SetQueueAttributesInput{QueueUrl: &url, Attributes: pairs(attributes)})
	return err
}

// counts fails unless a queue has that many messages ready, in flight and delayed.
func (f *fixture) counts(url string, ready, inFlight, delayed string) {
	f.Helper()
	a := f.attributes(url)
	got := []string{a["ApproximateNumberOfMessages"], a["ApproximateNumberOfMessagesNotVisible"], a["ApproximateNumberOfMessagesDelayed"]}
	if want := []string{ready, inFlight, delayed}; fmt.Sprint(got) != fmt.Sprint(want) {
		f.Fatalf("ready, in flight, delayed: %s, want %s", got, want)
	}
}

// fails fails unless err is one of the service's with a code.
func (f *fixture) fails(err error, code string) {
	f.Helper()
	if got := codeOf(err); got != code {
		f.Errorf("error %v with the code %q, want %q", err, got, code)
	}
}

func codeOf(err error) string {
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		return api.ErrorCode()
	}
	return ""
}

// is reports whether an error is of one of the SDK's types.
func is[T error](err error) bool {
	_, ok := errors.AsType[T](err)
	return ok
}

// shortContext returns a context for events that happen at once, or never.
func (f *fixture) shortContext() context.Context {
	ctx, cancel := context.WithTimeout(f.Context(), 5*time.Minute)
	f.Cleanup(cancel)
	return ctx
}

// polled is the result of a long poll.
type polled struct {
	messages []types.Message
	err      error
}

// poll begins a long poll at a queue and returns when it waits there, as the n-th of those
// that do.
func (f *fixture) poll(ctx context.Context, queue string, n int, seconds, maxMessages int32) <-chan polled {
	f.Helper()
	result := make(chan polled, 1)
	url := f.QueueURL(queue)
	go func() {
		out, err := f.sqs.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
			QueueUrl: &url, MaxNumberOfMessages: maxMessages, WaitTimeSeconds: seconds,
			MessageSystemAttributeNames: []types.MessageSystemAttributeName{"All"},
		})
		if err != nil {
			result <- polled{err: err}
			return
		}
		result <- polled{messages: out.Messages}
	}()
	if err := f.AwaitPolls(f.shortContext(), queue, n); err != nil {
		f.Fatal(err)
	}
	return result
}

// answer returns the messages that a long poll got.
func (f *fixture) answer(poll <-chan polled) []types.Message {
	f.Helper()
	select {
	case p := <-poll:
		if p.err != nil {
			f.Fatal(p.err)
		}
		return p.messages
	case <-f.shortContext().Done():
		f.Fatal("a long poll has no answer")
		return nil
	}
}
