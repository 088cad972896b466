package foreignsuites

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
)

// settleTimeout bounds a settlement and the Close of a receiver.
const settleTimeout = 10 * time.Second

// publisher is a Watermill publisher whose topics are queues.
type publisher struct {
	transport core.Transport
	made      *queues
}

// queues creates each queue once.
type queues struct {
	mu    sync.Mutex
	known map[string]bool
}

func (q *queues) ensure(ctx context.Context, t core.Transport, queue string) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.known[queue] {
		return nil
	}
	err := t.(core.Provisioner).Provision(ctx, core.Topology{Queues: []string{queue}})
	q.known[queue] = err == nil
	return err
}

// Publish implements message.Publisher.
func (p *publisher) Publish(topic string, messages ...*message.Message) error {
	ctx := context.Background()
	if err := p.made.ensure(ctx, p.transport, topic); err != nil {
		return err
	}
	out := make([]core.Outgoing, len(messages))
	for i, m := range messages {
		out[i] = core.Outgoing{ID: m.UUID, Queue: topic, Headers: core.HeadersFromMap(m.Metadata), Body: m.Payload}
	}
	return p.transport.Send(ctx, out...)
}

// Close implements message.Publisher. The transport is that of the test.
func (p *publisher) Close() error { return nil }

// subscriber is a Watermill subscriber: each subscription is a receiver with one message in
// flight, and subscriptions to a topic compete.
type subscriber struct {
	transport core.Transport
	made      *queues
	closing   context.Context
	close     context.CancelFunc
	running   sync.WaitGroup
}

var errClosed = errors.New("the subscriber is closed")

// Subscribe implements message.Subscriber.
func (s *subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	if s.closing.Err() != nil {
		return nil, errClosed
	}
	if err := s.made.ensure(ctx, s.transport, topic); err != nil {
		return nil, err
	}
	r, err := s.transport.OpenReceiver(ctx, core.ReceiverConfig{Queue: topic, Mode: core.TransactionReceiveOnly, MaxInFlight: 1})
	if err != nil {
		return nil, err
	}
	limited, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.closing, cancel)
	out := make(chan *message.Message)
	s.running.Go(func() {
		defer close(out)
		defer stop()
		defer cancel()
		defer func() {
			limited, cancel := context.WithTimeout(context.Background(), settleTimeout)
			defer cancel()
			_ = r.Close(limited)
		}()
		var one [1]core.Delivery
		for {
			if _, err := r.Receive(limited, one[:]); err != nil {
				return
			}
			handle(limited, one[0], out)
		}
	})
	return out, nil
}

// SubscribeInitialize implements message.SubscribeInitializer.
func (s *subscriber) SubscribeInitialize(topic string) error {
	return s.made.ensure(context.Background(), s.transport, topic)
}

// handle hands a message out until it is acknowledged, and settles it. After a Nack it is
// redelivered.
func handle(ctx context.Context, d core.Delivery, out chan<- *message.Message) {
	in := d.Incoming()
	m := message.NewMessage(in.ID, in.Body)
	for key, value := range in.Headers.All() {
		m.Metadata.Set(key, value)
	}
	work, cancel := context.WithCancel(ctx)
	defer cancel()
	m.SetContext(work)
	go func() {
		defer cancel() // the lock is lost
		_ = transport.KeepLocked(work, d)
	}()
	settle := d.Release
	select {
	case out <- m:
		select {
		case <-m.Acked():
			settle = d.Complete
		case <-m.Nacked():
			settle = func(ctx context.Context) error { return d.Abandon(ctx, errors.New("nack")) }
		case <-work.Done():
		}
	case <-work.Done():
	}
	limited, stop := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer stop()
	_ = settle(limited) // after an error the message is redelivered
}

// Close implements message.Subscriber.
func (s *subscriber) Close() error {
	s.close()
	s.running.Wait()
	return nil
}

// watermillTests are the tests of tests.TestPubSub, without those for abilities that queues do
// not have: the replay of consumed messages, and consumer groups; and without one that
// restarts the broker by a command.
var watermillTests = map[string]func(*testing.T, tests.TestContext, tests.PubSubConstructor){
	"PublishSubscribe":                  tests.TestPublishSubscribe,
	"ConcurrentSubscribe":               tests.TestConcurrentSubscribe,
	"ConcurrentSubscribeMultipleTopics": tests.TestConcurrentSubscribeMultipleTopics,
	"ResendOnError":                     tests.TestResendOnError,
	"NoAck":                             tests.TestNoAck,
	"ContinueAfterSubscribeClose":       tests.TestContinueAfterSubscribeClose,
	"ConcurrentClose":                   tests.TestConcurrentClose,
	"ContinueAfterErrors":               tests.TestContinueAfterErrors,
	"PublishSubscribeInOrder":           tests.TestPublishSubscribeInOrder,
	"PublisherClose":                    tests.TestPublisherClose,
	"Topic":                             tests.TestTopic,
	"MessageCtx":                        tests.TestMessageCtx,
	"SubscribeCtx":                      tests.TestSubscribeCtx,
}

// TestWatermill runs Watermill's suite, with one subscriber where the order matters.
func TestWatermill(t *testing.T) {
	if testing.Short() {
		t.Skip("thousands of messages on three brokers: not in short runs")
	}
	for name, open := range transports {
		t.Run(name, func(t *testing.T) {
			shared, made := open(t), &queues{known: map[string]bool{}}
			construct := func(*testing.T) (message.Publisher, message.Subscriber) {
				s := &subscriber{transport: shared, made: made}
				s.closing, s.close = context.WithCancel(context.Background())
				return &publisher{shared, made}, s
			}
			features := tests.Features{Persistent: true, GuaranteedOrder: true, GuaranteedOrderWithSingleSubscriber: true}
			for name, run := range watermillTests {
				t.Run(name, func(t *testing.T) {
					run(t, tests.TestContext{TestID: tests.NewTestID(), Features: features}, construct)
				})
			}
		})
	}
}
