package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/reprise-go/reprise/inbox"
	"github.com/reprise-go/reprise/inbox/inboxtest"
	"github.com/reprise-go/reprise/inbox/postgres"
	server "github.com/reprise-go/reprise/internal/testserver/postgres"
)

// cluster is the server of all tests.
var cluster *server.Server

func TestMain(m *testing.M) {
	var err error
	if cluster, err = server.Start(server.Config{Settings: map[string]string{"max_connections": "300", "synchronous_commit": "off"}}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if err := cluster.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

// database is one for one test.
type database struct {
	t     *testing.T
	url   string
	rows  *pgxpool.Pool
	bySQL bool
	mode  string // of pgx, or ""

	mu sync.Mutex
}

func newDatabase(t *testing.T, bySQL bool, mode string) *database {
	d := &database{t: t, url: cluster.PasswordURL(cluster.NewDatabase(t)), bySQL: bySQL, mode: mode}
	d.rows = d.pool(2)
	if _, err := d.rows.Exec(t.Context(), "create table effects (name text)"); err != nil {
		t.Fatal(err)
	}
	return d
}

// pool returns one that the test closes.
func (d *database) pool(limit int32) *pgxpool.Pool {
	d.t.Helper()
	config, err := pgxpool.ParseConfig(d.url)
	if err != nil {
		d.t.Fatal(err)
	}
	config.MaxConns = limit
	switch d.mode {
	case "exec":
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	case "simple":
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	case "serializable":
		config.ConnConfig.RuntimeParams["default_transaction_isolation"] = "serializable"
	}
	pool, err := pgxpool.NewWithConfig(d.t.Context(), config)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(pool.Close)
	return pool
}

// provisioned has the methods of both stores.
type provisioned interface {
	inbox.Store
	Provision(ctx context.Context) error
	Check(ctx context.Context) error
}

func (d *database) open(c postgres.Config) (provisioned, error) {
	d.mu.Lock() // as T.Cleanup
	defer d.mu.Unlock()
	if d.bySQL {
		db := stdlib.OpenDBFromPool(d.pool(25))
		d.t.Cleanup(func() { _ = db.Close() })
		return postgres.NewSQL(db, c)
	}
	return postgres.New(d.pool(25), c)
}

// Open implements inboxtest.Database.
func (d *database) Open(ctx context.Context) (inbox.Store, error) {
	store, err := d.open(postgres.Config{})
	if err != nil {
		return nil, err
	}
	return store, store.Provision(ctx)
}

const insertEffect = "insert into effects values ($1)"

// Effect implements inboxtest.Database.
func (d *database) Effect(ctx context.Context, name string) error {
	if d.bySQL {
		tx, err := postgres.SQLTx(ctx)
		if err == nil {
			_, err = tx.ExecContext(ctx, insertEffect, name)
		}
		return err
	}
	tx, err := postgres.Tx(ctx)
	if err == nil {
		_, err = tx.Exec(ctx, insertEffect, name)
	}
	return err
}

// Effects implements inboxtest.Database.
func (d *database) Effects(ctx context.Context, name string) (n int, err error) {
	err = d.rows.QueryRow(ctx, "select count(*) from effects where name = $1", name).Scan(&n)
	return n, err
}

func TestStore(t *testing.T) {
	t.Parallel()
	inboxtest.Run(t, func(t *testing.T) inboxtest.Database { return newDatabase(t, false, "") })
}

func TestStore_DatabaseSQL(t *testing.T) {
	t.Parallel()
	inboxtest.Run(t, func(t *testing.T) inboxtest.Database { return newDatabase(t, true, "") })
}

// Poolers need other ways to carry out statements, and applications other isolation.
func TestStore_Modes(t *testing.T) {
	for _, mode := range []string{"exec", "simple", "serializable"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			inboxtest.Run(t, func(t *testing.T) inboxtest.Database { return newDatabase(t, false, mode) })
		})
	}
}

var m1 = inbox.Key{Scope: "billing", ID: "m1"}

// begin begins the transaction of a message.
func begin(t *testing.T, store inbox.Store, key inbox.Key) inbox.Transaction {
	t.Helper()
	tx, _, err := store.Begin(t.Context(), key, time.Minute)
	if err != nil || tx == nil {
		t.Fatalf("%v, %v", tx, err)
	}
	return tx
}

func opened(t *testing.T, d *database) inbox.Store {
	t.Helper()
	store, err := d.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// A handler's use of its transaction, and the calls that it must not make.
func TestTx_BelongsToTheInbox(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, false, "")
	store := opened(t, d)
	work := begin(t, store, m1)
	ctx := work.Context(t.Context())
	tx, err := postgres.Tx(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{"commit", " ROLLBACK;", "begin", "end", "start transaction", "prepare transaction 'x'"} {
		if _, err := tx.Exec(ctx, statement); err == nil || !strings.Contains(err.Error(), "belongs to the inbox") {
			t.Errorf("%s: %v", statement, err)
		}
	}
	if tx.Commit(ctx) == nil || tx.Rollback(ctx) == nil {
		t.Error("a handler ends the transaction of its message")
	}
	for i, commit := range []bool{true, false} { // nested, the second breaks
		nested, err := tx.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := nested.Exec(ctx, insertEffect, fmt.Sprint("nested ", i)); err != nil {
			t.Fatal(err)
		}
		if commit {
			err = nested.Commit(ctx)
		} else {
			if _, err := nested.Exec(ctx, "select 1/0"); err == nil {
				t.Fatal("no division by zero")
			}
			err = nested.Rollback(ctx)
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := nested.Exec(ctx, "select 1"); !errors.Is(err, pgx.ErrTxClosed) {
			t.Errorf("a nested transaction that has ended: %v", err)
		}
	}
	batch := &pgx.Batch{}
	batch.Queue(insertEffect, "batch")
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.CopyFrom(ctx, pgx.Identifier{"effects"}, []string{"name"}, pgx.CopyFromRows([][]any{{"copied"}})); err != nil {
		t.Fatal(err)
	}
	large := tx.LargeObjects()
	if _, err := large.Create(ctx, 0); err != nil {
		t.Fatal(err)
	}
	rows, err := tx.Query(ctx, "select name from effects")
	if err != nil || !rows.Next() { // and not closed
		t.Fatal(err)
	}
	if err := work.Commit(ctx, []byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(ctx, "select 1"); !errors.Is(err, pgx.ErrTxClosed) {
		t.Errorf("after the commit: %v", err)
	}
	for name, want := range map[string]int{"nested 0": 1, "nested 1": 0, "batch": 1, "copied": 1} {
		if n, err := d.Effects(t.Context(), name); err != nil || n != want {
			t.Errorf("%s: %d, %v", name, n, err)
		}
	}
}

// A statement that failed, and whose error the handler dropped, is told by the commit.
func TestCommit_BrokenTransaction(t *testing.T) {
	t.Parallel()
	for _, bySQL := range []bool{false, true} {
		for _, outgoing := range [][]byte{nil, []byte("x")} {
			d := newDatabase(t, bySQL, "")
			store := opened(t, d)
			work := begin(t, store, m1)
			ctx := work.Context(t.Context())
			if err := d.Effect(ctx, "lost"); err != nil {
				t.Fatal(err)
			}
			if err := d.Effect(ctx, "\xff"); err == nil {
				t.Fatal("no UTF-8, and no error")
			}
			if err := work.Commit(ctx, outgoing); err == nil {
				t.Errorf("database/sql %v: a transaction that is broken was committed", bySQL)
			}
			if err := begin(t, store, m1).Rollback(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
}

// The bound of the wait is not one of the handler's statements.
func TestBegin_RestoresLockTimeout(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, false, "")
	d.url += "&lock_timeout=12345"
	work := begin(t, opened(t, d), m1)
	tx, err := postgres.Tx(work.Context(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	var timeout string
	if err := tx.QueryRow(t.Context(), "show lock_timeout").Scan(&timeout); err != nil || timeout != "12345ms" {
		t.Errorf("lock_timeout is %s, %v", timeout, err)
	}
	if err := work.Rollback(t.Context()); err != nil {
		t.Error(err)
	}
}

// No message may keep a connection: a pool of two serves many, however they end.
func TestStore_ReleasesConnections(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, false, "")
	opened(t, d)
	pool := d.pool(2)
	store, err := postgres.New(pool, postgres.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		key := inbox.Key{Scope: "billing", ID: fmt.Sprint(i % 4)}
		tx, entry, err := store.Begin(t.Context(), key, time.Minute)
		switch {
		case err != nil:
			t.Fatal(err)
		case entry != nil:
			continue
		case i%3 == 0:
			if _, _, err := store.Begin(t.Context(), key, time.Millisecond); !errors.Is(err, inbox.ErrInProgress) {
				t.Error(err)
			}
			err = tx.Rollback(t.Context())
		case i%3 == 1:
			ended, end := context.WithCancel(t.Context())
			end()
			if tx.Commit(ended, nil) == nil {
				t.Error("committed in an ended context")
			}
		default:
			err = tx.Commit(t.Context(), []byte("x"))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if n := pool.Stat().AcquiredConns(); n != 0 {
		t.Errorf("%d connections are not given back", n)
	}
}

func TestProvision(t *testing.T) {
	t.Parallel()
	for _, bySQL := range []bool{false, true} {
		d := newDatabase(t, bySQL, "")
		c := postgres.Config{Table: `in "box`}
		store, err := d.open(c)
		if err != nil {
			t.Fatal(err)
		}
		if err := store.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "create it with Provision or DDL") {
			t.Errorf("Check without a table: %v", err)
		}
		if _, _, err := store.Begin(t.Context(), m1, 0); err == nil || !strings.Contains(err.Error(), "create it with Provision or DDL") {
			t.Errorf("Begin without a table: %v", err)
		}
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				if err := store.Provision(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if err := errors.Join(store.Check(t.Context()), begin(t, store, m1).Commit(t.Context(), nil)); err != nil {
			t.Error(err)
		}
		other, err := d.open(postgres.Config{Table: "effects"})
		if err != nil {
			t.Fatal(err)
		}
		if err := other.Provision(t.Context()); err == nil || !strings.Contains(err.Error(), `has no column "scope text"`) {
			t.Errorf("Provision of another table: %v", err)
		}
	}
}

// TestEncoding_IsUTF8: in another encoding ids would be garbled, or not stored.
func TestEncoding_IsUTF8(t *testing.T) {
	t.Parallel()
	ctx := context.WithoutCancel(t.Context())
	if _, err := cluster.Exec(ctx, "postgres", `create database latin1 encoding 'LATIN1' lc_collate 'C' lc_ctype 'C' template template0`); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := cluster.Exec(ctx, "postgres", `drop database latin1 with (force)`); err != nil {
			t.Error(err)
		}
	})
	good := newDatabase(t, false, "")
	for _, c := range []struct{ url, want string }{
		{cluster.PasswordURL("latin1"), "the database has the encoding LATIN1"},
		{good.url + "&client_encoding=LATIN1", "set client_encoding=UTF8 in the URL"},
	} {
		for _, bySQL := range []bool{false, true} {
			d := &database{t: t, url: c.url, bySQL: bySQL}
			store, err := d.open(postgres.Config{})
			if err != nil {
				t.Fatal(err)
			}
			_, _, begun := store.Begin(t.Context(), m1, 0)
			for name, err := range map[string]error{"Provision": store.Provision(t.Context()), "Check": store.Check(t.Context()), "Begin": begun} {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%s, by database/sql %v: %v, want %q", name, bySQL, err, c.want)
				}
			}
		}
	}
}

// The code of docs/inbox.md waits for a server, and for nothing else.
func TestProvision_OfTheGuide(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, false, "")
	store, err := postgres.New(d.pool(1), postgres.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(provision(t.Context(), store), store.Check(t.Context())); err != nil {
		t.Error(err)
	}
	if store, err = postgres.New(d.pool(1), postgres.Config{Schema: "missing"}); err != nil {
		t.Fatal(err)
	}
	if err := provision(t.Context(), store); err == nil || !strings.Contains(err.Error(), "missing") {
		t.Errorf("in a schema that does not exist: %v", err)
	}
	unreachable, err := pgxpool.New(t.Context(), "postgres://127.0.0.1:1/x")
	if err != nil {
		t.Fatal(err)
	}
	defer unreachable.Close()
	if store, err = postgres.New(unreachable, postgres.Config{}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := provision(ctx, store); err == nil || ctx.Err() == nil {
		t.Errorf("without a server it did not wait: %v", err)
	}
}

func TestNew_Refuses(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), "postgres://localhost:1/x")
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	for _, c := range []postgres.Config{{Schema: strings.Repeat("x", 64)}, {Table: strings.Repeat("x", 53)}, {Table: "a\x00"}, {Table: "\xff"}} {
		if _, err := postgres.New(pool, c); err == nil {
			t.Errorf("%+v is taken", c)
		}
		if _, err := postgres.DDL(c); err == nil {
			t.Errorf("DDL of %+v", c)
		}
	}
	if _, err := postgres.New(nil, postgres.Config{}); err == nil {
		t.Error("no pool, and no error")
	}
	if _, err := postgres.NewSQL(nil, postgres.Config{}); err == nil {
		t.Error("no database, and no error")
	}
}

func TestTx_Contexts(t *testing.T) {
	t.Parallel()
	var tx pgx.Tx = &nothing{}
	if got, err := postgres.Tx(postgres.WithTx(t.Context(), tx)); err != nil || got != tx {
		t.Errorf("%v, %v", got, err)
	}
	var q postgres.Querier = (*sql.Tx)(nil) // every *sql.Tx is one
	if _, err := postgres.SQLTx(postgres.WithSQLTx(t.Context(), q)); err != nil {
		t.Error(err)
	}
	for text, err := range map[string]error{
		"get it with SQLTx": second(postgres.Tx(postgres.WithSQLTx(t.Context(), q))),
		"get it with Tx":    second(postgres.SQLTx(postgres.WithTx(t.Context(), tx))),
		"no transaction":    second(postgres.Tx(t.Context())),
	} {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%v, want %q", err, text)
		}
	}
}

type nothing struct{ pgx.Tx }

func second[T any](_ T, err error) error { return err }
