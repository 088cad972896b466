package core_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
)

func TestShutdown_FromAHandler(t *testing.T) {
	inModes(t, everyMode, func(b *bed) {
		ep := b.endpoint("orders", core.Config{})
		b.handle(ep, "order", func(ctx context.Context, m *core.Message) error {
			if err := ep.Shutdown(ctx); err != nil {
				b.Errorf("Shutdown: %v", err)
			}
			return m.Send("shipping", "ship", "x")
		})
		run := b.run(ep)
		b.put("m1")
		if !run.hasEnded() || run.wait() != nil {
			b.Fatal("Run goes on, or returned an error")
		}
		b.holds("shipping", 1)
		b.holds("orders", 0)
	})
}

func TestShutdown_HandlerThatWaitsForItEndsWithDrainTimeout(t *testing.T) {
	inModes(t, everyMode, func(b *bed) {
		ep := b.endpoint("orders", core.Config{})
		b.handle(ep, "order", func(context.Context, *core.Message) error { return ep.Shutdown(context.Background()) })
		run := b.run(ep)
		b.put("m1")
		time.Sleep(time.Minute)
		if !run.hasEnded() || !errors.Is(run.wait(), core.ErrHandlersRunning) {
			b.Fatal("Run goes on, or did not name the handler")
		}
	})
}

func TestRun_ReturnsAfterRenewalsInProgress(t *testing.T) {
	inModesOn(t, locking, retrying, func(b *bed) {
		renewing, renewed := make(chan struct{}), false
		b.broker.provoke(faults{settle: func(operation string, _ *core.Incoming) error {
			if operation == "Renew" {
				close(renewing)
				time.Sleep(2 * time.Second)
				renewed = true
			}
			return nil
		}})
		_, run := b.orders(core.Config{}, func(context.Context, *core.Message) error {
			<-renewing
			return nil
		})
		b.put("m1")
		<-renewing
		if err := run.stop(); err != nil {
			b.Error(err)
		}
		equal(b, "renewed before Run returned", renewed, true)
	})
}
