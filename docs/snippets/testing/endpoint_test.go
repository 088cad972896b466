package testing_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/coretest"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/core/queues"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// snippet: hour
func TestBilling_BankIsDownForAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := inmemory.Open()
		ep, err := core.New("billing", transport, core.Config{
			Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), // seen where the test fails
			Recoverability: core.Recoverability{
				Delayed: core.Delayed{Delays: []time.Duration{5 * time.Minute, 15 * time.Minute, 40 * time.Minute}},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		var attempts []time.Duration
		billing := &Billing{Charge: func(context.Context, string, int) error {
			attempts = append(attempts, time.Since(start))
			return errBankDown
		}}
		core.Handle(ep, placed, billing.OrderPlaced)
		coretest.Run(t, ep)

		if err := ep.Send(t.Context(), "billing", placed.Of(OrderPlaced{ID: "42", Total: 7})); err != nil {
			t.Fatal(err)
		}
		time.Sleep(59 * time.Minute) // of the bubble's clock
		synctest.Wait()
		if depth, err := transport.Depth(t.Context(), "error"); err != nil || depth.Ready != 0 {
			t.Errorf("given up after %v, before the last delayed retry", attempts)
		}
		time.Sleep(time.Minute + time.Second)
		synctest.Wait()

		// 4 rounds: the first, and one after each delay; 6 attempts in each.
		if len(attempts) != 24 {
			t.Errorf("%d attempts; want 24", len(attempts))
		}
		failed, err := transport.Browse(t.Context(), queues.Request{Queue: "error", Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		if len(failed.Messages) != 1 {
			t.Fatalf("%d messages in the error queue; want 1", len(failed.Messages))
		}
		for header, want := range map[string]string{
			headers.FailedQ:          "billing",
			headers.ExceptionMessage: "charge order 42: the bank does not answer",
			headers.TimeOfFailure:    headers.FormatTime(start.Add(time.Hour)),
		} {
			if got := failed.Messages[0].Headers.Get(header); got != want {
				t.Errorf("%s is %q; want %q", header, got, want)
			}
		}
	})
}

// end

// snippet: recovers
func TestBilling_BankRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := inmemory.Open()
		ep, err := core.New("billing", transport, core.Config{})
		if err != nil {
			t.Fatal(err)
		}
		back := time.Now().Add(25 * time.Second)
		billing := &Billing{Charge: func(context.Context, string, int) error {
			if time.Now().Before(back) {
				return errBankDown
			}
			return nil
		}}
		core.Handle(ep, placed, billing.OrderPlaced)
		coretest.Run(t, ep)

		// The destination exists once something has created it; here the test.
		if err := transport.Provision(t.Context(), core.Topology{Queues: []string{"shipping"}}); err != nil {
			t.Fatal(err)
		}
		if err := ep.Send(t.Context(), "billing", placed.Of(OrderPlaced{ID: "42", Total: 7})); err != nil {
			t.Fatal(err)
		}
		time.Sleep(31 * time.Second) // the defaults retry after 10 s, and after 20 s more
		synctest.Wait()

		shipped, err := transport.Browse(t.Context(), queues.Request{Queue: "shipping", Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		if len(shipped.Messages) != 1 || string(shipped.Messages[0].Body) != `{"OrderID":"42"}` {
			t.Errorf("shipped %v", shipped.Messages)
		}
	})
}

// end

// snippet: recovery-observer
func TestBilling_NegativeTotalIsMovedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := make(chan core.Recovery, 10)
		ep, err := core.New("billing", inmemory.Open(), core.Config{
			Observers: []core.Observer{{Recovered: func(_ context.Context, r core.Recovery) { seen <- r }}},
		})
		if err != nil {
			t.Fatal(err)
		}
		core.Handle(ep, placed, (&Billing{Charge: bankIsUp}).OrderPlaced)
		coretest.Run(t, ep)

		if err := ep.Send(t.Context(), "billing", placed.Of(OrderPlaced{ID: "42", Total: -7})); err != nil {
			t.Fatal(err)
		}
		if r := <-seen; r.Action != core.MoveToError("error") || r.Failure.ImmediateProcessingFailures != 1 || !errors.Is(r.Failure.Err, errNegativeTotal) {
			t.Errorf("attempt %d: %v because of %v", r.Failure.ImmediateProcessingFailures, r.Action, r.Failure.Err)
		}
	})
}

// end

// snippet: profiles
func TestBilling_OnEachBroker(t *testing.T) {
	for name, profile := range map[string]inmemory.Config{
		"SQS":               inmemory.LikeSQS(),
		"Azure Service Bus": inmemory.LikeAzureServiceBus(),
		"RabbitMQ":          inmemory.LikeRabbitMQ(),
		"PostgreSQL":        inmemory.LikePostgreSQL(),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				transport, err := inmemory.New(profile)
				if err != nil {
					t.Fatal(err)
				}
				ep, err := core.New("billing", transport, core.Config{})
				if err != nil {
					t.Fatal(err)
				}
				core.Handle(ep, placed, (&Billing{Charge: bankIsDown}).OrderPlaced)
				coretest.Run(t, ep)

				if err := ep.Send(t.Context(), "billing", placed.Of(OrderPlaced{ID: "42", Total: 7})); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				if depth, err := transport.Depth(t.Context(), "error"); err != nil || depth.Ready != 1 {
					t.Errorf("in the error queue: %+v, %v", depth, err)
				}
			})
		})
	}
}

// end

// snippet: refused
func TestBilling_AtomicSendsAreRefusedOnSQS(t *testing.T) {
	transport, err := inmemory.New(inmemory.LikeSQS())
	if err != nil {
		t.Fatal(err)
	}
	_, err = core.New("billing", transport, core.Config{Transactions: core.TransactionSendsAtomicWithReceive})
	if err == nil {
		t.Error("accepted; SQS has no transaction that spans receive and sends")
	}
}

// end

func TestBilling_WithoutDelayedDelivery(t *testing.T) {
	// snippet: able
	able := inmemory.Everything()
	able.DelayedDelivery = false
	transport, err := inmemory.New(inmemory.Config{Capabilities: &able})
	if err != nil {
		t.Fatal(err)
	}
	// end
	synctest.Test(t, func(t *testing.T) {
		ep, err := core.New("billing", transport, core.Config{})
		if err != nil {
			t.Fatal(err)
		}
		core.Handle(ep, placed, (&Billing{Charge: bankIsDown}).OrderPlaced)
		coretest.Run(t, ep)
		if err := ep.Send(t.Context(), "billing", placed.Of(OrderPlaced{ID: "42", Total: 7})); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		failed, err := transport.Browse(t.Context(), queues.Request{Queue: "error", Limit: 10})
		if err != nil || len(failed.Messages) != 1 {
			t.Fatalf("in the error queue: %v, %v", failed, err)
		}
		if got := failed.Messages[0].Headers.Get(headers.Attempts); !strings.Contains(got, `"attempts":6`) {
			t.Errorf("trace %s", got)
		}
	})
}
