package core_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// groupTransport is a transport on which some queues keep groups, as on brokers with two
// kinds of queues.
type groupTransport struct {
	transport.Wrapper
	queue string
	open  func(core.ReceiverConfig)
}

func (t groupTransport) KeepsGroups(queue string) bool { return queue == t.queue }

func (t groupTransport) OpenReceiver(ctx context.Context, cfg core.ReceiverConfig) (core.Receiver, error) {
	t.open(cfg)
	return t.Wrapper.OpenReceiver(ctx, cfg)
}

// MaxDeliveries that the receiver is opened with counts all rounds where the queue keeps groups.
func TestGroups_MaxDeliveriesOfAllRounds(t *testing.T) {
	for name, c := range map[string]struct {
		keeps  string
		config core.Recoverability
		want   int
	}{
		"the defaults":            {"orders", core.Recoverability{}, 50 + 6*3},
		"another queue":           {"other", core.Recoverability{}, 50},
		"without delayed retries": {"orders", core.Recoverability{Delayed: core.Delayed{NumberOfRetries: core.Off}}, 50},
		"more for a message type": {"orders", core.Recoverability{
			Immediate: core.Immediate{NumberOfRetries: 1}, Delayed: core.Delayed{NumberOfRetries: 1}, MaxDeliveries: 20,
			MessageTypes: map[string]core.TypeRecoverability{"order": {Immediate: core.Immediate{NumberOfRetries: 4}, Delayed: core.Delayed{NumberOfRetries: 2}}},
		}, 20 + 5*2},
		"off": {"orders", core.Recoverability{MaxDeliveries: core.Off}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			opened := make(chan int, 1)
			under := inmemory.Open()
			ep, err := core.New("orders", groupTransport{transport.Wrapper{Transport: under}, c.keeps, func(cfg core.ReceiverConfig) { opened <- cfg.MaxDeliveries }}, core.Config{Recoverability: c.config})
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- ep.Run(ctx) }()
			if got := <-opened; got != c.want {
				t.Errorf("the receiver is opened with MaxDeliveries %d, want %d", got, c.want)
			}
			stop()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

// The endpoint logs at its start if an order cannot be kept.
func TestGroups_WarningsAtStart(t *testing.T) {
	const says = "the order of a group's messages is not always kept"
	able := inmemory.Everything()
	able.MaxLockTime = time.Minute
	long := core.Recoverability{Delayed: core.Delayed{NumberOfRetries: 2, TimeIncrease: 40 * time.Second}}
	for name, c := range map[string]struct {
		keeps  string
		config core.Config
		want   []string
	}{
		"a delay that is too long":  {"orders", core.Config{Recoverability: long}, []string{says, "1m20s", "1m0s at most", "error queue"}},
		"on another queue":          {"other", core.Config{Recoverability: long}, nil},
		"a short delay":             {"orders", core.Config{}, nil},
		"None":                      {"orders", core.Config{Transactions: core.TransactionNone, Concurrency: 2}, []string{says, "transaction mode None", "Concurrency of 1"}},
		"None, one after the other": {"orders", core.Config{Transactions: core.TransactionNone, Concurrency: 1}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			under, err := inmemory.New(inmemory.Config{Capabilities: &able})
			if err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			c.config.Logger = slog.New(slog.NewTextHandler(&log, nil))
			opened := make(chan struct{}, 1)
			ep, err := core.New("orders", groupTransport{transport.Wrapper{Transport: under}, c.keeps, func(core.ReceiverConfig) { opened <- struct{}{} }}, c.config)
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- ep.Run(ctx) }()
			<-opened
			stop()
			if err := <-done; err != nil {
				t.Error(err)
			}
			if c.want == nil && strings.Contains(log.String(), says) || !containsAll(log.String(), c.want...) {
				t.Errorf("want %q; logged: %s", c.want, log.String())
			}
		})
	}
}

// Rounds are those of the message's type, which only Config.MessageType may know.
func TestGroups_RoundsOfTheMessageType(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		ep := fx.newEndpoint("orders", core.Config{
			MessageType: func(*core.Incoming) string { return "order" },
			Recoverability: core.Recoverability{
				Immediate: core.Immediate{NumberOfRetries: core.Off}, Delayed: core.Delayed{NumberOfRetries: core.Off},
				MessageTypes: map[string]core.TypeRecoverability{"order": {Immediate: core.Immediate{NumberOfRetries: 2}, Delayed: core.Delayed{NumberOfRetries: 2}}},
			},
		})
		var attempts recorder[string]
		fx.handle(ep, "order", func(_ context.Context, m *core.Message) error {
			attempts.add(fmt.Sprintf("%d/%d", m.Attempt, m.DelayedRetries))
			return errBoom
		})
		fx.run(ep)
		m := order("1")
		m.GroupKey = "customer 7"
		m.Headers.Del(headers.MessageTypes)
		fx.send(m)
		fx.advance(time.Hour)
		equal(fx, "attempts", fmt.Sprint(attempts.all()), "[1/0 2/0 3/0 1/1 2/1 3/1 1/2 2/2 3/2]")
		fx.onlyMessage("error")
	})
}

// Verdicts and policies may end a round early or make it longer. The instance that saw it
// counts as it does where a delayed retry sends a copy.
func TestGroups_AttemptsFollowVerdictsAndPolicies(t *testing.T) {
	retries := func(immediate, delayed int) core.Recoverability {
		return core.Recoverability{Immediate: core.Immediate{NumberOfRetries: immediate}, Delayed: core.Delayed{NumberOfRetries: delayed, TimeIncrease: time.Second}}
	}
	for name, c := range map[string]struct {
		config core.Recoverability
		fail   func(m *core.Message) error // nil: errBoom
		policy core.Policy
		want   string
	}{
		"RetryAfter leaves all delayed retries": {
			config: retries(1, 2),
			fail: func(m *core.Message) error {
				if time.Since(m.EnqueuedAt) < 100*time.Second {
					return core.RetryAfter(errBoom, time.Second)
				}
				return errBoom
			},
			want: strings.Repeat("1/0/0 ", 100) + "1/0/0 2/0/0 1/1/0 2/1/0 1/2/0 2/2/0",
		},
		"RetryAfter ends a round": {
			config: func() core.Recoverability {
				c := retries(2, 2)
				c.RetryAfterLimit = 1500 * time.Millisecond
				return c
			}(),
			fail: func(m *core.Message) error {
				if m.Attempt == 2 {
					return core.RetryAfter(errBoom, time.Second)
				}
				return errBoom
			},
			want: "1/0/0 2/0/0 1/0/0 2/0/0 1/0/0 2/0/0",
		},
		"a deferral begins a round": {
			config: retries(1, 1),
			fail: func(m *core.Message) error {
				if m.Attempt == 2 && m.Deferrals < 2 {
					return core.Defer(errors.New("not yet"), time.Second)
				}
				return errBoom
			},
			want: "1/0/0 2/0/0 1/0/1 2/0/1 1/0/2 2/0/2 1/1/2 2/1/2",
		},
		"a policy retries at once more often than configured": {
			config: retries(1, 3),
			policy: func(_ context.Context, _ core.RecoverabilityConfig, f core.ErrorContext) (core.Action, error) {
				switch {
				case f.ImmediateProcessingFailures < 4:
					return core.ImmediateRetry(), nil
				case f.DelayedDeliveriesPerformed < 3:
					return core.DelayedRetry(time.Second), nil
				}
				return core.MoveToError(""), nil
			},
			want: "1/0/0 2/0/0 3/0/0 4/0/0 1/1/0 2/1/0 3/1/0 4/1/0 1/2/0 2/2/0 3/2/0 4/2/0 1/3/0 2/3/0 3/3/0 4/3/0",
		},
	} {
		test := func(t *testing.T, cfg inmemory.Config) {
			inModesWith(t, cfg, retryModes, func(fx *fixture) {
				c.config.Policy = c.policy
				ep := fx.newEndpoint("orders", core.Config{Recoverability: c.config})
				var attempts recorder[string]
				fx.handle(ep, "order", func(_ context.Context, m *core.Message) error {
					attempts.add(fmt.Sprintf("%d/%d/%d", m.Attempt, m.DelayedRetries, m.Deferrals))
					if c.fail == nil {
						return errBoom
					}
					return c.fail(m)
				})
				fx.run(ep)
				m := order("1")
				m.GroupKey = "customer 7"
				fx.send(m)
				fx.advance(time.Hour)
				equal(fx, "attempts", strings.Join(attempts.all(), " "), c.want)
				fx.onlyMessage("error")
			})
		}
		t.Run(name, func(t *testing.T) {
			test(t, inmemory.Config{})
			t.Run("CountsReleases", func(t *testing.T) {
				test(t, withCapabilities(func(c *core.Capabilities) { c.CountsReleases = true }))
			})
		})
	}
}

// A deferral begins a round, whether the adapter counts it or not.
func TestGroups_DeferralThatIsNotCounted(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		fx.broker.caps.CountsReleases = true // by what it says alone
		ep := fx.newEndpoint("orders", core.Config{Recoverability: core.Recoverability{Immediate: core.Immediate{NumberOfRetries: 1}, Delayed: core.Delayed{NumberOfRetries: core.Off}}})
		var attempts recorder[string]
		fx.handle(ep, "order", func(_ context.Context, m *core.Message) error {
			attempts.add(fmt.Sprintf("%d/%d", m.Attempt, m.Deferrals))
			if m.Attempt == 2 && m.Deferrals < 2 {
				return core.Defer(errors.New("not yet"), time.Second)
			}
			return errBoom
		})
		fx.run(ep)
		m := order("1")
		m.GroupKey = "customer 7"
		fx.send(m)
		fx.advance(time.Hour)
		equal(fx, "attempts", strings.Join(attempts.all(), " "), "1/0 2/0 1/1 2/1 1/2 2/2")
		fx.onlyMessage("error")
	})
}

// A delay for which the transport cannot hold the message any more, after a long handler, moves it to the error queue (R8).
func TestGroups_RefusedPostponementMovesToTheErrorQueue(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		fx.broker.setFaults(faults{settle: func(operation string, _ *core.Incoming) error {
			if operation == "Postpone" {
				return fmt.Errorf("held for too long: %w", errors.ErrUnsupported)
			}
			return nil
		}})
		ep := fx.newEndpoint("orders", core.Config{Recoverability: core.Recoverability{Immediate: core.Immediate{NumberOfRetries: core.Off}}})
		fx.handle(ep, "order", func(context.Context, *core.Message) error { return errBoom })
		fx.run(ep)
		m := order("1")
		m.GroupKey = "customer 7"
		fx.send(m)
		fx.advance(time.Hour)
		fx.onlyMessage("error")
	})
}

// A postponement that did not take place begins no round (R61).
func TestGroups_LostLockBeginsNoRound(t *testing.T) {
	inModesWith(t, inmemory.Config{LockDuration: time.Minute}, retryModes, func(fx *fixture) {
		lost := false
		fx.broker.setFaults(faults{settle: func(operation string, _ *core.Incoming) error {
			if operation == "Postpone" && !lost {
				lost = true
				return core.ErrLockLost
			}
			return nil
		}})
		ep := fx.newEndpoint("orders", core.Config{Recoverability: core.Recoverability{Immediate: core.Immediate{NumberOfRetries: 1}, RetryAfterLimit: time.Second / 2}})
		var attempts recorder[int]
		fx.handle(ep, "order", func(_ context.Context, m *core.Message) error {
			attempts.add(m.Attempt)
			return core.RetryAfter(errBoom, time.Second)
		})
		fx.run(ep)
		m := order("1")
		m.GroupKey = "customer 7"
		fx.send(m)
		fx.advance(time.Hour)
		equal(fx, "attempts", fmt.Sprint(attempts.all()), "[1 2 1]")
		fx.onlyMessage("error")
	})
}
