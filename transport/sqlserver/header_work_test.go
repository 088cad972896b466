package sqlserver_test

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/internal/headerwork"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// A role that may insert rows decides how many headers a message has. A failed one is moved
// to the error queue, in each mode that has one.
func TestHeaderWork_IsLinear(t *testing.T) {
	notInShortRuns(t)
	for _, mode := range []core.TransactionMode{core.TransactionReceiveOnly, core.TransactionSendsAtomicWithReceive} {
		t.Run(mode.String(), func(t *testing.T) {
			db := newSchema(t)
			e := newRowsEndpoint(t, db, sqlserver.Config{}, mode, func(c *core.Config) {
				c.Recoverability.Immediate.NumberOfRetries = core.Off
				c.Logger = slog.New(slog.DiscardHandler)
			})
			run(t, e.Endpoint)
			const few = 1000
			var first float64 // times that a header of few is compared or copied
			for _, n := range []int{few, 10_000, 80_000} {
				count, stop := headerwork.Count()
				db.exec(t, `insert into `+db.table(e.queue)+` (headers, body)
					select (select jsonb_object_agg(case when i % 2 = 0 then 'NServiceBus.ExceptionInfo.' else '' end || 'Key' || i, 'value')
						from generate_series(1, $1) as i) || '{"NServiceBus.EnclosedMessageTypes": "Row"}', $2`, n, []byte(rowFails))
				await(t, fmt.Sprintf("the message of %d headers is in the error queue", n), func() bool {
					return db.exec(t, `delete from `+db.table(e.errorQueue)) == 1
				})
				stop()
				each := float64(count.Load()) / float64(n)
				if n == few {
					first = each
				}
				if each > 1.2*first || each == 0 {
					t.Errorf("of %d headers each is compared or copied %.1f times, of %d each %.1f times", n, each, few, first)
				}
			}
			t.Logf("each header is compared or copied %.1f times", first)
		})
	}
}
