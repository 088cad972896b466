package sqlserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/dialect"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/sqlexec"
)

// Complete implements core.Delivery.
func (d *transactionDelivery) Complete(ctx context.Context) error {
	err := d.settle(ctx, "complete", withWork, func(ctx context.Context) error {
		return d.commit(ctx)
	})
	d.forget(err)
	return err
}

// Release implements core.Delivery.
func (d *transactionDelivery) Release(ctx context.Context) error {
	return d.settle(ctx, "release", withoutWork, func(ctx context.Context) error {
		d.r.t.returned.Add(d.ID) // before it can be received again
		return d.undo(ctx)
	})
}

// Abandon implements core.Delivery. If the table counts, the transaction that had deleted
// the row adds it again with a higher count; if that fails, see recount.
func (d *transactionDelivery) Abandon(ctx context.Context, cause error) error {
	return d.settle(ctx, "abandon", withoutWork, func(ctx context.Context) error {
		if d.r.count != nil {
			d.r.count.Failed(d.ID, cause)
			return d.undo(ctx)
		}
		d.LastError = dialect.Storable(transport.ErrorText(cause))
		err := d.commitUndone(ctx, d.reinsertion())
		switch {
		case err == nil:
			d.available()
		case !d.tx.Lost():
			err = d.recount(ctx, err)
		}
		return err
	})
}

// reinsertion is the statement that adds the row again, with one more delivery.
func (d *transactionDelivery) reinsertion() *sqlexec.Statement {
	return sqlexec.Command(d.r.q.GiveBack, d.ID, d.Seq, string(d.Headers), d.Body, d.Due, dialect.StoredInt(d.Deliveries), d.NextClaim(), d.Expires, d.LastError)
}

// These say whether a settlement keeps the handler's work in the transaction.
const (
	withWork    = true
	withoutWork = false
)

// settle performs the one settlement. After an error the message is still held, unless
// the lock is lost.
func (d *transactionDelivery) settle(ctx context.Context, operation string, work bool, do func(ctx context.Context) error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	err := d.settleOnce(ctx, work, do)
	if err != nil {
		return d.failed(ctx, operation, err)
	}
	return nil
}

func (d *transactionDelivery) settleOnce(ctx context.Context, work bool, do func(ctx context.Context) error) error {
	if err := d.usable(ctx); err != nil {
		return err
	}
	op := d.r.operations.BeginSettlement(ctx)
	defer op.End()
	d.tx.Reclaim(op)
	var err error
	for range 2 { // again with another connection, if this one breaks
		if d.tx.Lost() {
			undone := d.used
			if err := d.reacquire(op, cmp.Or(err, sqlexec.ErrEnded)); err != nil {
				return err
			}
			if work && undone {
				return fmt.Errorf("the work of the handler in the transaction is undone: %w", cmp.Or(err, sqlexec.ErrEnded))
			}
		}
		err = do(op)
		if err == nil {
			d.state = settled
			d.end()
			return nil
		}
		if _, ok := errors.AsType[*rolledBackError](err); ok {
			return d.lose(op, err)
		}
		if !d.tx.Lost() {
			return err
		}
	}
	if lost := d.reacquire(op, err); lost != nil {
		return lost
	}
	return err
}

// commit commits the handler's work together with these statements. If one of them fails,
// the transaction returns to the state after the handler.
func (d *transactionDelivery) commit(ctx context.Context, statements ...*sqlexec.Statement) error {
	if !d.used {
		return d.commitFrom(ctx, dialect.BeforeHandler, nil, statements)
	}
	if len(statements) == 0 {
		return d.tx.Commit(ctx, d.r.t.dialect.Intact())
	}
	mark := d.r.t.dialect.Savepoint(dialect.AfterHandler)
	return d.commitFrom(ctx, dialect.AfterHandler, mark, append([]*sqlexec.Statement{d.r.t.dialect.Intact(), mark}, statements...))
}

// commitUndone commits these statements without the handler's work.
func (d *transactionDelivery) commitUndone(ctx context.Context, statements ...*sqlexec.Statement) error {
	if !d.used {
		return d.commitFrom(ctx, dialect.BeforeHandler, nil, statements)
	}
	rollback := d.r.t.dialect.RollbackTo(dialect.BeforeHandler)
	if !d.tx.Aborted() {
		return d.commitFrom(ctx, dialect.BeforeHandler, rollback, append([]*sqlexec.Statement{rollback}, statements...))
	}
	// Until then the server prepares no other statement.
	if err := d.tx.Run(ctx, rollback); err != nil {
		d.abort(ctx)
		return err
	}
	return d.commitFrom(ctx, dialect.BeforeHandler, nil, statements)
}

// commitFrom commits with these statements. If one fails, the transaction returns to a
// savepoint, unless first, which has to succeed before, failed. Statements after first
// are not the handler's work: their error is a refusedError.
func (d *transactionDelivery) commitFrom(ctx context.Context, savepoint string, first *sqlexec.Statement, statements []*sqlexec.Statement) error {
	for _, s := range statements {
		s.Done = false // an earlier attempt may have executed more statements
	}
	err := d.tx.Commit(ctx, statements...)
	if err == nil || len(statements) == 0 {
		return err
	}
	ready := first == nil || first.Done
	switch {
	case d.tx.Lost():
		if !d.used && !d.r.t.server.Transient(err) { // at the commit
			err = &refusedError{d.r.t.server.Explained(err)}
		}
		return err
	case !ready && savepoint == dialect.BeforeHandler && !sqlexec.IsAboutText(err):
		d.abort(ctx)
		return err
	case ready && slices.ContainsFunc(statements, func(s *sqlexec.Statement) bool { return !s.Done }), sqlexec.IsAboutText(err):
		err = &refusedError{d.r.t.server.Explained(err)}
	}
	if ready && d.isAtomic() {
		err = errors.Join(err, d.tx.Run(ctx, d.r.t.dialect.RollbackTo(savepoint)))
	}
	return err
}

// refusedError is the error with which the server refused statements that were to be
// committed with the handler's work.
type refusedError struct{ err error }

func (e *refusedError) Error() string { return e.err.Error() }

func (e *refusedError) Unwrap() error { return e.err }
