package sqlserver_test

import (
	"context"
	"testing"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/internal/testserver/postgres"
)

// set sets a parameter for the sessions of the transport, also those that there are
// already, which are ended.
func (e *business) set(parameter, value string) {
	e.t.Helper()
	e.exec(`alter role ` + postgres.User + ` in database ` + e.broker.database + ` set ` + parameter + ` = '` + value + `'`)
	e.terminate("true")
}

// An operator locks a table for a while, and the server gives statements little time
// or as much as they want. What cannot be done is done later.
func TestOutage_TableIsLocked(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	for _, parameter := range []string{"", "lock_timeout", "statement_timeout"} {
		for _, table := range []string{inputQueue, outputQueue} {
			for _, mode := range bothModes {
				name := parameter
				if name == "" {
					name = "no timeout"
				}
				t.Run(name+"/"+table+"/"+mode.String(), func(t *testing.T) {
					t.Parallel()
					const messages = 100
					e := newBusiness(t, brokerOn(t, server), mode)
					if parameter != "" {
						e.set(parameter, "1s")
					}
					e.order(messages / 2)
					e.run()
					await(t, "a message is handled", func() bool { return e.written() > 0 })
					unlock := e.lock(table)
					if table == outputQueue { // the others may be done
						e.order(messages / 2)
					}
					if parameter == "" {
						e.awaitWaiting(1)
					} else {
						e.awaitCancelled()
					}
					unlock()
					e.order(messages - e.ordered)
					e.awaitDone()
					e.checkDone(messages)
				})
			}
		}
	}
}

// A handler whose transaction is idle for longer than the server allows has failed
// once, and that is counted.
func TestHandler_IdleTransactionTimeoutIsCounted(t *testing.T) {
	t.Parallel()
	e := newBusiness(t, brokerOn(t, server), core.TransactionSendsAtomicWithReceive)
	const messages = 3
	e.config.Concurrency = 1
	e.handle = func(ctx context.Context, m *core.Message, body []byte) error {
		err := e.work(ctx, m, body)
		if m.Attempt == 1 {
			// As if the role had it, but for this transaction alone: the transport may be
			// slow too.
			if err := work(ctx, `select set_config('idle_in_transaction_session_timeout', $1, true)`, "100ms"); err != nil {
				return err
			}
			e.awaitNoneHeld()
		}
		return err
	}
	e.order(messages)
	e.run()
	e.awaitDone()
	e.checkDone(messages)
	e.checkAttempt(2)
}

// A statement of a handler's that takes longer than the server allows fails the
// handler, and nothing else: the transaction is used again.
func TestHandler_StatementTimeoutIsCounted(t *testing.T) {
	t.Parallel()
	e := newBusiness(t, brokerOn(t, server), core.TransactionSendsAtomicWithReceive)
	const messages = 2
	e.handle = func(ctx context.Context, m *core.Message, body []byte) error {
		if err := e.work(ctx, m, body); err != nil || m.Attempt > 1 {
			return err
		}
		// As if the role had it, but for this transaction alone: the transport's own
		// statements may take long too.
		if err := work(ctx, `select set_config('statement_timeout', $1, true)`, "100ms"); err != nil {
			return err
		}
		err := work(ctx, `select pg_sleep(600) where $1 <> ''`, "x")
		if err == nil {
			t.Error("the statement comes to its end")
		}
		return err
	}
	e.order(messages)
	e.run()
	e.awaitDone()
	e.checkDone(messages)
	e.checkAttempt(2)
	e.checkNoOutage()
}
