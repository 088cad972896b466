package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reprise-go/reprise/bench/internal/reprise"
	"github.com/reprise-go/reprise/bench/internal/workload"
)

// Database is the database of one sample, so that no sample finds data of another.
type Database struct {
	admin *pgxpool.Pool // of the server
	name  string
	url   string
	pool  *pgxpool.Pool // for work that is not measured
}

// Connect returns a pool with a limit.
func (d *Database) Connect(ctx context.Context, limit int) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(d.url)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = int32(limit)
	return pgxpool.NewWithConfig(ctx, cfg)
}

// FinishSends brings the server into its state some time after the sends: with statistics, and
// without unwritten pages. It does not vacuum.
func (d *Database) FinishSends(ctx context.Context) error {
	for _, sql := range []string{"analyze", "checkpoint"} {
		if _, err := d.pool.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

// Count returns the result of a counting query, or 0 if its table does not exist.
func (d *Database) Count(ctx context.Context, table, where string) (n int, err error) {
	var there bool
	if err := d.pool.QueryRow(ctx, "select to_regclass($1) is not null", table).Scan(&there); err != nil || !there {
		return 0, err
	}
	err = d.pool.QueryRow(ctx, "select count(*) from "+table+" "+where).Scan(&n)
	return n, err
}

// HoldSnapshot begins a transaction with a snapshot of the current rows, so that the
// server keeps every version of every row until the returned function is called.
func (d *Database) HoldSnapshot(ctx context.Context) (release func() error, err error) {
	tx, err := d.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		return nil, err
	}
	_, err = tx.Exec(ctx, "select count(*) from pg_class")
	return func() error { return tx.Rollback(context.WithoutCancel(ctx)) }, err
}

// Drop closes the database and deletes it.
func (d *Database) Drop(ctx context.Context) error {
	d.pool.Close()
	_, err := d.admin.Exec(context.WithoutCancel(ctx), "drop database "+d.name+" with (force)")
	return err
}

// rawWrite writes the row of a handler.
const rawWrite = `insert into written (sequence) values ($1)`

// createRows creates the table that handlers write to.
func (d *Database) createRows(ctx context.Context) error {
	_, err := d.pool.Exec(ctx, `create table written (sequence text primary key)`)
	return err
}

// wrote checks the number of rows that handlers have written.
func (d *Database) wrote(ctx context.Context, want int) error {
	n, err := d.Count(ctx, "written", "")
	if err == nil && n != want {
		err = fmt.Errorf("handlers wrote %d rows, but %d are there", want, n)
	}
	return err
}

// sent checks the number of messages that handlers have sent.
func (d *Database) sent(ctx context.Context, want int) error {
	n, err := d.Count(ctx, workload.HandlerQueue, "")
	if err == nil && n != want {
		err = fmt.Errorf("handlers sent %d messages, but %d are there", want, n)
	}
	return err
}

// Waiting counts the messages in Reprise's tables.
func (d *Database) Waiting(ctx context.Context) (int, error) {
	n, err := d.Count(ctx, workload.Queue, "")
	if err != nil {
		return 0, err
	}
	failed, err := d.Count(ctx, reprise.ErrorQueue, "")
	return n + failed, err
}
