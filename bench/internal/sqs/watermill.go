package sqs

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	watermillsqs "github.com/ThreeDotsLabs/watermill-aws/sqs"
	"github.com/ThreeDotsLabs/watermill/message"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/reprise-go/reprise/bench/internal/measure"
	"github.com/reprise-go/reprise/bench/internal/watermillrouter"
	"github.com/reprise-go/reprise/bench/internal/workload"
)

// watermillSetup is one way of running Watermill's router on SQS, with the Retry middleware. It sends and deletes each
// message with a separate request.
type watermillSetup struct {
	subscriptions int           // each handles one message at a time
	batch         int32         // messages of one receive
	latency       time.Duration // delay of answers
}

// watermillDefaults are the defaults of Watermill.
var (
	watermillTuned    = watermillSetup{subscriptions: 16, batch: batchSize}
	watermillDefaults = watermillSetup{subscriptions: 1, batch: 1}
)

func (setup watermillSetup) contender(servers *Servers, name string) measure.StoreContender {
	return measure.StoreContender{Name: name, Open: func(ctx context.Context) (measure.Store, error) { return setup.openOn(ctx, servers) }}
}

type watermillStore struct {
	setup watermillSetup
	*sampleQueues
	publisher  *watermillsqs.Publisher
	subscriber *watermillsqs.Subscriber
	payload    message.Payload

	router *watermillrouter.Router // nil when it does not run
}

func (setup watermillSetup) openOn(ctx context.Context, servers *Servers) (_ measure.Store, err error) {
	running, err := servers.ensureRunning(setup.latency)
	if err != nil {
		return nil, err
	}
	// A body is text with Watermill, with the size of the others' before base64.
	s := &watermillStore{setup: setup, sampleQueues: running.newQueues(), payload: message.Payload(strings.Repeat("x", workload.BodySize))}
	err = s.create(ctx, workload.Queue)
	if err == nil {
		s.publisher, err = watermillsqs.NewPublisher(watermillsqs.PublisherConfig{AWSConfig: s.config(), DoNotCreateQueueIfNotExists: true}, watermill.NopLogger{})
	}
	if err == nil {
		s.subscriber, err = watermillsqs.NewSubscriber(watermillsqs.SubscriberConfig{
			AWSConfig: s.config(), DoNotCreateQueueIfNotExists: true, GenerateReceiveMessageInput: setup.receive,
		}, watermill.NopLogger{})
	}
	if err != nil {
		return nil, errors.Join(err, s.Close(ctx))
	}
	return s, nil
}

// receive is Watermill's own configuration, with the setup's changes.
func (setup watermillSetup) receive(ctx context.Context, url watermillsqs.QueueURL) (*awssqs.ReceiveMessageInput, error) {
	in, err := watermillsqs.GenerateReceiveMessageInputDefault(ctx, url)
	if err == nil {
		in.MaxNumberOfMessages, in.WaitTimeSeconds = setup.batch, int32(waitTime/time.Second)
	}
	return in, err
}

func (s *watermillStore) Send(_ context.Context, sequences []string) error {
	messages := make([]*message.Message, len(sequences))
	for i, sequence := range sequences {
		messages[i] = watermillrouter.Message(sequence, s.payload)
	}
	return s.publisher.Publish(s.prefix+workload.Queue, messages...)
}

func (s *watermillStore) Start(ctx context.Context, handle func(string) error) (err error) {
	s.router, err = watermillrouter.Start(ctx, s.prefix+workload.Queue, s.subscriber, s.setup.subscriptions, handle)
	return err
}

func (s *watermillStore) Stop(ctx context.Context) error {
	err := s.router.Stop(ctx)
	s.router = nil
	return err
}

func (s *watermillStore) Close(ctx context.Context) error {
	var errs []error
	if s.router != nil { // an error prevented the call of Stop
		errs = append(errs, s.router.Close())
	}
	if s.publisher != nil {
		errs = append(errs, s.publisher.Close())
	}
	if s.subscriber != nil {
		errs = append(errs, s.subscriber.Close())
	}
	return errors.Join(append(errs, s.drop(ctx))...)
}
