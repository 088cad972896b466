package core_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
)

func TestShutdown_FromAHandler(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		ep := fx.newEndpoint("orders", core.Config{})
		fx.handle(ep, "order", func(ctx context.Context, m *core.Message) error {
			if err := ep.Shutdown(ctx); err != nil {
				fx.Errorf("Shutdown: %v", err)
			}
			return m.Send("shipping", shipType.Of("x"))
		})
		run := fx.run(ep)
		fx.enqueue("m1")
		if !run.hasEnded() || run.wait() != nil {
			fx.Fatal("Run goes on, or returned an error")
		}
		fx.wantDepth("shipping", 1)
		fx.wantDepth("orders", 0)
	})
}

func TestShutdown_HandlerThatWaitsForItEndsWithDrainTimeout(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		ep := fx.newEndpoint("orders", core.Config{})
		fx.handle(ep, "order", func(context.Context, *core.Message) error { return ep.Shutdown(context.Background()) })
		run := fx.run(ep)
		fx.enqueue("m1")
		time.Sleep(time.Minute)
		if !run.hasEnded() || !errors.Is(run.wait(), core.ErrHandlersRunning) {
			fx.Fatal("Run goes on, or did not name the handler")
		}
	})
}

func TestRun_ReturnsAfterRenewalsInProgress(t *testing.T) {
	inModesWith(t, expiringLocks, retryModes, func(fx *fixture) {
		renewing, renewed := make(chan struct{}), false
		fx.broker.setFaults(faults{settle: func(operation string, _ *core.Incoming) error {
			if operation == "Renew" {
				close(renewing)
				time.Sleep(2 * time.Second)
				renewed = true
			}
			return nil
		}})
		_, run := fx.runOrders(core.Config{}, func(context.Context, *core.Message) error {
			<-renewing
			return nil
		})
		fx.enqueue("m1")
		<-renewing
		if err := run.stop(); err != nil {
			fx.Error(err)
		}
		equal(fx, "renewed before Run returned", renewed, true)
	})
}
