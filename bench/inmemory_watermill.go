package main

import (
	"cmp"
	"context"
	"errors"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
)

// watermillSetup is one way of running Watermill's router on a gochannel. Router and
// channel have no logger, the fastest setting: they write no line for a message that
// succeeds.
type watermillSetup struct {
	retry    bool // the Retry middleware, with a line for each retry as Reprise has one
	blocking bool // Publish waits for the acknowledgement; otherwise 10,000 messages are buffered
	bodySize int  // 0 is bodySize
}

func (setup watermillSetup) contender(name string) contender {
	return contender{name, func(ctx context.Context, handle func(string) error) (system, error) {
		return setup.start(ctx, handle)
	}}
}

type watermillSystem struct {
	channel  *gochannel.GoChannel
	router   *message.Router
	payload  message.Payload
	finished chan error // the result of Run
}

func (setup watermillSetup) start(ctx context.Context, handle func(string) error) (system, error) {
	var config gochannel.Config
	if setup.blocking {
		config.BlockPublishUntilSubscriberAck = true
	} else {
		config.OutputChannelBuffer = 10_000
	}
	channel := gochannel.NewGoChannel(config, watermill.NopLogger{})
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		return nil, err
	}
	if setup.retry {
		router.AddMiddleware(watermillRetry())
	}
	router.AddConsumerHandler("bench", ordersQueue, channel, func(m *message.Message) error {
		return handle(m.Metadata.Get(sequenceHeader))
	})
	sys := &watermillSystem{channel, router, make(message.Payload, cmp.Or(setup.bodySize, bodySize)), make(chan error, 1)}
	go func() { sys.finished <- router.Run(ctx) }()
	select {
	case <-router.Running():
		return sys, nil
	case err := <-sys.finished:
		return nil, errors.Join(errors.New("the router stopped before it ran"), err)
	}
}

func (s *watermillSystem) send(_ context.Context, sequence string) error {
	return s.channel.Publish(ordersQueue, watermillMessage(sequence, s.payload))
}

// close waits for the handlers. A gochannel does not report its messages; if each message
// was handled once, none is left.
func (s *watermillSystem) close(context.Context) error {
	return errors.Join(s.router.Close(), <-s.finished, s.channel.Close())
}
