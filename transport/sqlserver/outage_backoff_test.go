package sqlserver_test

import (
	"context"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
)

// When many fetches are in progress at once and all fail, that is one failure, not a
// reason to wait as long as after many attempts: the server may be back in no time.
func TestOutage_ManyFailedFetchesAreOneAttempt(t *testing.T) {
	t.Parallel()
	const fetches = 16
	e := newBusiness(t, brokerOn(t, server), core.TransactionSendsAtomicWithReceive)
	transport := open(t, e.transport)
	r, err := transport.OpenReceiver(t.Context(), core.ReceiverConfig{Queue: inputQueue, Mode: e.mode, MaxInFlight: fetches, ConnectionChanged: e.changes.ConnectionChanged})
	if err != nil {
		t.Fatal(err)
	}
	lock, err := e.app.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Rollback(context.Background()) }()
	if _, err := lock.Exec(t.Context(), `lock table `+inputQueue); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	returned := make(chan error)
	for range fetches {
		go func() {
			_, err := r.Receive(ctx, make([]core.Delivery, 1))
			returned <- err
		}()
	}
	await(t, "all fetches wait for the lock", func() bool {
		return e.number(`select count(*) from pg_locks where not granted and relation = $1::text::regclass`, inputQueue) == fetches
	})
	if err := e.broker.proxy.Refuse(); err != nil {
		t.Fatal(err)
	}
	e.broker.proxy.Cut()
	await(t, "the observer is told of several attempts", func() bool { return len(e.changes.all()) >= 3 })
	for i, change := range e.changes.all()[:3] {
		if change.RetryIn > time.Second {
			t.Errorf("after failure %d the next attempt is to begin in %v", i+1, change.RetryIn)
		}
	}
	stop()
	for range fetches {
		_ = next(t, "Receive returns", returned)
	}
}
