package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// postgresVariable names a server to use in place of a started one. Its user needs the
// rights to create databases and to run CHECKPOINT.
const postgresVariable = "REPRISE_BENCH_POSTGRES_URL"

// postgresServer is the server that all contenders use, in turn.
type postgresServer struct {
	url         string
	stop        func() error
	description string
	admin       *pgxpool.Pool
	databases   atomic.Int64
}

func newPostgresServer(ctx context.Context, url string, fsync bool) (_ *postgresServer, err error) {
	s := &postgresServer{url: url, stop: func() error { return nil }}
	if url == "" {
		if s.url, s.stop, err = startPostgres(fsync); err != nil {
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
func (s *postgresServer) describe(ctx context.Context) error {
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

func (s *postgresServer) close() error {
	s.admin.Close()
	return s.stop()
}

// database is the database of one sample, so that no sample finds data of another.
type database struct {
	server *postgresServer
	name   string
	url    string
	pool   *pgxpool.Pool // for work that is not measured
}

func (s *postgresServer) newDatabase(ctx context.Context) (*database, error) {
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
	d := &database{server: s, name: name, url: u.String()}
	d.pool, err = d.connect(ctx, 4)
	return d, err
}

// connect returns a pool with a limit.
func (d *database) connect(ctx context.Context, most int) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(d.url)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = int32(most)
	return pgxpool.NewWithConfig(ctx, cfg)
}

// rest brings the server into its state some time after the sends: with statistics, and
// without unwritten pages. It does not vacuum.
func (d *database) rest(ctx context.Context) error {
	for _, sql := range []string{"analyze", "checkpoint"} {
		if _, err := d.pool.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

// count returns the result of a counting query, or 0 if its table does not exist.
func (d *database) count(ctx context.Context, table, where string) (n int, err error) {
	var there bool
	if err := d.pool.QueryRow(ctx, "select to_regclass($1) is not null", table).Scan(&there); err != nil || !there {
		return 0, err
	}
	err = d.pool.QueryRow(ctx, "select count(*) from "+table+" "+where).Scan(&n)
	return n, err
}

// holdSnapshot begins a transaction with a snapshot of the current rows, so that the
// server keeps every version of every row until the returned function is called.
func (d *database) holdSnapshot(ctx context.Context) (release func() error, err error) {
	tx, err := d.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		return nil, err
	}
	_, err = tx.Exec(ctx, "select count(*) from pg_class")
	return func() error { return tx.Rollback(context.WithoutCancel(ctx)) }, err
}

func (d *database) drop(ctx context.Context) error {
	d.pool.Close()
	_, err := d.server.admin.Exec(context.WithoutCancel(ctx), "drop database "+d.name+" with (force)")
	return err
}
