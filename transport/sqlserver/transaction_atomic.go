package sqlserver

import (
	"context"
	"errors"
	"strconv"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/dialect"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/sqlexec"
)

// These are the methods of a message whose handler and sends take part in its
// transaction.

// BindContext implements core.Delivery: Tx and SQLTx find the transaction in the context.
func (d *transactionDelivery) BindContext(ctx context.Context) context.Context {
	if !d.isAtomic() {
		return ctx
	}
	return &boundContext{ctx, d}
}

// CompleteWith implements core.Delivery.
func (d *transactionDelivery) CompleteWith(ctx context.Context, out []core.Outgoing) error {
	return d.send(ctx, "complete", withWork, out, d.commit)
}

// Reset implements core.Delivery.
func (d *transactionDelivery) Reset(ctx context.Context) error {
	if !d.isAtomic() {
		return d.failed(ctx, "reset", transport.Unsupported("SendsAtomicWithReceive"))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.reset(ctx); err != nil {
		return d.failed(ctx, "reset", err)
	}
	return nil
}

func (d *transactionDelivery) reset(ctx context.Context) error {
	if err := d.usable(ctx); err != nil {
		return err
	}
	op := d.r.operations.Begin(ctx)
	defer op.End()
	d.tx.Reclaim(op)
	d.savepoints.Clear()
	err := sqlexec.ErrEnded
	if !d.tx.Lost() {
		if !d.used {
			return nil
		}
		err = d.tx.Run(op, d.r.t.dialect.RollbackTo(dialect.BeforeHandler))
	}
	if err != nil {
		d.abort(op)
		return d.reacquire(op, err)
	}
	return nil
}

// ReplaceWith implements core.Delivery.
func (d *transactionDelivery) ReplaceWith(ctx context.Context, out []core.Outgoing) error {
	return d.send(ctx, "replace", withoutWork, out, d.commitUndone)
}

// send is a settlement that sends.
func (d *transactionDelivery) send(ctx context.Context, operation string, work bool, out []core.Outgoing, commit func(ctx context.Context, statements ...*sqlexec.Statement) error) error {
	if !d.isAtomic() {
		return d.failed(ctx, operation, transport.Unsupported("SendsAtomicWithReceive"))
	}
	mail, err := d.r.t.plan(ctx, out)
	if err != nil {
		return d.failed(ctx, operation, err)
	}
	failed := false
	err = d.settle(ctx, operation, work, func(ctx context.Context) error {
		err := commit(ctx, mail.statements()...)
		if _, refused := errors.AsType[*refusedError](err); refused && !d.tx.Lost() {
			if less, refusal := mail.withoutRefusing(ctx, err, d.r.t.tryAlone(ctx)); refusal != nil {
				err = refusal
			} else if less != nil {
				mail = less
				err = commit(ctx, mail.statements()...)
			}
		}
		failed = err != nil
		if _, refused := errors.AsType[*refusedError](err); refused {
			err = transport.AllSent(out, core.SendRefused, err)
		}
		return err
	})
	d.forget(err)
	if failed {
		mail.forgetTables()
	}
	if err == nil {
		mail.wakeReceivers()
		mail.report(ctx)
	}
	return err
}

// Savepoint implements core.Delivery.
func (d *transactionDelivery) Savepoint(ctx context.Context) (func(context.Context) error, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, name, err := d.addSavepoint(ctx)
	if err != nil {
		return nil, d.failed(ctx, "savepoint for", err)
	}
	return func(ctx context.Context) error {
		d.mu.Lock()
		defer d.mu.Unlock()
		if err := d.rollbackTo(ctx, n, name); err != nil {
			return d.failed(ctx, "rollback to a savepoint of", err)
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

// lend implements lender.
func (d *transactionDelivery) lend(context.Context) (any, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.state.ended(); err != nil {
		return nil, err
	}
	d.used = true
	return d.tx.Lend(), nil
}
