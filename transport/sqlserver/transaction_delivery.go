package sqlserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/dialect"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/sqlexec"
)

// transactionDelivery is a message whose row is deleted in an open transaction. If the connection
// breaks, the row is available to all receivers again.
type transactionDelivery struct {
	transport.UnsupportedDelivery
	dialect.Row
	r      *receiver
	in     core.Incoming
	missed int  // deliveries that its table has not counted
	noted  bool // misses has one more of them: this delivery

	mu    sync.Mutex // held during a settlement; Close may come in between
	tx    sqlexec.Transaction
	state state
	used  bool // a handler has had the transaction

	savepoints transport.Savepoints // of the handler's work
}

var _ core.Delivery = (*transactionDelivery)(nil)

// String describes the delivery without the fields of its connection, which others use.
func (d *transactionDelivery) String() string {
	return fmt.Sprintf("delivery of %q from %s", d.in.ID, d.r.q.Table.Address)
}

// GoString returns the same text as String.
func (d *transactionDelivery) GoString() string { return d.String() }

// Incoming implements core.Delivery.
func (d *transactionDelivery) Incoming() *core.Incoming { return &d.in }

// forget deletes the recorded failures of a message that is gone.
func (d *transactionDelivery) forget(err error) {
	if err != nil {
		return
	}
	d.r.t.returned.Forget(d.ID)
	if d.r.count != nil {
		d.r.count.Forget(d.ID)
	} else {
		d.r.uncounted.Set(&d.Row, 0)
	}
}

// undo restores the row. If the server does not confirm that, the connection is lost: the
// row may have been available for long, and another receiver may have the message.
func (d *transactionDelivery) undo(ctx context.Context) error {
	if err := d.tx.Undo(ctx); err != nil {
		return &rolledBackError{err}
	}
	d.available()
	return nil
}

// available tells receivers that the message is available again.
func (d *transactionDelivery) available() {
	d.r.lowerWatermark(d.Due)
	d.r.t.wakeReceivers(d.r.q)
}

func (d *transactionDelivery) failed(ctx context.Context, operation string, err error) error {
	if errors.Is(err, core.ErrLockLost) && d.r.isClosed() {
		err = fmt.Errorf("%w: %w", err, core.ErrClosed)
	}
	return fmt.Errorf("sqlserver: %s message %s from %s: %w", operation, d.ID, d.r.q.Table.Address, transport.Unavailable(ctx, err, d.r.t.server.Transient))
}

// usable returns an error if the message can no longer be settled.
func (d *transactionDelivery) usable(ctx context.Context) error {
	return cmp.Or(d.state.ended(), ctx.Err())
}

// lose ends a message that is no longer held. The row is available again.
func (d *transactionDelivery) lose(ctx context.Context, cause error) error {
	d.state = lost
	d.r.t.returned.Add(d.ID)
	d.tx.Rollback(ctx)
	d.end()
	d.available()
	return fmt.Errorf("%w: %w", core.ErrLockLost, cause)
}

// end removes the message from the receiver.
func (d *transactionDelivery) end() {
	d.r.settled(d)
	d.r.t.limit.Free()
}

// giveUp implements inTransaction.
func (d *transactionDelivery) giveUp(ctx context.Context) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.state != held {
		return
	}
	d.state = lost
	d.r.t.returned.Add(d.ID)
	now, cancel := context.WithCancel(ctx)
	cancel()
	d.tx.Reclaim(now) // the handler may still be running
	d.tx.Rollback(ctx)
	d.r.t.limit.Free()
	d.r.t.wakeReceivers(d.r.q)
}

// isAtomic reports whether the handler and its sends take part in the transaction, which
// then has savepoints.
func (d *transactionDelivery) isAtomic() bool {
	return d.r.mode == core.TransactionSendsAtomicWithReceive
}

// rolledBackError is the error of a message that could not be given back with a higher
// count, or not by this settlement. The message is no longer held.
type rolledBackError struct{ err error }

func (e *rolledBackError) Error() string { return e.err.Error() }

func (e *rolledBackError) Unwrap() error { return e.err }
