//go:build mssql

package sqlserver_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	mssql "github.com/microsoft/go-mssqldb"
	"github.com/microsoft/go-mssqldb/msdsn"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/internal/testserver/proxy"
	"github.com/reprise-go/reprise/transport/sqlserver"
	_ "github.com/reprise-go/reprise/transport/sqlserver/microsoft"
)

// The tests TestMSSQL... run on a Microsoft SQL Server, which is not ours to start: "make
// test-mssql" runs them. They are compiled with the build tag mssql, and "make alone"
// compiles them everywhere. PostgreSQL is not needed for them.

const (
	// mssqlVariable names the server and an empty database. Its login owns the database:
	// it creates schemas and tables, and looks at who waits for whose lock (VIEW SERVER
	// STATE).
	mssqlVariable = "REPRISE_TEST_MSSQL_URL"
	// secondVariable names a second, empty database on the same server, where the login
	// may not create one.
	secondVariable = "REPRISE_TEST_MSSQL_SECOND_DATABASE"
)

func init() { needsPostgres = false }

// serverURL returns the URL of the server, without which no test of these is any use.
func serverURL(t testing.TB) string {
	t.Helper()
	text := os.Getenv(mssqlVariable)
	if text == "" {
		t.Fatalf("%s is not set: it names a Microsoft SQL Server and an empty database on it, such as sqlserver://sa:password@localhost?database=reprise_test; \"make test-mssql\" runs these tests, docs/transports/sqlserver.md says what they need", mssqlVariable)
	}
	return text
}

// parsedURL returns the configuration of the client library, and the URL's options.
func parsedURL(t testing.TB, text string) (msdsn.Config, *url.URL) {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatalf("%s is no URL", mssqlVariable) // the error would repeat the password
	}
	parsed, err := msdsn.Parse(text)
	if err != nil {
		t.Fatalf("%s: %v", mssqlVariable, strings.ReplaceAll(err.Error(), text, "..."))
	}
	if parsed.Database == "" {
		t.Fatalf("%s names no database: add the option database=name", mssqlVariable)
	}
	return parsed, u
}

// mssqlDatabase is a schema of a test's own, which is removed with all that is in it.
type mssqlDatabase struct {
	name   string // of the database
	schema string
	url    string
	db     *sql.DB
}

var mssqlSchemas atomic.Int64

// newMSSQL makes a schema with a name that nothing parses unless it is quoted.
func newMSSQL(t *testing.T) *mssqlDatabase {
	t.Helper()
	return newMSSQLIn(t, serverURL(t), fmt.Sprintf("Schema %d-%d", os.Getpid(), mssqlSchemas.Add(1)))
}

func newMSSQLIn(t *testing.T, text, schema string) *mssqlDatabase {
	t.Helper()
	parsed, _ := parsedURL(t, text)
	db := sql.OpenDB(mssql.NewConnectorConfig(parsed))
	d := &mssqlDatabase{name: parsed.Database, schema: schema, url: text, db: db}
	t.Cleanup(func() {
		d.drop(t)
		_ = db.Close()
	})
	d.exec(t, `create schema `+bracketed(schema))
	return d
}

// drop removes the schema, with all that is in it.
func (d *mssqlDatabase) drop(t *testing.T) {
	for _, text := range []string{
		`declare @text nvarchar(max) = N'';
select @text = @text + N'drop table ' + quotename(s.name) + N'.' + quotename(t.name) + N';'
from sys.tables as t inner join sys.schemas as s on s.schema_id = t.schema_id
where s.name = ` + quotedText(d.schema) + `;
exec sys.sp_executesql @text;`,
		`drop schema if exists ` + bracketed(d.schema) + `;`,
	} {
		if _, err := d.db.ExecContext(context.Background(), text); err != nil {
			t.Logf("the schema %q is left behind: %v", d.schema, err)
		}
	}
}

func bracketed(name string) string  { return "[" + strings.ReplaceAll(name, "]", "]]") + "]" }
func quotedText(text string) string { return "N'" + strings.ReplaceAll(text, "'", "''") + "'" }

// table returns how statements name a table of the schema.
func (d *mssqlDatabase) table(name string) string { return bracketed(d.schema) + "." + bracketed(name) }

// exec runs a statement past the transports, and returns how many rows it changed.
func (d *mssqlDatabase) exec(t testing.TB, text string, args ...any) int64 {
	t.Helper()
	result, err := d.db.ExecContext(context.Background(), text, args...)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	n, _ := result.RowsAffected()
	return n
}

// column returns the first column of a query, which is text.
func (d *mssqlDatabase) column(t testing.TB, text string, args ...any) (values []string) {
	t.Helper()
	rows, err := d.db.QueryContext(context.Background(), text, args...)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var value sql.NullString
		if err := rows.Scan(&value); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		values = append(values, value.String)
	}
	if err := rows.Err(); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return values
}

// number returns the number that a query returns.
func (d *mssqlDatabase) number(t testing.TB, text string, args ...any) int {
	t.Helper()
	var n int
	if err := d.db.QueryRowContext(context.Background(), text, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return n
}

// count returns how many rows a table of the schema has.
func (d *mssqlDatabase) count(t testing.TB, name string) int {
	t.Helper()
	return d.number(t, `select count(*) from `+d.table(name))
}

// countAt returns how many rows there are at an address, table@[schema]@[database].
func (d *mssqlDatabase) countAt(t *testing.T, address string) string {
	t.Helper()
	name, _, _ := strings.Cut(address, "@")
	return strconv.Itoa(d.count(t, name))
}

// config is of transports whose queues are in the schema, unless it names others.
func (d *mssqlDatabase) config(cfg sqlserver.Config) sqlserver.Config {
	if cfg.URL == "" && cfg.DB == nil {
		cfg.URL = d.url
	}
	if cfg.DB != nil && cfg.Database == "" {
		cfg.Database = d.name
	}
	if cfg.Schema == "" {
		cfg.Schema = d.schema
	}
	cfg.Experimental = sqlserver.MicrosoftSQLServer
	return cfg
}

func (d *mssqlDatabase) open(t *testing.T, cfg sqlserver.Config) *sqlserver.Transport {
	t.Helper()
	return open(t, d.config(cfg))
}

// theirs makes a queue as NServiceBus has it.
func (d *mssqlDatabase) theirs(t *testing.T, queues ...string) {
	t.Helper()
	transport := d.open(t, sqlserver.Config{NServiceBusTables: true})
	provision(t, transport, queues...)
	closed(t, transport)
}

// session is a pool whose connections begin with statements of a user's.
func (d *mssqlDatabase) session(t *testing.T, begins string) *sql.DB {
	t.Helper()
	parsed, _ := parsedURL(t, d.url)
	connector := mssql.NewConnectorConfig(parsed)
	connector.SessionInitSQL = begins
	db := sql.OpenDB(connector)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// through returns a network of the test's own, and the URL that leads through it.
func (d *mssqlDatabase) through(t *testing.T) (*proxy.Proxy, string) {
	t.Helper()
	parsed, u := parsedURL(t, d.url)
	if parsed.Instance != "" {
		t.Fatalf("%s names the instance %q: name its port instead, for these tests put a network of their own before it", mssqlVariable, parsed.Instance)
	}
	port := parsed.Port
	if port == 0 {
		port = 1433
	}
	p, err := proxy.New(net.JoinHostPort(parsed.Host, strconv.FormatUint(port, 10)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	u.Host = p.Addr()
	options := u.Query()
	if options.Get("hostnameincertificate") == "" {
		options.Set("hostnameincertificate", parsed.Host)
	}
	u.RawQuery = options.Encode()
	return p, u.String()
}

// lock makes a statement in a transaction of the test's own. waiting reports whether
// another session waits for what it has locked.
func (d *mssqlDatabase) lock(t *testing.T, text string, args ...any) (waiting func() bool, unlock func()) {
	t.Helper()
	conn, err := d.db.Conn(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	tx, err := conn.BeginTx(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var spid, rows int
	if err := tx.QueryRow(`select @@spid`).Scan(&spid); err != nil {
		t.Fatal(err)
	}
	if err := tx.QueryRow(text, args...).Scan(&rows); err != nil || rows == 0 {
		t.Fatalf("%s: %d rows, %v", text, rows, err)
	}
	return func() bool {
			return d.number(t, `select count(*) from sys.dm_exec_requests where blocking_session_id = @p1`, spid) > 0
		}, func() {
			t.Helper()
			if err := tx.Rollback(); err != nil {
				t.Fatal(err)
			}
		}
}

// lockTable locks all of a queue's table for everybody.
func (d *mssqlDatabase) lockTable(t *testing.T, name string) (waiting func() bool, unlock func()) {
	t.Helper()
	return d.lock(t, `select count(*) + 1 from `+d.table(name)+` with (tablockx, holdlock)`)
}

// lockRow locks the row of a message.
func (d *mssqlDatabase) lockRow(t *testing.T, queue string, m core.Delivery) (waiting func() bool, unlock func()) {
	t.Helper()
	return d.lock(t, `select count(*) from `+d.table(queue)+` with (updlock, rowlock) where Id = convert(uniqueidentifier, @p1)`, m.Incoming().NativeID)
}

// runs runs an endpoint until the test ends.
func runs(t *testing.T, name string, transport core.Transport, cfg core.Config, handle func(ctx context.Context, m *core.Message, body []byte) error) *core.Endpoint {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	ep, err := core.New(name, transport, cfg)
	if err != nil {
		t.Fatal(err)
	}
	core.Handle(ep, core.NewMessageType[[]byte]("orders.Place"), handle)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- ep.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("the endpoint ended with %v", err)
			}
		case <-time.After(patience):
			t.Errorf("the endpoint has not ended within %v", patience)
		}
	})
	select {
	case <-ep.Ready():
	case <-time.After(patience):
		t.Fatal("the endpoint does not receive")
	}
	return ep
}

// order is a message for the handler of runs.
func order(id, queue string) core.Outgoing {
	out := letter(id, queue)
	out.Headers.Set(headers.MessageTypes, "orders.Place")
	out.Headers.Set(headers.ContentType, "application/octet-stream")
	return out
}
