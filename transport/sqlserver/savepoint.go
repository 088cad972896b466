package sqlserver

import (
	"context"
	"strconv"

	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/dialect"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/sqlexec"
)

// Savepoint implements core.Delivery.
func (d *transactionDelivery) Savepoint(ctx context.Context) (func(context.Context) error, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, name, err := d.addSavepoint(ctx)
	if err != nil {
		return nil, d.failed("savepoint for", err)
	}
	return func(ctx context.Context) error {
		d.mu.Lock()
		defer d.mu.Unlock()
		if err := d.rollbackTo(ctx, n, name); err != nil {
			return d.failed("rollback to a savepoint of", err)
		}
		return nil
	}, nil
}

// addSavepoint returns the number and the name of a new savepoint. Until a handler has
// had the transaction, it is the savepoint that was set when the message was taken.
func (d *transactionDelivery) addSavepoint(ctx context.Context) (n int, name string, err error) {
	switch {
	case !d.isAtomic():
		return 0, "", transport.Unsupported("SendsAtomicWithReceive")
	case !d.r.t.caps.Savepoints:
		return 0, "", transport.Unsupported("Savepoints")
	}
	if err := d.usable(ctx); err != nil {
		return 0, "", err
	}
	op := d.r.operations.Begin(ctx)
	defer op.End()
	n, name = d.savepoints.Add(), dialect.BeforeHandler
	d.tx.BeginPart(op, n)
	switch {
	case d.tx.Lost():
		return 0, "", sqlexec.ErrEnded
	case d.used:
		name = dialect.InHandler + strconv.Itoa(n)
		err = d.tx.Run(op, d.r.t.dialect.Savepoint(name))
	}
	return n, name, err
}

// rollbackTo undoes the work since a savepoint. If that fails, the server does not allow
// a commit of the transaction.
func (d *transactionDelivery) rollbackTo(ctx context.Context, n int, name string) error {
	if err := d.usable(ctx); err != nil {
		return err
	}
	if err := d.savepoints.Check(n); err != nil {
		return err
	}
	op := d.r.operations.Begin(ctx)
	defer op.End()
	d.tx.EndParts(op, n)
	if d.tx.Lost() {
		return sqlexec.ErrEnded
	}
	if d.used {
		if err := d.tx.Run(op, d.r.t.dialect.RollbackTo(name)); err != nil {
			return err
		}
	}
	d.savepoints.RolledBack(n)
	return nil
}
