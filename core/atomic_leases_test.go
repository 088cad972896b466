package core_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/reprise-go/reprise/core"
)

// leasingAtomically is a transport that leases deliveries in SendsAtomicWithReceive.
var leasingAtomically = able(func(c *core.Capabilities) { c.Prefetch, c.AtomicLeases = true, true })

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
			inModesOn(t, leasingAtomically, []core.TransactionMode{core.TransactionSendsAtomicWithReceive}, func(b *bed) {
				answer := make(chan struct{})
				b.broker.provoke(faults{after: func(_ string, in *core.Incoming) error {
					if in.ID == "m1" {
						<-answer
					}
					return nil
				}})
				var handled record[string]
				b.orders(core.Config{Concurrency: 1}, func(ctx context.Context, m *core.Message) error {
					handled.add(m.ID)
					if c.begins {
						core.TransactionBegun(ctx)
					}
					return nil
				})
				b.put("m1", "m2")
				if got := handled.all(); !slices.Equal(got, c.want) {
					b.Errorf("handled %v while a settlement waits, want %v", got, c.want)
				}
				close(answer)
				synctest.Wait()
				b.holds("orders", 0)
			})
		})
	}
}

// A message whose commit fails is dealt with in a slot, as any other failure.
func TestAtomicLeases_FailedSettlementTakesTheSlotBack(t *testing.T) {
	inModesOn(t, leasingAtomically, []core.TransactionMode{core.TransactionSendsAtomicWithReceive}, func(b *bed) {
		b.broker.provoke(failing("CompleteWith", 1))
		inFlight := 0
		var ep *core.Endpoint
		runs := 0
		policy := func(ctx context.Context, c core.RecoverabilityConfig, f core.ErrorContext) core.Action {
			inFlight = ep.Health().InFlight
			return core.DefaultPolicy(ctx, c, f)
		}
		ep, _ = b.orders(core.Config{Concurrency: 1, Recoverability: core.Recoverability{Policy: policy}}, func(context.Context, *core.Message) error {
			runs++
			return nil
		})
		b.put("m1")
		equal(b, "runs", runs, 2)
		equal(b, "messages in slots while the policy runs", inFlight, 1)
		b.holds("orders", 0)
	})
}

// Messages are prefetched as in ReceiveOnly, and the isolation of what kills the process works.
func TestAtomicLeases_IsolationIsOn(t *testing.T) {
	b := newBed(t, leasingAtomically, core.TransactionSendsAtomicWithReceive)
	if n := b.endpoint("orders", core.Config{}).Config().Recoverability.IsolateAfter; n <= 0 {
		t.Errorf("IsolateAfter is %d", n)
	}
}

func TestTransactionBegun_OutsideOfHandlers(*testing.T) { core.TransactionBegun(context.Background()) }
