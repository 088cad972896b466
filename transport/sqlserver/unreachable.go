package sqlserver

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/dialect"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/queues"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/server"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/sqlexec"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/subscriptions"
)

// This file is about the subscribers of an event that cannot be reached: anyone who may write to
// the table of subscriptions may subscribe a queue that does not exist, that this transport has no
// right to send to, or that is no queue. Others must still get the event (C19). A send that the
// server accepts costs nothing for that. After a refusal, each subscriber's table is tried alone,
// and the send is repeated without those that refuse.

// unreachable is a subscriber that does not get an event.
type unreachable struct {
	out *core.Outgoing
	subscriptions.Unreachable
}

// publish adds an event to the batches of its subscribers, except for unreachable ones.
func (m *sendPlan) publish(ctx context.Context, out *core.Outgoing, to *subscriptions.Subscribers, message dialect.NewRow, left int) error {
	lost := slices.Clip(to.Unreachable)
	reached := 0
	for _, q := range to.Queues {
		if i := slices.IndexFunc(m.refusing, func(u subscriptions.Unreachable) bool { return u.Address == q.Table.Address }); i >= 0 {
			lost = append(lost, m.refusing[i])
			continue
		}
		switch err := m.add(ctx, q, message, left); {
		case err == nil:
			m.subscribers = queues.AppendMissing(m.subscribers, q)
			reached++
		case isAboutTable(err):
			lost = append(lost, subscriptions.Unreachable{Address: q.Table.Address, Err: err})
		default:
			return err
		}
	}
	for _, u := range lost {
		m.unreachable = append(m.unreachable, unreachable{out, u})
	}
	switch {
	case reached > 0:
		return nil
	case out.RequireSubscriber:
		return transport.CheckSubscribers(ctx, out, 0)
	case len(lost) == 0:
		m.unsubscribed = append(m.unsubscribed, out)
	}
	return nil
}

// isAboutTable reports whether the examination of a table has failed because of the table.
func isAboutTable(err error) bool {
	_, ok := errors.AsType[*server.TableError](err)
	return ok
}

// report reports the events that were accepted and do not reach all subscribers.
func (m *sendPlan) report(ctx context.Context) {
	for _, out := range m.unsubscribed {
		_ = transport.CheckSubscribers(ctx, out, 0) // no subscriber is required
	}
	for _, u := range m.unreachable {
		core.ReportUnreachableSubscriber(ctx, u.out, u.Address, u.Err)
	}
}

// mayExclude reports whether the error of a send may be about the queue of a subscriber alone.
func (m *sendPlan) mayExclude(err error) bool {
	if err == nil || len(m.subscribers) == 0 || m.refusing != nil {
		return false
	}
	f := m.transport.server.Fault(err)
	return f == dialect.FaultNoTable || f == dialect.FaultRefused || f.RefusesStatement()
}

// withoutRefusing returns a plan for the same messages without the subscribers whose tables refuse
// them, or nil if there is none, after a send has failed with err. try adds rows, in a transaction
// or after a savepoint that it rolls back. connected is false if the error is not about the rows. The
// error is that of such a plan: no subscriber is left for an event that requires one.
func (m *sendPlan) withoutRefusing(ctx context.Context, err error, try func(rows []*sqlexec.Statement) (err error, connected bool)) (*sendPlan, error) {
	if !m.mayExclude(err) {
		return nil, nil
	}
	t := m.transport
	var missing, refusing []subscriptions.Unreachable
	for _, q := range m.subscribers {
		i := slices.IndexFunc(m.batches, func(b *tableBatch) bool { return b.to == q && !b.waits })
		if i < 0 {
			continue
		}
		b := m.batches[i]
		err, connected := try(t.dialect.Insert(q.QueueTexts, b.messages[:1], b.foreign))
		if err == nil {
			continue
		}
		u := subscriptions.Unreachable{Address: q.Table.Address, Err: t.server.Explained(err)}
		switch f := t.server.Fault(err); {
		case !connected, ctx.Err() != nil:
			return nil, nil //nolint:nilerr // which table refuses is unknown, and the caller has the error of the send
		case f == dialect.FaultNoTable, f == dialect.FaultRefused:
			missing = append(missing, u)
		case f.RefusesStatement():
			refusing = append(refusing, u)
		}
	}
	// If no table takes the row, the row may be at fault.
	if len(missing)+len(refusing) < len(m.subscribers) {
		missing = append(missing, refusing...)
	}
	if len(missing) == 0 {
		return nil, nil
	}
	m.forgetTables()
	for i := range m.msgs {
		if out := &m.msgs[i]; out.Topic != "" {
			t.subscriptions.Exclude(append(slices.Clip(out.BaseTopics), out.Topic), missing)
		}
	}
	return t.planWithout(ctx, m.msgs, missing)
}

// tryAlone adds rows in a separate transaction, which it rolls back.
func (t *Transport) tryAlone(ctx context.Context) func(rows []*sqlexec.Statement) (err error, connected bool) {
	return func(rows []*sqlexec.Statement) (error, bool) {
		if err := t.server.TakeTurn(ctx); err != nil {
			return err, false
		}
		defer t.server.EndTurn()
		tx, err := t.db.Begin(ctx)
		if err != nil {
			return err, false
		}
		defer tx.Rollback(ctx)
		err = tx.Run(ctx, rows...)
		return err, !tx.Lost()
	}
}

// beforePublish is the savepoint of a caller's transaction before events are sent in it.
const beforePublish = "reprise_publish"

// publishIn executes the statements of a plan with events in a caller's transaction, to which a
// subscriber that cannot be reached does no harm.
func (m *sendPlan) publishIn(ctx context.Context, tx any, statements func(m *sendPlan) []*sqlexec.Statement) (*sendPlan, error) {
	t := m.transport
	run := func(statements ...*sqlexec.Statement) error { return t.server.RunIn(ctx, tx, statements...) }
	// Not together with the others: the server may parse all texts before it executes the first.
	if err := run(t.dialect.Savepoint(beforePublish)); err != nil {
		return m, err
	}
	send := func(m *sendPlan) error {
		return run(append(statements(m), sqlexec.Command("release savepoint "+beforePublish))...)
	}
	undo := func() error { return t.server.RollbackIn(ctx, tx, beforePublish) }
	err := send(m)
	if !m.mayExclude(err) {
		return m, err
	}
	if failed := undo(); failed != nil {
		return m, errors.Join(err, failed)
	}
	var lost error
	less, refusal := m.withoutRefusing(ctx, err, func(rows []*sqlexec.Statement) (error, bool) {
		err := run(rows...)
		if lost == nil {
			lost = undo()
		}
		return err, lost == nil
	})
	if lost != nil {
		return m, errors.Join(err, lost)
	}
	if less == nil { // it fails again, so that the caller cannot commit without the messages
		return m, cmp.Or(refusal, send(m))
	}
	return less, send(less)
}
