package sqlserver

import (
	"context"
	"database/sql"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/reprise-go/reprise/core"
)

// Tx returns the transaction of the message being handled, on PostgreSQL through
// pgx: what a handler does in it is committed together with the receive and the
// messages that it sends, or not at all. ctx is the handler's. It is an error where
// there is none, because the endpoint's mode is not TransactionSendsAtomicWithReceive
// or the message is settled.
//
// To commit and to roll back is not the handler's affair: it returns nil or an
// error. The transaction is used by one goroutine at a time, and is of no use after the
// handler has returned. What its Conn and LargeObjects return is not guarded against
// that: by then it may be at work for another message. A statement that fails breaks
// the transaction, as always in PostgreSQL: where that is expected, Begin a nested one.
func Tx(ctx context.Context) (pgx.Tx, error) {
	lent, err := lentTo(ctx)
	if err != nil {
		return nil, err
	}
	tx, ok := lent.(pgx.Tx)
	if !ok {
		return nil, errors.New("sqlserver: the transport runs on database/sql: get the transaction with SQLTx")
	}
	return tx, nil
}

// SQLTx is Tx for a transport that runs on database/sql: Microsoft SQL Server, or
// Config.DB. Commit and Rollback return an error and do nothing.
func SQLTx(ctx context.Context) (*sql.Tx, error) {
	lent, err := lentTo(ctx)
	if err != nil {
		return nil, err
	}
	tx, ok := lent.(*sql.Tx)
	if !ok {
		return nil, errors.New("sqlserver: the transport runs on pgx: get the transaction with Tx")
	}
	return tx, nil
}

// lentTo returns the transaction in a handler's context.
func lentTo(ctx context.Context) (any, error) {
	d, ok := ctx.Value(messageKey{}).(*heldMessage)
	if !ok {
		return nil, errors.New("sqlserver: there is no transaction in this context: pass that of a handler whose endpoint has the transaction mode SendsAtomicWithReceive")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch d.state {
	case settled:
		return nil, core.ErrSettled
	case lost:
		return nil, core.ErrLockLost
	}
	d.used = true
	return d.tx.lend(), nil
}
