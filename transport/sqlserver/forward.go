package sqlserver

import (
	"context"
	"fmt"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/dialect"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/queues"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/sqlexec"
)

// forwardHeader is a header that NServiceBus adds to a message that it delays. When the
// message is due it is moved to its sender's input queue, and the endpoint that receives
// it there passes it on. That may be a Reprise endpoint, which shares the queue with an
// NServiceBus endpoint or has taken it over.
const forwardHeader = "NServiceBus.SqlServer.ForwardDestination"

// forwarded returns the queue to which a message has to be passed on, or nil if it is for
// the queue that has it. It removes the header.
func (t *Transport) forwarded(from *queues.Queue, in *core.Incoming) *queues.Queue {
	if !t.nserviceBusTables || in.Malformed != nil {
		return nil
	}
	address, ok := in.Headers.Lookup(forwardHeader)
	if !ok {
		return nil
	}
	in.Headers.Del(forwardHeader)
	to, err := t.queues.Get(address)
	switch {
	case err != nil:
		in.Malformed = undeliverableTo(address, err)
		return nil
	case to.Table.Address == from.Table.Address:
		return nil
	}
	return to
}

// undeliverableTo returns the error with which a message goes to the error queue: it
// cannot be passed on, and is not for this endpoint.
func undeliverableTo(address string, err error) error {
	return fmt.Errorf("NServiceBus has delayed the message on its way to %s, and it cannot be passed on: %w", address, err)
}

// forwarding returns the statements that pass a message on.
func (r *receiver) forwarding(in *core.Incoming, to *queues.Queue) []*sqlexec.Statement {
	headers := transport.PackHeaders(&core.Outgoing{Headers: in.Headers, GroupKey: in.GroupKey, Properties: in.Properties})
	row := dialect.NewRow{Headers: string(dialect.AppendHeaders(nil, headers)), Body: in.Body}
	return r.t.dialect.Insert(to.QueueTexts, []dialect.NewRow{row}, to.Kind() == queues.NServiceBus)
}

// passOn passes a message on in the transaction that removed it. If that is not possible,
// the message is still held, and malformed.
func (d *transactionDelivery) passOn(ctx context.Context, to *queues.Queue) (held bool, err error) {
	cause := d.tx.Commit(ctx, d.r.forwarding(&d.in, to)...)
	if cause == nil {
		d.r.t.wakeReceivers(to)
		return false, nil
	}
	d.tx.Rollback(ctx)
	if d.r.t.server.Transient(cause) {
		return false, cause
	}
	d.in.Malformed = undeliverableTo(to.Table.Address, cause)
	tx, found, err := d.relock(ctx)
	switch {
	case err != nil:
		return false, err
	case !found: // another receiver was faster
		tx.Rollback(ctx)
		return false, nil
	}
	d.tx = tx
	return true, nil
}

// passOn passes on consumed messages that are not for this queue, and returns how many
// messages are left.
func (r *receiver) passOn(ctx context.Context, got []core.Delivery) (left int) {
	for _, d := range got {
		in := d.Incoming()
		if to := r.t.forwarded(r.q, in); to != nil {
			err := r.t.db.Exec(ctx, r.forwarding(in, to)...)
			if err == nil {
				r.t.wakeReceivers(to)
				continue
			}
			in.Malformed = undeliverableTo(to.Table.Address, err)
		}
		got[left] = d
		left++
	}
	return left
}
