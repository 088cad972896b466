//go:build darwin || linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	awstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/internal/testserver/proxy"
	"github.com/reprise-go/reprise/transport/sqs"
)

// sqsSystem is the stand-in for Amazon SQS behind a proxy.
type sqsSystem struct {
	server  *sqsServer
	network *proxy.Proxy
	fifo    bool
	closers []func() error
}

const (
	sqsRegion     = "us-east-1"
	sqsAccessKey  = "AKIASOAK"
	sqsSecretKey  = "the-secret-key-of-the-soak"
	sqsVisibility = 5 * time.Second
	// A worker that is asked to shut down waits for the end of a request for messages.
	sqsWait = time.Second
	// sqsDuplicates is the number of messages of a queue that are delivered twice at a
	// time.
	sqsDuplicates = 100
)

func startSQSStandard(context.Context) (system, error) { return startSQS(false) }

func startSQSFIFO(context.Context) (system, error) { return startSQS(true) }

func startSQS(fifo bool) (_ system, err error) {
	s := &sqsSystem{fifo: fifo}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if s.server, err = startSQSServer(); err != nil {
		return nil, err
	}
	s.closers = append(s.closers, s.server.stop)
	if s.network, err = proxy.New(s.server.options.Addr); err != nil {
		return nil, err
	}
	s.closers = append(s.closers, s.network.Close)
	return s, nil
}

func (s *sqsSystem) version() string { return "a stand-in for Amazon SQS" }

func (s *sqsSystem) close() error { return closeAll(s.closers) }

func (s *sqsSystem) serverLog() string { return s.server.log.String() }

func (s *sqsSystem) secrets() []string { return []string{sqsSecretKey} }

// sqsClient configures the SDK for a server at addr.
func sqsClient(addr string) aws.Config {
	return aws.Config{
		Region: sqsRegion, BaseEndpoint: aws.String("http://" + addr),
		Credentials: credentials.NewStaticCredentialsProvider(sqsAccessKey, sqsSecretKey, ""),
	}
}

func openSQS(addr string) (core.Transport, error) {
	client := sqsClient(addr)
	return sqs.New(sqs.Config{AWS: &client, VisibilityTimeout: sqsVisibility, WaitTime: sqsWait})
}

func (s *sqsSystem) open() (core.Transport, error) {
	return openSQS(s.server.options.Addr)
}

func (s *sqsSystem) openThrough() (core.Transport, error) {
	return openSQS(s.network.Addr())
}

func (s *sqsSystem) prepare(context.Context, core.TransactionMode, *ledger) error { return nil }

func (s *sqsSystem) startWorker(w workerOptions, log io.Writer) (worker, error) {
	return startProcess(systemSQS, s.network.Addr(), w, log)
}

// newSQSJob opens the transport of a worker.
func newSQSJob(o processOptions) (*job, error) {
	var addr string
	if err := json.Unmarshal(o.Config, &addr); err != nil {
		return nil, err
	}
	t, err := openSQS(addr)
	if err != nil {
		return nil, err
	}
	return &job{transport: t}, nil
}

func (s *sqsSystem) faults() []fault {
	during := func(c sqsCommand) func(context.Context, time.Duration) error {
		give := func(c sqsCommand) func(context.Context) error {
			return func(context.Context) error { return s.server.do(c) }
		}
		return lasting(give(c), give(sqsCommand{}))
	}
	faults := append(networkFaults(s.server, s.network),
		fault{"every request is throttled", during(sqsCommand{Throttle: true})},
		fault{"every request is carried out, and its answer lost", during(sqsCommand{LoseAnswers: true})},
		fault{"an entry of each batch of settlements fails", during(sqsCommand{FailSettlement: true})},
	)
	if !s.fifo { // a FIFO queue has no duplicates
		faults = append(faults, fault{"messages are delivered twice", during(sqsCommand{Duplicates: sqsDuplicates})})
	}
	return faults
}

// depths implements system.
func (s *sqsSystem) depths(ctx context.Context) (map[string]int, error) {
	client := awssqs.NewFromConfig(sqsClient(s.server.options.Addr))
	queues, err := client.ListQueues(ctx, &awssqs.ListQueuesInput{})
	if err != nil {
		return nil, err
	}
	depths := map[string]int{}
	for _, url := range queues.QueueUrls {
		out, err := client.GetQueueAttributes(ctx, &awssqs.GetQueueAttributesInput{QueueUrl: &url, AttributeNames: []awstypes.QueueAttributeName{
			awstypes.QueueAttributeNameApproximateNumberOfMessages,
			awstypes.QueueAttributeNameApproximateNumberOfMessagesDelayed,
			awstypes.QueueAttributeNameApproximateNumberOfMessagesNotVisible,
		}})
		if err != nil {
			return nil, err
		}
		for name, value := range out.Attributes {
			n, err := strconv.Atoi(value)
			if err != nil {
				return nil, fmt.Errorf("%s of %s is %q", name, url, value)
			}
			depths[path.Base(url)] += n
		}
	}
	if len(depths) == 0 {
		return nil, errors.New("ListQueues found no queue")
	}
	return depths, nil
}

// staleness implements system. The server's numbers are exact, but queues are queried one
// after the other. A delayed message is in its queue.
func (s *sqsSystem) staleness() time.Duration { return time.Second }

// rows implements system. No mode has rows.
func (s *sqsSystem) rows(context.Context, *ledger) error { return nil }
