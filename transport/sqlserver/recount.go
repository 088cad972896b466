package sqlserver

import (
	"context"
	"errors"
	"fmt"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/dialect"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/sqlexec"
)

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

// rolledBackError is the error of a message that could not be given back with a higher
// count, or not by this settlement. The message is no longer held.
type rolledBackError struct{ err error }

func (e *rolledBackError) Error() string { return e.err.Error() }
func (e *rolledBackError) Unwrap() error { return e.err }

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
