package sqlserver_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// Where the server refuses what a handler sends, the error says so of each message, and
// the message is still held. Where it refuses what the handler did, or the handler has
// broken the transaction, that is something else.
func TestSend_RefusedInTheHandlersTransaction(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	const raises = `create function refuse() returns trigger language plpgsql as $$ begin raise 'no bills today'; end $$`
	for _, c := range []struct {
		name    string
		prepare []string
		used    string // what the handler does, if it has the transaction
		refused bool
		want    string
	}{
		{"a table that does not exist", []string{`drop table billing`}, `select 1`, true, "billing"},
		{"a table without rights", []string{`revoke insert on billing from current_user`}, `select 1`, true, "permission denied"},
		{"a trigger", []string{raises, `create trigger refuse before insert on billing for each row execute function refuse()`}, `select 1`, true, "no bills today"},
		{"a trigger at the end", []string{raises, `create constraint trigger refuse after insert on billing initially deferred for each row execute function refuse()`}, `select 1`, true, "no bills today"},
		{"work that violates a constraint at the end", []string{raises, `create table work (n integer)`, `create constraint trigger refuse after insert on work initially deferred for each row execute function refuse()`}, `insert into work values (1)`, false, "no bills today"},
		{"work that needs a table at the end", []string{
			`create function look() returns trigger language plpgsql as $$ begin perform * from nowhere; return new; end $$`,
			`create table work (n integer)`, `create constraint trigger look after insert on work initially deferred for each row execute function look()`,
		}, `insert into work values (1)`, false, "nowhere"},
		{"work that has failed", nil, `select 1 / 0`, false, "transaction"},
	} {
		for _, how := range []struct {
			name string
			cfg  func(t *testing.T, url string) sqlserver.Config
		}{{"pgx", overPgxPool}, {"database/sql", overSQLPool}} {
			for _, used := range []bool{true, false} {
				if !used && !c.refused {
					continue // there is no work
				}
				name := c.name + "/" + how.name
				if used {
					name += "/after work"
				}
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					db := newDatabase(t)
					transport := db.open(t, how.cfg(t, db.url))
					provision(t, transport, "orders", "billing")
					send(t, transport, letter("a", "orders"))
					for _, text := range c.prepare {
						db.exec(t, text)
					}
					d := receive(t, openReceiver(t, transport, "orders", core.TransactionSendsAtomicWithReceive))
					if used {
						_ = work(d.BindContext(t.Context()), c.used)
					}
					wantRefused(t, d.CompleteWith(t.Context(), []core.Outgoing{letter("bill", "billing"), letter("copy", "billing")}), c.refused, c.want)
					if c.refused {
						wantRefused(t, d.ReplaceWith(t.Context(), []core.Outgoing{letter("bill", "billing"), letter("copy", "billing")}), true, c.want)
					}
					if err := d.Reset(context.Background()); err != nil {
						t.Fatal(err)
					}
					complete(t, d)
					if n := db.count(t, "orders"); n != "0" {
						t.Errorf("there are %s orders", n)
					}
				})
			}
		}
	}
}

// wantRefused checks the error of a settlement that sends two messages.
func wantRefused(t *testing.T, err error, refused bool, want string) {
	t.Helper()
	if err == nil {
		t.Error("the messages are sent")
		return
	}
	if refused {
		wantSendError(t, err, core.SendRefused, 2)
	} else if failed, ok := errors.AsType[*core.SendError](err); ok {
		t.Errorf("the error of the handler's work is that of messages: %v", failed)
	}
	if missing := strings.Contains(want, "billing"); missing != errors.Is(err, core.ErrQueueNotFound) {
		t.Errorf("the error is %v, of a missing queue: %v", err, !missing)
	}
	if text := err.Error(); !strings.Contains(text, want) || strings.Count(text, "sqlserver: ") != 1 {
		t.Errorf("the error %q does not say %q, or says where it is from more than once", text, want)
	}
}

// TestSend_RefusedContentIsNoOutage: the server has answered, and takes the next message.
func TestSend_RefusedContentIsNoOutage(t *testing.T) {
	t.Parallel()
	for name, refuse := range map[string]string{
		"a constraint": `alter table %s add check (body <> 'bad')`,
		"a trigger": `create function %[1]s_refuse() returns trigger language plpgsql as $$ begin perform 1 / (length(new.body) - 3); return new; end $$;
			create trigger refuse before insert on %[1]s for each row execute function %[1]s_refuse()`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := newDatabase(t)
			transport := db.open(t, sqlserver.Config{})
			provision(t, transport, "billing")
			if _, err := server.Exec(t.Context(), db.name, strings.NewReplacer("%[1]s", "billing", "%s", "billing").Replace(refuse)); err != nil {
				t.Fatal(err)
			}
			ep, err := core.New("sender", transport, core.Config{SendOnly: true, Logger: silent})
			if err != nil {
				t.Fatal(err)
			}
			text := core.NewMessageType[[]byte]("text")
			if err := ep.Send(t.Context(), "billing", text.Of([]byte("good"))); err != nil {
				t.Fatal(err)
			}
			if err := ep.Send(t.Context(), "billing", text.Of([]byte("bad"))); !errors.Is(err, core.ErrMessageRefused) || errors.Is(err, core.ErrUnavailable) {
				t.Errorf("the message is refused with %v, want %v", err, core.ErrMessageRefused)
			}
			if h := ep.Health(); !h.Connected || h.ConnectionError != nil || h.SendError != nil {
				t.Errorf("connected: %v (%v), sends: %v", h.Connected, h.ConnectionError, h.SendError)
			}
		})
	}
}
