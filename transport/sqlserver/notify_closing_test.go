package sqlserver_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"sync"
	"testing"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// TestNotify_LastReceiverCloses: the server notifies of a queue while its last
// receiver is being closed.
func TestNotify_LastReceiverCloses(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	db := newSchema(t)
	transport := db.open(t, sqlserver.Config{URL: db.url})
	provision(t, transport, "stays", "goes")
	openReceiver(t, transport, "stays", core.TransactionNone)
	await(t, "the transport listens", transport.Listens)
	sum := sha256.Sum256([]byte(db.table("goes")))
	channel := "reprise_" + hex.EncodeToString(sum[:12])
	reopen := func() {
		r := openReceiver(t, transport, "goes", core.TransactionNone)
		await(t, "the server is asked to notify", func() bool {
			return len(db.column(t, `select query from pg_stat_activity where query like 'listen%' || $1 || '%'`, channel)) == 1
		})
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			_, err := db.pool.Exec(context.WithoutCancel(ctx), `select pg_notify($1, i::text) from generate_series(1, 100) as i`, channel)
			if err != nil {
				t.Error(err)
				return
			}
		}
	})
	for range 20 {
		reopen()
	}
	stop()
	wg.Wait()
}
