package postgres

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgxpool"
)

// URLVariable names a server to use in place of a started one. Its user needs the
// rights to create databases and to run CHECKPOINT.
const URLVariable = "REPRISE_BENCH_POSTGRES_URL"

// Server is the PostgreSQL server that all contenders use, in turn. It is started when a scenario first needs it.
type Server struct {
	URL       string // an existing server; "": start one
	Forgetful bool   // a started server need not survive a crash of the machine

	running *runningServer
}

// ensureRunning returns the running server.
func (s *Server) ensureRunning(ctx context.Context) (*runningServer, error) {
	if s.running != nil {
		return s.running, nil
	}
	var err error
	s.running, err = newRunningServer(ctx, s.URL, !s.Forgetful)
	return s.running, err
}

// Description describes the server; it is "" if no scenario needed it.
func (s *Server) Description() string {
	if s.running == nil {
		return ""
	}
	return s.running.description
}

// Close stops the server if it was started.
func (s *Server) Close() error {
	if s.running == nil {
		return nil
	}
	return s.running.close()
}

// NewDatabase creates a database on the server.
func (s *Server) NewDatabase(ctx context.Context) (*Database, error) {
	server, err := s.ensureRunning(ctx)
	if err != nil {
		return nil, err
	}
	return server.newDatabase(ctx)
}

// runningServer is a running server.
type runningServer struct {
	url         string
	stop        func() error
	description string
	admin       *pgxpool.Pool
	databases   atomic.Int64
}

func newRunningServer(ctx context.Context, url string, fsync bool) (_ *runningServer, err error) {
	s := &runningServer{url: url, stop: func() error { return nil }}
	if url == "" {
		if s.url, s.stop, err = startProcess(fsync); err != nil {
			return nil, err
		}
	}
	if s.admin, err = pgxpool.New(ctx, s.url); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	if err := s.describe(ctx); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// describe describes the server's settings, on which figures depend.
func (s *runningServer) describe(ctx context.Context) error {
	var version, fsync, commit, buffers, changed string
	err := s.admin.QueryRow(ctx, `select current_setting('server_version'), current_setting('fsync'), current_setting('synchronous_commit'),
	current_setting('shared_buffers'), (select coalesce(string_agg(name || ' = ' || setting, ', ' order by name), 'nothing') from pg_settings
		where source = 'configuration file' and sourcefile is not null and setting is distinct from boot_val
		and category not like 'Reporting%' and category not like 'Client Connection%' and name not in ('shared_buffers', 'password_encryption'))`).
		Scan(&version, &fsync, &commit, &buffers, &changed)
	s.description = fmt.Sprintf("PostgreSQL %s on the same machine: fsync %s, synchronous_commit %s, shared_buffers %s; changed from the defaults: %s",
		version, fsync, commit, buffers, changed)
	return err
}

func (s *runningServer) close() error {
	s.admin.Close()
	return s.stop()
}

func (s *runningServer) newDatabase(ctx context.Context) (*Database, error) {
	name := fmt.Sprintf("reprise_bench_%d", s.databases.Add(1))
	for _, sql := range []string{"drop database if exists " + name, "create database " + name} {
		if _, err := s.admin.Exec(ctx, sql); err != nil {
			return nil, err
		}
	}
	u, err := url.Parse(s.url)
	if err != nil {
		return nil, errors.New("the server's URL cannot be read")
	}
	u.Path = "/" + name
	d := &Database{admin: s.admin, name: name, url: u.String()}
	d.pool, err = d.Connect(ctx, 4)
	return d, err
}
