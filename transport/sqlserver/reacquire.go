package sqlserver

import (
	"context"
	"errors"
	"time"

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
