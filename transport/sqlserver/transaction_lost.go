package sqlserver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/dialect"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/sqlexec"
)

// A row that a transaction has lost stays locked until the server has noticed the loss
// too.
const (
	retakes     = 4
	retakePause = 25 * time.Millisecond
)

// reacquire takes the row again in a new transaction, after the message's has ended, if no
// other receiver has it and it is unchanged: then the transaction was not committed, and
// the message is held as before. The handler's work is undone. So a broken connection is
// a failure like any other, and is counted.
func (d *transactionDelivery) reacquire(ctx context.Context, cause error) error {
	d.tx.Rollback(ctx)
	for attempt := 1; ; attempt++ {
		tx, found, err := d.relock(ctx)
		switch {
		case err != nil:
			return d.lose(ctx, errors.Join(cause, d.r.t.server.Explained(err)))
		case found:
			d.tx, d.used = tx, false
			d.savepoints.Clear()
			d.recall()
			return nil
		}
		d.tx = tx
		if attempt == retakes || transport.Sleep(ctx, d.r.closing, retakePause, nil) != nil {
			return d.lose(ctx, cause)
		}
		tx.Rollback(ctx)
	}
}

// relock begins a transaction with the row, and reports whether the row was there.
func (d *transactionDelivery) relock(ctx context.Context) (tx sqlexec.Transaction, found bool, err error) {
	text, args := d.r.q.Retake, []any{d.Seq, d.Deliveries - d.missed, d.Claims}
	if d.r.t.nserviceBusTables {
		text, args = d.r.q.RetakeForeign, []any{d.ID, d.Seq}
	}
	statements := []*sqlexec.Statement{sqlexec.Query(func(scan sqlexec.Scanner) error {
		var seq int64
		found = true
		return scan(&seq)
	}, text, args...)}
	if d.isAtomic() {
		statements = append(statements, d.r.t.dialect.Savepoint(dialect.BeforeHandler))
	}
	tx, err = d.r.t.db.Begin(ctx, statements...)
	return tx, found, err
}

// A message in a transaction is given back by inserting its row again. If the server
// refuses that, because the role lacks the right to insert, a trigger objects, or there
// is no space, the rollback restores the row unchanged, and its count is raised in place.
// If that fails too, the receiver counts in memory: otherwise a failing message would be
// attempted without end, for as long as the server refuses.

// recount gives the message back without inserting it. cause is the error of the insert.
func (d *transactionDelivery) recount(ctx context.Context, cause error) error {
	// Before the rollback: after it other receivers find the row.
	d.r.uncounted.Add(&d.Row)
	d.tx.Rollback(ctx)
	if n, _ := d.r.uncounted.Of(&d.Row); n > d.missed+1 { // another receiver had it, and failed too
		d.Deliveries += n - d.missed - 1
	}
	counted := false
	err := d.r.t.db.Exec(ctx, sqlexec.Query(sqlexec.RowFound(&counted), d.r.q.Recount, d.Seq, d.Claims, dialect.StoredInt(d.Deliveries), d.NextClaim(), d.LastError))
	switch {
	case err == nil && counted:
		d.available()
		return nil
	case err == nil: // another receiver was faster
		return &rolledBackError{cause}
	}
	return &rolledBackError{fmt.Errorf("%w: %w", core.ErrUncounted, errors.Join(cause, d.r.t.server.Explained(err)))}
}

// abort rolls back a transaction that cannot return to its savepoint, for example because
// the handler has released it. Then the transaction is lost, and the message is taken
// again; if another receiver is faster, that receiver knows of the failure.
func (d *transactionDelivery) abort(ctx context.Context) {
	if d.tx.Lost() {
		return
	}
	if d.r.count == nil {
		d.r.uncounted.Add(&d.Row)
		d.noted = true
	}
	d.tx.Rollback(ctx)
}

// recall removes the failure that abort recorded, once the message is held again. In
// between another receiver may have had the message and failed too.
func (d *transactionDelivery) recall() {
	if !d.noted {
		return
	}
	d.noted = false
	n, _ := d.r.uncounted.Of(&d.Row)
	n = max(n-1, d.missed)
	d.r.uncounted.Set(&d.Row, n)
	d.Deliveries += n - d.missed
	d.missed = n
}
