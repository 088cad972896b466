package sqlserver_test

import (
	"context"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/internal/testserver/postgres"
	"github.com/reprise-go/reprise/internal/testserver/proxy"
)

// settings changes the server's configuration while it runs.
func settings(t *testing.T, s *postgres.Server, text string) {
	t.Helper()
	if _, err := s.Exec(t.Context(), "postgres", text+`; select pg_reload_conf()`); err != nil {
		t.Fatal(err)
	}
}

// handleFirst lets the endpoint handle some messages, and no more until goOn. Tests wait for ten:
// on a busy machine a few of them can lose their lease.
func (e *business) handleFirst() (goOn func()) {
	var handled atomic.Int64
	gate := make(chan struct{})
	e.handle = func(ctx context.Context, m *core.Message, body []byte) error {
		if handled.Add(1) > 20 {
			select {
			case <-gate:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return e.work(ctx, m, body)
	}
	return sync.OnceFunc(func() { close(gate) })
}

// awaitReadOnly returns when the transport has noticed that it cannot write, and nothing
// that began before goes on.
func (e *business) awaitReadOnly() {
	e.t.Helper()
	await(e.t, "the endpoint has noticed", func() bool {
		return e.log.count("read-only")+len(e.changes.all()) > 0
	})
	await(e.t, "a statement that had begun before ends", func() bool {
		return e.number(`select count(*) from pg_stat_activity where usename = $1 and backend_xid is not null`, postgres.User) == 0
	})
}

// becomesReadOnly makes a server read-only when its endpoints have handled some, and lets
// them go on. It refuses messages then, which are certainly not sent, and receivers wait.
func becomesReadOnly(t *testing.T, s *postgres.Server, all []*business, goOn []func()) {
	t.Helper()
	for _, e := range all {
		await(t, "messages are handled", func() bool { return e.written() >= 10 })
	}
	settings(t, s, `alter system set default_transaction_read_only = on`)
	for _, e := range all {
		await(t, "the sessions know", func() bool {
			return e.number(`select count(*) where current_setting('default_transaction_read_only') = 'on'`) == 1
		})
	}
	for _, on := range goOn {
		on()
	}
	for _, e := range all {
		e.awaitReadOnly()
		transport := open(t, e.transport)
		wantSendError(t, transport.Send(t.Context(), letter("x", outputQueue)), core.SendRefused, 1)
		if n := e.waiting(); n == 0 {
			t.Error("all messages were consumed, too soon for this test")
		}
	}
}

// When it can be written to again, everything is handled.
func TestOutage_ServerIsReadOnly(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	const messages = 100
	s := postgres.StartFor(t, postgres.Config{})
	var all []*business
	var goOn []func()
	for _, mode := range bothModes {
		e := newBusiness(t, brokerOn(t, s), mode)
		e.order(messages)
		goOn = append(goOn, e.handleFirst())
		e.run()
		all = append(all, e)
	}
	becomesReadOnly(t, s, all, goOn)
	settings(t, s, `set default_transaction_read_only = off; alter system reset default_transaction_read_only`)
	for _, e := range all {
		e.awaitDone()
		e.checkDone(messages)
	}
}

// The primary becomes read-only, its standby is promoted, and the transport, which
// knows both, goes over to it. Nothing that was committed is lost, because commits wait
// for the standby.
func TestOutage_StandbyTakesOver(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	const messages = 100
	primary := postgres.StartFor(t, postgres.Config{})
	standby, err := primary.StartStandby()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := standby.Stop(); err != nil {
			t.Error(err)
		}
	})
	settings(t, primary, `alter system set synchronous_commit = remote_apply; alter system set synchronous_standby_names = '*'`)
	second, err := proxy.New(standby.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = second.Close() })
	var all []*business
	var goOn []func()
	for _, mode := range bothModes {
		b := brokerOn(t, primary)
		u, err := url.Parse(b.url)
		if err != nil {
			t.Fatal(err)
		}
		u.Host = second.Addr() + "," + b.proxy.Addr()
		b.url = withOptions(t, u.String(), "target_session_attrs", "read-write")
		e := newBusiness(t, b, mode)
		if u, err = url.Parse(primary.URL(b.database)); err != nil {
			t.Fatal(err)
		}
		u.Host = standby.Addr() + "," + primary.Addr()
		e.app = poolOf(t, withOptions(t, u.String(), "target_session_attrs", "read-write"))
		e.transport.Lease = outageLease
		e.order(messages)
		goOn = append(goOn, e.handleFirst())
		e.run()
		all = append(all, e)
	}
	becomesReadOnly(t, primary, all, goOn)
	if err := standby.Promote(); err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		e.app.Reset() // its sessions are with the old primary
		e.awaitDone()
		e.checkDone(messages)
		old := poolOf(t, primary.URL(e.broker.database))
		await(t, "the connections to the old primary are given up", func() bool {
			var left int
			err := old.QueryRow(t.Context(), `select count(*) from pg_stat_activity where usename = $1 and datname = $2`, postgres.User, e.broker.database).Scan(&left)
			return err == nil && left == 0
		})
	}
	if err := primary.Kill(); err != nil { // no test misses it
		t.Error(err)
	}
}
