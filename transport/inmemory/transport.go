package inmemory

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/queues"
	"github.com/reprise-go/reprise/transport"
)

// Transport connects endpoints to a Broker. It implements core.Transport,
// core.Provisioner, core.Checker, core.Subscriber, core.Remover and core.Describer, and the
// interfaces of package core/queues with which tests and tools look into queues. It is safe for
// concurrent use. After Close all methods return an error matching core.ErrClosed.
//
// The broker is in the same process, so no method waits for an answer. A context that has
// ended is refused nevertheless, as a client library would.
type Transport struct {
	broker *Broker
	shared bool // the broker is not the transport's own
	cfg    Config
	caps   core.Capabilities

	life *transport.Lifecycle
	transport.Undescribed
}

var _ interface {
	core.Transport
	core.Provisioner
	core.Checker
	core.Subscriber
	core.Remover
	core.Describer
	queues.Browser
	queues.Taker
	queues.DepthReader
	queues.Lister
} = (*Transport)(nil)

// Open returns a transport with every capability, locks that do not expire, and a
// separate broker. It is New with the zero Config.
func Open() *Transport {
	t, err := New(Config{})
	if err != nil {
		panic(err) // the zero Config is valid
	}
	return t
}

// New returns a transport with the capabilities in cfg. The error names all problems of
// cfg.
func New(cfg Config) (*Transport, error) {
	caps, err := cfg.capabilities()
	if err != nil {
		return nil, fmt.Errorf("inmemory: open: %w", err)
	}
	t := &Transport{
		broker: cfg.Broker,
		shared: cfg.Broker != nil,
		cfg:    cfg,
		caps:   caps,
		life:   transport.NewLifecycle(),
	}
	if t.broker == nil {
		t.broker = NewBroker()
	}
	return t, nil
}

// Capabilities returns the capabilities of Config.Capabilities.
func (t *Transport) Capabilities() core.Capabilities {
	caps := t.caps
	caps.Transactions = slices.Clone(caps.Transactions)
	return caps
}

// Describe implements core.Describer.
func (t *Transport) Describe() core.TransportInfo {
	return core.TransportInfo{System: "reprise.inmemory"}
}

// Address returns the queue's name itself. Any UTF-8 text except "" is a name, unless it is
// longer than Capabilities.MaxQueueName.
func (t *Transport) Address(queue string) (string, error) {
	if err := t.checkQueue(queue); err != nil {
		return "", fmt.Errorf("inmemory: address: %w", err)
	}
	return queue, nil
}

func (t *Transport) checkQueue(queue string) error {
	if limit := t.caps.MaxQueueName; limit > 0 && len(queue) > limit {
		return transport.BadName("queue", queue, limit, "the queue's name may have %d bytes (Capabilities.MaxQueueName), but has %d: %.40q...", limit, len(queue), queue)
	}
	return checkQueueName(queue)
}

// Check reports whether the transport is open and the queues exist.
func (t *Transport) Check(ctx context.Context, topology core.Topology) error {
	if err := t.life.Err(ctx); err != nil {
		return fmt.Errorf("inmemory: check: %w", err)
	}
	var missing []error
	for _, name := range topology.Queues {
		if _, err := t.broker.queue(name); err != nil {
			missing = append(missing, err)
		}
	}
	if err := errors.Join(missing...); err != nil {
		return fmt.Errorf("inmemory: check: %w", err)
	}
	return nil
}

// Provision creates the queues that do not exist. A queue has no properties that could
// mismatch. QueueExpiry has no effect: all queues end with the process.
func (t *Transport) Provision(ctx context.Context, topology core.Topology) error {
	err := t.life.Err(ctx)
	for i := 0; i < len(topology.Queues) && err == nil; i++ {
		err = t.checkQueue(topology.Queues[i])
	}
	if err == nil {
		err = t.broker.provision(topology.Queues)
	}
	if err != nil {
		return fmt.Errorf("inmemory: provision: %w", err)
	}
	return nil
}

// Subscribe lets queue receive a copy of messages published to each topic from now on.
// Without Capabilities.PublishSubscribe it returns an error matching
// errors.ErrUnsupported.
func (t *Transport) Subscribe(ctx context.Context, queue string, topics ...string) error {
	return t.changeSubscription(ctx, "subscribe", queue, topics, true)
}

// Unsubscribe ends the subscriptions.
func (t *Transport) Unsubscribe(ctx context.Context, queue string, topics ...string) error {
	return t.changeSubscription(ctx, "unsubscribe", queue, topics, false)
}

func (t *Transport) changeSubscription(ctx context.Context, operation, queue string, topics []string, on bool) error {
	err := t.life.Err(ctx)
	if err == nil && !t.caps.PublishSubscribe {
		err = transport.Unsupported("PublishSubscribe")
	}
	for i := 0; i < len(topics) && err == nil; i++ {
		err = t.checkTopic(topics[i])
	}
	if err == nil {
		err = t.broker.subscribe(queue, topics, on)
	}
	if err != nil {
		return fmt.Errorf("inmemory: %s %q: %w", operation, queue, err)
	}
	return nil
}

// Purge removes the ready messages of a queue.
func (t *Transport) Purge(ctx context.Context, queue string) (int, error) {
	err := t.life.Err(ctx)
	if err != nil {
		return 0, fmt.Errorf("inmemory: purge %q: %w", queue, err)
	}
	q, err := t.broker.queue(queue)
	if err != nil {
		return 0, fmt.Errorf("inmemory: purge: %w", err)
	}
	return q.purge(), nil
}

// CheckTopic returns an error for the name "", and for one that is longer than
// Capabilities.MaxTopicName. Any other text is a topic.
func (t *Transport) CheckTopic(topic string) error {
	if err := t.checkTopic(topic); err != nil {
		return fmt.Errorf("inmemory: %w", err)
	}
	return nil
}

func (t *Transport) checkTopic(topic string) error {
	if limit := t.caps.MaxTopicName; limit > 0 && len(topic) > limit {
		return transport.BadName("topic", topic, limit, "the topic's name may have %d bytes (Capabilities.MaxTopicName), but has %d: %.40q...", limit, len(topic), topic)
	}
	return checkTopicName(topic)
}

// Remove removes queues, each with its dead-letter queue, and topics. A receiver of a removed
// queue gets no more messages.
func (t *Transport) Remove(ctx context.Context, queues, topics []string) error {
	err := t.life.Err(ctx)
	if err == nil {
		err = t.broker.remove(queues, topics)
	}
	if err != nil {
		return fmt.Errorf("inmemory: remove: %w", err)
	}
	return nil
}

// OpenReceiver starts to receive from a queue, which must exist.
func (t *Transport) OpenReceiver(ctx context.Context, cfg core.ReceiverConfig) (core.Receiver, error) {
	r, err := t.openReceiver(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("inmemory: open receiver: %w", err)
	}
	return r, nil
}

func (t *Transport) openReceiver(ctx context.Context, cfg core.ReceiverConfig) (*receiver, error) {
	if err := t.life.Err(ctx); err != nil {
		return nil, err
	}
	if err := transport.CheckReceiver(&cfg, &t.caps); err != nil {
		return nil, err
	}
	q, err := t.broker.queue(cfg.Queue)
	if err != nil {
		return nil, err
	}
	r := newReceiver(t, q, cfg)
	r.attach()
	if err := t.life.Add(r); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

// Close closes every receiver that is still open and, unless the broker is shared, stops
// the broker's timers. Messages stay in the broker. Close is idempotent and does not
// wait: it ignores ctx.
func (t *Transport) Close(ctx context.Context) error {
	t.life.Close(ctx, func() {
		if !t.shared {
			t.broker.stop()
		}
	})
	return nil
}
