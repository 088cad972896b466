package sqlserver_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// testDatabase is what a test has for itself: a database or a schema, empty, and
// what it does there past the transports.
type testDatabase struct {
	name   string
	schema string
	url    string // as the role that owns it
	pool   *pgxpool.Pool
	shared *pgxpool.Pool // of the transports whose configuration names none; nil: each opens one
}

// newDatabase is for tests that change the database itself, or need the schema
// public.
func newDatabase(t *testing.T) *testDatabase {
	t.Helper()
	name := server.NewDatabase(t)
	db := &testDatabase{name: name, schema: "public", url: server.PasswordURL(name)}
	db.pool = poolOf(t, db.url)
	return db
}

// newSchema is for all others: it takes a hundredth of the time. All of them use the same
// connections, unless they open a transport with a URL: the server starts a process for
// each connection, which took more time than the tests.
func newSchema(t *testing.T) *testDatabase {
	t.Helper()
	pool, err := sharedPool()
	if err != nil {
		t.Fatal(err)
	}
	db := &testDatabase{
		name: sharedName, schema: fmt.Sprintf("Schema %d", schemas.Add(1)), url: server.PasswordURL(sharedName),
		pool: pool, shared: pool,
	}
	db.exec(t, `create schema `+pgx.Identifier{db.schema}.Sanitize())
	return db
}

const sharedName = "shared"

var schemas atomic.Int64

// sharedPool returns connections to the database of newSchema, such as a transport opens
// for a URL. They are closed when the server stops.
var sharedPool = sync.OnceValues(func() (*pgxpool.Pool, error) {
	ctx := context.Background()
	if err := server.CreateDatabase(ctx, sharedName); err != nil {
		return nil, err
	}
	transport, err := sqlserver.Open(server.PasswordURL(sharedName) + "&pool_max_conns=200")
	if err != nil {
		return nil, err
	}
	return transport.Pool(), nil
})

// table returns how statements name a table, which is also its address.
func (db *testDatabase) table(name string) string {
	return pgx.Identifier{db.schema, name}.Sanitize()
}

// poolOf returns a pool that is closed at the end of the test.
func poolOf(t *testing.T, rawURL string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(context.Background(), rawURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// exec runs a statement, and returns how many rows it changed.
func (db *testDatabase) exec(t *testing.T, text string, args ...any) int64 {
	t.Helper()
	tag, err := db.pool.Exec(t.Context(), text, args...)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return tag.RowsAffected()
}

// column returns the first column of a query, which is text.
func (db *testDatabase) column(t *testing.T, text string, args ...any) []string {
	t.Helper()
	rows, err := db.pool.Query(t.Context(), text, args...)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	values, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return values
}

// count returns how many rows a table has.
func (db *testDatabase) count(t *testing.T, quotedTable string) string {
	t.Helper()
	return strings.Join(db.column(t, `select count(*)::text from `+quotedTable), ",")
}

// open returns a transport of this database and schema, which the configuration need
// not name.
func (db *testDatabase) open(t *testing.T, cfg sqlserver.Config) *sqlserver.Transport {
	t.Helper()
	if cfg.URL == "" && cfg.Pool == nil && cfg.DB == nil {
		if cfg.Pool = db.shared; cfg.Pool == nil {
			cfg.URL = db.url
		}
	}
	if cfg.Schema == "" {
		cfg.Schema = db.schema
	}
	return open(t, cfg)
}

func closed(t testing.TB, transport *sqlserver.Transport) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := transport.Close(ctx); err != nil {
		t.Error(err)
	}
}

// withOptions returns a URL with further options, in pairs of name and value.
func withOptions(t *testing.T, rawURL string, pairs ...string) string {
	t.Helper()
	u, err := url.Parse(rawURL)
	if err != nil {
		t.Fatal(err)
	}
	options := u.Query()
	for i := 0; i < len(pairs); i += 2 {
		options.Set(pairs[i], pairs[i+1])
	}
	u.RawQuery = strings.ReplaceAll(options.Encode(), "+", "%20") // as libpq has it
	return u.String()
}

// openReceiver opens a receiver of a queue, which the transport closes.
func openReceiver(t *testing.T, transport core.Transport, queue string, mode core.TransactionMode) core.Receiver {
	t.Helper()
	r, err := transport.OpenReceiver(t.Context(), core.ReceiverConfig{Queue: queue, Mode: mode, MaxInFlight: 8})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// receive returns the next message.
func receive(t *testing.T, r core.Receiver) core.Delivery {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var got [1]core.Delivery
	if _, err := r.Receive(ctx, got[:]); err != nil {
		t.Fatalf("receive: %v", err)
	}
	return got[0]
}

// receiveNothing makes sure that there is no message for a while.
func receiveNothing(t *testing.T, r core.Receiver, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	var got [1]core.Delivery
	if n, err := r.Receive(ctx, got[:]); n > 0 {
		t.Fatalf("received %q, want nothing", got[0].Incoming().ID)
	} else if ctx.Err() == nil {
		t.Fatalf("receive: %v", err)
	}
}

func complete(t *testing.T, d core.Delivery) {
	t.Helper()
	if err := d.Complete(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func send(t *testing.T, transport core.Transport, msgs ...core.Outgoing) {
	t.Helper()
	if err := transport.Send(t.Context(), msgs...); err != nil {
		t.Fatal(err)
	}
}

// letter is a message with an id and a body of the same text.
func letter(id, queue string) core.Outgoing {
	out := core.Outgoing{ID: id, Queue: queue, Body: []byte(id)}
	out.Headers.Set(headers.MessageID, id)
	return out
}
