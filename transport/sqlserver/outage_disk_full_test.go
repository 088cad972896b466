package sqlserver_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/internal/testserver/postgres"
)

// disk prepares a disk for a table, on which fill and empty set how full it is: while it
// is full, these operations on the table fail.
func (e *business) disk(table, operations string) {
	e.t.Helper()
	e.exec(`create table disk (full_since timestamptz)`)
	e.exec(`grant select on disk to ` + postgres.User)
	e.exec(`create function no_space() returns trigger language plpgsql as $$
begin
	if exists (select from disk) then
		raise exception 'could not extend file' using errcode = 'disk_full', hint = 'Check free disk space.';
	end if;
	return case tg_op when 'DELETE' then old else new end;
end $$`)
	e.exec(`create trigger no_space before ` + operations + ` on ` + table + ` for each row execute function no_space()`)
}

func (e *business) fill() { e.t.Helper(); e.exec(`insert into disk values (now())`) }

func (e *business) empty() { e.t.Helper(); e.exec(`delete from disk`) }

// A handler fails, and for want of room the message cannot be given back with its
// higher count. No other process decides later about it.
func TestOutage_DiskFullMessageIsRedelivered(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	for _, mode := range bothModes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			e := newBusiness(t, brokerOn(t, server), mode)
			e.transport.Lease = 3 * time.Second // a settlement is tried until it ends
			e.config.Concurrency = 1
			const n = 4 // more than an endpoint with one slot may hold
			started, fail := make(chan struct{}, n), make(chan struct{})
			failures := 0
			e.handle = func(ctx context.Context, m *core.Message, body []byte) error {
				if failures++; failures > n {
					return e.work(ctx, m, body)
				}
				started <- struct{}{}
				select {
				case <-fail:
				case <-t.Context().Done():
				}
				return errors.New("as ordered")
			}
			e.order(n)
			e.disk(inputQueue, "insert or update")
			e.run()
			for range n {
				next(t, "a message is handled", started)
				e.fill()
				fail <- struct{}{}
				await(t, "the message could not be settled, or its lease not be renewed before", func() bool {
					return e.log.count("message could not be settled")+e.log.count(core.ErrUncounted.Error())+e.log.count("lock on a message was lost") > 0
				})
				e.log.clear()
				e.empty()
			}
			e.awaitDone()
			e.checkDone(n)
		})
	}
}

// While a disk is full messages stay where they are, and nothing is half done. When
// there is room again everything goes on.
func TestOutage_DiskFullUnderLoad(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	for _, c := range []struct {
		name              string
		table, operations string
	}{
		{"that of the messages received", inputQueue, "insert or update or delete"},
		{"that of the messages sent", outputQueue, "insert"},
		{"that of the application", "written", "insert"},
	} {
		for _, mode := range bothModes {
			t.Run(c.name+"/"+mode.String(), func(t *testing.T) {
				t.Parallel()
				const messages = 100
				e := newBusiness(t, brokerOn(t, server), mode)
				e.transport.Lease = 3 * time.Second // a settlement is tried until it ends
				e.disk(c.table, c.operations)
				goOn := e.handleFirst()
				e.order(messages)
				e.run()
				await(t, "messages are handled", func() bool { return e.written() >= 10 })
				e.fill()
				goOn()
				refused := func() int {
					return e.log.count("could not extend file") + e.log.count("could not be settled") + len(e.changes.all())
				}
				await(t, "something is refused", func() bool { return refused() > 0 })
				done := messages - e.waiting()
				if e.mode == core.TransactionSendsAtomicWithReceive && e.written() > done+e.config.Concurrency {
					t.Errorf("%d messages were handled, but only %d consumed", e.written(), done)
				}
				e.empty()
				e.awaitDone()
				e.checkDone(messages)
			})
		}
	}
}
