package sqlserver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/dialect"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/postgres"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/settle"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/sqlexec"
)

// execute executes requests of one action with one statement, and returns the rows whose
// lease was valid.
func (r *leaseStrategy) execute(ctx context.Context, action settle.Action, requests []settle.Request, list []int) (held []int64, err error) {
	seqs, claims := make([]int64, len(list)), make([]int32, len(list))
	var texts []string
	sending := false
	for at, i := range list {
		o := &requests[i]
		d := o.Message.(*leaseDelivery)
		seqs[at], claims[at] = d.seq, int32(d.claims)
		sending = sending || o.Sends != nil
		if action == settle.Abandonment {
			texts = append(texts, o.Text)
		}
	}
	q, columns := r.q, r.t.dialect.List
	var sql string
	var args []any
	switch action {
	case settle.Completion:
		sql, args = q.Complete, columns(seqs, claims)
		if sending {
			sends := make([]postgres.Sent, 0, len(list))
			for _, i := range list {
				if o := &requests[i]; o.Sends != nil {
					sends = o.Sends.(*sendPlan).appendTo(sends, o.Message.Seq())
				}
			}
			together := postgres.CompleteAndSend(q.QueueTexts, r.t.delayed.DelayedTexts, seqs, claims, sends)
			sql, args = together.SQL, together.Args
		}
	case settle.Abandonment:
		sql, args = q.Abandon, columns(seqs, claims, texts)
	case settle.Release:
		sql, args = q.Release, columns(seqs, claims)
	case settle.Renewal:
		sql, args = q.Renew, append([]any{r.t.lease.Microseconds()}, columns(seqs, claims)...)
	default:
		return nil, fmt.Errorf("no such action: %d", action)
	}
	held = make([]int64, 0, len(list))
	var seq int64
	column := []any{&seq}
	err = r.t.db.Exec(ctx, sqlexec.Query(func(scan sqlexec.Scanner) error {
		err := scan(column...)
		held = append(held, seq)
		return err
	}, sql, args...))
	return held, err
}

// releaseAll makes messages available to other receivers, if the server can be reached. A
// message that is not released is redelivered when its lease ends.
func (r *leaseStrategy) releaseAll(ctx context.Context, left []core.Delivery) {
	if len(left) == 0 {
		return
	}
	requests, list := make([]settle.Request, len(left)), make([]int, len(left))
	for i, d := range left {
		requests[i], list[i] = settle.Request{Action: settle.Release, Message: d.(*leaseDelivery)}, i
	}
	ctx, cancel := context.WithTimeout(ctx, settle.AttemptLimit(r.t.lease))
	defer cancel()
	if _, err := r.execute(ctx, settle.Release, requests, list); err == nil {
		r.t.wakeReceivers(r.q)
	}
}

// Complete implements core.Delivery.
func (d *leaseDelivery) Complete(ctx context.Context) error {
	if d.r.works {
		return d.completeWith(ctx, "complete", nil)
	}
	return d.settle(ctx, settle.Request{Action: settle.Completion})
}

// Abandon implements core.Delivery.
func (d *leaseDelivery) Abandon(ctx context.Context, cause error) error {
	return d.settleUndone(ctx, settle.Request{Action: settle.Abandonment, Text: dialect.Storable(transport.ErrorText(cause))})
}

// Release implements core.Delivery.
func (d *leaseDelivery) Release(ctx context.Context) error {
	return d.settleUndone(ctx, settle.Request{Action: settle.Release})
}

// settleUndone is a settlement that undoes the handler's work.
func (d *leaseDelivery) settleUndone(ctx context.Context, request settle.Request) error {
	if d.r.works {
		d.work.mu.Lock()
		defer d.work.mu.Unlock()
		if err := d.usable(ctx); err != nil {
			return d.failed(ctx, request.Action.String(), err)
		}
		if d.work.tx != nil {
			d.undo(ctx)
			d.work.undone = fmt.Errorf("it was to be undone (%v)", request.Action) // also if that fails below
		}
	}
	return d.settle(ctx, request)
}

// settle performs the one settlement.
func (d *leaseDelivery) settle(ctx context.Context, request settle.Request) error {
	if err := d.begin(); err != nil {
		return d.failed(ctx, request.Action.String(), err)
	}
	request.Message = d
	err := d.r.settler.Do(ctx, request)
	switch {
	case err == nil:
		if request.Action != settle.Completion {
			d.r.lowerWatermark(d.due)
			d.r.t.wakeReceivers(d.r.q)
		}
		return nil
	case errors.Is(err, core.ErrLockLost):
		d.become(lost)
	default: // as far as is known, nothing happened
		d.become(held)
	}
	return d.failed(ctx, request.Action.String(), err)
}

// Renew implements core.Delivery.
func (d *leaseDelivery) Renew(ctx context.Context) error {
	if err := d.advance(held); err != nil {
		return d.failed(ctx, settle.Renewal.String(), err)
	}
	lockedUntil := time.Now().Add(d.r.t.lease)
	if err := d.r.renewals.Do(ctx, settle.Request{Action: settle.Renewal, Message: d}); err != nil {
		if errors.Is(err, core.ErrLockLost) {
			err = d.lose(err)
		}
		return d.failed(ctx, settle.Renewal.String(), err)
	}
	d.lockedUntil.Store(&lockedUntil)
	return nil
}

// lose records that the lease was not valid when it was to be renewed. If the message was
// settled during the renewal, lose returns core.ErrSettled.
func (d *leaseDelivery) lose(err error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.state == settled {
		return core.ErrSettled
	}
	d.state = lost
	if d.r.works {
		d.r.t.life.Go(d.abandonWork) // it waits for a settlement
	}
	return err
}
