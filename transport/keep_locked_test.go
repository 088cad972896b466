package transport_test

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// received receives one message whose lock expires after a second.
func received(t *testing.T) core.Delivery {
	t.Helper()
	memory, err := inmemory.New(inmemory.Config{LockDuration: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = memory.Close(context.Background()) })
	if err := memory.Provision(t.Context(), core.Topology{Queues: []string{"q"}}); err != nil {
		t.Fatal(err)
	}
	if err := memory.Send(t.Context(), core.Outgoing{ID: "1", Queue: "q"}); err != nil {
		t.Fatal(err)
	}
	r, err := memory.OpenReceiver(t.Context(), core.ReceiverConfig{Queue: "q", Mode: core.TransactionReceiveOnly, MaxInFlight: 1})
	if err != nil {
		t.Fatal(err)
	}
	var dst [1]core.Delivery
	if _, err := r.Receive(t.Context(), dst[:]); err != nil {
		t.Fatal(err)
	}
	return dst[0]
}

func TestKeepLocked_RenewsUntilTheContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := received(t)
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		if err := transport.KeepLocked(ctx, d); err != nil {
			t.Errorf("KeepLocked returns %v", err)
		}
		if err := d.Complete(t.Context()); err != nil {
			t.Errorf("Complete after a minute, with locks of a second: %v", err)
		}
	})
}

func TestKeepLocked_EndsWithTheSettlement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := received(t)
		if err := d.Complete(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := transport.KeepLocked(t.Context(), d); err != nil {
			t.Errorf("KeepLocked of a settled delivery returns %v", err)
		}
	})
}

// failing fails the renewals with these numbers, from 1.
type failing struct {
	core.Delivery
	from, to int32
	renewals atomic.Int32
}

func (f *failing) Renew(ctx context.Context) error {
	if n := f.renewals.Add(1); n >= f.from && n <= f.to {
		return io.EOF
	}
	return f.Delivery.Renew(ctx)
}

func TestKeepLocked_RepeatsAFailedRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &failing{Delivery: received(t), from: 2, to: 3}
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		if err := transport.KeepLocked(ctx, d); err != nil {
			t.Errorf("KeepLocked returns %v", err)
		}
	})
}

func TestKeepLocked_ReportsALostLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &failing{Delivery: received(t), from: 2, to: 1 << 30}
		began := time.Now()
		if err := transport.KeepLocked(t.Context(), d); !errors.Is(err, core.ErrLockLost) {
			t.Errorf("KeepLocked returns %v", err)
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("KeepLocked returns %v later, for a lock of a second", took)
		}
		if n := d.renewals.Load(); n > 100 {
			t.Errorf("the lock was renewed %d times", n)
		}
	})
}

// lasting is a delivery whose lock does not expire.
type lasting struct{ core.Delivery }

func (lasting) LockedUntil() (none time.Time) { return none }

func TestKeepLocked_WaitsIfTheLockDoesNotExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		if err := transport.KeepLocked(ctx, lasting{}); err != nil || ctx.Err() == nil {
			t.Errorf("KeepLocked returns %v before the end of its context", err)
		}
	})
}
