//go:build darwin || linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/internal/testserver/postgres"
	"github.com/reprise-go/reprise/internal/testserver/proxy"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// postgresSystem is a PostgreSQL server behind a proxy.
type postgresSystem struct {
	server  *postgres.Server
	network *proxy.Proxy
	is      string
	closers []func() error
}

const (
	postgresDatabase    = "soak"
	postgresConnections = 300 // some 50 for each worker, and the sender's
	postgresLease       = 5 * time.Second
)

func startPostgres(ctx context.Context) (_ system, err error) {
	s := &postgresSystem{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	s.server, err = postgres.Start(postgres.Config{
		Settings: map[string]string{"max_connections": fmt.Sprint(postgresConnections)},
		OnDisk:   true,
	})
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, s.server.Stop)
	if s.network, err = proxy.New(s.server.Addr()); err != nil {
		return nil, err
	}
	s.closers = append(s.closers, s.network.Close)
	if err := s.server.CreateDatabase(ctx, postgresDatabase); err != nil {
		return nil, err
	}
	version, err := s.server.Exec(ctx, "postgres", "show server_version")
	if err != nil {
		return nil, err
	}
	number, _, _ := strings.Cut(version, " ") // without the package's version
	s.is = "PostgreSQL " + number
	return s, nil
}

func (s *postgresSystem) version() string { return s.is }

func (s *postgresSystem) close() error { return closeAll(s.closers) }

func (s *postgresSystem) serverLog() string { return s.server.Log() }

func (s *postgresSystem) secrets() []string { return []string{postgres.Password} }

func (s *postgresSystem) open() (core.Transport, error) {
	return openPostgres(s.server.PasswordURL(postgresDatabase))
}

func (s *postgresSystem) openThrough() (core.Transport, error) {
	return openPostgres(s.urlThrough())
}

func (s *postgresSystem) urlThrough() string {
	return postgres.Via(s.server.PasswordURL(postgresDatabase), s.network.Addr())
}

func openPostgres(url string) (core.Transport, error) {
	return sqlserver.New(sqlserver.Config{URL: url, Lease: postgresLease})
}

// prepare implements system. The table belongs to the user of the workers.
func (s *postgresSystem) prepare(ctx context.Context, _ core.TransactionMode, _ *ledger) error {
	return s.administer(ctx, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `create table soak_rows (stage int, order_id int); grant insert on soak_rows to `+postgres.User)
		return err
	})
}

func (s *postgresSystem) startWorker(w workerOptions, log io.Writer) (worker, error) {
	return startProcess(systemPostgres, s.urlThrough(), w, log)
}

// newPostgresJob opens the transport of a worker. In SendsAtomicWithReceive the handlers
// write rows in the transactions of their messages.
func newPostgresJob(o processOptions) (*job, error) {
	var url string
	if err := json.Unmarshal(o.Config, &url); err != nil {
		return nil, err
	}
	t, err := openPostgres(url)
	if err != nil {
		return nil, err
	}
	j := &job{transport: t}
	if o.Mode == core.TransactionSendsAtomicWithReceive {
		j.addRow = func(ctx context.Context, _ *core.Message, s stage, id int) error {
			tx, err := sqlserver.Tx(ctx)
			if err != nil {
				return err
			}
			_, err = tx.Exec(ctx, `insert into soak_rows values ($1, $2)`, int(s), id)
			return err
		}
	}
	return j, nil
}

// administer calls do with a connection of the superuser that bypasses the proxy and is
// not affected by settings that are faults.
func (s *postgresSystem) administer(ctx context.Context, do func(conn *pgx.Conn) error) (err error) {
	cfg, err := pgx.ParseConfig(s.server.URL(postgresDatabase))
	if err != nil {
		return err
	}
	cfg.RuntimeParams["statement_timeout"] = "0"
	cfg.RuntimeParams["default_transaction_read_only"] = "off"
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	return do(conn)
}

// set returns a function that changes the configuration of the running server.
func (s *postgresSystem) set(statement string) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		return s.administer(ctx, func(conn *pgx.Conn) error {
			if _, err := conn.Exec(ctx, statement); err != nil {
				return err
			}
			_, err := conn.Exec(ctx, `select pg_reload_conf()`)
			return err
		})
	}
}

func (s *postgresSystem) faults() []fault {
	return append(networkFaults(s.server, s.network),
		fault{"the server is read-only", lasting(
			s.set(`alter system set default_transaction_read_only = on`),
			s.set(`alter system reset default_transaction_read_only`),
		)},
		fault{"statement_timeout of 2 ms", lasting(
			s.set(`alter system set statement_timeout = '2ms'`),
			s.set(`alter system reset statement_timeout`),
		)},
		fault{"no connection is free", s.exhaustConnections},
		fault{"all backends terminated, 5 times a second", s.terminateBackends},
		fault{"exclusive lock on a queue", s.lockQueue},
		fault{"vacuum full of all queues", s.vacuum},
	)
}

// exhaustConnections takes every connection that becomes free.
func (s *postgresSystem) exhaustConnections(ctx context.Context, length time.Duration) (err error) {
	var taken []*pgx.Conn
	defer func() {
		for _, conn := range taken {
			err = errors.Join(err, conn.Close(context.WithoutCancel(ctx)))
		}
	}()
	for end := time.Now().Add(length); time.Now().Before(end) && ctx.Err() == nil; {
		conn, err := pgx.Connect(ctx, s.server.PasswordURL(postgresDatabase))
		refused, ok := errors.AsType[*pgconn.PgError](err)
		switch {
		case err == nil:
			taken = append(taken, conn)
		case ok && refused.Code == "53300": // too_many_connections
			pause(ctx, 20*time.Millisecond)
		default:
			return err
		}
	}
	return nil
}

func (s *postgresSystem) terminateBackends(ctx context.Context, length time.Duration) error {
	return s.administer(ctx, func(conn *pgx.Conn) error {
		for end := time.Now().Add(length); ; {
			_, err := conn.Exec(ctx, `select pg_terminate_backend(pid) from pg_stat_activity where usename = $1`, postgres.User)
			if err != nil {
				return err
			}
			if time.Now().After(end) {
				return nil
			}
			pause(ctx, 200*time.Millisecond)
		}
	})
}

func (s *postgresSystem) lockQueue(ctx context.Context, length time.Duration) error {
	return s.administer(ctx, func(conn *pgx.Conn) error {
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `lock table `+table(orders)+` in access exclusive mode`)
			pause(ctx, length)
			return err
		})
	})
}

func (s *postgresSystem) vacuum(ctx context.Context, _ time.Duration) error {
	return s.administer(ctx, func(conn *pgx.Conn) error {
		for step := range stages {
			if _, err := conn.Exec(ctx, `vacuum full `+table(step)); err != nil {
				return err
			}
		}
		return nil
	})
}

// table returns the table of a stage's queue, quoted.
func table(s stage) string { return pgx.Identifier{s.String()}.Sanitize() }

// depths implements system. One statement counts all queues, so that a message being
// moved from one queue to another is in one of them.
func (s *postgresSystem) depths(ctx context.Context) (map[string]int, error) {
	names := []string{orders.String(), shipping.String(), notices.String(), errorQueue, unreadQueue, "reprise_delayed"}
	var counts []string
	for _, name := range names {
		counts = append(counts, `(select count(*) from `+pgx.Identifier{name}.Sanitize()+`)`)
	}
	depths := map[string]int{}
	err := s.administer(ctx, func(conn *pgx.Conn) error {
		var found []int
		if err := conn.QueryRow(ctx, `select array[`+strings.Join(counts, ", ")+`]`).Scan(&found); err != nil {
			return err
		}
		for i, name := range names {
			depths[name] = found[i]
		}
		return nil
	})
	return depths, err
}

func (s *postgresSystem) staleness() time.Duration { return 0 }

func (s *postgresSystem) rows(ctx context.Context, l *ledger) error {
	return s.administer(ctx, func(conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, `select stage, order_id from soak_rows`)
		if err != nil {
			return err
		}
		var step, id int
		_, err = pgx.ForEachRow(rows, []any{&step, &id}, func() error {
			l.addRow(stage(step), id)
			return nil
		})
		return err
	})
}
