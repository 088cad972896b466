package sqlserver

import (
	"context"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/dialect"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/operation"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/sqlexec"
)

// noneStrategy removes messages before they are delivered: TransactionNone.
type noneStrategy struct{ *receiver }

func (noneStrategy) open(context.Context)                            {}
func (noneStrategy) prepare(context.Context) bool                    { return true }
func (noneStrategy) holds() bool                                     { return false }
func (noneStrategy) ended(core.Delivery, time.Time) bool             { return true }
func (noneStrategy) releaseFetched(context.Context, []core.Delivery) {} // the messages are gone
func (noneStrategy) close(context.Context, []core.Delivery)          {}

func (r noneStrategy) fetch(ctx *operation.Operation, dst []core.Delivery) (n int, more bool, err error) {
	var m dialect.Row
	columns := m.Columns()
	take := r.t.dialect.Take(r.q.QueueTexts, dialect.BatchSize(len(dst)), r.from().Time)
	if r.t.nserviceBusTables {
		take = r.t.dialect.TakeForeign(r.q.QueueTexts, dialect.BatchSize(len(dst)))
	}
	r.aside.leaveOut(r.t.dialect, take)
	take.Row = func(scan sqlexec.Scanner) error {
		m.Body = nil
		if err := scan(columns...); err != nil {
			return err
		}
		if m.Deadline.Passed() {
			more = true
			return nil
		}
		dst[n] = &noneDelivery{in: r.incoming(&m)}
		n++
		return nil
	}
	if err := r.t.db.Exec(ctx, take); err != nil {
		return 0, false, err
	}
	if r.t.nserviceBusTables {
		left := r.passOn(ctx, dst[:n])
		n, more = left, more || left < n
	}
	return n, more, nil
}

// noneDelivery is a delivery whose message is removed already.
type noneDelivery struct {
	transport.UnsupportedDelivery
	in      core.Incoming
	settled bool
}

// Incoming implements core.Delivery.
func (d *noneDelivery) Incoming() *core.Incoming { return &d.in }

// Complete implements core.Delivery.
func (d *noneDelivery) Complete(context.Context) error { return d.settle() }

// Abandon implements core.Delivery.
func (d *noneDelivery) Abandon(context.Context, error) error { return d.settle() }

// Release implements core.Delivery.
func (d *noneDelivery) Release(context.Context) error { return d.settle() }

func (d *noneDelivery) settle() error {
	if d.settled {
		return core.ErrSettled
	}
	d.settled = true
	return nil
}
