package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	watermillsqs "github.com/ThreeDotsLabs/watermill-aws/sqs"
	"github.com/ThreeDotsLabs/watermill/message"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
)

// watermillSQSSetup is one way of running Watermill's router on SQS, with the Retry middleware. It sends and deletes each
// message with a separate request.
type watermillSQSSetup struct {
	subscriptions int           // each handles one message at a time
	batch         int32         // messages of one receive
	away          time.Duration // delay of answers
}

// watermillSQSDefaults are the defaults of Watermill.
var (
	watermillSQSTuned    = watermillSQSSetup{subscriptions: 16, batch: sqsBatch}
	watermillSQSDefaults = watermillSQSSetup{subscriptions: 1, batch: 1}
)

func (setup watermillSQSSetup) keeper(on *sqsSystem, name string) keeper {
	return keeper{name, func(ctx context.Context) (store, error) { return setup.openOn(ctx, on) }}
}

type watermillSQSStore struct {
	setup watermillSQSSetup
	*sqsQueues
	publisher  *watermillsqs.Publisher
	subscriber *watermillsqs.Subscriber
	payload    message.Payload

	router *router // nil when it does not run
}

func (setup watermillSQSSetup) openOn(ctx context.Context, on *sqsSystem) (_ store, err error) {
	server, err := on.server(setup.away)
	if err != nil {
		return nil, err
	}
	// A body is text with Watermill, with the size of the others' before base64.
	s := &watermillSQSStore{setup: setup, sqsQueues: server.newQueues(), payload: message.Payload(strings.Repeat("x", bodySize))}
	err = s.create(ctx, ordersQueue)
	if err == nil {
		s.publisher, err = watermillsqs.NewPublisher(watermillsqs.PublisherConfig{AWSConfig: s.config(), DoNotCreateQueueIfNotExists: true}, watermill.NopLogger{})
	}
	if err == nil {
		s.subscriber, err = watermillsqs.NewSubscriber(watermillsqs.SubscriberConfig{
			AWSConfig: s.config(), DoNotCreateQueueIfNotExists: true, GenerateReceiveMessageInput: setup.receive,
		}, watermill.NopLogger{})
	}
	if err != nil {
		return nil, errors.Join(err, s.close(ctx))
	}
	return s, nil
}

// receive is Watermill's own configuration, with the setup's changes.
func (setup watermillSQSSetup) receive(ctx context.Context, url watermillsqs.QueueURL) (*awssqs.ReceiveMessageInput, error) {
	in, err := watermillsqs.GenerateReceiveMessageInputDefault(ctx, url)
	if err == nil {
		in.MaxNumberOfMessages, in.WaitTimeSeconds = setup.batch, int32(sqsWait/time.Second)
	}
	return in, err
}

func (s *watermillSQSStore) send(_ context.Context, sequences []string) error {
	messages := make([]*message.Message, len(sequences))
	for i, sequence := range sequences {
		messages[i] = watermillMessage(sequence, s.payload)
	}
	return s.publisher.Publish(s.prefix+ordersQueue, messages...)
}

func (s *watermillSQSStore) start(ctx context.Context, handle func(string) error) (err error) {
	s.router, err = startRouter(ctx, s.prefix+ordersQueue, s.subscriber, s.setup.subscriptions, handle)
	return err
}

func (s *watermillSQSStore) stop(ctx context.Context) error {
	err := s.router.stop(ctx)
	s.router = nil
	return err
}

func (s *watermillSQSStore) close(ctx context.Context) error {
	var errs []error
	if s.router != nil { // an error prevented the call of stop
		errs = append(errs, s.router.close())
	}
	if s.publisher != nil {
		errs = append(errs, s.publisher.Close())
	}
	if s.subscriber != nil {
		errs = append(errs, s.subscriber.Close())
	}
	return errors.Join(append(errs, s.drop(ctx))...)
}
