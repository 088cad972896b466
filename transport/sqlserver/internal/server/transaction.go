package server

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/postgres"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/sqlexec"
)

// transactionKey is the key of a caller's transaction in a context.
type transactionKey struct{}

// NoTransaction replaces a nil transaction: messages that belong to a transaction must
// not be sent without one.
type NoTransaction struct{}

// WithTransaction returns a context with a caller's transaction: a pgx.Tx, a *sql.Tx, or
// NoTransaction.
func WithTransaction(ctx context.Context, tx any) context.Context {
	return context.WithValue(ctx, transactionKey{}, tx)
}

// CallersTransaction returns the transaction in a context, or nil.
func CallersTransaction(ctx context.Context) any { return ctx.Value(transactionKey{}) }

// RollbackIn returns a caller's transaction to a savepoint, also after a statement has failed.
func (srv *Server) RollbackIn(ctx context.Context, tx any, savepoint string) error {
	s := srv.Dialect.RollbackTo(savepoint)
	if tx, ok := tx.(pgx.Tx); ok { // unprepared, as sqlexec does in its own transactions
		_, err := tx.Exec(ctx, s.SQL)
		return err
	}
	return srv.RunIn(ctx, tx, s)
}

// RunIn runs statements in a caller's transaction.
func (srv *Server) RunIn(ctx context.Context, tx any, statements ...*sqlexec.Statement) error {
	var err error
	switch tx := tx.(type) {
	case pgx.Tx:
		if _, ok := srv.Dialect.(postgres.Dialect); !ok {
			return transport.Permanent(fmt.Errorf("the transaction of WithTx is one of PostgreSQL's, but the transport is for %s; use WithSQLTx", srv.Dialect.Product()))
		}
		if err = sqlexec.CheckTransaction(tx); err == nil {
			err = sqlexec.RunPgx(ctx, tx, statements)
		}
	case *sql.Tx:
		err = sqlexec.RunSQL(ctx, tx, statements)
	default:
		return transport.Permanent(fmt.Errorf("a transaction of the type %T is not known", tx))
	}
	if errors.Is(err, pgx.ErrTxClosed) || errors.Is(err, sql.ErrTxDone) {
		return transport.Permanent(fmt.Errorf("the transaction of WithTx or WithSQLTx has been committed or rolled back already: %w", err))
	}
	return err
}
