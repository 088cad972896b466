package sqlserver

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/dialect"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/notify"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/postgres"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/queues"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/server"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/sqlexec"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/subscriptions"
)

// Send adds messages to their queues' tables: all of them, or none. With a context
// from [WithTx] or [WithSQLTx] it does so in the caller's transaction, and nil means that
// the messages are sent if that transaction commits.
//
// A subscriber of an event whose queue does not exist, may not be sent to or is no queue is left out, and
// reported to the endpoint (core.ReportUnreachableSubscriber).
//
// A message's delay and its time to be received count from the moment at which the server
// executes the statement, by the server's clock.
func (t *Transport) Send(ctx context.Context, msgs ...core.Outgoing) error {
	err := t.life.Err(ctx)
	tx := server.CallersTransaction(ctx)
	if tx == (server.NoTransaction{}) {
		err = errors.New("the transaction of WithTx or WithSQLTx is nil")
	}
	if err != nil {
		return fmt.Errorf("sqlserver: send: %w", transport.NoneSent(msgs, -1, err))
	}
	if len(msgs) == 0 {
		return nil
	}
	caller := ctx
	ctx, done := t.server.Bound(ctx)
	defer done()
	mail, err := t.plan(ctx, msgs)
	if err != nil {
		return fmt.Errorf("sqlserver: send: %w", transport.Unavailable(caller, err, t.server.Transient))
	}
	switch {
	case len(mail.batches) == 0: // the topic has no subscribers
	case tx != nil:
		mail, err = mail.sendIn(ctx, tx)
	default:
		err = mail.send(ctx)
		if less, refusal := mail.withoutRefusing(ctx, err, t.tryAlone(ctx)); refusal != nil {
			err = refusal
		} else if less != nil {
			mail, err = less, less.send(ctx)
		}
	}
	if err != nil {
		mail.forgetTables()
		if _, ok := errors.AsType[*core.SendError](err); !ok {
			state := core.SendRefused
			if t.server.Fault(err) == dialect.FaultOutage {
				state = core.SendUnknown
			}
			err = transport.AllSent(msgs, state, t.refusal(err))
		}
		return fmt.Errorf("sqlserver: send: %w", transport.Unavailable(caller, err, t.server.Transient))
	}
	mail.report(ctx)
	return nil
}

// refusal is the cause of a refused message, by the error of the statement that adds it.
func (t *Transport) refusal(err error) error {
	if t.server.Fault(err) == dialect.FaultRow {
		return fmt.Errorf("%w: %w", core.ErrMessageRefused, err)
	}
	return t.server.Explained(err)
}

// send executes the statements in a new transaction.
func (m *sendPlan) send(ctx context.Context) error {
	t := m.transport
	if len(m.batches) == 0 {
		return nil
	}
	if err := t.server.TakeTurn(ctx); err != nil {
		return err
	}
	err := t.db.Exec(ctx, m.statements()...)
	t.server.EndTurn()
	if err != nil {
		t.server.GaveUp(err)
		return err
	}
	m.wakeReceivers()
	return nil
}

// sendIn executes the statements in a caller's transaction. It returns the plan that was executed.
func (m *sendPlan) sendIn(ctx context.Context, tx any) (*sendPlan, error) {
	t := m.transport
	var xid string
	statements := func(m *sendPlan) []*sqlexec.Statement {
		if t.notifier == nil {
			return m.statements()
		}
		identify := sqlexec.Query(func(scan sqlexec.Scanner) error {
			var encoding string
			if err := scan(&xid, &encoding); err != nil {
				return err
			}
			return sqlexec.CheckClientEncoding(encoding) // before any message is added
		}, notify.TransactionID)
		return append([]*sqlexec.Statement{identify}, m.statements()...)
	}
	var err error
	if len(m.subscribers) > 0 && t.onPostgres() { // on Microsoft SQL Server some errors end the transaction
		m, err = m.publishIn(ctx, tx, statements)
	} else {
		err = t.server.RunIn(ctx, tx, statements(m)...)
	}
	if err == nil && t.notifier != nil {
		t.notifier.WatchTransaction(xid, m.destinations)
	}
	return m, err
}

// WithTx returns a context with which [Transport.Send], and so Endpoint.Send and
// Endpoint.Publish, adds messages in tx: they are sent if tx commits, and never
// otherwise. With it a program writes its own rows and its messages together (a
// transactional outbox without a relay).
//
//	tx, err := pool.Begin(ctx)
//	...
//	_, err = tx.Exec(ctx, "insert into orders ...")
//	...
//	err = endpoint.Send(sqlserver.WithTx(ctx, tx), "billing", placed.Of(OrderPlaced{ID: id}))
//	...
//	err = tx.Commit(ctx)
//
// The transaction has to be one of the transport's database. After a failed Send it can
// only be rolled back. One goroutine at a time may use it. If tx is nil, Send returns an
// error.
func WithTx(ctx context.Context, tx pgx.Tx) context.Context {
	if tx == nil {
		return server.WithTransaction(ctx, server.NoTransaction{})
	}
	return server.WithTransaction(ctx, tx)
}

// WithSQLTx is WithTx for a transaction of database/sql.
func WithSQLTx(ctx context.Context, tx *sql.Tx) context.Context {
	if tx == nil {
		return server.WithTransaction(ctx, server.NoTransaction{})
	}
	return server.WithTransaction(ctx, tx)
}

// sendPlan has the rows of a list of messages, by the tables that they are added to.
type sendPlan struct {
	transport    *Transport
	batches      []*tableBatch
	destinations []*queues.Queue // of messages that are available at once
	assumed      []*queues.Queue // queues whose maker was assumed
	due          time.Time       // of the first delayed message in the table for them; zero: none

	msgs         []core.Outgoing
	refusing     []subscriptions.Unreachable // subscribers that are left out
	subscribers  []*queues.Queue             // the queues that get events
	unreachable  []unreachable
	unsubscribed []*core.Outgoing // events that reach no queue
}

// tableBatch has the rows for one table.
type tableBatch struct {
	to       *queues.Queue
	waits    bool // in the table of delayed messages
	foreign  bool
	messages []dialect.NewRow
	bytes    int
}

// plan turns messages into statements. Its error matches *core.SendError, in which all
// messages are refused.
func (t *Transport) plan(ctx context.Context, msgs []core.Outgoing) (*sendPlan, error) {
	return t.planWithout(ctx, msgs, nil)
}

// planWithout is plan without subscribers whose tables refuse the messages.
func (t *Transport) planWithout(ctx context.Context, msgs []core.Outgoing, refusing []subscriptions.Unreachable) (*sendPlan, error) {
	for i := range msgs {
		if err := transport.CheckOutgoing(&msgs[i], &t.caps); err != nil {
			return nil, transport.NoneSent(msgs, i, err)
		}
	}
	m := &sendPlan{transport: t, msgs: msgs, refusing: refusing}
	headers := headersOf(msgs)
	var to subscriptions.Subscribers // or the one queue
	for i := range msgs {
		out := &msgs[i]
		var err error
		if i == 0 || out.Queue != msgs[i-1].Queue || out.Topic != msgs[i-1].Topic || !slices.Equal(out.BaseTopics, msgs[i-1].BaseTopics) {
			to, err = t.destinations(ctx, out)
		}
		message := dialect.NewRow{Headers: headers(i), Body: out.Body, Delay: out.Delay, TTL: out.TimeToBeReceived}
		if message.Body == nil {
			message.Body = []byte{} // a nil body would be NULL
		}
		switch {
		case err != nil:
		case out.Topic == "":
			err = m.add(ctx, to.Queues[0], message, len(msgs)-i)
		default:
			err = m.publish(ctx, out, &to, message, len(msgs)-i)
		}
		if err != nil {
			return nil, transport.NoneSent(msgs, i, t.server.Explained(err))
		}
	}
	return m, nil
}

// statements returns the statements that send the messages.
func (m *sendPlan) statements() (all []*sqlexec.Statement) {
	t := m.transport
	for _, p := range m.batches {
		if p.waits {
			all = append(all, t.dialect.InsertDelayed(t.delayed.DelayedTexts, p.messages)...)
		} else {
			all = append(all, t.dialect.Insert(p.to.QueueTexts, p.messages, p.foreign)...)
		}
	}
	return all
}

// Size returns the number of rows and bytes.
func (m *sendPlan) Size() (rows, bytes int) {
	for _, p := range m.batches {
		rows += len(p.messages)
		bytes += p.bytes
	}
	return rows, bytes
}

// appendTo appends the rows that the handler of a leased message has sent.
func (m *sendPlan) appendTo(sends []postgres.Sent, seq int64) []postgres.Sent {
	for _, p := range m.batches {
		sends = append(sends, postgres.Sent{Of: seq, To: p.to.QueueTexts, Waits: p.waits, Messages: p.messages})
	}
	return sends
}

// headersOf writes the headers of all messages as one text, and returns a function for
// its parts.
func headersOf(msgs []core.Outgoing) func(i int) string {
	var buffer []byte
	ends := make([]int, len(msgs)+1)
	for i := range msgs {
		buffer = dialect.AppendHeaders(buffer, transport.PackHeaders(&msgs[i]))
		ends[i+1] = len(buffer)
	}
	text := string(buffer)
	return func(i int) string { return text[ends[i]:ends[i+1]] }
}

// destinations returns the queue of a message, or its subscribers.
func (t *Transport) destinations(ctx context.Context, out *core.Outgoing) (to subscriptions.Subscribers, err error) {
	if out.Topic == "" {
		q, err := t.queues.Get(out.Queue)
		return subscriptions.Subscribers{Queues: []*queues.Queue{q}}, err
	}
	to, err = t.subscribersTo(ctx, out.Topic)
	if err != nil || len(out.BaseTopics) == 0 {
		return to, err
	}
	to.Queues, to.Unreachable = slices.Clone(to.Queues), slices.Clone(to.Unreachable) // the cache has the originals
	for _, base := range out.BaseTopics {
		more, err := t.subscribersTo(ctx, base)
		if err != nil {
			return to, err
		}
		to.Queues = queues.AppendMissing(to.Queues, more.Queues...)
		for _, u := range more.Unreachable {
			if !slices.ContainsFunc(to.Unreachable, func(other subscriptions.Unreachable) bool { return other.Address == u.Address }) {
				to.Unreachable = append(to.Unreachable, u)
			}
		}
	}
	return to, nil
}

// subscribersTo returns the subscribers of a topic.
func (t *Transport) subscribersTo(ctx context.Context, topic string) (subscriptions.Subscribers, error) {
	if err := t.CheckTopic(topic); err != nil {
		return subscriptions.Subscribers{}, transport.Permanent(err)
	}
	return t.subscriptions.Of(ctx, topic)
}

// add adds a message to the tableBatch for its table. left is the number of messages that
// remain, including this one.
func (m *sendPlan) add(ctx context.Context, to *queues.Queue, message dialect.NewRow, left int) error {
	waits, foreign := false, to.Kind() == queues.NServiceBus
	if message.Delay > 0 { // only then does the maker of the table matter
		var err error
		if foreign, err = m.transport.isForeign(ctx, to); err != nil {
			return err
		}
		m.assumed = append(m.assumed, to)
		if waits = foreign; waits {
			message.Destination = to.Table.Address
			due, err := m.transport.delayed.Expect(ctx, message.Delay)
			if err != nil {
				return err
			}
			if m.due.IsZero() || due.Before(m.due) {
				m.due = due
			}
		}
	} else {
		m.markAvailable(to)
	}
	size := len(message.Headers) + len(message.Body)
	for _, p := range slices.Backward(m.batches) {
		if p.to == to && p.waits == waits {
			if len(p.messages) >= dialect.RowsAtOnce || p.bytes+size > dialect.BytesAtOnce {
				break
			}
			p.messages, p.bytes = append(p.messages, message), p.bytes+size
			return nil
		}
	}
	messages := append(make([]dialect.NewRow, 0, min(left, dialect.RowsAtOnce)), message)
	m.batches = append(m.batches, &tableBatch{to: to, waits: waits, foreign: foreign, messages: messages, bytes: size})
	return nil
}

// forgetTables forgets the makers of the tables after an error: a table may have been
// replaced.
func (m *sendPlan) forgetTables() {
	for _, q := range m.assumed {
		q.SetKind(queues.UnknownKind)
	}
}

// markAvailable records that a message for the queue is available at once.
func (m *sendPlan) markAvailable(to *queues.Queue) {
	if !slices.Contains(m.destinations, to) {
		m.destinations = append(m.destinations, to)
	}
}

// isForeign reports whether NServiceBus created the queue's table, which then cannot hold
// a delayed message.
func (t *Transport) isForeign(ctx context.Context, q *queues.Queue) (bool, error) {
	switch q.Kind() {
	case queues.Reprise:
		return false, nil
	case queues.NServiceBus:
		return true, nil
	default:
		return t.server.Examine(ctx, q)
	}
}

// wakeReceivers wakes receivers after the messages are committed.
func (m *sendPlan) wakeReceivers() {
	for _, q := range m.destinations {
		m.transport.wakeReceivers(q)
	}
	if !m.due.IsZero() {
		m.transport.delayed.LookAt(m.due)
	}
}
