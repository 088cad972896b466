package foreignsuites

import (
	"context"
	"crypto/rand"
	"slices"
	"strings"
	"testing"

	"gocloud.dev/pubsub/driver"
	"gocloud.dev/pubsub/drivertest"

	"github.com/reprise-go/reprise/core"
)

// A Go CDK topic exists or not, apart from its subscriptions; a message to a topic that does
// not exist is NotFound. A topic of Reprise exists by its subscriptions, and an event without
// a subscriber is accepted (C19), unless the sender requires one.
const (
	toQueues = iota
	toTopic
	toTopicWithSubscriber // with core.Outgoing.RequireSubscriber
)

// withoutSubscriber are the tests of the suite that toTopic would fail: they want NotFound for
// a topic without a subscriber. The test around the second, TestAs, would fail with it.
var withoutSubscriber = []string{
	"TestNonExistentTopicSucceedsOnOpenButFailsOnSend",
	"TestAs/verify_As_returns_false_when_passed_nil",
}

// TestGoCDK runs the conformance tests of the Go CDK's drivers.
func TestGoCDK(t *testing.T) {
	if testing.Short() {
		t.Skip("three brokers: not in short runs")
	}
	for name, open := range transports {
		t.Run(name, func(t *testing.T) {
			shared := open(t)
			for _, c := range []struct {
				name       string
				kind       int
				deviations []string
			}{
				{name: "queues", kind: toQueues},
				{name: "topics", kind: toTopic, deviations: withoutSubscriber},
				{name: "topics with a required subscriber", kind: toTopicWithSubscriber},
			} {
				t.Run(c.name, func(t *testing.T) {
					drivertest.RunConformanceTests(t, func(_ context.Context, one *testing.T) (drivertest.Harness, error) {
						h := &harness{t: one, transport: shared, kind: c.kind}
						one.Cleanup(func() {
							want := slices.Contains(c.deviations, strings.TrimPrefix(one.Name(), t.Name()+"/"))
							if h.deviated != want {
								one.Errorf("a message without a subscriber was accepted: %t, want %t", h.deviated, want)
							}
						})
						return h, nil
					}, nil)
				})
			}
		})
	}
}

// harness makes the topics and subscriptions of a test.
type harness struct {
	t         *testing.T
	transport core.Transport
	kind      int
	deviated  bool // set by deviating
}

// destination returns the queue or topic with a name.
func (h *harness) destination(name string) core.Outgoing {
	if h.kind == toQueues {
		return core.Outgoing{Queue: name}
	}
	return core.Outgoing{Topic: name, RequireSubscriber: h.kind == toTopicWithSubscriber}
}

// CreateTopic implements drivertest.Harness. A queue is added with each subscription.
func (h *harness) CreateTopic(context.Context, string) (driver.Topic, func(), error) {
	d := &destinations{transport: h.transport}
	if h.kind != toQueues {
		d.to = []core.Outgoing{h.destination("topic-" + rand.Text())}
	}
	return d, func() {}, nil
}

// CreateSubscription implements drivertest.Harness.
func (h *harness) CreateSubscription(ctx context.Context, dt driver.Topic, _ string) (driver.Subscription, func(), error) {
	d, queue := dt.(*destinations), "queue-"+rand.Text()
	var topics []string
	if h.kind == toQueues {
		d.to = append(d.to, h.destination(queue))
	} else {
		topics = append(topics, d.to[0].Topic)
	}
	if err := prepare(ctx, h.transport, queue, topics...); err != nil {
		return nil, nil, err
	}
	return newSubscription(h.transport, queue), func() {
		if err := h.transport.(core.Remover).Remove(ctx, []string{queue}, topics); err != nil {
			h.t.Error(err)
		}
	}, nil
}

// MakeNonexistentTopic implements drivertest.Harness.
func (h *harness) MakeNonexistentTopic(context.Context) (driver.Topic, error) {
	d := &destinations{transport: h.transport, to: []core.Outgoing{h.destination("missing-" + rand.Text())}}
	if h.kind == toTopic {
		return &deviating{d, h}, nil
	}
	return d, nil
}

// deviating is a topic whose messages the transport accepts, where the suite wants an error.
type deviating struct {
	*destinations
	harness *harness
}

// SendBatch implements driver.Topic.
func (d *deviating) SendBatch(ctx context.Context, ms []*driver.Message) error {
	if err := d.destinations.SendBatch(ctx, ms); err != nil {
		return err
	}
	d.harness.deviated = true
	return core.ErrNoSubscriber
}

// MakeNonexistentSubscription implements drivertest.Harness.
func (h *harness) MakeNonexistentSubscription(context.Context) (driver.Subscription, func(), error) {
	return newSubscription(h.transport, "missing-"+rand.Text()), func() {}, nil
}

// Close implements drivertest.Harness.
func (h *harness) Close() {}

// MaxBatchSizes implements drivertest.Harness: there is no maximum.
func (h *harness) MaxBatchSizes() (int, int) { return 0, 0 }

// SupportsMultipleSubscriptions implements drivertest.Harness.
func (h *harness) SupportsMultipleSubscriptions() bool { return true }
