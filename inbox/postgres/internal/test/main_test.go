package postgres_test

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reprise-go/reprise/inbox/postgres"
	server "github.com/reprise-go/reprise/internal/testserver/postgres"
)

// cluster is the PostgreSQL of all tests.
var cluster *server.Server

func TestMain(m *testing.M) {
	if text, ok := os.LookupEnv(workerVariable); ok {
		if err := work(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	var err error
	if cluster, err = server.Start(server.Config{Settings: map[string]string{"synchronous_commit": "off"}}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if err := errors.Join(cluster.Stop(), stopBroker()); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

// database is one for one test, with the table of the inbox and one for the rows of handlers.
type database struct {
	url  string
	pool *pgxpool.Pool
}

func newDatabase(t *testing.T) *database {
	t.Helper()
	d := &database{url: cluster.PasswordURL(cluster.NewDatabase(t))}
	pool, err := pgxpool.New(t.Context(), d.url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	d.pool = pool
	store, err := postgres.New(pool, postgres.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Provision(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(t.Context(), "create table effects (name text)"); err != nil {
		t.Fatal(err)
	}
	return d
}

const insertEffect = "insert into effects values ($1)"

// effects returns how many rows the handler inserted for a message.
func (d *database) effects(t *testing.T, name string) (n int) {
	t.Helper()
	if err := d.pool.QueryRow(t.Context(), "select count(*) from effects where name = $1", name).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
