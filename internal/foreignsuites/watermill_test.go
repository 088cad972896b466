package foreignsuites

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/internal/testserver/postgres"
	"github.com/reprise-go/reprise/transport"
)

// publishPause is the time between two attempts to publish in an outage.
const publishPause = 100 * time.Millisecond

// publisher is a Watermill publisher. Its topics are queues, or topics with the queues of
// consumer groups.
type publisher struct {
	transport core.Transport
	queues    *createdQueues
	topics    bool
}

// Publish implements message.Publisher. It waits for the end of an outage, so that a message
// may be published twice.
func (p *publisher) Publish(topic string, messages ...*message.Message) error {
	ctx, out := context.Background(), make([]core.Outgoing, len(messages))
	for i, m := range messages {
		out[i] = core.Outgoing{ID: m.UUID, Headers: core.HeadersFromMap(m.Metadata), Body: m.Payload}
		if p.topics {
			out[i].Topic = topic
		} else {
			out[i].Queue = topic
		}
	}
	if !p.topics {
		if err := p.queues.ensure(ctx, p.transport, topic); err != nil {
			return err
		}
	}
	for {
		err := p.transport.Send(ctx, out...)
		if !errors.Is(err, core.ErrUnavailable) || core.IsPermanent(err) {
			return err
		}
		if failed, ok := errors.AsType[*core.SendError](err); ok {
			out = notAccepted(out, failed)
		}
		time.Sleep(publishPause)
	}
}

// notAccepted returns the messages that were refused, and those that may have been accepted.
func notAccepted(out []core.Outgoing, failed *core.SendError) (left []core.Outgoing) {
	for i, result := range failed.Results {
		if result.State != core.SendAccepted {
			left = append(left, out[i])
		}
	}
	return left
}

// Close implements message.Publisher. The transport is that of the test.
func (p *publisher) Close() error { return nil }

// createdQueues creates each queue once, with its subscription.
type createdQueues struct {
	mu    sync.Mutex
	known map[string]bool
}

func (q *createdQueues) ensure(ctx context.Context, t core.Transport, queue string, topics ...string) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.known[queue] {
		return nil
	}
	err := prepare(ctx, t, queue, topics...)
	q.known[queue] = err == nil
	return err
}

// subscriber is a Watermill subscriber: each subscription is a receiver with one message in
// flight. Subscriptions to a topic compete, or those of one consumer group do.
type subscriber struct {
	transport core.Transport
	queues    *createdQueues
	group     string // "" if topics are queues
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
	queue, err := s.ensure(ctx, topic)
	if err != nil {
		return nil, err
	}
	r, err := s.transport.OpenReceiver(ctx, core.ReceiverConfig{Queue: queue, Mode: core.TransactionReceiveOnly, MaxInFlight: 1})
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
	_, err := s.ensure(context.Background(), topic)
	return err
}

// ensure creates the queue of a topic, or of the consumer group, and returns its name, which
// Limits.MaxQueueName limits.
func (s *subscriber) ensure(ctx context.Context, topic string) (queue string, err error) {
	if s.group == "" {
		return topic, s.queues.ensure(ctx, s.transport, topic)
	}
	queue = fmt.Sprintf("%.16x", sha256.Sum256([]byte(s.group+"/"+topic)))
	return queue, s.queues.ensure(ctx, s.transport, queue, topic)
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

// watermillTests are the tests of tests.TestPubSub without TestConsumerGroups, and without two:
// TestNewSubscriberReceivesOldMessages is for brokers that keep consumed messages;
// TestReconnect reads the list of published messages while a goroutine appends to it.
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

// groups returns a constructor for consumer groups. If topics are queues, there is only the
// group "".
func groups(shared core.Transport, topics bool) tests.ConsumerGroupPubSubConstructor {
	made := &createdQueues{known: map[string]bool{}}
	return func(_ *testing.T, group string) (message.Publisher, message.Subscriber) {
		s := &subscriber{transport: shared, queues: made, group: group}
		s.closing, s.close = context.WithCancel(context.Background())
		return &publisher{shared, made, topics}, s
	}
}

// inGroup returns a constructor for one consumer group.
func inGroup(construct tests.ConsumerGroupPubSubConstructor, group string) tests.PubSubConstructor {
	return func(t *testing.T) (message.Publisher, message.Subscriber) { return construct(t, group) }
}

func newTestContext() tests.TestContext {
	return tests.TestContext{TestID: tests.NewTestID(), Features: tests.Features{
		Persistent: true, ConsumerGroups: true, GuaranteedOrder: true, GuaranteedOrderWithSingleSubscriber: true,
	}}
}

// TestWatermill runs Watermill's suite, with one subscriber where the order matters.
func TestWatermill(t *testing.T) {
	if testing.Short() {
		t.Skip("thousands of messages on three brokers: not in short runs")
	}
	for name, open := range transports {
		t.Run(name, func(t *testing.T) {
			shared := open(t)
			overQueues, overTopics := groups(shared, false), groups(shared, true)
			for name, run := range watermillTests {
				t.Run("queues/"+name, func(t *testing.T) { run(t, newTestContext(), inGroup(overQueues, "")) })
				t.Run("topics/"+name, func(t *testing.T) { run(t, newTestContext(), inGroup(overTopics, "group")) })
			}
			t.Run("topics/ConsumerGroups", func(t *testing.T) { tests.TestConsumerGroups(t, newTestContext(), overTopics) })
		})
	}
}

// TestWatermill_BrokerRestarts kills the broker while 50 publishers publish, and again while
// 50 subscribers receive.
func TestWatermill_BrokerRestarts(t *testing.T) {
	if testing.Short() {
		t.Skip("restarts of brokers: not in short runs")
	}
	for name, open := range map[string]func(*testing.T) (core.Transport, server){
		"PostgreSQL": func(t *testing.T) (core.Transport, server) { return openPostgres(t, postgres.Config{}) },
		"RabbitMQ":   openRabbitMQ,
	} {
		t.Run(name, func(t *testing.T) {
			shared, broker := open(t)
			var restarts sync.WaitGroup
			restart := func() {
				if err := errors.Join(broker.Kill(), broker.Restart()); err != nil {
					t.Error(err)
				}
			}
			const messages = 1000
			var published, received atomic.Int64
			onPublish := message.MessageTransformPublisherDecorator(func(*message.Message) {
				if published.Add(1) == messages {
					restarts.Go(restart)
				}
			})
			onReceive := message.MessageTransformSubscriberDecorator(func(*message.Message) {
				if received.Add(1) == messages {
					restarts.Go(restart)
				}
			})
			construct := inGroup(groups(shared, false), "")
			tests.TestConcurrentSubscribe(t, newTestContext(), func(t *testing.T) (message.Publisher, message.Subscriber) {
				pub, sub := construct(t)
				pub, err := onPublish(pub)
				if err != nil {
					t.Fatal(err)
				}
				sub, err = onReceive(sub)
				if err != nil {
					t.Fatal(err)
				}
				return pub, sub
			})
			restarts.Wait()
			if published.Load() < messages || received.Load() < messages {
				t.Errorf("%d messages published and %d received: the broker was not killed twice", published.Load(), received.Load())
			}
		})
	}
}
