package sqlserver_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/reprise-go/reprise/conformance"
	"github.com/reprise-go/reprise/internal/testserver/given"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// The tests TestConformance... run on a PostgreSQL that the environment names, instead of
// servers of their own. Everything that they make is in schemas of their own, which are
// dropped with all that is in them.

// givenVariable names the server, the database and a role that may create schemas in it.
const givenVariable = "REPRISE_TEST_POSTGRES_URL"

// onGiven ends the names of harnesses on the given server: what they can try differs, so
// that their reports are others, too. The one over database/sql has a name there.
const (
	onGiven              = ", given server"
	overDatabaseSQLGiven = "sqlserver (PostgreSQL, database/sql)"
)

const (
	// connectionsOfTest is the average of the largest tests: three of them at a time had 97.
	// Most tests have 8.
	connectionsOfTest = 32
	// connectionsOfTransport limits the pool of each transport. Two of them are for sends.
	connectionsOfTransport = 12
	// connectionsBesideTests are those past the transports, and a few to spare.
	connectionsBesideTests = 10
)

// givenServer is the server that givenVariable names, and what a run has made on it.
type givenServer struct {
	url     *url.URL
	secrets []string // the password
	run     string   // begins the names of the run's schemas, and of its sessions
	about   string   // the server, for people
	tests   int      // that it has connections for at a time
	cleaner *given.Cleaner
	schemas atomic.Int64
}

// givenPostgres returns the server that the environment names, once it is known that the
// suite can run on it.
var givenPostgres = sync.OnceValues(func() (*givenServer, error) {
	s, err := openGiven(os.Getenv(givenVariable))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", givenVariable, err)
	}
	openedGiven.Store(s)
	return s, nil
})

// openedGiven is what givenPostgres has returned.
var openedGiven atomic.Pointer[givenServer]

func isGiven() bool { return os.Getenv(givenVariable) != "" }

// givenAlone reports whether all tests that run do so on the given server. No other one is
// started then.
func givenAlone() bool {
	if !isGiven() {
		return false
	}
	flag.Parse()
	alone, err := given.OnlyConformance(flag.Lookup("test.run").Value.String())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return alone
}

// limitParallel lowers -parallel to the tests that the given server has connections for. If
// the suite cannot run there, the tests say why.
func limitParallel() {
	if !isGiven() || given.IsListing() {
		return
	}
	s, err := givenPostgres()
	if err != nil {
		return
	}
	parallel := flag.Lookup("test.parallel").Value.(flag.Getter).Get().(int)
	if s.tests < parallel {
		_ = flag.Set("test.parallel", strconv.Itoa(s.tests))
		fmt.Printf("%s: %d tests run at a time, which the server has connections for\n", givenVariable, s.tests)
	}
}

// leaveGiven removes the things that the run has made. It ends the process if something is left.
func leaveGiven() {
	s := openedGiven.Load()
	if s == nil {
		return // nothing was made
	}
	if err := s.cleaner.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Printf("%s: all that the run has made on %s is removed\n", givenVariable, s.about)
}

// openGiven reads the URL, checks the server and starts the process that cleans up. No
// error has a part of the password.
func openGiven(text string) (*givenServer, error) {
	u, err := transport.ReadURL("the URL", text, "postgres://")
	if err != nil {
		return nil, err
	}
	if u.Scheme != "postgres" && u.Scheme != "postgresql" {
		return nil, fmt.Errorf("the URL has the scheme %q; use postgres://user:password@host/database", u.Scheme)
	}
	probe, err := sqlserver.New(sqlserver.Config{URL: text}) // refuses what pgx would quote
	if err != nil {
		return nil, errors.New(strings.ReplaceAll(err.Error(), "Config.URL", "the URL"))
	}
	_ = probe.Close(context.Background())
	var id [4]byte
	if _, err := rand.Read(id[:]); err != nil {
		return nil, err
	}
	s := &givenServer{run: given.Prefix + hex.EncodeToString(id[:])}
	if password, ok := u.User.Password(); ok && password != "" {
		s.secrets = []string{password}
	} else if password := u.Query().Get("password"); password != "" {
		s.secrets = []string{password}
	}
	s.url = withOption(u, "application_name", s.run)
	if err := s.check(); err != nil {
		return nil, err
	}
	s.cleaner, err = given.StartCleaner()
	return s, err
}

// check returns what keeps the suite from running on the server, and how to change that.
func (s *givenServer) check() error {
	conn, err := connectGiven(s.url.String())
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.Background()) }()
	var version, role, database string
	var number, free int
	var standby, mayCreate bool
	err = conn.QueryRow(context.Background(), `select current_setting('server_version'), current_setting('server_version_num')::int,
	quote_ident(current_user), quote_ident(current_database()), pg_is_in_recovery(), has_database_privilege(current_database(), 'create'), `+freeConnections).
		Scan(&version, &number, &role, &database, &standby, &mayCreate, &free)
	switch {
	case err != nil:
		return fmt.Errorf("ask the server what it is: %w", err)
	case number < 130000:
		return fmt.Errorf("the server is PostgreSQL %s; the adapter needs 13 or later", version)
	case standby:
		return errors.New("the server is a standby, on which nothing can be written; name its primary")
	case !mayCreate:
		return fmt.Errorf("the role %s may not create schemas in the database %s; to fix: grant create on database %s to %s", role, database, database, role)
	case free < connectionsBesideTests+connectionsOfTest:
		return fmt.Errorf("the server has room for %d more connections of the role %s to the database %s, and the suite needs %d; to fix: end other sessions, or raise max_connections or the connection limit of the role or the database",
			free, role, database, connectionsBesideTests+connectionsOfTest)
	}
	s.about = fmt.Sprintf("PostgreSQL %s, database %s, as %s", version, database, role)
	s.tests = (free - connectionsBesideTests) / connectionsOfTest
	return nil
}

// freeConnections is how many connections the role can still open, or fewer: autovacuum counts
// as a session. For a role without rights, sessions of other roles have no backend_type.
const freeConnections = `(select least(
	current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
		- coalesce(current_setting('reserved_connections', true)::int, 0) - (select sum(numbackends) from pg_stat_database),
	nullif(rolconnlimit, -1) - (select count(*) from pg_stat_activity where usename = current_user),
	nullif(datconnlimit, -1) - (select numbackends from pg_stat_database where datname = current_database()))
from pg_roles, pg_database where rolname = current_user and datname = current_database())::int`

// connectGiven connects past the transports.
func connectGiven(text string) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, text)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err) // which names the user, the host and the database
	}
	return conn, nil
}

// withOption returns a URL with another value of an option, and without those of pools,
// which single connections refuse.
func withOption(u *url.URL, name, value string) *url.URL {
	other := *u
	options := u.Query()
	for option := range options {
		if strings.HasPrefix(option, "pool_") {
			options.Del(option)
		}
	}
	options.Set(name, value)
	other.RawQuery = strings.ReplaceAll(options.Encode(), "+", "%20") // as libpq has it
	return &other
}

// givenBroker returns a schema on the given server, and a network before it where that is
// possible.
func givenBroker(t *testing.T) *broker {
	t.Helper()
	s, err := givenPostgres()
	if err != nil {
		t.Fatal(err)
	}
	schema := fmt.Sprintf("%s_%d", s.run, s.schemas.Add(1))
	s.cleaner.Note(schema)
	direct := withOption(s.url, "search_path", schema)
	ours := withOption(direct, "application_name", schema)
	b := &broker{given: s, schema: schema, direct: direct.String(), url: ours.String()}
	conn, err := connectGiven(b.direct)
	if err == nil {
		_, err = conn.Exec(t.Context(), `create schema `+pgx.Identifier{schema}.Sanitize())
		err = errors.Join(err, conn.Close(context.Background()))
	}
	if err != nil {
		t.Fatalf("create the schema %s: %v", schema, err)
	}
	fmt.Printf("%s: on %s, in the schema %s\n", t.Name(), s.about, schema)
	if network, via, err := viaNetwork(t, ours); err == nil {
		b.network, b.url = network, via
	} else {
		fmt.Printf("%s: cases about outages are not run, because nothing can be put between the transports and the server: %v\n", t.Name(), err)
	}
	return b
}

// schemaInURL returns the schema that a URL of the given server leads to, or "" for another
// server's.
func schemaInURL(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	return u.Query().Get("search_path")
}

// viaNetwork returns a network before the server, and the URL that leads through it, if
// the server can be reached that way. With sslmode=verify-full it cannot: its certificate is
// for another host than the network's.
func viaNetwork(t *testing.T, u *url.URL) (*given.Network, string, error) {
	if u.Host == "" || strings.Contains(u.Host, ",") || u.Query().Get("host") != "" {
		return nil, "", errors.New("the URL does not name one host")
	}
	port := u.Port()
	if port == "" {
		port = "5432"
	}
	network := given.NewNetwork(t, net.JoinHostPort(u.Hostname(), port))
	via := *u
	via.Host = network.Proxy.Addr()
	conn, err := connectGiven(via.String())
	if err != nil {
		return nil, "", err
	}
	return network, via.String(), conn.Close(context.Background())
}

// nameOnGiven returns what a harness is called on the given server.
func nameOnGiven(name string) string {
	if name == overDatabaseSQL {
		name = overDatabaseSQLGiven
	}
	return name + onGiven
}

// adapt makes a harness for a separate server one for the given server.
func (b *broker) adapt(h conformance.Harness) conformance.Harness {
	h.Broker, h.Network = nil, nil
	if b.network != nil {
		h.Network = b.network
	}
	h.Secrets = b.given.secrets
	h.Connections = b.givenConnections
	return h
}

// givenConnections counts the sessions of transports by their name.
func (b *broker) givenConnections(t testing.TB) int {
	n, err := strconv.Atoi(b.exec(t, `select count(*)::text from pg_stat_activity where application_name = $1`, b.schema))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// removeGiven drops the schemas of a run. It is called in the process that cleans up, when
// the transports' process has ended.
func removeGiven(schemas []string) error {
	if len(schemas) == 0 {
		return nil
	}
	u, err := transport.ReadURL(givenVariable, os.Getenv(givenVariable), "postgres://")
	if err != nil {
		return err
	}
	var left []string
	for _, schema := range schemas {
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Second) {
			err = dropSchema(withOption(u, "application_name", given.Prefix+"cleaner").String(), schema)
			if err == nil || time.Now().After(deadline) {
				break
			}
		}
		if err != nil {
			left = append(left, fmt.Sprintf("%s: the schema %s is left behind: %v; to fix: drop schema %s cascade", givenVariable, schema, err, schema))
		}
	}
	if len(left) > 0 {
		return errors.New(strings.Join(left, "\n"))
	}
	return nil
}

// dropSchema ends the sessions of the run's transports, which the server may not have
// noticed to be gone, and drops a schema.
func dropSchema(text, schema string) error {
	conn, err := connectGiven(text)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.Background()) }()
	run := schema[:strings.LastIndex(schema, "_")]
	exec := func(text string, args ...any) error {
		_, err := conn.Exec(context.Background(), text, args...)
		return err
	}
	if err := exec(`select set_config('lock_timeout', '10s', false), set_config('client_min_messages', 'warning', false)`); err != nil {
		return err
	}
	if err := exec(`select pg_terminate_backend(pid) from pg_stat_activity where starts_with(application_name, $1) and usename = current_user`, run); err != nil {
		return err
	}
	for { // a thousand tables at a time would take more locks than there are
		var tables string
		err := conn.QueryRow(context.Background(), `select coalesce(string_agg(format('%I.%I', schemaname, tablename), ', '), '')
from (select schemaname, tablename from pg_tables where schemaname = $1 limit 100) as some_tables`, schema).Scan(&tables)
		if err != nil {
			return err
		}
		if tables == "" {
			return exec(`drop schema if exists ` + pgx.Identifier{schema}.Sanitize() + ` cascade`)
		}
		if err := exec(`drop table ` + tables + ` cascade`); err != nil {
			return err
		}
	}
}
