package sqlserver_test

import (
	"context"
	"maps"
	"testing"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/internal/testserver/postgres"
)

// terminate ends the sessions of the transport for which a condition on
// pg_stat_activity holds, and returns how many those were.
func (e *business) terminate(condition string) int {
	e.t.Helper()
	n := e.number(`select count(pg_terminate_backend(pid)) from pg_stat_activity
where datname = current_database() and usename = $1 and (`+condition+`)`, postgres.User)
	if n < 0 {
		e.t.Fatalf("the sessions in which %s cannot be terminated", condition)
	}
	return n
}

// holdsMessage is true of the sessions in pg_stat_activity whose transaction holds a
// message while its handler is at work.
const holdsMessage = `state = 'idle in transaction' and backend_xid is not null`

// awaitNoneHeld returns when the server has ended the sessions that hold a message.
func (e *business) awaitNoneHeld() {
	e.t.Helper()
	await(e.t, "no session holds a message", func() bool {
		return e.number(`select count(*) from pg_stat_activity
where datname = current_database() and usename = $1 and `+holdsMessage, postgres.User) == 0
	})
}

// An operator terminates all sessions, again and again, wherever they are.
func TestOutage_SessionsAreTerminatedUnderLoad(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	for _, mode := range bothModes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			const messages, times = 1000, 8
			e := newBusiness(t, brokerOn(t, server), mode)
			e.transport.Lease = outageLease
			e.config.Concurrency = 8
			e.order(messages)
			e.run()
			for i := range times {
				target := (i + 1) * messages / (2 * times)
				await(t, "messages are handled", func() bool { return e.written() >= target })
				e.terminate("true")
			}
			e.awaitDone()
			e.checkDone(messages)
		})
	}
}

// A session that ends while a handler is at work costs one attempt, which is counted,
// and no message.
func TestOutage_SessionIsTerminatedInTheHandler(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	for _, c := range []struct {
		name   string
		before bool // the handler has done anything
	}{
		{"before its work", true},
		{"after its work", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e := newBusiness(t, brokerOn(t, server), core.TransactionSendsAtomicWithReceive)
			e.config.Concurrency = 1
			const messages = 3
			e.handle = func(ctx context.Context, m *core.Message, body []byte) error {
				terminate := func() {
					if m.Attempt > 1 {
						return
					}
					if n := e.terminate(holdsMessage); n != 1 {
						t.Errorf("%d transactions were terminated, want 1", n)
					}
					e.awaitNoneHeld()
				}
				if c.before {
					if err := work(ctx, `select pg_current_xact_id() where $1 <> ''`, "x"); err != nil {
						return err
					}
					terminate()
				}
				err := e.work(ctx, m, body)
				if !c.before {
					terminate()
				}
				return err
			}
			e.order(messages)
			e.run()
			e.awaitDone()
			e.checkDone(messages)
			e.checkAttempt(2)
		})
	}
}

// A session ends while its statement waits for a lock.
func TestOutage_SessionIsTerminatedInAStatement(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	for _, mode := range bothModes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			e := newBusiness(t, brokerOn(t, server), mode)
			e.config.Concurrency = 1
			const messages = 10                         // half of them when the others may be done
			handled := make(chan struct{}, 10*messages) // some more than once
			e.handle = func(ctx context.Context, m *core.Message, body []byte) error {
				err := e.work(ctx, m, body)
				handled <- struct{}{}
				return err
			}
			e.order(messages / 2)
			unlock := e.lock(inputQueue)
			e.run()
			e.awaitWaiting(1) // to take, or to claim
			if n := e.terminate(`wait_event_type = 'Lock'`); n == 0 {
				t.Error("no statement waited")
			}
			await(t, "the observer is told", func() bool { return len(e.changes.all()) > 0 })
			unlock()
			next(t, "a message is handled", handled)
			for _, table := range []string{outputQueue, inputQueue} { // to send, and to settle or to claim
				unlock := e.lock(table)
				if table == outputQueue {
					e.order(messages / 2)
				}
				e.awaitWaiting(1)
				e.terminate(`wait_event_type = 'Lock'`)
				unlock()
			}
			e.awaitDone()
			e.checkDone(messages)
		})
	}
}

// lock locks a table as an operator's ALTER TABLE would, until unlock.
func (e *business) lock(table string) (unlock func()) {
	e.t.Helper()
	tx, err := e.app.Begin(e.t.Context())
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	if _, err := tx.Exec(e.t.Context(), `lock table `+table); err != nil {
		e.t.Fatal(err)
	}
	return func() {
		e.t.Helper()
		if err := tx.Commit(e.t.Context()); err != nil {
			e.t.Fatal(err)
		}
	}
}

// awaitCancelled returns when a statement of the transport's that waited for a lock does not
// any more, though no session has released the lock.
func (e *business) awaitCancelled() {
	e.t.Helper()
	seen := map[string]int{}
	await(e.t, "a statement takes too long", func() bool {
		now := e.keys(`select pid || ' ' || query_start from pg_stat_activity
where query_start is not null and datname = current_database() and usename = '` + postgres.User + `' and wait_event_type = 'Lock'`)
		for statement := range seen {
			if now[statement] == 0 {
				return true
			}
		}
		maps.Copy(seen, now)
		return false
	})
}

// awaitWaiting returns when n of the transport's sessions wait for a lock.
func (e *business) awaitWaiting(sessions int) {
	e.t.Helper()
	await(e.t, "statements wait for a lock", func() bool {
		return e.number(`select count(*) from pg_stat_activity
where datname = current_database() and usename = $1 and wait_event_type = 'Lock'`, postgres.User) >= sessions
	})
}
