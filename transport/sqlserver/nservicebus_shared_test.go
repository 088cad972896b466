package sqlserver_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// rowSecurity shows to a role (%[2]s) the messages of a table of Reprise that can be delivered
// now, and no others. docs/transports/sqlserver.md has the same.
const rowSecurity = `alter table %[1]s enable row level security;
create policy nservicebus on %[1]s to %[2]s
	using (due <= now() and (leased_until is null or leased_until <= now() or leased_until > now() + interval '48 hours'))
	with check (true)`

// TestNServiceBus_SharedQueue has an endpoint and receivers of NServiceBus consume one table at
// the same time. Both note each message that they handle, in the transaction that removes it
// where there is one, and some of their attempts fail.
func TestNServiceBus_SharedQueue(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	const (
		messages  = 600
		receivers = 4 // of NServiceBus
	)
	for _, c := range []struct {
		name     string
		cfg      sqlserver.Config
		mode     core.TransactionMode
		security bool
		handlers handlersOfBoth
	}{
		{"on their table", sqlserver.Config{NServiceBusTables: true}, core.TransactionSendsAtomicWithReceive, false, succeedOnce},
		{"on their table", sqlserver.Config{NServiceBusTables: true}, core.TransactionReceiveOnly, false, succeedOnce},
		{"on a table of Reprise", sqlserver.Config{}, core.TransactionSendsAtomicWithReceive, false, takeEffectOnce},
		{"on a table of Reprise", sqlserver.Config{}, core.TransactionReceiveOnly, false, mayTakeEffectTwice},
		{"on a table of Reprise with row security", sqlserver.Config{}, core.TransactionSendsAtomicWithReceive, true, succeedOnce},
		{"on a table of Reprise with row security", sqlserver.Config{}, core.TransactionReceiveOnly, true, succeedOnce},
	} {
		t.Run(fmt.Sprintf("%s, %v", c.name, c.mode), func(t *testing.T) {
			t.Parallel()
			db := newSchema(t)
			transport := db.open(t, c.cfg)
			provision(t, transport, "shared", "error")
			handled := db.table("handled")
			db.exec(t, `create table `+handled+` (number text, side text)`)
			ours, theirs := db.pool, db.pool
			if c.security {
				role, rawURL := db.role(t)
				db.grant(t, "grant usage on schema "+schemaOf(db)+" to "+role)
				db.grant(t, "grant select, insert, update, delete on "+db.table("shared")+", "+handled+" to "+role)
				db.grant(t, fmt.Sprintf(rowSecurity, db.table("shared"), role))
				theirs = poolOf(t, rawURL)
			}
			var batch pgx.Batch
			for i := range messages {
				batch.Queue(on(db.table("shared"), theirSend), fmt.Sprintf("00000000-0000-4000-8000-%012d", i), nil,
					`{"NServiceBus.EnclosedMessageTypes":"Count","NServiceBus.ContentType":"application\/json"}`, fmt.Appendf(nil, "%d", i))
			}
			if err := ours.SendBatch(t.Context(), &batch).Close(); err != nil {
				t.Fatal(err)
			}

			var succeeded, attempts atomic.Int64 // handlers, on both sides
			note := `insert into ` + handled + ` values ($1, $2)`
			ep, err := core.New("shared", transport, core.Config{Transactions: c.mode, Logger: silent, Concurrency: 8})
			if err != nil {
				t.Fatal(err)
			}
			core.Handle(ep, countType, func(ctx context.Context, _ *core.Message, body int) error {
				write := func() error { return work(ctx, note, fmt.Sprint(body), "ours") }
				if c.mode == core.TransactionReceiveOnly {
					write = func() error {
						_, err := ours.Exec(ctx, note, fmt.Sprint(body), "ours")
						return err
					}
				}
				if attempts.Add(1)%10 == 0 {
					return errOneInTen
				}
				if err := write(); err != nil {
					return err // the lease is lost, on a table of Reprise
				}
				succeeded.Add(1)
				return nil
			})
			run(t, ep)
			var all sync.WaitGroup
			for range receivers {
				all.Go(func() {
					for t.Context().Err() == nil {
						err := asNServiceBus(t.Context(), theirs, db.table("shared"), func(tx pgx.Tx, row *theirRow) error {
							if _, err := tx.Exec(t.Context(), note, string(row.body), "theirs"); err != nil {
								return err
							}
							if attempts.Add(1)%10 == 0 {
								return errOneInTen
							}
							succeeded.Add(1)
							return nil
						})
						switch {
						case err == nil, errors.Is(err, errOneInTen):
						case errors.Is(err, pgx.ErrNoRows):
							if db.column(t, `select count(*)::text from `+db.table("shared"))[0] == "0" {
								return
							}
						default:
							t.Error(err)
							return
						}
					}
				})
			}
			all.Wait()

			sides := db.column(t, `select side from `+handled+` group by side order by side`)
			if len(sides) != 2 {
				t.Errorf("only these handled messages, so nothing is proved: %q", sides)
			}
			repeated := db.column(t, `select number from `+handled+` group by number having count(*) > 1`)
			if c.handlers != mayTakeEffectTwice && len(repeated) > 0 {
				t.Errorf("%d messages took effect more than once: %.200v", len(repeated), repeated)
			}
			for name, text := range map[string]string{
				"never handled":      `select n::text from generate_series(0, $1::int - 1) as n where not exists (select from ` + handled + ` where number = n::text)`,
				"in the error queue": `select headers from ` + db.table("error"),
			} {
				var args []any
				if name == "never handled" {
					args = []any{messages}
				}
				if list := db.column(t, text, args...); len(list) > 0 {
					t.Errorf("%d messages are %s: %.200v", len(list), name, list)
				}
			}
			n := succeeded.Load()
			t.Logf("%d handlers succeeded for %d messages, of which %d took effect more than once", n, messages, len(repeated))
			if c.handlers == succeedOnce && n != messages {
				t.Errorf("%d handlers succeeded for %d messages: the other side had some of them too", n, messages)
			}
		})
	}
}

// handlersOfBoth is what holds for the handlers of both sides.
type handlersOfBoth int

const (
	succeedOnce        handlersOfBoth = iota // one handler succeeds for each message
	takeEffectOnce                           // several may succeed, of which one is committed
	mayTakeEffectTwice                       // no message is lost, and that is all
)

var errOneInTen = errors.New("one in ten")

// asNServiceBus receives a message as NServiceBus does in SendsAtomicWithReceive, and handles it
// in the transaction.
func asNServiceBus(ctx context.Context, pool *pgxpool.Pool, quotedTable string, handle func(tx pgx.Tx, row *theirRow) error) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		var row theirRow
		var headers string
		if err := tx.QueryRow(ctx, on(quotedTable, theirReceive)).Scan(&row.id, &row.expired, &headers, &row.body); err != nil {
			return err
		}
		return handle(tx, &row)
	})
}
