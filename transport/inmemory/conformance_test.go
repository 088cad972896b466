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
// other messaging systems. Where one capability differs that some of those systems
// have, or lack, as well, the rules are run that it touches.
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
	for name, c := range map[string]struct {
		config inmemory.Config
		rules  []string // none: all
	}{
		"None alone":                   {config: only(core.TransactionNone)},
		"ReceiveOnly alone":            {config: only(core.TransactionReceiveOnly)},
		"SendsAtomicWithReceive alone": {config: only(core.TransactionSendsAtomicWithReceive)},
		"without DelayedDelivery":      {config: without(func(c *core.Capabilities) { c.DelayedDelivery, c.DelayPrecision = false, 0 })},
		"without NativeDeliveryCount":  {config: without(func(c *core.Capabilities) { c.NativeDeliveryCount = false })},
		"without PublishSubscribe": {
			config: without(func(c *core.Capabilities) { c.PublishSubscribe = false }),
			rules:  []string{"C1", "C10", "C12", "C13", "C14", "C19", "C20", "R20", "R60"},
		},
		"without TimeToBeReceived": {
			config: without(func(c *core.Capabilities) { c.TimeToBeReceived = false }),
			rules:  []string{"C1", "C4", "C10", "C12", "C20", "R20", "R23", "R24", "R33"},
		},
		"without DeadLetter": {
			config: without(func(c *core.Capabilities) { c.DeadLetter = false }),
			rules:  []string{"C1", "C5", "C22", "R7", "R23", "R24", "R53"},
		},
		"with CountsEveryDelivery": {
			config: without(func(c *core.Capabilities) { c.CountsEveryDelivery = true }),
			rules:  []string{"C1", "C3", "C6", "C7", "C8", "C9", "C14", "C17", "R1", "R25", "R27", "R28", "R34", "R35", "R45"},
		},
		"with unconfirmed settlement": {
			config: without(func(c *core.Capabilities) { c.ConfirmsSettlement = false }),
			rules:  []string{"C1", "C5", "C6", "C7", "C9", "C12", "R1", "R25", "R28"},
		},
		"with Ahead": {
			config: without(func(c *core.Capabilities) { c.Ahead = true }),
			rules:  []string{"C1", "C3", "C8", "C14", "C17", "R1", "R27", "R45"},
		},
		"with limits": {config: without(func(c *core.Capabilities) {
			c.MaxDelay, c.DelayPrecision, c.SubscribeLag = time.Hour, time.Second, time.Second
			c.MaxReceiveBatch, c.MaxMessageBytes, c.MaxHeaderBytes, c.MaxHeaderKeyBytes = 3, 100<<10, 32<<10, 100
		})},
		"with locks that end":   {config: inmemory.Config{LockDuration: 20 * time.Second}},
		"the least able":        {config: inmemory.Config{Capabilities: &core.Capabilities{Transactions: []core.TransactionMode{core.TransactionNone}}}},
		"like SQS":              {config: inmemory.LikeSQS()},
		"like Azure":            {config: inmemory.LikeAzureServiceBus()},
		"like RabbitMQ":         {config: inmemory.LikeRabbitMQ()},
		"like RabbitMQ classic": {config: inmemory.LikeRabbitMQClassic()},
		"like PostgreSQL":       {config: inmemory.LikePostgreSQL()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := harness(c.config)
			h.Rules = c.rules
			conformance.Run(t, h)
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
