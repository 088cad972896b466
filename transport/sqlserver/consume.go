package sqlserver

import (
	"context"

	"github.com/reprise-go/reprise/core"
)

// consume removes messages before they are handed out: TransactionNone.
func (r *receiver) consume(ctx context.Context, dst []core.Delivery) (int, error) {
	for {
		n, gone, err := r.consumeOnce(ctx, dst)
		if err != nil || n > 0 || gone == 0 { // where all had expired, or were for others, there may be more behind them
			return n, err
		}
	}
}

func (r *receiver) consumeOnce(ctx context.Context, dst []core.Delivery) (n, gone int, err error) {
	var m record
	columns := m.columns()
	take := r.t.dialect.take(r.q.queueTexts, batchSize(len(dst)), r.from().time)
	if r.t.nserviceBusTables {
		take = r.t.dialect.takeForeign(r.q.queueTexts, batchSize(len(dst)))
	}
	take.row = func(scan scanner) error {
		m.body = nil
		if err := scan(columns...); err != nil {
			return err
		}
		if m.expired {
			gone++
			return nil
		}
		dst[n] = &consumed{in: r.incoming(&m)}
		n++
		return nil
	}
	if err := r.t.db.exec(ctx, take); err != nil {
		return 0, 0, err
	}
	if r.t.nserviceBusTables {
		left := r.passOn(ctx, dst[:n])
		n, gone = left, gone+n-left
	}
	return n, gone, nil
}

// consumed is a message that is gone already.
type consumed struct {
	in      core.Incoming
	settled bool
}

// Incoming implements core.Delivery.
func (d *consumed) Incoming() *core.Incoming { return &d.in }

// Complete implements core.Delivery.
func (d *consumed) Complete(context.Context) error { return d.settle() }

// Abandon implements core.Delivery.
func (d *consumed) Abandon(context.Context, error) error { return d.settle() }

// Release implements core.Delivery.
func (d *consumed) Release(context.Context) error { return d.settle() }

func (d *consumed) settle() error {
	if d.settled {
		return core.ErrSettled
	}
	d.settled = true
	return nil
}
