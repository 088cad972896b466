package rabbitmq

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill"
	watermillamqp "github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/bench/internal/measure"
	"github.com/reprise-go/reprise/bench/internal/watermillrouter"
	"github.com/reprise-go/reprise/bench/internal/workload"
)

// watermillSetup is one way of running Watermill's router on RabbitMQ, with the
// Retry middleware and a durable queue.
type watermillSetup struct {
	classic       bool // the queue is of Watermill's default type
	subscriptions int  // each handles one message at a time
	prefetch      int  // of each subscription; more than 32 acknowledgements can be lost at its end, see rawStore.Stop
	confirms      bool // a call waits for the confirm of each message before it sends the next one
}

// watermillTuned has several subscriptions, as each handles one message at a time, and a
// prefetch that keeps them busy; watermillDefaults is the configuration of
// NewDurableQueueConfig.
var (
	watermillTuned    = watermillSetup{subscriptions: 16, prefetch: 25}
	watermillDefaults = watermillSetup{classic: true, subscriptions: 1, prefetch: 1}
	watermillConfirms = watermillSetup{subscriptions: 16, prefetch: 25, confirms: true}
)

func (setup watermillSetup) contender(server *Server, name string) measure.StoreContender {
	return measure.StoreContender{Name: name, Open: func(context.Context) (measure.Store, error) { return setup.openOn(server) }}
}

// watermillChannels is the number of goroutines that publish at a time.
const watermillChannels = 16

type watermillStore struct {
	setup watermillSetup
	*sampleQueues
	publisher  *watermillamqp.Publisher
	subscriber *watermillamqp.Subscriber
	payload    message.Payload
	sent       atomic.Int64

	router *watermillrouter.Router // nil when it does not run
}

func (setup watermillSetup) config(url string) watermillamqp.Config {
	config := watermillamqp.NewDurableQueueConfig(url)
	if !setup.classic {
		config.Queue.Arguments = amqp.Table{amqp.QueueTypeArg: amqp.QueueTypeQuorum}
	}
	config.Consume.Qos.PrefetchCount = setup.prefetch
	config.Publish.ConfirmDelivery = setup.confirms
	config.Publish.ChannelPoolSize = watermillChannels
	return config
}

func (setup watermillSetup) openOn(server *Server) (_ measure.Store, err error) {
	running, err := server.ensureRunning()
	if err != nil {
		return nil, err
	}
	queues, err := running.newQueues()
	if err != nil {
		return nil, err
	}
	s := &watermillStore{setup: setup, sampleQueues: queues, payload: make(message.Payload, workload.BodySize)}
	config := setup.config(running.url)
	if s.subscriber, err = watermillamqp.NewSubscriber(config, watermill.NopLogger{}); err == nil {
		err = s.subscriber.SubscribeInitialize(workload.Queue)
	}
	if err == nil {
		s.publisher, err = watermillamqp.NewPublisher(config, watermill.NopLogger{})
	}
	if err != nil {
		return nil, errors.Join(err, s.Close(context.Background()))
	}
	return s, nil
}

func (s *watermillStore) Send(_ context.Context, sequences []string) error {
	messages := make([]*message.Message, len(sequences))
	for i, sequence := range sequences {
		messages[i] = watermillrouter.Message(sequence, s.payload)
	}
	s.sent.Add(int64(len(sequences)))
	return s.publisher.Publish(workload.Queue, messages...)
}

// FinishSends waits for messages that were sent without confirms.
func (s *watermillStore) FinishSends(ctx context.Context) error {
	for {
		n, _, err := s.server.ready(workload.Queue)
		if err != nil || n == int(s.sent.Load()) {
			return err
		}
		if !measure.WaitPollInterval(ctx) {
			return context.Cause(ctx)
		}
	}
}

func (s *watermillStore) Start(ctx context.Context, handle func(string) error) (err error) {
	s.router, err = watermillrouter.Start(ctx, workload.Queue, s.subscriber, s.setup.subscriptions, handle)
	return err
}

func (s *watermillStore) Stop(ctx context.Context) error {
	err := s.router.Stop(ctx)
	s.router = nil
	return err
}

func (s *watermillStore) Close(context.Context) error {
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
	return errors.Join(append(errs, s.drop())...)
}
