package sqlserver_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
)

// A handler that gives a statement less time than it needs fails as any other: it
// is counted, and goes to the error queue when its retries are used up.
func TestHandler_OwnTimeoutIsCounted(t *testing.T) {
	t.Parallel()
	e := newBusiness(t, brokerOn(t, server), core.TransactionSendsAtomicWithReceive)
	e.config.Recoverability.Immediate.NumberOfRetries = 2
	var attempts atomic.Int64
	e.handle = func(ctx context.Context, _ *core.Message, _ []byte) error {
		if attempts.Add(1) > 20 {
			return errors.New("enough")
		}
		ctx, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
		defer cancel()
		return work(ctx, `select pg_sleep(60) where $1 <> ''`, "x")
	}
	e.order(1)
	e.run()
	e.awaitDone()
	if failed := e.number(`select count(*) from ` + errorQueue); failed != 1 || attempts.Load() != 3 {
		t.Errorf("after %d attempts %d messages are in the error queue, want 1 after 3", attempts.Load(), failed)
	}
}
