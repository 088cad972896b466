package inmemory_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/queues"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// Rule C1.
func TestCapabilities_MissingOnesAreRefusedBeforehand(t *testing.T) {
	without := func(change func(*core.Capabilities)) inmemory.Config {
		return inmemory.Config{Capabilities: able(change)}
	}
	for name, c := range map[string]struct {
		cfg inmemory.Config
		out core.Outgoing
	}{
		"delay":          {without(func(c *core.Capabilities) { c.DelayedDelivery = false }), core.Outgoing{ID: "1", Queue: "q", Delay: 1}},
		"delay too long": {without(func(c *core.Capabilities) { c.MaxDelay = time.Minute }), core.Outgoing{ID: "1", Queue: "q", Delay: time.Minute + 1}},
		"publish":        {without(func(c *core.Capabilities) { c.PublishSubscribe = false }), core.Outgoing{ID: "1", Topic: "t"}},
		"time to live":   {without(func(c *core.Capabilities) { c.TimeToBeReceived = false }), core.Outgoing{ID: "1", Queue: "q", TimeToBeReceived: 1}},
	} {
		inBubble(t, name, func(t *testing.T) {
			transport := open(t, c.cfg, "q")
			c.out.ID = "bad"
			err := transport.Send(t.Context(), message("q", "good"), c.out)
			failWith(t, err, errors.ErrUnsupported)
			var failed *core.SendError
			if !errors.As(err, &failed) || len(failed.Results) != 2 {
				t.Fatalf("the error is no *SendError with two results: %v", err)
			}
			for i, result := range failed.Results {
				if result.State != core.SendRefused || result.Err == nil {
					t.Errorf("result %+v, want refused", result)
				}
				if errors.Is(result.Err, errors.ErrUnsupported) != (i == 1) {
					t.Errorf("message %s is blamed with %v", result.ID, result.Err)
				}
			}
			depth(t, transport, "q", queues.Depth{})
		})
	}
}

// Rule C1.
func TestCapabilities_SubscribeNeedsPublishSubscribe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := open(t, inmemory.Config{Capabilities: able(func(c *core.Capabilities) { c.PublishSubscribe = false })}, "q")
		failWith(t, transport.Subscribe(t.Context(), "q", "t"), errors.ErrUnsupported)
		failWith(t, transport.Unsubscribe(t.Context(), "q", "t"), errors.ErrUnsupported)
	})
}

// Rule C1.
func TestCapabilities_AgreeWithModesAndInterfaces(t *testing.T) {
	modes := inmemory.Everything().Transactions
	for _, lock := range []time.Duration{0, time.Minute} {
		for _, deadLetter := range []bool{false, true} {
			for _, claimed := range modes {
				for _, mode := range append(modes, core.TransactionDefault) {
					name := fmt.Sprintf("lock %v, dead letter %t, %v, opened %v", lock, deadLetter, claimed, mode)
					inBubble(t, name, func(t *testing.T) {
						transport := open(t, inmemory.Config{LockDuration: lock, Capabilities: able(func(c *core.Capabilities) {
							c.Transactions = []core.TransactionMode{claimed}
							c.DeadLetter = deadLetter
						})}, "q")
						send(t, transport, message("q", "a"))
						if mode != claimed {
							_, err := transport.OpenReceiver(t.Context(), core.ReceiverConfig{Queue: "q", Mode: mode, MaxInFlight: 1})
							failWith(t, err, errors.ErrUnsupported)
							return
						}
						d := receive(t, receiver(t, transport, "q", mode, 1), "a")
						refused := func(method string, err error, want bool) {
							t.Helper()
							if errors.Is(err, errors.ErrUnsupported) != want || !want && err != nil {
								t.Errorf("%s: %v; refused as unsupported: want %t", method, err, want)
							}
						}
						locked := lock > 0 && mode != core.TransactionNone
						if lockedUntil := d.LockedUntil(); lockedUntil.IsZero() == locked {
							t.Errorf("LockedUntil: %v", lockedUntil)
						}
						refused("Renew", d.Renew(t.Context()), !locked)
						atomic := mode == core.TransactionSendsAtomicWithReceive
						refused("Reset", d.Reset(t.Context()), !atomic)
						if !atomic {
							refused("CompleteWith", d.CompleteWith(t.Context(), nil), true)
							refused("ReplaceWith", d.ReplaceWith(t.Context(), nil), true)
						}
						refused("DeadLetter", d.DeadLetter(t.Context(), core.DeadLetter{Reason: "reason", Description: "description"}), !deadLetter)
						if !deadLetter {
							succeed(t, d.Complete(t.Context()))
						}
					})
				}
			}
		}
	}
}

func TestLikeRabbitMQ_RefusesAsRabbitMQ(t *testing.T) {
	const longest, message, headers, key = (1<<28 - 1) * time.Second, 16 << 20, 64 << 10, 255
	header := func(key, value int) core.Headers {
		return core.HeadersFromMap(map[string]string{strings.Repeat("k", key): strings.Repeat("v", value)})
	}
	for _, profile := range []inmemory.Config{inmemory.LikeRabbitMQ(), inmemory.LikeRabbitMQClassic()} {
		synctest.Test(t, func(t *testing.T) {
			transport := open(t, profile, "q")
			for _, mode := range []core.TransactionMode{core.TransactionNone, core.TransactionSendsAtomicWithReceive} {
				_, err := transport.OpenReceiver(t.Context(), core.ReceiverConfig{Queue: "q", Mode: mode, MaxInFlight: 1})
				failWith(t, err, errors.ErrUnsupported)
			}
			peekLock(t, transport, "q")
			for _, c := range []struct {
				largest, more core.Outgoing
				refusal       error
			}{
				{core.Outgoing{Delay: longest}, core.Outgoing{Delay: longest + 1}, errors.ErrUnsupported},
				{core.Outgoing{Body: make([]byte, message)}, core.Outgoing{Body: make([]byte, message+1)}, core.ErrTooLarge},
				{core.Outgoing{Headers: header(1, headers-1)}, core.Outgoing{Headers: header(1, headers)}, core.ErrTooLarge},
				{core.Outgoing{Headers: header(key, 1)}, core.Outgoing{Headers: header(key+1, 1)}, core.ErrTooLarge},
			} {
				c.largest.Queue, c.more.Queue, c.largest.ID, c.more.ID = "q", "q", "1", "1"
				send(t, transport, c.largest)
				failWith(t, transport.Send(t.Context(), c.more), c.refusal)
			}
		})
	}
}

// Rule C1.
func TestCapabilities_AreConstant(t *testing.T) {
	cfg := inmemory.LikeSQS()
	transport := open(t, cfg)
	cfg.Capabilities.DelayedDelivery = false
	cfg.Capabilities.Transactions[0] = core.TransactionSendsAtomicWithReceive
	transport.Capabilities().Transactions[0] = core.TransactionSendsAtomicWithReceive
	if caps := transport.Capabilities(); !caps.DelayedDelivery || caps.Transactions[0] != core.TransactionNone {
		t.Errorf("the capabilities changed: %+v", caps)
	}
}

func TestOpen_NamesEveryMistake(t *testing.T) {
	_, err := inmemory.New(inmemory.Config{LockDuration: -1, Capabilities: able(func(c *core.Capabilities) {
		c.Transactions = []core.TransactionMode{core.TransactionNone, core.TransactionNone, core.TransactionDefault, 9}
		c.Durable = true
		c.NativeDeliveryCount = false
		c.CountsReleases = true
		c.DelayPrecision = time.Microsecond
		c.MaxReceiveBatch = -1
		c.MaxMessageBytes = -1
	})})
	if err == nil {
		t.Fatal("Open accepted it")
	}
	for _, want := range []string{
		"inmemory: open: ", "LockDuration", "None twice", "lists Default", "TransactionMode(9)", "Durable",
		"CountsReleases", "DelayPrecision", "MaxReceiveBatch", "MaxMessageBytes",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not name %q:\n%v", want, err)
		}
	}
	if _, err := inmemory.New(inmemory.Config{Capabilities: &core.Capabilities{}}); err == nil {
		t.Error("Open accepted capabilities without a transaction mode")
	}
}

func TestProfiles_AreValidAndIndependent(t *testing.T) {
	for name, profile := range map[string]func() inmemory.Config{
		"SQS": inmemory.LikeSQS, "Azure Service Bus": inmemory.LikeAzureServiceBus, "RabbitMQ": inmemory.LikeRabbitMQ,
		"RabbitMQ classic": inmemory.LikeRabbitMQClassic, "PostgreSQL": inmemory.LikePostgreSQL,
	} {
		first := profile()
		if _, err := inmemory.New(first); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		first.Capabilities.Transactions[0] = 9
		first.Capabilities.Durable = true
		if _, err := inmemory.New(profile()); err != nil {
			t.Errorf("%s: a change to one Config shows in the next: %v", name, err)
		}
	}
}
