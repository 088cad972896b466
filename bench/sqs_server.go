package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	testserver "github.com/reprise-go/reprise/internal/testserver/sqs"
)

// sqsSystem has the servers of SQS that all contenders use, in turn. Each is started when a scenario first needs it.
type sqsSystem struct {
	running map[time.Duration]*sqsServer // by the delay of their answers
}

// server returns the server that delays its answers by away.
func (s *sqsSystem) server(away time.Duration) (*sqsServer, error) {
	if server := s.running[away]; server != nil {
		return server, nil
	}
	server, err := newSQSServer(away)
	if err != nil {
		return nil, err
	}
	if s.running == nil {
		s.running = make(map[time.Duration]*sqsServer)
	}
	s.running[away] = server
	return server, nil
}

// description describes the servers; it is "" if no scenario needed one.
func (s *sqsSystem) description() string {
	if s.running == nil {
		return ""
	}
	return sqsDescription
}

// close stops all servers that were started.
func (s *sqsSystem) close() error {
	var errs []error
	for _, server := range s.running {
		errs = append(errs, server.close())
	}
	return errors.Join(errs...)
}

// sqsServer is a running server.
type sqsServer struct {
	url     string
	stop    func() error
	samples int // number of samples so far
}

const sqsDescription = "Amazon SQS: the stand-in of internal/testserver/sqs, a process on the same machine that keeps messages in memory"

// sqsAway stands for the network and the service.
const sqsAway = 5 * time.Millisecond

// newSQSServer starts a server that delays its answers by away.
func newSQSServer(away time.Duration) (*sqsServer, error) {
	url, stop, err := startSQS(away)
	if err != nil {
		return nil, err
	}
	return &sqsServer{url: url, stop: stop}, nil
}

func (s *sqsServer) close() error { return s.stop() }

// config is the SDK configuration of all contenders. Its HTTP client is for contenders without their own.
func (s *sqsServer) config() aws.Config {
	return aws.Config{
		Region: "us-east-1", BaseEndpoint: &s.url,
		Credentials: credentials.NewStaticCredentialsProvider("bench", "bench", ""),
	}
}

// sqsWait is the time for which a request for messages waits for the first one. It does not matter for a
// queue with a backlog, but each sample of a receiver ends with such requests.
const sqsWait = time.Second

// sqsConnections is the number of connections that an HTTP client keeps, so that none is opened during the
// measurement.
const sqsConnections = 100

// sqsQueues are the queues of one sample: a name can be used again a minute after its queue was deleted.
type sqsQueues struct {
	server *sqsServer
	prefix string
	sdk    *awssqs.Client
	client *http.Transport
}

func (s *sqsServer) newQueues() *sqsQueues {
	s.samples++
	q := &sqsQueues{server: s, prefix: fmt.Sprintf("sample%d-", s.samples), client: http.DefaultTransport.(*http.Transport).Clone()}
	q.client.MaxIdleConns, q.client.MaxIdleConnsPerHost = 2*sqsConnections, sqsConnections
	q.sdk = awssqs.NewFromConfig(q.config())
	return q
}

// config has an HTTP client with enough connections, and without the loss of answers that ForSDK
// describes.
func (q *sqsQueues) config() aws.Config {
	c := q.server.config()
	c.HTTPClient = testserver.ForSDK(q.client)
	return c
}

// create makes a queue with the service's defaults.
func (q *sqsQueues) create(ctx context.Context, name string) error {
	full := q.prefix + name
	_, err := q.sdk.CreateQueue(ctx, &awssqs.CreateQueueInput{QueueName: &full})
	return err
}

func (q *sqsQueues) queueURL(ctx context.Context, name string) (string, error) {
	full := q.prefix + name
	out, err := q.sdk.GetQueueUrl(ctx, &awssqs.GetQueueUrlInput{QueueName: &full})
	if err != nil {
		return "", err
	}
	return *out.QueueUrl, nil
}

func (q *sqsQueues) list(ctx context.Context) ([]string, error) {
	out, err := q.sdk.ListQueues(ctx, &awssqs.ListQueuesInput{QueueNamePrefix: &q.prefix})
	if err != nil {
		return nil, err
	}
	return out.QueueUrls, nil
}

// waiting counts the messages in the queues, received and delayed ones included.
func (q *sqsQueues) waiting(ctx context.Context) (int, error) {
	urls, err := q.list(ctx)
	if err != nil {
		return 0, err
	}
	sum := 0
	for _, url := range urls {
		out, err := q.sdk.GetQueueAttributes(ctx, &awssqs.GetQueueAttributesInput{QueueUrl: &url, AttributeNames: []types.QueueAttributeName{
			types.QueueAttributeNameApproximateNumberOfMessages,
			types.QueueAttributeNameApproximateNumberOfMessagesNotVisible,
			types.QueueAttributeNameApproximateNumberOfMessagesDelayed,
		}})
		if err != nil {
			return 0, err
		}
		for _, text := range out.Attributes {
			n, err := strconv.Atoi(text)
			if err != nil {
				return 0, err
			}
			sum += n
		}
	}
	return sum, nil
}

// requests implements requestCounter: one sample at a time uses the server.
func (q *sqsQueues) requests(ctx context.Context) (int, error) { return sqsRequests(ctx, q.server.url) }

// rest need not wait: a message is in the queue once its send was answered.
func (q *sqsQueues) rest(context.Context) error { return nil }

// drop deletes the queues.
func (q *sqsQueues) drop(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	urls, err := q.list(ctx)
	errs := []error{err}
	for _, url := range urls {
		_, err := q.sdk.DeleteQueue(ctx, &awssqs.DeleteQueueInput{QueueUrl: &url})
		errs = append(errs, err)
	}
	q.client.CloseIdleConnections()
	return errors.Join(errs...)
}
