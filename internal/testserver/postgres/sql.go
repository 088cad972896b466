//go:build darwin || linux

package postgres

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
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
	// template0 accepts no connections, which would prevent its being copied. A copy of its files
	// takes a third of the time of writing them to the log.
	sql := "create database " + identifier(name) + " owner " + User + " template template0"
	version, err := s.version(ctx)
	if err == nil {
		if version >= 150_000 { // earlier versions do so, and have no option
			sql += " strategy file_copy"
		}
		_, err = s.console.exec(ctx, sql)
	}
	if err != nil {
		return fmt.Errorf("postgres: create database %q: %w", name, err)
	}
	return nil
}

// version returns the number of the server's version, such as 150018.
func (s *Server) version(ctx context.Context) (int, error) {
	if known := s.knownVersion.Load(); known != 0 {
		return int(known), nil
	}
	text, err := s.console.exec(ctx, "show server_version_num")
	if err != nil {
		return 0, err
	}
	version, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("server_version_num: %w", err)
	}
	s.knownVersion.Store(int64(version))
	return version, nil
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
		if _, err := s.console.exec(context.Background(), "drop database "+identifier(name)+" with (force)"); err != nil {
			t.Errorf("postgres: drop database %q: %v", name, err)
		}
	})
	return name
}

// psql runs psql. The statements are passed on its standard input, because other users can
// read a command line.
func (s *Server) psql(ctx context.Context, database, sql string) (string, error) {
	cmd := s.psqlCommand(ctx, database, "--set=ON_ERROR_STOP=1")
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

// psqlCommand returns a psql that reads its standard input.
func (s *Server) psqlCommand(ctx context.Context, database string, options ...string) *exec.Cmd {
	return s.bin.command(ctx, "psql", append(options, "--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--file=-", "--dbname="+s.URL(database))...)
}
