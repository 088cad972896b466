package sqlserver_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// wantSendError checks the outcome of each message of a failed Send.
func wantSendError(t *testing.T, err error, want core.SendState, messages int) {
	t.Helper()
	failed, ok := errors.AsType[*core.SendError](err)
	if !ok {
		t.Errorf("Send returns %v, want a *core.SendError", err)
		return
	}
	if len(failed.Results) != messages {
		t.Errorf("it is about %d messages, want %d", len(failed.Results), messages)
	}
	for _, r := range failed.Results {
		if r.State != want {
			t.Errorf("message %s is %v, want %v: %v", r.ID, r.State, want, r.Err)
		}
	}
}

// The state of messages whose connection broke is unknown, and they are not sent
// again: their sender decides.
func TestSend_ConnectionBreaks(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	for _, c := range []struct {
		name string
		list []core.Outgoing
	}{
		{"one message", []core.Outgoing{letter("a", inputQueue)}},
		{"to two queues", []core.Outgoing{letter("a", inputQueue), letter("b", outputQueue)}},
	} {
		for _, how := range breaks {
			t.Run(c.name+"/"+how.name, func(t *testing.T) {
				t.Parallel()
				e := newBusiness(t, brokerOn(t, server), core.TransactionReceiveOnly)
				transport := open(t, e.transport)
				last := c.list[len(c.list)-1].Queue
				struck := how.at(e.broker.proxy, carriedOut(statements(t, transport, last)["send"]))
				err := transport.Send(t.Context(), c.list...)
				next(t, "the connection breaks", struck)
				if err != nil || how.name != "nobody knows" { // the server may have been quicker
					wantSendError(t, err, core.SendUnknown, len(c.list))
				} else {
					e.wantSent(1, len(c.list)-1)
				}
				switch how.name {
				case "the request is lost":
					e.wantSent(0, 0)
				case "the reply is lost":
					e.wantSent(1, len(c.list)-1)
				default: // all or nothing, once
					await(t, "the server is through with it", func() bool {
						return e.number(`select count(*) from pg_stat_activity where datname = current_database() and state = 'active'`) == 1
					})
					if in, out := e.arrived(); in > 1 || out != in*(len(c.list)-1) {
						t.Errorf("%d and %d messages have arrived, want all or none", in, out)
					}
				}
				send(t, transport, letter("c", errorQueue)) // the next one is none the worse
			})
		}
	}
}

// arrived returns how many messages are in the input and the output queue. It is one
// statement, because a server may be about to carry out a statement whose caller no longer waits.
func (e *business) arrived() (input, output int) {
	e.t.Helper()
	const text = `select (select count(*) from ` + inputQueue + `), (select count(*) from ` + outputQueue + `)`
	if err := e.app.QueryRow(e.t.Context(), text).Scan(&input, &output); err != nil {
		e.t.Fatal(err)
	}
	return input, output
}

// wantSent checks how many messages are in the input and the output queue.
func (e *business) wantSent(input, output int) {
	e.t.Helper()
	if in, out := e.arrived(); in != input || out != output {
		e.t.Errorf("%d and %d messages have arrived, want %d and %d", in, out, input, output)
	}
}

// Where the server has not begun, or has said no, a message is certainly not sent.
func TestSend_Refused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		fault func(t *testing.T, e *business, transport *sqlserver.Transport)
		to    []string
	}{
		{"nobody answers", func(t *testing.T, e *business, _ *sqlserver.Transport) {
			if err := e.broker.proxy.Refuse(); err != nil {
				t.Fatal(err)
			}
			e.broker.proxy.Cut()
		}, nil},
		{"there are too many connections", func(t *testing.T, e *business, _ *sqlserver.Transport) { e.connectionLimit(0) }, nil},
		{"one queue does not exist", func(*testing.T, *business, *sqlserver.Transport) {}, []string{inputQueue, "elsewhere"}},
		{"one disk is full", func(t *testing.T, e *business, _ *sqlserver.Transport) {
			e.disk(outputQueue, "insert")
			e.fill()
		}, []string{inputQueue, outputQueue}},
		{"the right is missing", func(t *testing.T, e *business, _ *sqlserver.Transport) {
			e.exec(`alter table ` + outputQueue + ` owner to postgres`)
		}, []string{inputQueue, outputQueue}},
		{"the server is in recovery", func(t *testing.T, e *business, transport *sqlserver.Transport) {
			e.exec(`alter database ` + e.broker.database + ` set default_transaction_read_only = on`)
			e.terminate("true")
		}, nil},
		{"a lock is held for too long", func(t *testing.T, e *business, transport *sqlserver.Transport) {
			e.exec(`alter database ` + e.broker.database + ` set lock_timeout = '50ms'`)
			e.terminate("true")
			e.lock(inputQueue)
		}, nil},
		{"the statement takes too long", func(t *testing.T, e *business, transport *sqlserver.Transport) {
			e.exec(`alter database ` + e.broker.database + ` set statement_timeout = '50ms'`)
			e.terminate("true")
			e.lock(inputQueue)
		}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e := newBusiness(t, brokerOn(t, server), core.TransactionReceiveOnly)
			transport := open(t, e.transport)
			c.fault(t, e, transport)
			if c.to == nil {
				c.to = []string{inputQueue}
			}
			var list []core.Outgoing
			for i, to := range c.to {
				list = append(list, letter(fmt.Sprint(i), to))
			}
			wantSendError(t, transport.Send(t.Context(), list...), core.SendRefused, len(list))
		})
	}
}

// connectionLimit limits the connections to the database but those of superusers; -1 is
// without limit. The transport's are ended.
func (e *business) connectionLimit(n int) {
	e.t.Helper()
	e.exec(fmt.Sprintf(`alter database %s connection limit %d`, e.broker.database, n))
	e.terminate("true")
}

// A Provision that fails half-way leaves nothing half-made, and can be repeated.
func TestProvision_ConnectionBreaks(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	for _, how := range breaks {
		for _, at := range []string{"create table", "commit"} {
			t.Run(at+"/"+how.name, func(t *testing.T) {
				t.Parallel()
				b := brokerOn(t, server)
				transport := open(t, sqlserver.Config{URL: b.url})
				request := carriedOut("commit")
				if at != "commit" {
					request = []byte(at)
				}
				topology := core.Topology{InputQueue: inputQueue, Queues: []string{inputQueue, errorQueue}}
				struck := how.at(b.proxy, request)
				if err := transport.Provision(t.Context(), topology); err == nil && how.name != "nobody knows" {
					t.Error("Provision returns nil, though the server did not confirm it")
				}
				next(t, "the connection breaks", struck)
				if err := transport.Provision(t.Context(), topology); err != nil {
					t.Errorf("the second Provision: %v", err)
				}
				if err := transport.Check(t.Context(), topology); err != nil {
					t.Errorf("Check: %v", err)
				}
			})
		}
	}
}

// A transaction of the caller's whose connection breaks takes its messages with it.
func TestSend_ConnectionOfTheTransactionBreaks(t *testing.T) {
	t.Parallel()
	e := newBusiness(t, brokerOn(t, server), core.TransactionReceiveOnly)
	transport := open(t, e.transport)
	conn, err := pgx.Connect(t.Context(), e.broker.url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx := sqlserver.WithTx(t.Context(), tx)
	if err := transport.Send(ctx, letter("a", inputQueue)); err != nil {
		t.Fatal(err)
	}
	e.terminate(`state = 'idle in transaction'`)
	if err := transport.Send(ctx, letter("b", inputQueue)); err == nil {
		t.Error("Send in a transaction that has ended returns nil")
	}
	if err := tx.Commit(t.Context()); err == nil {
		t.Error("the transaction was committed")
	}
	e.wantSent(0, 0)
}

// What is sent in a transaction that the caller has ended already is certainly not sent.
func TestSend_TransactionHasEnded(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	transport := db.open(t, sqlserver.Config{})
	provision(t, transport, "orders")
	tx, err := db.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	sqlTx, err := openDB(t, db.url).BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(tx.Rollback(t.Context()), sqlTx.Commit()); err != nil {
		t.Fatal(err)
	}
	for _, ctx := range []context.Context{sqlserver.WithTx(t.Context(), tx), sqlserver.WithSQLTx(t.Context(), sqlTx)} {
		err := transport.Send(ctx, letter("1", "orders"))
		wantSendError(t, err, core.SendRefused, 1)
		if !errors.Is(err, pgx.ErrTxClosed) && !errors.Is(err, sql.ErrTxDone) {
			t.Errorf("Send returns %v, which does not say that the transaction has ended", err)
		}
	}
}
