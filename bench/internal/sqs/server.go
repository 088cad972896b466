package sqs

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

// Servers has the servers of SQS that all contenders use, in turn. Each is started when a scenario first needs it.
type Servers struct {
	running map[time.Duration]*runningServer // by the delay of their answers
}

// ensureRunning returns the server that delays its answers by latency.
func (s *Servers) ensureRunning(latency time.Duration) (*runningServer, error) {
	if server := s.running[latency]; server != nil {
		return server, nil
	}
	server, err := newRunningServer(latency)
	if err != nil {
		return nil, err
	}
	if s.running == nil {
		s.running = make(map[time.Duration]*runningServer)
	}
	s.running[latency] = server
	return server, nil
}

// Description describes the servers; it is "" if no scenario needed one.
func (s *Servers) Description() string {
	if s.running == nil {
		return ""
	}
	return serverDescription
}

// Close stops all servers that were started.
func (s *Servers) Close() error {
	var errs []error
	for _, server := range s.running {
		errs = append(errs, server.close())
	}
	return errors.Join(errs...)
}

// runningServer is a running server.
type runningServer struct {
	url     string
	stop    func() error
	samples int // number of samples so far
}

const serverDescription = "Amazon SQS: the stand-in of internal/testserver/sqs, a process on the same machine that keeps messages in memory"

// networkDelay stands for the network and the service.
const networkDelay = 5 * time.Millisecond

// newRunningServer starts a server that delays its answers by latency.
func newRunningServer(latency time.Duration) (*runningServer, error) {
	url, stop, err := startProcess(latency)
	if err != nil {
		return nil, err
	}
	return &runningServer{url: url, stop: stop}, nil
}

func (s *runningServer) close() error { return s.stop() }

// config is the SDK configuration of all contenders. Its HTTP client is for contenders without their own.
func (s *runningServer) config() aws.Config {
	return aws.Config{
		Region: "us-east-1", BaseEndpoint: &s.url,
		Credentials: credentials.NewStaticCredentialsProvider("bench", "bench", ""),
	}
}

// waitTime is the time for which a request for messages waits for the first one. It does not matter for a
// queue with a backlog, but each sample of a receiver ends with such requests.
const waitTime = time.Second

// connections is the number of connections that an HTTP client keeps, so that none is opened during the
// measurement.
const connections = 100

// sampleQueues are the queues of one sample: a name can be used again a minute after its queue was deleted.
type sampleQueues struct {
	server *runningServer
	prefix string
	sdk    *awssqs.Client
	client *http.Transport
}

func (s *runningServer) newQueues() *sampleQueues {
	s.samples++
	q := &sampleQueues{server: s, prefix: fmt.Sprintf("sample%d-", s.samples), client: http.DefaultTransport.(*http.Transport).Clone()}
	q.client.MaxIdleConns, q.client.MaxIdleConnsPerHost = 2*connections, connections
	q.sdk = awssqs.NewFromConfig(q.config())
	return q
}

// config has an HTTP client with enough connections, and without the loss of answers that ForSDK
// describes.
func (q *sampleQueues) config() aws.Config {
	c := q.server.config()
	c.HTTPClient = testserver.ForSDK(q.client)
	return c
}

// create makes a queue with the service's defaults.
func (q *sampleQueues) create(ctx context.Context, name string) error {
	full := q.prefix + name
	_, err := q.sdk.CreateQueue(ctx, &awssqs.CreateQueueInput{QueueName: &full})
	return err
}

func (q *sampleQueues) queueURL(ctx context.Context, name string) (string, error) {
	full := q.prefix + name
	out, err := q.sdk.GetQueueUrl(ctx, &awssqs.GetQueueUrlInput{QueueName: &full})
	if err != nil {
		return "", err
	}
	return *out.QueueUrl, nil
}

func (q *sampleQueues) list(ctx context.Context) ([]string, error) {
	out, err := q.sdk.ListQueues(ctx, &awssqs.ListQueuesInput{QueueNamePrefix: &q.prefix})
	if err != nil {
		return nil, err
	}
	return out.QueueUrls, nil
}

// Waiting counts the messages in the queues, received and delayed ones included.
func (q *sampleQueues) Waiting(ctx context.Context) (int, error) {
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

// Requests counts the requests of the sample: one sample at a time uses the server.
func (q *sampleQueues) Requests(ctx context.Context) (int, error) {
	return countRequests(ctx, q.server.url)
}

// FinishSends need not wait: a message is in the queue once its send was answered.
func (q *sampleQueues) FinishSends(context.Context) error { return nil }

// drop deletes the queues.
func (q *sampleQueues) drop(ctx context.Context) error {
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
