package sqlserver_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// refuseRows makes the server refuse operations on rows that were delivered before.
func (e *rowsEndpoint) refuseRows(t *testing.T, operations string) {
	t.Helper()
	name := e.db.table("refuse " + e.queue)
	e.db.exec(t, `create function `+name+`() returns trigger language plpgsql as $$
begin
	if new.claims > 0 then
		raise exception 'no row comes back';
	end if;
	return new;
end $$`)
	e.db.exec(t, `create trigger refuse before `+operations+` on `+e.db.table(e.queue)+` for each row execute function `+name+`()`)
}

// rowsRole returns a configuration with a role that may do what the documentation says,
// and the role.
func (db *testDatabase) rowsRole(t *testing.T) (sqlserver.Config, string) {
	t.Helper()
	role, rawURL := db.role(t)
	db.grant(t, "grant usage on schema "+schemaOf(db)+" to "+role)
	return sqlserver.Config{URL: rawURL}, role
}

// A message that fails needs no insert to be given back. Where the server refuses one, the message is
// counted all the same, and leaves the queue after as many attempts as any other.
func TestAbandon_InsertRefused(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	db := newSchema(t)
	for name, c := range map[string]struct {
		overSQL bool
		revoked bool // the right to insert, while it runs
		trigger string
	}{
		"without the right":              {revoked: true},
		"by a trigger":                   {trigger: "insert"},
		"by a trigger over database/sql": {trigger: "insert", overSQL: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, role := db.rowsRole(t)
			if c.overSQL {
				cfg = sqlserver.Config{DB: openDB(t, cfg.URL)}
			}
			e := newRowsEndpoint(t, db, cfg, core.TransactionSendsAtomicWithReceive)
			db.grant(t, "grant select, insert, update, delete on "+db.table(e.queue)+" to "+role)
			db.grant(t, "grant insert on "+db.table(e.errorQueue)+" to "+role)
			e.races = 2
			started, begin := make(chan struct{}), make(chan struct{})
			e.before = func() { close(started); <-begin }
			const bad = 6 // more than there are slots
			for i := range bad {
				e.insert(t, fmt.Sprint(rowFails, i), hostileRow{})
			}
			if c.trigger != "" {
				e.refuseRows(t, c.trigger)
			}
			e.run(t)
			next(t, "a handler runs", started)
			if c.revoked {
				db.grant(t, "revoke insert on "+db.table(e.queue)+" from "+role)
			}
			close(begin)
			for i := range bad {
				e.checkRow(t, fmt.Sprint(rowFails, i), hostileRow{})
			}
			e.checkHealthy(t)
			if h := e.Health(); h.CriticalErrors > 0 {
				t.Errorf("%d critical errors, the last one: %v", h.CriticalErrors, h.LastCritical.Err)
			}
		})
	}
}

// A delayed retry that the server refuses is tried again with growing pauses, in which no
// handler runs for the message, and others are handled.
func TestDelayedRetry_InsertRefused(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	db := newSchema(t)
	for _, mode := range bothModes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			cfg, role := db.rowsRole(t)
			e := newRowsEndpoint(t, db, cfg, mode, func(c *core.Config) {
				c.Recoverability.Delayed = core.Delayed{NumberOfRetries: 1, TimeIncrease: time.Millisecond}
			})
			db.grant(t, "grant select, insert, update, delete on "+db.table(e.queue)+" to "+role)
			db.grant(t, "grant insert on "+db.table(e.errorQueue)+" to "+role)
			e.races = 2
			started, begin := make(chan struct{}), make(chan struct{})
			e.before = func() { close(started); <-begin }
			const bad = 6
			for i := range bad {
				e.insert(t, fmt.Sprint(rowFails, i), hostileRow{})
			}
			e.run(t)
			next(t, "a handler runs", started)
			db.grant(t, "revoke insert on "+db.table(e.queue)+" from "+role)
			close(begin)
			await(t, "the messages are kept, with critical errors", func() bool { h := e.Health(); return h.Undelivered == bad && h.CriticalErrors >= 2*bad })
			if text := e.Health().LastCritical.Err.Error(); !strings.Contains(text, "permission denied") {
				t.Errorf("the last critical error is %q", text)
			}
			await(t, "the healthy messages are handled", func() bool { return e.healthy.Load() == healthyMessages })
			for i := range bad {
				if n := e.runs(fmt.Sprint(rowFails, i)); n < e.attempts || n > e.attempts+e.races {
					t.Errorf("the handler ran %d times for message %d, want %d", n, i, e.attempts)
				}
			}
			db.grant(t, "grant insert on "+db.table(e.queue)+" to "+role)
			e.attempts *= 2 // those after the delay
			for i := range bad {
				e.checkRow(t, fmt.Sprint(rowFails, i), hostileRow{})
			}
			e.checkHealthy(t)
		})
	}
}
