//go:build darwin || linux

package postgres

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

// Exec runs SQL statements, or commands of psql, as the superuser in a database, each in its
// own transaction, until one fails. It returns the rows of all of them, one per line, with
// "|" between columns and nothing for null. It is meant for the set-up and checks of tests,
// because each call starts a program.
func (s *Server) Exec(ctx context.Context, database, sql string) (rows string, err error) {
	rows, err = s.psql(ctx, database, sql)
	if err != nil {
		return "", fmt.Errorf("postgres: exec in database %q: %w", database, err)
	}
	return rows, nil
}

// CreateDatabase creates an empty database that belongs to User. Drop it with Exec, or leave
// it to Stop.
func (s *Server) CreateDatabase(ctx context.Context, name string) error {
	// template0 accepts no connections, so several databases can be created concurrently.
	sql := "create database " + identifier(name) + " owner " + User + " template template0"
	if _, err := s.psql(ctx, "postgres", sql); err != nil {
		return fmt.Errorf("postgres: create database %q: %w", name, err)
	}
	return nil
}

// NewDatabase creates an empty database that belongs to User and returns its name. It is
// dropped at the end of the test, even if clients are still connected to it.
func (s *Server) NewDatabase(t testing.TB) (name string) {
	t.Helper()
	name = fmt.Sprintf("test_%d", s.databases.Add(1))
	if err := s.CreateDatabase(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if s.life.Running() == nil {
			return // Stop removes it
		}
		if _, err := s.Exec(context.Background(), "postgres", "drop database "+identifier(name)+" with (force)"); err != nil {
			t.Error(err)
		}
	})
	return name
}

// psql runs psql. The statements are passed on its standard input, because other users can
// read a command line.
func (s *Server) psql(ctx context.Context, database, sql string) (string, error) {
	cmd := s.bin.command(ctx, "psql", "--no-psqlrc", "--quiet", "--tuples-only", "--no-align",
		"--set=ON_ERROR_STOP=1", "--file=-", "--dbname="+s.URL(database))
	cmd.Stdin = strings.NewReader(sql)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		return "", fmt.Errorf("psql: %w: %s", err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSuffix(stdout.String(), "\n"), nil
}
