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
		Synctest: true,
		Open: func(t testing.TB) core.Transport {
			transport, err := inmemory.New(cfg)
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
			transport, err := inmemory.New(limited)
			if err != nil {
				t.Fatal(err)
			}
			return transport
		},
		DeleteQueue: func(t testing.TB, queue string) {
			transport, err := inmemory.New(cfg)
			if err == nil {
				err = transport.Remove(t.Context(), []string{queue}, nil)
			}
			if err != nil {
				t.Fatal(err)
			}
		},
		DeadLetters: func(t testing.TB, queue string) (letters []conformance.DeadLetter) {
			dead := inmemory.DeadLetterQueue(queue)
			broker, err := inmemory.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			depth, err := broker.Depth(t.Context(), dead)
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

// consumer removes received messages from the queue.
func consumer(t testing.TB, broker *inmemory.Broker, queue string) core.Receiver {
	t.Helper()
	transport, err := inmemory.New(inmemory.Config{Broker: broker})
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
	h.EngineRules = true
	conformance.Run(t, h)
}

// Rules whose cases a capability touches, for profiles that differ from others in that
// capability alone.
var (
	// countRules are about counting attempts, or decide by the count.
	countRules = []string{"C3", "C5", "C6", "C8", "C9", "C11", "R1", "R2", "R3", "R4", "R7", "R22", "R25", "R27", "R28", "R34", "R35", "R41", "R45"}
	// settlementRules are about settlements, and the work of a handler that goes with them.
	settlementRules = []string{"C5", "C6", "C7", "C8", "C12", "C14", "C22", "R20", "R25", "R27", "R28"}
	// sendRules are about messages that are delayed, published or expire, and about refusing them.
	sendRules = []string{"C1", "C2", "C12", "C13", "C19", "C20", "R8", "R10", "R22"}
)

// TestProfiles runs the suite on transports that are less able.
//
// Each value of each capability meets every case in a profile of the first part, and in
// each transaction mode if the mode can make a difference: ReceiveOnly alone is like
// RabbitMQ, DeadLetter is missing in four of them, Prefetch is in each mode of the one like
// PostgreSQL. Those of the second part differ from one of them, or from TestConformance,
// in few capabilities, and run the rules that these touch: for a case that needs two
// capabilities, of which a profile of the first part has neither, and for strict
// expectations that one of them makes weaker, as MayDuplicate does.
func TestProfiles(t *testing.T) {
	if testing.Short() {
		t.Skip("14 configurations: not in short runs")
	}
	without := func(change func(c *core.Capabilities)) inmemory.Config {
		return inmemory.Config{Capabilities: able(change)}
	}
	limited := without(func(c *core.Capabilities) {
		c.Transactions = []core.TransactionMode{core.TransactionSendsAtomicWithReceive}
		c.CountsReleases = true
		c.MaxDelay, c.DelayPrecision, c.SubscriptionDelay = time.Hour, time.Second, time.Second
		c.MaxReceiveBatch, c.MaxMessageBytes, c.MaxHeaderBytes, c.MaxHeaderKeyBytes = 3, 100<<10, 32<<10, 100
	})
	limited.LockDuration = 20 * time.Second
	for name, p := range map[string]struct {
		cfg   inmemory.Config
		rules []string // none: all
	}{
		"the least able":  {cfg: inmemory.Config{Capabilities: &core.Capabilities{Transactions: []core.TransactionMode{core.TransactionNone}}}},
		"like SQS":        {cfg: inmemory.LikeSQS()},
		"like Azure":      {cfg: inmemory.LikeAzureServiceBus()},
		"like RabbitMQ":   {cfg: inmemory.LikeRabbitMQ()},
		"like PostgreSQL": {cfg: inmemory.LikePostgreSQL()},
		"SendsAtomicWithReceive alone, with limits and locks that end": {cfg: limited},
		"without DelayedDelivery, PublishSubscribe and TimeToBeReceived": {cfg: without(func(c *core.Capabilities) {
			c.DelayedDelivery, c.DelayPrecision, c.PublishSubscribe, c.TimeToBeReceived = false, 0, false, false
		})},

		"None alone":                  {without(func(c *core.Capabilities) { c.Transactions = []core.TransactionMode{core.TransactionNone} }), append([]string{"C10", "C14", "C22", "C23"}, sendRules...)},
		"without DelayedDelivery":     {without(func(c *core.Capabilities) { c.DelayedDelivery, c.DelayPrecision = false, 0 }), sendRules},
		"without PublishSubscribe":    {without(func(c *core.Capabilities) { c.PublishSubscribe = false }), sendRules},
		"without TimeToBeReceived":    {without(func(c *core.Capabilities) { c.TimeToBeReceived = false }), sendRules},
		"without NativeDeliveryCount": {without(func(c *core.Capabilities) { c.NativeDeliveryCount = false }), countRules},
		"like RabbitMQ classic":       {inmemory.LikeRabbitMQClassic(), countRules},
		"with unconfirmed settlement": {without(func(c *core.Capabilities) { c.ConfirmsSettlement = false }), settlementRules},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := harness(p.cfg)
			h.Rules, h.EngineRules = p.rules, true
			conformance.Run(t, h)
		})
	}
}

// TestConformance_RealTime runs it without a bubble, as it runs on a broker. ReceiveOnly is
// left to the bubble: it is SendsAtomicWithReceive without CompleteWith and ReplaceWith.
func TestConformance_RealTime(t *testing.T) {
	if testing.Short() {
		t.Skip("the bubble of TestConformance tries the same cases: not in short runs")
	}
	cfg := inmemory.Config{
		Broker: inmemory.NewBroker(),
		Capabilities: able(func(c *core.Capabilities) {
			c.Transactions = []core.TransactionMode{core.TransactionNone, core.TransactionSendsAtomicWithReceive}
		}),
		LockDuration: 10 * time.Minute,
	}
	h := harness(cfg)
	cfg.LockDuration = 4 * time.Second
	h.OpenShortLocks = harness(cfg).Open
	h.Synctest = false
	conformance.Run(t, h)
}
