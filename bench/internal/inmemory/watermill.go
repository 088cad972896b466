package inmemory

import (
	"cmp"
	"context"
	"errors"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/reprise-go/reprise/bench/internal/measure"
	"github.com/reprise-go/reprise/bench/internal/watermillrouter"
	"github.com/reprise-go/reprise/bench/internal/workload"
)

// watermillSetup is one way of running Watermill's router on a gochannel. Router and
// channel have no logger, the fastest setting: they write no line for a message that
// succeeds.
type watermillSetup struct {
	retry    bool // the Retry middleware, with a line for each retry as Reprise has one
	blocking bool // Publish waits for the acknowledgement; otherwise 10,000 messages are buffered
	bodySize int  // 0 is workload.BodySize
}

func (setup watermillSetup) contender(name string) measure.Contender {
	return measure.Contender{Name: name, Open: func(ctx context.Context, handle func(string) error) (measure.System, error) {
		return setup.start(ctx, handle)
	}}
}

type watermillSystem struct {
	channel  *gochannel.GoChannel
	router   *message.Router
	payload  message.Payload
	finished chan error // the result of Run
}

func (setup watermillSetup) start(ctx context.Context, handle func(string) error) (measure.System, error) {
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
		router.AddMiddleware(watermillrouter.Retry())
	}
	router.AddConsumerHandler("bench", workload.Queue, channel, func(m *message.Message) error {
		return handle(m.Metadata.Get(workload.SequenceHeader))
	})
	sys := &watermillSystem{channel, router, make(message.Payload, cmp.Or(setup.bodySize, workload.BodySize)), make(chan error, 1)}
	go func() { sys.finished <- router.Run(ctx) }()
	select {
	case <-router.Running():
		return sys, nil
	case err := <-sys.finished:
		return nil, errors.Join(errors.New("the router stopped before it ran"), err)
	}
}

func (s *watermillSystem) Send(_ context.Context, sequence string) error {
	return s.channel.Publish(workload.Queue, watermillrouter.Message(sequence, s.payload))
}

// Close waits for the handlers. A gochannel does not report its messages; if each message
// was handled once, none is left.
func (s *watermillSystem) Close(context.Context) error {
	return errors.Join(s.router.Close(), <-s.finished, s.channel.Close())
}
