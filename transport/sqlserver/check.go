package sqlserver

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/dialect"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/queues"
)

// Check connects to the server, and reports queues that do not exist or whose tables are
// not as this transport needs them. It also reports missing rights to receive from the
// endpoint's own queues and to send to the others, with the statements that grant them.
func (t *Transport) Check(ctx context.Context, topology core.Topology) error {
	err := t.life.Err(ctx)
	if err == nil {
		ctx, done := t.server.Bound(ctx)
		defer done()
		err = t.checkTopology(ctx, topology)
	}
	if err != nil {
		return fmt.Errorf("sqlserver: check: %w", t.server.Unavailable(ctx, err))
	}
	return nil
}

func (t *Transport) checkTopology(ctx context.Context, topology core.Topology) error {
	if err := refuseExpiry(topology); err != nil {
		return err
	}
	if len(topology.Queues) == 0 {
		return t.server.Reach(ctx)
	}
	var errs []error
	var inputs, others []*queues.Queue
	var unseen []dialect.Right // rights that are needed to see tables that may not be seen
	for _, name := range topology.Queues {
		q, err := t.queues.Get(name)
		if err == nil {
			err = t.server.Verify(ctx, q)
		}
		if err != nil {
			f := t.server.Fault(err)
			if f.Transient() {
				return err // each queue would only repeat it
			}
			if f == dialect.FaultRefused {
				if err := t.server.Reach(ctx); err != nil {
					return err // the error is not about the queue
				}
				unseen = append(unseen, t.dialect.Seeing(q.Table)...)
			}
			errs = append(errs, err)
			continue
		}
		if name == topology.InputQueue {
			inputs = append(inputs, q)
			if m := topology.Transactions; m == core.TransactionReceiveOnly || m == core.TransactionSendsAtomicWithReceive {
				others = append(others, q) // for retries
			}
		} else {
			others = append(others, q)
		}
	}
	missing, err := t.checkRights(ctx, inputs, others, unseen)
	if err == nil && len(inputs)+len(others) > 0 {
		err = t.warnOfOwners(ctx, slices.Concat(inputs, others))
	}
	if err != nil {
		return err
	}
	if t.notifier != nil { // it wakes receivers
		for _, q := range inputs {
			if lacks, err := t.lacksNotifyTrigger(ctx, q); err == nil && lacks {
				t.warnOfNotifyTrigger(q, nil)
			}
		}
	}
	return errors.Join(append(distinct(errs), missing...)...)
}

// distinct removes repeated errors: a schema without rights is the error of each queue in
// it.
func distinct(errs []error) []error {
	said := map[string]bool{}
	return slices.DeleteFunc(errs, func(err error) bool {
		logged := said[err.Error()]
		said[err.Error()] = true
		return logged
	})
}

// checkRights checks the rights that every endpoint needs, in any mode and with any
// retries, to receive from its queues and to send to others, and the rights in needed.
func (t *Transport) checkRights(ctx context.Context, inputs, others []*queues.Queue, needed []dialect.Right) ([]error, error) {
	for _, q := range inputs {
		needed = append(needed, t.dialect.Receiving(q.Table)...)
	}
	for _, q := range others {
		needed = append(needed, t.dialect.Sending(q.Table, q.Kind() == queues.NServiceBus)...)
	}
	return t.server.Missing(ctx, needed)
}
