//go:build darwin || linux

package sqs_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssns "github.com/aws/aws-sdk-go-v2/service/sns"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/reprise-go/reprise/core"
	testserver "github.com/reprise-go/reprise/internal/testserver/sqs"
	"github.com/reprise-go/reprise/transport/sqs"
)

// patience is how long a test waits for an event that has to happen.
const patience = 2 * time.Minute

// static has credentials that never change, which a careless format shows.
type static struct{ Value aws.Credentials }

// Retrieve implements aws.CredentialsProvider.
func (s static) Retrieve(context.Context) (aws.Credentials, error) { return s.Value, nil }

func newCredentials(key, secret, token string) aws.CredentialsProvider {
	return static{aws.Credentials{AccessKeyID: key, SecretAccessKey: secret, SessionToken: token}}
}

// site is a server of a test, and the bare SDK that looks at it.
type site struct {
	*testserver.Server
	sqs *awssqs.Client
	sns *awssns.Client
}

func startSite(t *testing.T, cfg testserver.Config) *site {
	t.Helper()
	s := testserver.StartFor(t, cfg)
	shared := aws.Config{
		Region: "us-east-1", BaseEndpoint: aws.String(s.URL()),
		Credentials: newCredentials(accessKey, secretKey, ""),
		// The SDK would repeat a receive whose answer it could not read, and miss the messages in it.
		RetryMaxAttempts: 1, HTTPClient: testserver.ForSDK(&http.Transport{DisableKeepAlives: true}),
	}
	return &site{s, awssqs.NewFromConfig(shared), awssns.NewFromConfig(shared)}
}

// open opens a transport, and closes it at the end of the test.
func (s *site) open(t *testing.T, cfg sqs.Config) *sqs.Transport {
	t.Helper()
	return openConfigured(t, configured(cfg, s.URL()))
}

func openConfigured(t *testing.T, cfg sqs.Config) *sqs.Transport {
	t.Helper()
	transport, err := sqs.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := transport.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return transport
}

// provisioned opens a transport and creates queues, of which the first is its own.
func (s *site) provisioned(t *testing.T, cfg sqs.Config, queues ...string) *sqs.Transport {
	t.Helper()
	transport := s.open(t, cfg)
	topology := core.Topology{Queues: queues}
	if len(queues) > 0 {
		topology.InputQueue = queues[0]
	}
	if err := transport.Provision(t.Context(), topology); err != nil {
		t.Fatal(err)
	}
	return transport
}

// openReceiver opens a receiver, which its transport closes.
func openReceiver(t *testing.T, transport core.Transport, queue string, maxInFlight int) core.Receiver {
	t.Helper()
	r, err := transport.OpenReceiver(t.Context(), core.ReceiverConfig{
		Queue: queue, Mode: core.TransactionReceiveOnly, MaxInFlight: maxInFlight, MaxDeliveries: 1000,
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// take receives n deliveries.
func take(t *testing.T, r core.Receiver, n int) []core.Delivery {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var taken []core.Delivery
	for len(taken) < n {
		dst := make([]core.Delivery, n-len(taken))
		got, err := r.Receive(ctx, dst)
		if err != nil {
			t.Fatalf("after %d of %d deliveries: %v", len(taken), n, err)
		}
		taken = append(taken, dst[:got]...)
	}
	return taken
}

func text(s string) types.MessageAttributeValue {
	return types.MessageAttributeValue{DataType: aws.String("String"), StringValue: &s}
}

// put sends a message with the bare SDK.
func (s *site) put(t *testing.T, queue, body string, attributes map[string]types.MessageAttributeValue) {
	t.Helper()
	if _, err := s.sqs.SendMessage(t.Context(), &awssqs.SendMessageInput{
		QueueUrl: aws.String(s.QueueURL(queue)), MessageBody: &body, MessageAttributes: attributes,
	}); err != nil {
		t.Fatal(err)
	}
}

// get receives and deletes a message with the bare SDK.
func (s *site) get(t *testing.T, queue string) types.Message {
	t.Helper()
	out, err := s.sqs.ReceiveMessage(t.Context(), &awssqs.ReceiveMessageInput{
		QueueUrl: aws.String(s.QueueURL(queue)), MaxNumberOfMessages: 1, WaitTimeSeconds: 20,
		MessageAttributeNames: []string{"All"}, MessageSystemAttributeNames: []types.MessageSystemAttributeName{"All"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out.Messages) == 0 {
		c, _ := s.Contents(queue)
		t.Fatalf("no message of %q arrived; it has %d ready, %d delayed, %d in flight; requests: %v", queue, len(c.Ready), len(c.Delayed), len(c.InFlight), s.Requests(queue))
	}
	m := out.Messages[0]
	if _, err := s.sqs.DeleteMessage(t.Context(), &awssqs.DeleteMessageInput{QueueUrl: aws.String(s.QueueURL(queue)), ReceiptHandle: m.ReceiptHandle}); err != nil {
		t.Fatal(err)
	}
	return m
}

// contents are the messages of a queue.
func (s *site) contents(t *testing.T, queue string) testserver.Contents {
	t.Helper()
	c, ok := s.Contents(queue)
	if !ok {
		t.Fatalf("there is no queue %q", queue)
	}
	return c
}

// setAttribute changes an attribute of a queue.
func (s *site) setAttribute(t *testing.T, queue, name, value string) {
	t.Helper()
	if _, err := s.sqs.SetQueueAttributes(t.Context(), &awssqs.SetQueueAttributesInput{
		QueueUrl: aws.String(s.QueueURL(queue)), Attributes: map[string]string{name: value},
	}); err != nil {
		t.Fatal(err)
	}
}

// attribute returns an attribute of a queue.
func (s *site) attribute(t *testing.T, queue, name string) string {
	t.Helper()
	out, err := s.sqs.GetQueueAttributes(t.Context(), &awssqs.GetQueueAttributesInput{
		QueueUrl: aws.String(s.QueueURL(queue)), AttributeNames: []types.QueueAttributeName{types.QueueAttributeName(name)},
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.Attributes[name]
}

// await waits until a condition holds.
func await(t *testing.T, condition string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("it did not happen that %s", condition)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// headersOf returns the headers of a map.
func headersOf(pairs ...string) core.Headers {
	m := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return core.HeadersFromMap(m)
}
