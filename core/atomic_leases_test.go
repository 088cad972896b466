package core_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
)

// atomicLeases is a transport that leases deliveries in SendsAtomicWithReceive.
var atomicLeases = withCapabilities(func(c *core.Capabilities) { c.Prefetch, c.AtomicLeases = true, true })

// Other messages are handled while the settlement of one waits, unless its handler has a
// transaction: there are no more transactions than slots.
func TestAtomicLeases_SlotDuringTheSettlement(t *testing.T) {
	for name, c := range map[string]struct {
		begins bool
		want   []string
	}{
		"without a transaction": {false, []string{"m1", "m2"}},
		"with a transaction":    {true, []string{"m1"}},
	} {
		t.Run(name, func(t *testing.T) {
			inModesWith(t, atomicLeases, []core.TransactionMode{core.TransactionSendsAtomicWithReceive}, func(fx *fixture) {
				answer := make(chan struct{})
				fx.broker.setFaults(faults{afterSettle: func(_ string, in *core.Incoming) error {
					if in.ID == "m1" {
						<-answer
					}
					return nil
				}})
				var handled recorder[string]
				fx.runOrders(core.Config{Concurrency: 1}, func(ctx context.Context, m *core.Message) error {
					handled.add(m.ID)
					if c.begins {
						core.TransactionBegun(ctx)
					}
					return nil
				})
				fx.enqueue("m1", "m2")
				if got := handled.all(); !slices.Equal(got, c.want) {
					fx.Errorf("handled %v while a settlement waits, want %v", got, c.want)
				}
				close(answer)
				synctest.Wait()
				fx.wantDepth("orders", 0)
			})
		})
	}
}

// A message whose commit fails is dealt with in a slot, as any other failure.
func TestAtomicLeases_FailedSettlementTakesTheSlotBack(t *testing.T) {
	inModesWith(t, atomicLeases, []core.TransactionMode{core.TransactionSendsAtomicWithReceive}, func(fx *fixture) {
		fx.broker.setFaults(failFirst("CompleteWith", 1))
		inFlight := 0
		var ep *core.Endpoint
		runs := 0
		policy := func(ctx context.Context, c core.RecoverabilityConfig, f core.ErrorContext) (core.Action, error) {
			inFlight = ep.Health().InFlight
			return core.DefaultPolicy(ctx, c, f)
		}
		ep, _ = fx.runOrders(core.Config{Concurrency: 1, Recoverability: core.Recoverability{Policy: policy}}, func(context.Context, *core.Message) error {
			runs++
			return nil
		})
		fx.enqueue("m1")
		equal(fx, "runs", runs, 2)
		equal(fx, "messages in slots while the policy runs", inFlight, 1)
		fx.wantDepth("orders", 0)
	})
}

// Messages are prefetched as in ReceiveOnly, and the isolation of a message that kills the process works.
func TestAtomicLeases_IsolationIsOn(t *testing.T) {
	expiring := atomicLeases
	expiring.LockDuration = 10 * time.Second
	inModesWith(t, expiring, []core.TransactionMode{core.TransactionSendsAtomicWithReceive}, func(fx *fixture) {
		fx.wantSuspectAfter(core.Recoverability{}, 6)
	})
}

func TestTransactionBegun_OutsideOfHandlers(*testing.T) { core.TransactionBegun(context.Background()) }
