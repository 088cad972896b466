package sqlserver

import (
	"context"
	"database/sql"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/reprise-go/reprise/transport/sqlserver/internal/testtx"
)

// Tx returns the transaction of the message being handled, on PostgreSQL through pgx:
// statements of the handler in it are committed together with the receive and the
// messages that the handler sends, or not at all. The first call begins the transaction
// with ctx, which has to be the handler's, and takes a connection until the message is
// settled; if the pool has none left, it waits for one. It returns an error if there is
// no transaction, because the endpoint's mode is not TransactionSendsAtomicWithReceive or
// the message is settled, and if the lease of the message is lost (core.ErrLockLost).
//
// The handler must neither commit nor roll back: it returns nil or an error. One
// goroutine at a time may use the transaction, and it cannot be used after the handler
// has returned. The results of its methods Conn and LargeObjects are not guarded against
// such use: by then the connection may be in use for another message. A failed statement
// breaks the transaction, as always in PostgreSQL: if a failure is expected, Begin a
// nested transaction.
func Tx(ctx context.Context) (pgx.Tx, error) {
	lent, err := handlerTransaction(ctx)
	if err != nil {
		return nil, err
	}
	tx, ok := lent.(pgx.Tx)
	if !ok {
		return nil, errors.New("sqlserver: the transport runs on database/sql: get the transaction with SQLTx")
	}
	return tx, nil
}

// SQLTx is [Tx] for a transport that runs on database/sql: Microsoft SQL Server, or
// Config.DB. Commit and Rollback return an error and do nothing.
func SQLTx(ctx context.Context) (*sql.Tx, error) {
	lent, err := handlerTransaction(ctx)
	if err != nil {
		return nil, err
	}
	tx, ok := lent.(*sql.Tx)
	if !ok {
		return nil, errors.New("sqlserver: the transport runs on pgx: get the transaction with Tx")
	}
	return tx, nil
}

// handlerTransaction returns the transaction in a handler's context.
func handlerTransaction(ctx context.Context) (any, error) {
	d, ok := ctx.Value(messageKey{}).(lender)
	if !ok {
		if tx := testtx.From(ctx); tx != nil {
			return tx, nil
		}
		return nil, errors.New("sqlserver: there is no transaction in this context: pass that of a handler whose endpoint has the transaction mode SendsAtomicWithReceive, or in a test that of package sqlservertest")
	}
	return d.lend(ctx)
}

// boundContext is a context with a message's transaction.
type boundContext struct {
	context.Context
	lender lender
}

// lender is a message whose handler gets its transaction.
type lender interface {
	// lend returns the transaction as transaction.lend does. If the message is not in a
	// transaction, the first call begins one.
	lend(ctx context.Context) (any, error)
}

// messageKey is the key of the message in a boundContext.
type messageKey struct{}

// Value implements context.Context.
func (c *boundContext) Value(key any) any {
	if key == (messageKey{}) {
		return c.lender
	}
	return c.Context.Value(key)
}
