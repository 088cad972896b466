package inmemory_test

import (
	"testing"
	"time"

	"github.com/reprise-go/reprise/conformance"
	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// harness opens transports of the configuration on one broker, a new one where it names none.
func harness(cfg inmemory.Config) conformance.Harness {
	if cfg.Broker == nil {
		cfg.Broker = inmemory.NewBroker()
	}
	return conformance.Harness{
		Bubble: true,
		Open: func(t testing.TB) core.Transport {
			transport, err := inmemory.Open(cfg)
			if err != nil {
				t.Fatal(err)
			}
			return transport
		},
		OpenLimited: func(t testing.TB, maxMessageBytes int) core.Transport {
			limited, caps := cfg, inmemory.Everything()
			if cfg.Capabilities != nil {
				caps = *cfg.Capabilities
			}
			caps.MaxMessageBytes = maxMessageBytes
			limited.Capabilities = &caps
			transport, err := inmemory.Open(limited)
			if err != nil {
				t.Fatal(err)
			}
			return transport
		},
		DeadLetters: func(t testing.TB, queue string) (letters []conformance.DeadLetter) {
			dead := inmemory.DeadLetterQueue(queue)
			depth, err := cfg.Broker.Depth(dead)
			if err != nil {
				t.Fatal(err)
			}
			if depth.Ready == 0 {
				return nil
			}
			deliveries := make([]core.Delivery, depth.Ready)
			n, err := consumer(t, cfg.Broker, dead).Receive(t.Context(), deliveries)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range deliveries[:n] {
				in := d.Incoming()
				letters = append(letters, conformance.DeadLetter{
					Body:        in.Body,
					Reason:      in.Headers.Get(inmemory.HeaderDeadLetterReason),
					Description: in.Headers.Get(inmemory.HeaderDeadLetterDescription),
					Headers:     in.Headers,
				})
			}
			return letters
		},
	}
}

// consumer takes what it receives out of the queue.
func consumer(t testing.TB, broker *inmemory.Broker, queue string) core.Receiver {
	t.Helper()
	transport, err := inmemory.Open(inmemory.Config{Broker: broker})
	if err != nil {
		t.Fatal(err)
	}
	r, err := transport.OpenReceiver(t.Context(), core.ReceiverConfig{Queue: queue, Mode: core.TransactionNone, MaxInFlight: 1})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestConformance(t *testing.T) {
	h := harness(inmemory.Config{})
	h.Name = "inmemory"
	conformance.Run(t, h)
}

// TestConformanceOfProfiles runs the suite on transports that are less able: each
// capability switched off, every limit set, locks that end, and the profiles of
// other messaging systems.
func TestConformanceOfProfiles(t *testing.T) {
	if testing.Short() {
		t.Skip("19 configurations: not in short runs")
	}
	without := func(change func(c *core.Capabilities)) inmemory.Config {
		return inmemory.Config{Capabilities: able(change)}
	}
	only := func(modes ...core.TransactionMode) inmemory.Config {
		return without(func(c *core.Capabilities) { c.Transactions = modes })
	}
	for name, cfg := range map[string]inmemory.Config{
		"None alone":                   only(core.TransactionNone),
		"ReceiveOnly alone":            only(core.TransactionReceiveOnly),
		"SendsAtomicWithReceive alone": only(core.TransactionSendsAtomicWithReceive),
		"without DelayedDelivery":      without(func(c *core.Capabilities) { c.DelayedDelivery, c.DelayPrecision = false, 0 }),
		"without NativeDeliveryCount":  without(func(c *core.Capabilities) { c.NativeDeliveryCount = false }),
		"without PublishSubscribe":     without(func(c *core.Capabilities) { c.PublishSubscribe = false }),
		"without TimeToBeReceived":     without(func(c *core.Capabilities) { c.TimeToBeReceived = false }),
		"without DeadLetter":           without(func(c *core.Capabilities) { c.DeadLetter = false }),
		"with CountsEveryDelivery":     without(func(c *core.Capabilities) { c.CountsEveryDelivery = true }),
		"with unconfirmed settlement":  without(func(c *core.Capabilities) { c.ConfirmsSettlement = false }),
		"with Ahead":                   without(func(c *core.Capabilities) { c.Ahead = true }),
		"with limits": without(func(c *core.Capabilities) {
			c.MaxDelay, c.DelayPrecision, c.SubscribeLag = time.Hour, time.Second, time.Second
			c.MaxReceiveBatch, c.MaxMessageBytes, c.MaxHeaderBytes, c.MaxHeaderKeyBytes = 3, 100<<10, 32<<10, 100
		}),
		"with locks that end":   {LockDuration: 20 * time.Second},
		"the least able":        {Capabilities: &core.Capabilities{Transactions: []core.TransactionMode{core.TransactionNone}}},
		"like SQS":              inmemory.LikeSQS(),
		"like Azure":            inmemory.LikeAzureServiceBus(),
		"like RabbitMQ":         inmemory.LikeRabbitMQ(),
		"like RabbitMQ classic": inmemory.LikeRabbitMQClassic(),
		"like PostgreSQL":       inmemory.LikePostgreSQL(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conformance.Run(t, harness(cfg))
		})
	}
}

// TestConformanceInRealTime runs it without a bubble, as it runs on a broker.
func TestConformanceInRealTime(t *testing.T) {
	if testing.Short() {
		t.Skip("the bubble of TestConformance tries the same cases: not in short runs")
	}
	broker := inmemory.NewBroker()
	h := harness(inmemory.Config{Broker: broker, LockDuration: 10 * time.Minute})
	h.OpenShortLocks = harness(inmemory.Config{Broker: broker, LockDuration: 4 * time.Second}).Open
	h.Bubble = false
	conformance.Run(t, h)
}
