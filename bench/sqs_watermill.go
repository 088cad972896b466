package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
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

	router   *message.Router
	finished chan error
	last     []atomic.Pointer[message.Message] // of each subscription
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
	if s.router, err = message.NewRouter(message.RouterConfig{}, watermill.NopLogger{}); err != nil {
		return err
	}
	s.router.AddMiddleware(watermillRetry())
	s.last = make([]atomic.Pointer[message.Message], s.setup.subscriptions)
	for i := range s.last {
		s.router.AddConsumerHandler(fmt.Sprintf("bench %d", i), s.prefix+ordersQueue, s.subscriber, func(m *message.Message) error {
			s.last[i].Store(m)
			return handle(m.Metadata.Get(sequenceHeader))
		})
	}
	s.finished = make(chan error, 1)
	go func() { s.finished <- s.router.Run(ctx) }()
	select {
	case <-s.router.Running():
		return nil
	case err := <-s.finished:
		s.finished <- err
		return errors.Join(errors.New("the router stopped before it ran"), err)
	}
}

// stop waits until each subscription has deleted its last message, which is when the message's context ends: closed
// before that, it leaves the message in the queue.
func (s *watermillSQSStore) stop(ctx context.Context) error {
	for i := range s.last {
		if m := s.last[i].Load(); m != nil {
			select {
			case <-m.Context().Done():
			case <-ctx.Done():
			}
		}
	}
	err := errors.Join(s.router.Close(), <-s.finished)
	s.router = nil
	return err
}

func (s *watermillSQSStore) close(ctx context.Context) error {
	var errs []error
	if s.router != nil { // an error prevented the call of stop
		errs = append(errs, s.router.Close(), <-s.finished)
	}
	if s.publisher != nil {
		errs = append(errs, s.publisher.Close())
	}
	if s.subscriber != nil {
		errs = append(errs, s.subscriber.Close())
	}
	return errors.Join(append(errs, s.drop(ctx))...)
}
