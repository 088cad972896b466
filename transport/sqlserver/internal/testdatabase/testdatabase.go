// Package testdatabase gives tests of the packages beside it a PostgreSQL database. The tests
// of a package share one server, one database and one pool of connections, and each test has
// a separate schema: a schema takes a hundredth of the time of a database.
package testdatabase

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reprise-go/reprise/internal/testserver/postgres"
)

// Schema is an empty schema of the database.
type Schema struct {
	Name string // needs quotes in a statement
	URL  string // of the database, as the role that owns it
	Pool *pgxpool.Pool
}

const database = "shared"

var (
	server  *postgres.Server // nil until the first New
	schemas atomic.Int64
)

// start starts the server for the first test that needs it.
var start = sync.OnceValues(func() (pool *pgxpool.Pool, err error) {
	if server, err = postgres.Start(postgres.Config{Settings: map[string]string{
		"synchronous_commit": "off", // nothing kills it
	}}); err != nil {
		return nil, err
	}
	if err := server.CreateDatabase(context.Background(), database); err != nil {
		return nil, err
	}
	// Parallel tests hold transactions and use other connections beside them.
	return pgxpool.New(context.Background(), server.PasswordURL(database)+"&pool_max_conns=50")
})

// Main runs the tests of a package, and stops the server if a test has started it. It is the
// whole TestMain of the package.
func Main(m *testing.M) {
	status := m.Run()
	if server != nil {
		if err := server.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			status = max(status, 1)
		}
	}
	os.Exit(status)
}

// New returns a schema for a test.
func New(t testing.TB) *Schema {
	t.Helper()
	pool, err := start()
	if err != nil {
		t.Fatal(err)
	}
	s := &Schema{Name: fmt.Sprintf("Schema %d", schemas.Add(1)), URL: server.PasswordURL(database), Pool: pool}
	s.Exec(t, `create schema `+pgx.Identifier{s.Name}.Sanitize())
	return s
}

// Table returns the name of a table of the schema as statements have it.
func (s *Schema) Table(name string) string { return pgx.Identifier{s.Name, name}.Sanitize() }

// Exec runs a statement.
func (s *Schema) Exec(t testing.TB, text string, args ...any) {
	t.Helper()
	if _, err := s.Pool.Exec(t.Context(), text, args...); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

// Text returns the first column of a query, which is text, with a comma between the rows.
func (s *Schema) Text(t testing.TB, text string, args ...any) string {
	t.Helper()
	rows, err := s.Pool.Query(t.Context(), text, args...)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	values, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return strings.Join(values, ",")
}
