package sqlserver_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/reprise-go/reprise/conformance"
	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/internal/testserver/given"
	"github.com/reprise-go/reprise/internal/testserver/postgres"
	"github.com/reprise-go/reprise/internal/testserver/proxy"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// The name of the adapter in reports. There is none of that over database/sql, and of that with
// a pool each: they can do the same.
const (
	overPgx         = "sqlserver (PostgreSQL)"
	onForeignTables = "sqlserver (PostgreSQL, tables of NServiceBus)"
	overDatabaseSQL = ""
	ownPools        = "sqlserver (PostgreSQL, a pool each)"
	// These run with "make test-mssql".
	onMicrosoft        = "sqlserver (Microsoft SQL Server)"
	onMicrosoftForeign = "sqlserver (Microsoft SQL Server, tables of NServiceBus)"
)

// TestConformance is PostgreSQL through pgx.
func TestConformance(t *testing.T) {
	sideBySide(t)
	b := conformanceBroker(t)
	conformance.Run(t, b.harness(t, overPgx, b.shared(t)))
}

// TestConformance_Pools is the same where each transport has a pool, which it closes.
func TestConformance_Pools(t *testing.T) {
	sideBySide(t)
	b := conformanceBroker(t)
	h := b.harness(t, ownPools, sqlserver.Config{URL: b.url})
	if b.given == nil {
		h.Connections = b.sessions
	}
	h.Rules = []string{"C14", "C21"} // Close, and what a transport with a URL says of itself
	conformance.Run(t, h)
}

// TestConformance_NServiceBusTables is the same on tables that NServiceBus made.
func TestConformance_NServiceBusTables(t *testing.T) {
	if testing.Short() {
		t.Skip("one configuration is enough: not in short runs")
	}
	sideBySide(t)
	b := conformanceBroker(t)
	cfg := b.shared(t)
	cfg.NServiceBusTables = true
	h := b.harness(t, onForeignTables, cfg)
	h.Mismatch = nil    // they have no column that Reprise could want to be different
	h.MaxInFlight = 100 // each has a connection
	if b.given != nil {
		h.MaxInFlight = connectionsOfTransport - 2 // which send
	}
	h.Rules, h.SameAs = differingTables, overPgx
	conformance.Run(t, h)
}

// differingTables are the rules that depend on whose tables they are: those of NServiceBus
// count nothing, have no leases and no time at which a message is due, so that other
// statements receive, settle, delay and move messages there. Connections, outages and secrets
// are the same code, and the engine treats a failure the same once it is counted.
var differingTables = []string{
	"C1", "C2", "C3", "C4", "C5", "C6", "C7", "C8", "C9", "C10", "C11", "C12", "C13", "C16", "C17", "C18", "C19", "C20", "C22", "C23",
	"C30", "C31", "C32", "C33", "C34", "C35", "C36", "C37", "C38", "C39",
	"R1", "R8", "R20", "R22", "R25", "R28", "R34", "R35", "R64", "R68",
}

// TestConformance_DatabaseSQL is PostgreSQL through database/sql, which is also how
// the adapter reaches Microsoft SQL Server.
func TestConformance_DatabaseSQL(t *testing.T) {
	if testing.Short() {
		t.Skip("one configuration is enough: not in short runs")
	}
	sideBySide(t)
	b := conformanceBroker(t)
	db := openDB(t, b.url)
	db.SetMaxIdleConns(idleConnections) // otherwise it keeps two, and opens one for most statements
	h := b.harness(t, overDatabaseSQL, sqlserver.Config{DB: db})
	h.Connections = func(testing.TB) int { return db.Stats().InUse }
	h.Rules = rulesOfDrivers()
	conformance.Run(t, h)
}

// idleConnections is more than transports use at the same time in all cases of a
// configuration that run in parallel, and maxConnections is more than they may hold.
const (
	idleConnections = 300
	maxConnections  = "900" // of the 1,000 that the server has
)

// shared returns a configuration for transports on one pool, such as a transport opens for
// a URL. New connections for each transport, of which a case opens several, were half of
// the work of the suite. On a given server each transport has its own.
func (b *broker) shared(t *testing.T) sqlserver.Config {
	t.Helper()
	if b.given != nil {
		return sqlserver.Config{URL: withOptions(t, b.url, "pool_max_conns", strconv.Itoa(connectionsOfTransport))}
	}
	return sqlserver.Config{Pool: open(t, sqlserver.Config{URL: withOptions(t, b.url, "pool_max_conns", maxConnections)}).Pool()}
}

// sideBySide has the configurations run in parallel, each on a separate server. On a given
// server they would share its connections.
func sideBySide(t *testing.T) {
	t.Helper()
	if !isGiven() {
		t.Parallel()
	}
}

// rulesOfDrivers returns the rules that a driver can break. The engine, which most of the
// others are about, does not know the driver, and the statements are the same: those rules
// are checked over pgx. So are C1, C4, C5, C9, C11, C16, C17, C18 and C22, which are about
// what the statements say, or about what is not said to the server. That each statement and
// each value reach the server is TestSession_DatabaseSQL.
func rulesOfDrivers() []string {
	return []string{
		"C2", "C3", "C6", "C7", "C8", "C12", "C14", "C15", "C34", // what is cut off, fails or gets no answer
		"C10", "C13", "C19", "C20", "C21", "C23", "C33", // values, numbers of rows and texts of errors
		"R20", "R28", // of the message's transaction, in which handlers work
	}
}

// openDB returns a pool of database/sql.
func openDB(t testing.TB, url string) *sql.DB {
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// childURL is the environment variable with the URL that a child process of a harness
// connects to.
func childURL(harness string) string {
	return "REPRISE_TEST_SQLSERVER_CHILD_" + strings.Map(func(c rune) rune {
		if c < 'A' || c > 'z' {
			return '_'
		}
		return c
	}, harness)
}

// openInChild opens a transport like those of the child's harness.
func openInChild() (core.Transport, error) {
	harness := os.Getenv(conformance.HarnessVariable)
	cfg := shortLeases(sqlserver.Config{URL: os.Getenv(childURL(harness))})
	cfg.Schema = schemaInURL(cfg.URL)
	switch strings.TrimSuffix(harness, onGiven) {
	case onForeignTables:
		cfg.NServiceBusTables = true
	case onMicrosoft:
		cfg.Experimental = sqlserver.MicrosoftSQLServer
	case onMicrosoftForeign:
		cfg.Experimental = sqlserver.MicrosoftSQLServer
		cfg.NServiceBusTables = true
	case overDatabaseSQL, overDatabaseSQLGiven:
		db, err := sql.Open("pgx", cfg.URL)
		if err != nil {
			return nil, err
		}
		cfg.DB, cfg.URL = db, ""
	}
	return sqlserver.New(cfg)
}

// opens returns a function that opens transports of a configuration.
func opens(cfg sqlserver.Config) func(t testing.TB) core.Transport {
	return func(t testing.TB) core.Transport {
		transport, err := sqlserver.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		return transport
	}
}

// opensLimited opens transports of the configuration with another MaxMessageBytes.
func opensLimited(cfg sqlserver.Config) func(t testing.TB, maxMessageBytes int) core.Transport {
	return func(t testing.TB, maxMessageBytes int) core.Transport {
		limited := cfg
		limited.MaxMessageBytes = maxMessageBytes
		return opens(limited)(t)
	}
}

// forCases shortens what cases have to wait for, and lengthens what they do not.
func forCases(cfg sqlserver.Config) sqlserver.Config {
	cfg.Lease = longLease
	cfg.SubscriptionCache = 300 * time.Millisecond
	return cfg
}

// shortLeases is for cases that wait for the end of a lease.
func shortLeases(cfg sqlserver.Config) sqlserver.Config {
	cfg = forCases(cfg)
	cfg.Lease = 4 * time.Second
	return cfg
}

// tellChildren lets the child processes of a harness know the URL. It is not t.Setenv,
// which forbids parallel tests: each harness has a separate variable.
func tellChildren(t *testing.T, harness, url string) {
	t.Helper()
	name := childURL(harness)
	if err := os.Setenv(name, url); err != nil { //nolint:usetesting // see above
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Unsetenv(name) })
}

// broker is a server that the suite kills, or one with a network between that tests cut.
type broker struct {
	server   *postgres.Server
	proxy    *proxy.Proxy // nil: nothing is between
	database string
	url      string // through the proxy

	past atomic.Pointer[pgxpool.Pool] // the superuser's connections, past the proxy

	// Those of a server that the environment names; see given_server_test.go.
	given   *givenServer
	network *given.Network // nil: nothing is between
	schema  string
	direct  string // the URL past the network
}

// conformanceBroker is a server for the suite: a separate one, or the one that the
// environment names.
func conformanceBroker(t *testing.T) *broker {
	t.Helper()
	if isGiven() {
		return givenBroker(t)
	}
	return startBroker(t)
}

func startBroker(t *testing.T) *broker {
	s := postgres.StartFor(t, postgres.Config{Settings: map[string]string{"max_connections": "1000"}})
	database := s.NewDatabase(t)
	return &broker{server: s, database: database, url: s.PasswordURL(database)}
}

// Kill implements conformance.Broker.
func (b *broker) Kill(t testing.TB) {
	if err := b.server.Kill(); err != nil {
		t.Fatal(err)
	}
	b.past.Load().Reset()
}

// Start implements conformance.Broker.
func (b *broker) Start(t testing.TB) {
	if err := b.server.Restart(); err != nil {
		t.Fatal(err)
	}
}

// Partition implements conformance.Broker: a server that is stopped cannot be told from
// one behind a network that lets nothing through, and needs no proxy in all other cases.
func (b *broker) Partition(t testing.TB) (heal func()) {
	if err := b.server.Freeze(); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := b.server.Thaw(); err != nil {
			t.Error(err)
		}
	}
}

// line implements conformance.Line by a proxy of one transport's own.
type line struct{ *proxy.Proxy }

func newLine(t testing.TB, addr string) line {
	p, err := proxy.New(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return line{p}
}

// SilenceBroker implements conformance.Line.
func (l line) SilenceBroker() { l.SilenceServer() }

// exec runs statements as the superuser, past the proxy and the transports.
func (b *broker) exec(t testing.TB, text string, args ...any) string {
	t.Helper()
	rows, err := b.past.Load().Query(context.Background(), text, args...)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	values, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return strings.Join(values, ",")
}

// harness is for transports of a configuration, which reaches b.
func (b *broker) harness(t *testing.T, name string, cfg sqlserver.Config) conformance.Harness {
	t.Helper()
	past := b.direct
	if b.given == nil {
		past = b.server.URL(b.database)
	} else {
		name = nameOnGiven(name)
	}
	b.past.Store(poolOf(t, past))
	tellChildren(t, name, b.url)
	cfg.Schema = b.schema
	short := shortLeases(cfg)
	cfg = forCases(cfg)
	b.exec(t, `create table work (key text primary key)`)
	if b.given == nil {
		b.exec(t, `grant all on work to `+postgres.User)
	}
	h := conformance.Harness{
		Name:           name,
		Open:           opens(cfg),
		OpenShortLocks: opens(short),
		OpenLimited:    opensLimited(cfg),
		Broker:         b,
		OpenWrong:      opensWrong(b.wrong(cfg)),
		OpenMisplaced:  opensMisplaced,
		Secrets:        []string{postgres.Password},
		Timeout:        patience,
		DelayTolerance: 20 * time.Second, // how late a message is, says a busy machine
		Corrupt: func(t testing.TB, queue string) []byte {
			b.exec(t, `insert into `+pgx.Identifier{queue}.Sanitize()+` (id, headers, body) values (gen_random_uuid(), '{"a": 1', 'as it came')`)
			return []byte("as it came")
		},
		DeleteQueue: func(t testing.TB, queue string) {
			b.exec(t, `drop table `+pgx.Identifier{queue}.Sanitize())
		},
		Mismatch: func(t testing.TB) (string, [2]string) {
			queue := fmt.Sprintf("mismatch-%d", time.Now().UnixNano())
			transport, err := sqlserver.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = transport.Close(t.Context()) }()
			if err := transport.Provision(t.Context(), core.Topology{InputQueue: queue, Queues: []string{queue}}); err != nil {
				t.Fatal(err)
			}
			b.exec(t, `alter table `+pgx.Identifier{queue}.Sanitize()+` alter last_error type varchar(9000)`)
			return queue, [2]string{"character varying(9000)", "text"}
		},
		// How many idle ones a shared pool keeps is its owner's business.
		Connections: func(testing.TB) int { return int(cfg.Pool.Stat().AcquiredConns()) },
		NativeTx: &conformance.NativeTx{
			Write: func(ctx context.Context, key string) error {
				return work(ctx, `insert into work values ($1)`, key)
			},
			Committed: func(t testing.TB, key string) bool {
				return b.exec(t, `select count(*)::text from work where key = $1`, key) == "1"
			},
			Break: func(ctx context.Context) error {
				if err := work(ctx, `select 1 / 0 where $1 <> ''`, "x"); err == nil {
					return errors.New("the transaction is not broken")
				}
				return nil
			},
		},
	}
	if b.given != nil {
		return b.adapt(h)
	}
	h.OpenOnLine = func(t testing.TB) (core.Transport, conformance.Line) {
		l := newLine(t, b.server.Addr())
		through, url := cfg, postgres.Via(b.url, l.Addr())
		if cfg.DB != nil {
			through.DB = openDB(t, url)
		} else {
			through.Pool, through.URL = nil, url
		}
		return opens(through)(t), l
	}
	return h
}

// wrong returns the configuration with the URL that leads to b, unless it is one of
// database/sql, whose owner has the URL.
func (b *broker) wrong(cfg sqlserver.Config) sqlserver.Config {
	if cfg.Pool != nil {
		cfg.Pool, cfg.URL = nil, b.url
	}
	return cfg
}

// sessions counts the sessions of transports on the server.
func (b *broker) sessions(t testing.TB) int {
	n, err := strconv.Atoi(b.exec(t, `select count(*)::text from pg_stat_activity where usename = $1`, postgres.User))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// work runs a statement in the transaction of the message being handled.
func work(ctx context.Context, text string, args ...any) error {
	tx, err := sqlserver.Tx(ctx)
	if err == nil {
		_, err = tx.Exec(ctx, text, args...)
		return err
	}
	native, sqlErr := sqlserver.SQLTx(ctx)
	if sqlErr != nil {
		return errors.Join(err, sqlErr)
	}
	_, err = native.ExecContext(ctx, text, args...)
	return err
}
