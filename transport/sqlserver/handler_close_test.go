package sqlserver_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// endless is a query whose result has no end that anybody could wait for.
const endless = `select generate_series(1, 1000000000000)`

// A use of a message's transaction has no end. It returns when the transport cuts it
// off; begun is called when it is in progress, or about to call the server.
type use struct {
	name  string
	cfg   func(t *testing.T, url string) sqlserver.Config
	do    func(ctx context.Context, begun func()) error
	calls string // the statement with which it calls the server
}

func overPgxPool(_ *testing.T, url string) sqlserver.Config { return sqlserver.Config{URL: url} }

func overSQLPool(t *testing.T, url string) sqlserver.Config {
	return sqlserver.Config{DB: openDB(t, url)}
}

// pgxUse is one through pgx.
func pgxUse(name string, do func(tx pgx.Tx, begun func()) error) use {
	return use{name, overPgxPool, func(ctx context.Context, begun func()) error {
		tx, err := sqlserver.Tx(ctx)
		if err != nil {
			return err
		}
		return do(tx, begun)
	}, ""}
}

// sleeping are statements that the server carries out for a long time. Each is like no
// other test's.
func sleeping() (overPgx, overSQL use) {
	text := fmt.Sprintf(`select pg_sleep(%d)`, 1000+sleepers.Add(1))
	overPgx = pgxUse("a statement", func(tx pgx.Tx, begun func()) error {
		begun()
		_, err := tx.Exec(context.Background(), text)
		return err
	})
	overPgx.calls = text
	textSQL := text + ` as slept`
	overSQL = use{"a statement of database/sql", overSQLPool, func(ctx context.Context, begun func()) error {
		tx, err := sqlserver.SQLTx(ctx)
		if err != nil {
			return err
		}
		begun()
		_, err = tx.ExecContext(context.Background(), textSQL)
		return err
	}, textSQL}
	return overPgx, overSQL
}

var sleepers atomic.Int64

var (
	reads = pgxUse("rows", func(tx pgx.Tx, begun func()) error {
		rows, err := tx.Query(context.Background(), endless)
		if err != nil {
			return err
		}
		rows.Next()
		begun()
		for rows.Next() {
		}
		return rows.Err()
	})
	readsBatch = pgxUse("the rows of a batch", func(tx pgx.Tx, begun func()) error {
		b := &pgx.Batch{}
		b.Queue(endless)
		rows, err := tx.SendBatch(context.Background(), b).Query()
		if err != nil {
			return err
		}
		rows.Next()
		begun()
		for rows.Next() {
		}
		return rows.Err()
	})
	readsSQL = use{"rows of database/sql", overSQLPool, func(ctx context.Context, begun func()) error {
		tx, err := sqlserver.SQLTx(ctx)
		if err != nil {
			return err
		}
		rows, err := tx.QueryContext(context.Background(), endless)
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }()
		rows.Next()
		begun()
		for rows.Next() {
		}
		return rows.Err()
	}, ""}
)

// inUse receives a message and begins to use its transaction.
func inUse(t *testing.T, u use) (db *testDatabase, r core.Receiver, d core.Delivery, ended <-chan error) {
	t.Helper()
	db = newSchema(t)
	transport := db.open(t, u.cfg(t, db.url))
	provision(t, transport, "orders")
	send(t, transport, letter("a", "orders"))
	r = openReceiver(t, transport, "orders", core.TransactionSendsAtomicWithReceive)
	d = receive(t, r)
	begun, returned := make(chan struct{}), make(chan error, 1)
	ctx := d.BindContext(t.Context())
	go func() { returned <- u.do(ctx, func() { close(begun) }) }()
	next(t, "the transaction is in use", begun)
	if u.calls != "" {
		await(t, "the server carries out the statement", func() bool {
			return db.column(t, `select count(*)::text from pg_stat_activity where state = 'active' and query = $1`, u.calls)[0] == "1"
		})
	}
	return db, r, d, returned
}

// wantRedelivery checks that a message is available again.
func wantRedelivery(t *testing.T, db *testDatabase) {
	t.Helper()
	r := openReceiver(t, db.open(t, sqlserver.Config{}), "orders", core.TransactionReceiveOnly)
	complete(t, receive(t, r))
}

// A handler that is at work with its transaction when the receiver is closed is cut off
// in any use of it, and no other code touches its connection.
func TestClose_HandlerUsesItsTransaction(t *testing.T) {
	t.Parallel()
	sleeps, sleepsSQL := sleeping()
	for _, u := range []use{sleeps, reads, readsBatch, sleepsSQL, readsSQL} {
		t.Run(u.name, func(t *testing.T) {
			t.Parallel()
			db, r, d, ended := inUse(t, u)
			closed := make(chan error, 1)
			go func() { closed <- r.Close(t.Context()) }()
			if err := next(t, "the receiver is closed", closed); err != nil {
				t.Error(err)
			}
			if err := next(t, "the handler is cut off", ended); err == nil {
				t.Error("the handler came to an end")
			}
			if err := d.Complete(t.Context()); !errors.Is(err, core.ErrLockLost) {
				t.Errorf("Complete returns %v, want ErrLockLost", err)
			}
			wantRedelivery(t, db)
		})
	}
}

// A source that a handler copies from is separate code, which cannot be cut off. That
// the receiver is closed does not wait for it.
func TestClose_HandlerCopies(t *testing.T) {
	t.Parallel()
	read := make(chan struct{})
	db, r, _, ended := inUse(t, pgxUse("a copy", func(tx pgx.Tx, begun func()) error {
		if _, err := tx.Exec(context.Background(), `create temporary table copied (n integer)`); err != nil {
			return err
		}
		_, err := tx.CopyFrom(context.Background(), pgx.Identifier{"copied"}, []string{"n"}, pgx.CopyFromFunc(func() ([]any, error) {
			begun()
			<-read
			return nil, nil
		}))
		return err
	}))
	closed := make(chan error, 1)
	go func() { closed <- r.Close(context.Background()) }()
	if err := next(t, "the receiver is closed", closed); err != nil {
		t.Error(err)
	}
	wantRedelivery(t, db)
	close(read)
	if err := next(t, "the handler ends", ended); err == nil {
		t.Error("the copy was carried out")
	}
}

// A transaction that a handler has, but is not using, ends as any other: that costs no
// connection.
func TestClose_HandlerDoesSomethingElse(t *testing.T) {
	t.Parallel()
	var pool *pgxpool.Pool
	done := make(chan struct{})
	u := pgxUse("something else", func(tx pgx.Tx, begun func()) error {
		rows, err := tx.Query(context.Background(), `select 1`)
		if err != nil {
			return err
		}
		rows.Close()
		if _, err := tx.Exec(context.Background(), `select 1`); err != nil {
			return err
		}
		n := 0
		err = tx.QueryRow(context.Background(), `select 1`).Scan(&n)
		begun()
		<-done
		return err
	})
	u.cfg = func(t *testing.T, url string) sqlserver.Config {
		pool = limitedPool(t, url, 10)
		return sqlserver.Config{Pool: pool}
	}
	db, r, _, ended := inUse(t, u)
	before := pool.Stat().TotalConns()
	if err := r.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if now := pool.Stat().TotalConns(); now < before {
		t.Errorf("there are %d connections of %d", now, before)
	}
	wantRedelivery(t, db)
	close(done)
	if err := next(t, "the handler ends", ended); err != nil {
		t.Error(err)
	}
}

// A settlement whose context ends does not wait for what a goroutine of the handler's
// still does with the transaction, nor reads a result without an end.
func TestSettlement_TransactionIsInUse(t *testing.T) {
	t.Parallel()
	sleeps, sleepsSQL := sleeping()
	leavesOpen := pgxUse("rows that are left open", func(tx pgx.Tx, begun func()) error {
		rows, err := tx.Query(context.Background(), endless)
		if err == nil {
			rows.Next()
		}
		begun()
		return err
	})
	for _, u := range []use{sleeps, leavesOpen, sleepsSQL} {
		t.Run(u.name, func(t *testing.T) {
			t.Parallel()
			db, _, d, ended := inUse(t, u)
			for sqlserver.HasTransaction(d) {
				ctx, cancel := context.WithCancel(t.Context())
				abandoned := make(chan error, 1)
				go func() { abandoned <- d.Abandon(ctx, errors.New("as it may")) }()
				await(t, "Abandon begins", func() bool { return sqlserver.Settling(d) || len(abandoned) > 0 })
				cancel()
				if err := next(t, "Abandon returns", abandoned); !errors.Is(err, context.Canceled) {
					t.Errorf("Abandon returns %v, want that its context has ended", err)
				}
			}
			if err := d.Complete(t.Context()); err == nil {
				t.Error("Complete returns nil, though what the handler did is undone")
			}
			if err := d.Abandon(t.Context(), nil); err != nil {
				t.Errorf("the message is not leased any more: %v", err)
			}
			_ = next(t, "the handler has ended", ended)
			wantRedelivery(t, db)
		})
	}
}
