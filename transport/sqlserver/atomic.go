package sqlserver

import (
	"context"
	"errors"

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

// boundContext is a context with a message's transaction.
type boundContext struct {
	context.Context
	of lender
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
		return c.of
	}
	return c.Context.Value(key)
}

// CompleteWith implements core.Delivery.
func (d *transactionDelivery) CompleteWith(ctx context.Context, out []core.Outgoing) error {
	return d.send(ctx, "complete", withWork, out, d.commit)
}

// Reset implements core.Delivery.
func (d *transactionDelivery) Reset(ctx context.Context) error {
	if !d.isAtomic() {
		return d.failed("reset", transport.Unsupported("SendsAtomicWithReceive"))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.reset(ctx); err != nil {
		return d.failed("reset", err)
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
func (d *transactionDelivery) send(ctx context.Context, what string, work bool, out []core.Outgoing, commit func(ctx context.Context, statements ...*sqlexec.Statement) error) error {
	if !d.isAtomic() {
		return d.failed(what, transport.Unsupported("SendsAtomicWithReceive"))
	}
	mail, err := d.r.t.plan(ctx, out)
	if err != nil {
		return d.failed(what, err)
	}
	failed := false
	err = d.settle(ctx, what, work, func(ctx context.Context) error {
		err := commit(ctx, mail.statements()...)
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
	}
	return err
}
