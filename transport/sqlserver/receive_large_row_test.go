package sqlserver_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// TestReceive_RowBeyondMaxMessageBytes: a row larger than MaxMessageBytes, which somebody has
// inserted, is retried and reaches the error queue, whole.
func TestReceive_RowBeyondMaxMessageBytes(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	for name, c := range map[string]struct {
		cfg     sqlserver.Config
		size    int
		mode    core.TransactionMode
		delayed core.Delayed
	}{
		"atomic":  {sqlserver.Config{MaxMessageBytes: 64 << 10}, 1 << 20, core.TransactionSendsAtomicWithReceive, core.Delayed{NumberOfRetries: core.Off}},
		"delayed": {sqlserver.Config{MaxMessageBytes: 64 << 10}, 1 << 20, core.TransactionReceiveOnly, core.Delayed{NumberOfRetries: 1, TimeIncrease: time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			db := newSchema(t)
			transport := db.open(t, c.cfg)
			provision(t, transport, "billing", "error")
			db.exec(t, `insert into `+db.table("billing")+` (id, headers, body) select gen_random_uuid(), $1, convert_to(repeat('x', $2), 'UTF8')`,
				`{"NServiceBus.MessageId": "m1", "NServiceBus.EnclosedMessageTypes": "Row", "NServiceBus.ContentType": "application/octet-stream"}`, c.size)
			var critical atomic.Value
			ep, err := core.New("billing", transport, core.Config{
				Transactions: c.mode, Logger: slog.New(slog.DiscardHandler),
				Recoverability: core.Recoverability{Immediate: core.Immediate{NumberOfRetries: core.Off}, Delayed: c.delayed},
				Observers:      []core.Observer{{CriticalError: func(_ context.Context, _ *core.Endpoint, err error) { critical.CompareAndSwap(nil, err.Error()) }}},
			})
			if err != nil {
				t.Fatal(err)
			}
			var attempts atomic.Int64
			core.Handle(ep, rowType, func(context.Context, *core.Message, []byte) error {
				attempts.Add(1)
				return errors.New("fails always")
			})
			ctx, stop := context.WithCancel(context.Background())
			ended := make(chan error, 1)
			go func() { ended <- ep.Run(ctx) }()
			defer func() {
				stop()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			}()
			moved := `select octet_length(body)::text || ' ' || (headers::json ->> 'NServiceBus.FailedQ') from ` + db.table("error")
			var got []string
			for end := time.Now().Add(2 * time.Minute); len(got) == 0 && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
				got = db.column(t, moved)
			}
			if want := fmt.Sprint(c.size, " "); len(got) != 1 || !strings.HasPrefix(got[0], want) || !strings.Contains(got[0], "billing") {
				t.Errorf("%q in the error queue, want one message of %d bytes from billing; critical error: %v", got, c.size, critical.Load())
			}
			if n, want := attempts.Load(), int64(1+max(c.delayed.NumberOfRetries, 0)); n != want {
				t.Errorf("%d attempts, want %d", n, want)
			}
		})
	}
}

// TestConfig_MaxMessageBytes is refused where the server could not take it.
func TestConfig_MaxMessageBytes(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	for _, limit := range []int{-1, 256<<20 + 1} {
		if _, err := sqlserver.New(sqlserver.Config{Pool: db.pool, MaxMessageBytes: limit}); err == nil || !strings.Contains(err.Error(), fmt.Sprint("Config.MaxMessageBytes is ", limit)) {
			t.Errorf("New with MaxMessageBytes %d returned %v", limit, err)
		}
	}
	if got := db.open(t, sqlserver.Config{MaxMessageBytes: 1000}).Capabilities().MaxMessageBytes; got != 1000 {
		t.Errorf("MaxMessageBytes is %d, want 1000", got)
	}
	if got := db.open(t, sqlserver.Config{}).Capabilities().MaxMessageBytes; got != 256<<20 {
		t.Errorf("MaxMessageBytes is %d by default, want 256 MiB", got)
	}
}
