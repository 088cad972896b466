package sqlserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
)

// takeInTransaction takes one message in a transaction: the row is deleted, and until the commit
// others do not see that, nor touch it. The transaction is on a connection of its own
// until the message is settled.
//
// The order of the statements matters: first the row, then the savepoint. A row that
// the outer transaction has only locked, and that is deleted behind the savepoint,
// is locked by two transactions for the server, and the more rows wait, the longer
// that takes.
func (r *receiver) takeInTransaction(ctx *operation, dst []core.Delivery) (n int, more bool, err error) {
	d, err := r.takeOne(ctx)
	switch {
	case err != nil || d == nil:
		return 0, false, err
	case d.expired:
		if err := d.tx.commit(ctx); err != nil { // without the message
			d.tx.rollback(ctx)
			return 0, false, err
		}
		return 0, true, nil
	}
	if to := r.forwarded(&d.in); to != nil {
		if held, err := d.passOn(ctx, to); err != nil || !held {
			return 0, err == nil, err
		}
	}
	dst[0] = d
	return 1, false, nil
}

func (r *receiver) takeOne(ctx context.Context) (*heldMessage, error) {
	d := &heldMessage{r: r}
	found := 0
	from := r.from()
	take := r.t.dialect.take(r.q.queueTexts, 1, from.time)
	if r.t.nserviceBusTables {
		take = r.t.dialect.takeForeign(r.q.queueTexts, 1)
	}
	take.row = func(scan scanner) error {
		found = 1
		return scan(d.columns()...)
	}
	start := time.Now()
	statements := []*statement{take}
	if d.isAtomic() {
		statements = append(statements, r.t.dialect.savepoint(beforeHandler))
	}
	tx, err := r.t.db.begin(ctx, statements...)
	if err != nil {
		return nil, err
	}
	r.learnFloor(from, found, 1, d.due, time.Since(start))
	if found == 0 {
		tx.rollback(ctx)
		return nil, nil
	}
	d.tx = tx
	if n, text := r.misses.of(&d.record); n > 0 {
		d.missed, d.deliveries, d.lastError = n, d.deliveries+n, text
	}
	d.in = r.incoming(&d.record)
	d.in.Redelivered = d.in.Redelivered || r.t.returned.has(d.id)
	if r.count != nil && !d.isAtomic() {
		r.t.returned.add(d.id) // the server does not say when it rolls back
	}
	return d, nil
}

// heldMessage is a message whose row is deleted in a transaction under way. When the
// connection breaks, the row is back for everybody.
type heldMessage struct {
	core.UnsupportedDelivery
	record
	r      *receiver
	in     core.Incoming
	missed int  // of deliveries, those that its table has not counted
	noted  bool // one more of them is in misses: this one's

	mu    sync.Mutex // held through a settlement; Close may come in between
	tx    transaction
	state state
	used  bool // a handler has had the transaction

	savepoints transport.Savepoints // of the handler's work
}

var _ holding = (*heldMessage)(nil)

// String describes it without what its connection knows, which others use.
func (d *heldMessage) String() string {
	return fmt.Sprintf("delivery of %q from %s", d.in.ID, d.r.q.table.address)
}

// GoString returns what String does.
func (d *heldMessage) GoString() string { return d.String() }

// Incoming implements core.Delivery.
func (d *heldMessage) Incoming() *core.Incoming { return &d.in }

// Complete implements core.Delivery.
func (d *heldMessage) Complete(ctx context.Context) error {
	err := d.settle(ctx, "complete", withWork, func(ctx context.Context) error {
		return d.commit(ctx)
	})
	d.forget(err)
	return err
}

// forget drops what is known of the failures of a message that is gone.
func (d *heldMessage) forget(err error) {
	if err != nil {
		return
	}
	d.r.t.returned.forget(d.id)
	if d.r.count != nil {
		d.r.count.Forget(d.id)
	} else {
		d.r.misses.set(&d.record, 0)
	}
}

// Release implements core.Delivery.
func (d *heldMessage) Release(ctx context.Context) error {
	return d.settle(ctx, "release", withoutWork, func(ctx context.Context) error {
		d.r.t.returned.add(d.id) // before it can be received again
		return d.undo(ctx)
	})
}

// Abandon implements core.Delivery. Where the table counts, the row goes back with a
// higher count in the same transaction that had deleted it, or else as recount says.
func (d *heldMessage) Abandon(ctx context.Context, cause error) error {
	return d.settle(ctx, "abandon", withoutWork, func(ctx context.Context) error {
		if d.r.count != nil {
			d.r.count.Failed(d.id, cause)
			return d.undo(ctx)
		}
		d.lastError = storable(transport.ErrorText(cause))
		err := d.commitUndone(ctx, d.giveBack())
		switch {
		case err == nil:
			d.available()
		case !d.tx.lost():
			err = d.recount(ctx, err)
		}
		return err
	})
}

// undo gives the row back as it was. Where the server does not confirm that, the connection
// is lost: the row may have been back for long, and another receiver may have the message.
func (d *heldMessage) undo(ctx context.Context) error {
	if err := d.tx.undo(ctx); err != nil {
		return &rolledBackError{err}
	}
	d.available()
	return nil
}

// giveBack is the statement that adds the row again, one delivery older.
func (d *heldMessage) giveBack() *statement {
	return command(d.r.q.giveBack, d.id, d.seq, string(d.headers), d.body, d.due, storedInt(d.deliveries), d.nextClaim(), d.expires, d.lastError)
}

// available tells receivers that the message is back.
func (d *heldMessage) available() {
	d.r.lower(d.due)
	d.r.t.ring(d.r.q)
}

// Whether a settlement keeps what the handler did in the transaction.
const (
	withWork    = true
	withoutWork = false
)

// settle carries out the one settlement. An error leaves the message held, unless
// the lock is lost.
func (d *heldMessage) settle(ctx context.Context, what string, work bool, do func(ctx context.Context) error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	err := d.settleOnce(ctx, work, do)
	if err != nil {
		return d.failed(what, err)
	}
	return nil
}

func (d *heldMessage) failed(what string, err error) error {
	if errors.Is(err, core.ErrLockLost) && d.r.isClosed() {
		err = fmt.Errorf("%w: %w", err, core.ErrClosed)
	}
	return fmt.Errorf("sqlserver: %s message %s from %s: %w", what, d.id, d.r.q.table.address, err)
}

// usable returns why the message cannot be settled any more.
func (d *heldMessage) usable(ctx context.Context) error {
	return cmp.Or(d.state.ended(), ctx.Err())
}

func (d *heldMessage) settleOnce(ctx context.Context, work bool, do func(ctx context.Context) error) error {
	if err := d.usable(ctx); err != nil {
		return err
	}
	under := d.r.operations.begin(ctx)
	defer under.end()
	d.tx.reclaim(under)
	var err error
	for range 2 { // again with another connection, if it broke meanwhile
		if d.tx.lost() {
			undone := d.used
			if err := d.retake(under, cmp.Or(err, errEnded)); err != nil {
				return err
			}
			if work && undone {
				return fmt.Errorf("what the handler did in the transaction is undone: %w", cmp.Or(err, errEnded))
			}
		}
		err = do(under)
		if err == nil {
			d.state = settled
			d.end()
			return nil
		}
		if _, ok := errors.AsType[*rolledBackError](err); ok {
			return d.lose(under, err)
		}
		if !d.tx.lost() {
			return err
		}
	}
	if lost := d.retake(under, err); lost != nil {
		return lost
	}
	return err
}

// errEnded is what became of a transaction when nothing else says so.
var errEnded = errors.New("the transaction has ended: its connection broke, or the handler ended it")

// lose ends a message that is held no more. The row is back.
func (d *heldMessage) lose(ctx context.Context, cause error) error {
	d.state = lost
	d.r.t.returned.add(d.id)
	d.tx.rollback(ctx)
	d.end()
	d.available()
	return fmt.Errorf("%w: %w", core.ErrLockLost, cause)
}

// end takes the message out of the receiver's hands.
func (d *heldMessage) end() {
	d.r.settled(d)
	d.r.t.returnConnection()
}

// giveUp implements holding.
func (d *heldMessage) giveUp(ctx context.Context) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.state != held {
		return
	}
	d.state = lost
	d.r.t.returned.add(d.id)
	now, cancel := context.WithCancel(ctx)
	cancel()
	d.tx.reclaim(now) // the handler may still be at work
	d.tx.rollback(ctx)
	d.r.t.returnConnection()
	d.r.t.ring(d.r.q)
}

// The savepoints of a message's transaction.
const (
	beforeHandler = "reprise_handler"
	inHandler     = "reprise_part_" // and a number: Savepoint
	afterHandler  = "reprise_sends"
)

// commit commits what the handler did together with these statements. Where one of
// them fails, the state is that after the handler.
func (d *heldMessage) commit(ctx context.Context, statements ...*statement) error {
	if !d.used {
		return d.commitFrom(ctx, beforeHandler, nil, statements)
	}
	if len(statements) == 0 {
		return d.tx.commit(ctx, d.r.t.dialect.intact())
	}
	mark := d.r.t.dialect.savepoint(afterHandler)
	return d.commitFrom(ctx, afterHandler, mark, append([]*statement{d.r.t.dialect.intact(), mark}, statements...))
}

// commitUndone commits these statements instead of what the handler did.
func (d *heldMessage) commitUndone(ctx context.Context, statements ...*statement) error {
	if !d.used {
		return d.commitFrom(ctx, beforeHandler, nil, statements)
	}
	back := d.r.t.dialect.rollbackTo(beforeHandler)
	if !d.tx.aborted() {
		return d.commitFrom(ctx, beforeHandler, back, append([]*statement{back}, statements...))
	}
	// Nothing else can be prepared before that.
	if err := d.tx.run(ctx, back); err != nil {
		d.abort(ctx)
		return err
	}
	return d.commitFrom(ctx, beforeHandler, nil, statements)
}

// commitFrom commits with these statements. If one fails, the transaction returns to
// a savepoint, unless the statement that has to succeed before did not. What comes after
// that one is not the handler's work: its error is a refusedError.
func (d *heldMessage) commitFrom(ctx context.Context, savepoint string, first *statement, statements []*statement) error {
	for _, s := range statements {
		s.done = false // an attempt before may have come further
	}
	err := d.tx.commit(ctx, statements...)
	if err == nil || len(statements) == 0 {
		return err
	}
	ready := first == nil || first.done
	switch {
	case d.tx.lost():
		if !d.used && !d.r.t.transient(err) { // at the commit
			err = &refusedError{d.r.t.explained(err)}
		}
		return err
	case !ready && savepoint == beforeHandler && !isAboutText(err):
		d.abort(ctx)
		return err
	case ready && slices.ContainsFunc(statements, func(s *statement) bool { return !s.done }), isAboutText(err):
		err = &refusedError{d.r.t.explained(err)}
	}
	if ready && d.isAtomic() {
		err = errors.Join(err, d.tx.run(ctx, d.r.t.dialect.rollbackTo(savepoint)))
	}
	return err
}

// refusedError is why the server refused statements that were to be committed with the
// handler's work.
type refusedError struct{ err error }

func (e *refusedError) Error() string { return e.err.Error() }
func (e *refusedError) Unwrap() error { return e.err }

// isAtomic reports whether the handler and its sends take part in the transaction,
// which then has savepoints.
func (d *heldMessage) isAtomic() bool { return d.r.mode == core.TransactionSendsAtomicWithReceive }
