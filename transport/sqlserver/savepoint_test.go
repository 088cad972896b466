package sqlserver_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// TestSavepoint_Handles does in both client libraries what handlers may do with transactions
// that they got before a savepoint and since.
func TestSavepoint_Handles(t *testing.T) {
	t.Parallel()
	type exec func(sql string) error
	for name, c := range map[string]struct {
		config func(url string) sqlserver.Config
		lend   func(ctx context.Context) (exec, error)
		leave  func(ctx context.Context) error // rows open
	}{
		"pgx": {
			func(url string) sqlserver.Config { return sqlserver.Config{URL: url} },
			func(ctx context.Context) (exec, error) {
				tx, err := sqlserver.Tx(ctx)
				return func(sql string) error {
					_, err := tx.Exec(ctx, sql)
					return err
				}, err
			},
			func(ctx context.Context) error {
				tx, err := sqlserver.Tx(ctx)
				if err != nil {
					return err
				}
				rows, err := tx.Query(ctx, `select generate_series(1, 100000)`)
				if err == nil {
					rows.Next()
				}
				return err
			},
		},
		"database/sql": {
			func(url string) sqlserver.Config { return sqlserver.Config{DB: openDB(t, url)} },
			func(ctx context.Context) (exec, error) {
				tx, err := sqlserver.SQLTx(ctx)
				return func(sql string) error {
					_, err := tx.ExecContext(ctx, sql)
					return err
				}, err
			},
			func(ctx context.Context) error {
				tx, err := sqlserver.SQLTx(ctx)
				if err != nil {
					return err
				}
				rows, err := tx.QueryContext(ctx, `select generate_series(1, 100000)`) //nolint:sqlclosecheck // it is left open
				if err == nil {
					rows.Next()
				}
				return errors.Join(err, ctx.Err())
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := server.PasswordURL(server.NewDatabase(t))
			db := openDB(t, url)
			if _, err := db.ExecContext(t.Context(), `create table steps (name text)`); err != nil {
				t.Fatal(err)
			}
			transport := open(t, c.config(url))
			provision(t, transport, "orders", "billing")
			if err := transport.Send(t.Context(), message("order")); err != nil {
				t.Fatal(err)
			}
			r, err := transport.OpenReceiver(t.Context(), core.ReceiverConfig{Queue: "orders", Mode: core.TransactionSendsAtomicWithReceive, MaxInFlight: 1})
			if err != nil {
				t.Fatal(err)
			}
			dst := make([]core.Delivery, 1)
			if _, err := r.Receive(t.Context(), dst); err != nil {
				t.Fatal(err)
			}
			d := dst[0]
			ctx := d.BindContext(t.Context())
			must := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			insert := func(by exec, step string) error { return by(`insert into steps values ('` + step + `')`) }

			outer, err := c.lend(ctx)
			must(err)
			must(insert(outer, "before"))
			rollback, err := d.Savepoint(ctx)
			must(err)
			must(insert(outer, "undone, by the transaction from before"))
			inner, err := c.lend(ctx)
			must(err)
			must(insert(inner, "undone"))
			must(c.leave(ctx))
			must(rollback(ctx))
			if err := insert(inner, "never"); err == nil {
				t.Error("a transaction that was got after the savepoint can be used after the rollback")
			}
			must(insert(outer, "between"))
			second, err := c.lend(ctx)
			must(err)
			must(insert(second, "after"))
			if err := second(`select 1 / 0`); err == nil {
				t.Fatal("1 / 0 is no error")
			}
			must(rollback(ctx))
			must(insert(outer, "last"))
			must(d.CompleteWith(ctx, nil))

			rows, err := db.QueryContext(t.Context(), `select name from steps`)
			must(err)
			defer rows.Close()
			var got []string
			for rows.Next() {
				var step string
				must(rows.Scan(&step))
				got = append(got, step)
			}
			must(rows.Err())
			if want := []string{"before", "last"}; !slices.Equal(got, want) {
				t.Errorf("committed %q, want %q", got, want)
			}
		})
	}
}

// TestSavepoint_OfMiddlewareThatRetries lets a statement break the transaction in the
// first try of an attempt.
func TestSavepoint_OfMiddlewareThatRetries(t *testing.T) {
	t.Parallel()
	e := newBusiness(t, brokerOn(t, server), core.TransactionSendsAtomicWithReceive)
	e.config.Middleware = []core.Middleware{core.MiddlewareFunc(func(next core.HandlerFunc) core.HandlerFunc {
		return func(ctx context.Context, m *core.Message) error {
			savepoint, err := m.Savepoint(ctx)
			if err != nil {
				return err
			}
			for range 3 {
				if err = next(ctx, m); err == nil {
					return nil
				}
				if err := savepoint.Rollback(ctx); err != nil {
					return err
				}
			}
			return err
		}
	})}
	tries := map[string]int{}
	e.config.Concurrency = 1
	e.handle = func(ctx context.Context, m *core.Message, body []byte) error {
		if err := e.work(ctx, m, body); err != nil {
			return err
		}
		if tries[m.ID]++; tries[m.ID] < 3 {
			return work(ctx, fails, "x")
		}
		return nil
	}
	const messages = 3
	e.order(messages)
	e.run()
	e.awaitDone()
	e.checkDone(messages)
	if n := e.number(`select count(*) from written where delivery = 1`); n != messages {
		t.Errorf("%d of %d messages were handled at attempt 1, once each; want all", n, messages)
	}
}

// TestSavepoint_ThatTheHandlerReleases fails the attempt, and loses nothing.
func TestSavepoint_ThatTheHandlerReleases(t *testing.T) {
	t.Parallel()
	e := newBusiness(t, brokerOn(t, server), core.TransactionSendsAtomicWithReceive)
	e.handle = func(ctx context.Context, m *core.Message, body []byte) error {
		if err := e.work(ctx, m, body); err != nil || m.Attempt > 1 {
			return err
		}
		savepoint, err := m.Savepoint(ctx)
		if err != nil {
			return err
		}
		if err := work(ctx, `release savepoint reprise_part_1`); err != nil {
			return err
		}
		if err := savepoint.Rollback(ctx); err == nil {
			t.Error("Rollback to a released savepoint returned nil")
		}
		return nil
	}
	const messages = 2
	e.order(messages)
	e.run()
	e.awaitDone()
	e.checkDone(messages)
	if n := e.number(`select count(*) from written where delivery = 2`); n != messages {
		t.Errorf("%d of %d messages were handled at attempt 2, want all", n, messages)
	}
}
