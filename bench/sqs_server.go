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

// sqsServer is a server that all contenders use, in turn.
type sqsServer struct {
	url     string
	stop    func() error
	samples int // that had queues
}

const sqsDescription = "Amazon SQS: the stand-in of internal/testserver/sqs, a process on the same machine that keeps messages in memory"

// sqsAway stands for the network and the service.
const sqsAway = 5 * time.Millisecond

// newSQSServer starts a server whose answers come by away later.
func newSQSServer(away time.Duration) (*sqsServer, error) {
	url, stop, err := startSQS(away)
	if err != nil {
		return nil, err
	}
	return &sqsServer{url: url, stop: stop}, nil
}

func (s *sqsServer) close() error { return s.stop() }

// config is what all contenders give the SDK. Its HTTP client is for those that bring none.
func (s *sqsServer) config() aws.Config {
	return aws.Config{
		Region: "us-east-1", BaseEndpoint: &s.url,
		Credentials: credentials.NewStaticCredentialsProvider("bench", "bench", ""),
	}
}

// sqsWait is how long a request for messages waits for the first one. It has no influence on a queue with a
// backlog, but each sample of a receiver ends with such requests.
const sqsWait = time.Second

// sqsConnections is how many connections an HTTP client keeps, so that none is made while the clock runs.
const sqsConnections = 100

// sqsQueues are those of a single sample: a name can be used again a minute after its queue was deleted.
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

// config has an HTTP client with enough connections, and without the loss of answers that ForSDK tells of.
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

// waiting counts what is in the queues, received and delayed messages included.
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

// rest has nothing to wait for: what was answered is in the queue.
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
