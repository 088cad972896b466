package main

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill"
	watermillamqp "github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	amqp "github.com/rabbitmq/amqp091-go"
)

// watermillAMQPSetup is one way of running Watermill's router on RabbitMQ, with the
// Retry middleware and a durable queue.
type watermillAMQPSetup struct {
	classic       bool // the queue is of Watermill's default type
	subscriptions int  // each handles one message at a time
	prefetch      int  // of each subscription; more than 32 acknowledgements can be lost at its end, see rawRabbitStore.stop
	confirms      bool // a call waits for the confirm of each message before it sends the next one
}

// watermillTuned has several subscriptions, as each handles one message at a time, and a
// prefetch that keeps them busy; watermillDefaults is the configuration of
// NewDurableQueueConfig.
var (
	watermillTuned    = watermillAMQPSetup{subscriptions: 16, prefetch: 25}
	watermillDefaults = watermillAMQPSetup{classic: true, subscriptions: 1, prefetch: 1}
	watermillConfirms = watermillAMQPSetup{subscriptions: 16, prefetch: 25, confirms: true}
)

func (setup watermillAMQPSetup) keeper(on *rabbitSystem, name string) keeper {
	return keeper{name, func(context.Context) (store, error) { return setup.openOn(on) }}
}

// watermillChannels is the number of goroutines that publish at a time.
const watermillChannels = 16

type watermillAMQPStore struct {
	setup watermillAMQPSetup
	*rabbitQueues
	publisher  *watermillamqp.Publisher
	subscriber *watermillamqp.Subscriber
	payload    message.Payload
	sent       atomic.Int64

	router *router // nil when it does not run
}

func (setup watermillAMQPSetup) config(url string) watermillamqp.Config {
	config := watermillamqp.NewDurableQueueConfig(url)
	if !setup.classic {
		config.Queue.Arguments = amqp.Table{amqp.QueueTypeArg: amqp.QueueTypeQuorum}
	}
	config.Consume.Qos.PrefetchCount = setup.prefetch
	config.Publish.ConfirmDelivery = setup.confirms
	config.Publish.ChannelPoolSize = watermillChannels
	return config
}

func (setup watermillAMQPSetup) openOn(on *rabbitSystem) (_ store, err error) {
	server, err := on.server()
	if err != nil {
		return nil, err
	}
	queues, err := server.newQueues()
	if err != nil {
		return nil, err
	}
	s := &watermillAMQPStore{setup: setup, rabbitQueues: queues, payload: make(message.Payload, bodySize)}
	config := setup.config(server.url)
	if s.subscriber, err = watermillamqp.NewSubscriber(config, watermill.NopLogger{}); err == nil {
		err = s.subscriber.SubscribeInitialize(ordersQueue)
	}
	if err == nil {
		s.publisher, err = watermillamqp.NewPublisher(config, watermill.NopLogger{})
	}
	if err != nil {
		return nil, errors.Join(err, s.close(context.Background()))
	}
	return s, nil
}

func (s *watermillAMQPStore) send(_ context.Context, sequences []string) error {
	messages := make([]*message.Message, len(sequences))
	for i, sequence := range sequences {
		messages[i] = watermillMessage(sequence, s.payload)
	}
	s.sent.Add(int64(len(sequences)))
	return s.publisher.Publish(ordersQueue, messages...)
}

// rest waits for messages that were sent without confirms.
func (s *watermillAMQPStore) rest(ctx context.Context) error {
	for {
		n, _, err := s.server.ready(ordersQueue)
		if err != nil || n == int(s.sent.Load()) {
			return err
		}
		if !idle(ctx) {
			return context.Cause(ctx)
		}
	}
}

func (s *watermillAMQPStore) start(ctx context.Context, handle func(string) error) (err error) {
	s.router, err = startRouter(ctx, ordersQueue, s.subscriber, s.setup.subscriptions, handle)
	return err
}

func (s *watermillAMQPStore) stop(ctx context.Context) error {
	err := s.router.stop(ctx)
	s.router = nil
	return err
}

func (s *watermillAMQPStore) close(context.Context) error {
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
	return errors.Join(append(errs, s.drop())...)
}
