//go:build mssql

package sqlserver_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// TestMSSQL_ConnectionBreaksAtASend: what became of the messages is unknown, they are
// there or not, all of them or none, and are not sent again.
func TestMSSQL_ConnectionBreaksAtASend(t *testing.T) {
	t.Parallel()
	for name, list := range map[string][]core.Outgoing{
		"one message":   {letter("a", "orders")},
		"to two queues": {letter("a", "invoices"), letter("b", "orders")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newMSSQL(t)
			network, url := d.through(t)
			transport := d.open(t, sqlserver.Config{URL: url})
			provision(t, transport, "orders", "invoices", "error")
			waiting, unlock := d.lockTable(t, "orders")
			outcome := make(chan error, 1)
			go func() { outcome <- transport.Send(t.Context(), list...) }()
			await(t, "the send waits for the lock", waiting)
			network.Cut()
			wantSendError(t, next(t, "Send returns", outcome), core.SendUnknown, len(list))
			await(t, "the server has noticed", func() bool { return !waiting() })
			unlock()
			if n := d.count(t, "orders") + d.count(t, "invoices"); n != 0 && n != len(list) {
				t.Errorf("%d messages have arrived, want all %d or none", n, len(list))
			}
			send(t, transport, letter("c", "error")) // the next one is none the worse
		})
	}
}

// TestMSSQL_SendIsRefused: where the server has not begun, or has said no, a message
// is certainly not sent.
func TestMSSQL_SendIsRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault func(t *testing.T, d *mssqlDatabase) (cfg sqlserver.Config, begin func())
		to    []string
	}{
		"nobody answers": {func(t *testing.T, d *mssqlDatabase) (sqlserver.Config, func()) {
			network, url := d.through(t)
			return sqlserver.Config{URL: url}, func() {
				if err := network.Refuse(); err != nil {
					t.Fatal(err)
				}
				network.Cut()
			}
		}, []string{"orders"}},
		"one queue does not exist": {func(*testing.T, *mssqlDatabase) (sqlserver.Config, func()) {
			return sqlserver.Config{}, func() {}
		}, []string{"orders", "elsewhere"}},
		"a lock is held for too long": {func(t *testing.T, d *mssqlDatabase) (sqlserver.Config, func()) {
			return sqlserver.Config{DB: d.session(t, `set lock_timeout 50`)}, func() { d.lockTable(t, "orders") }
		}, []string{"orders"}},
		"a constraint is violated": {func(t *testing.T, d *mssqlDatabase) (sqlserver.Config, func()) {
			return sqlserver.Config{}, func() {
				d.exec(t, `alter table `+d.table("orders")+` add constraint `+bracketed("none "+d.schema)+` check (datalength(Body) > 1000)`)
			}
		}, []string{"invoices", "orders"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newMSSQL(t)
			provision(t, d.open(t, sqlserver.Config{}), "orders", "invoices")
			cfg, begin := c.fault(t, d)
			transport := d.open(t, cfg)
			begin()
			var list []core.Outgoing
			for i, to := range c.to {
				list = append(list, letter(fmt.Sprint(i), to))
			}
			wantSendError(t, transport.Send(t.Context(), list...), core.SendRefused, len(list))
			if n := d.number(t, `select count(*) from `+d.table("invoices")); n != 0 {
				t.Errorf("%d messages were sent", n)
			}
		})
	}
}

// TestMSSQL_ConnectionBreaksAtASettlement: it is repeated while the lease holds.
func TestMSSQL_ConnectionBreaksAtASettlement(t *testing.T) {
	t.Parallel()
	for _, action := range leaseActions {
		t.Run(action.name, func(t *testing.T) {
			t.Parallel()
			d := newMSSQL(t)
			network, url := d.through(t)
			transport := d.open(t, sqlserver.Config{URL: url, Lease: time.Minute})
			provision(t, transport, "orders")
			send(t, transport, letter("1", "orders"))
			r := openReceiver(t, transport, "orders", core.TransactionReceiveOnly)
			m := receive(t, r)
			network.Cut()
			if err := action.do(t.Context(), m); err != nil {
				t.Errorf("it returns %v, though the lease holds", err)
			}
			switch {
			case action.name == "renew":
				complete(t, m)
			case action.count > 0:
				redelivered := receive(t, r)
				if n := redelivered.Incoming().DeliveryCount; n != action.count {
					t.Errorf("it is redelivered with the count %d, want %d", n, action.count)
				}
				complete(t, redelivered)
			}
			if n := d.count(t, "orders"); n != 0 {
				t.Errorf("%d messages are left", n)
			}
		})
	}
}

// TestMSSQL_ProcessPausedBeyondItsLease: what it says is too late, and
// changes nothing for the receiver that has the message now.
func TestMSSQL_ProcessPausedBeyondItsLease(t *testing.T) {
	t.Parallel()
	for _, action := range leaseActions {
		t.Run(action.name, func(t *testing.T) {
			t.Parallel()
			d := newMSSQL(t)
			paused := d.open(t, sqlserver.Config{Lease: minLease})
			provision(t, paused, "orders")
			send(t, paused, letter("1", "orders"))
			m := receive(t, openReceiver(t, paused, "orders", core.TransactionReceiveOnly))
			theirs := receive(t, openReceiver(t, d.open(t, sqlserver.Config{Lease: time.Minute}), "orders", core.TransactionReceiveOnly))
			row := func() string {
				return d.column(t, `select concat(convert(varchar(40), LeasedUntil, 126), ' ', Claims, ' ', Deliveries, ' ', LastError) from `+d.table("orders"))[0]
			}
			before := row()
			if err := action.do(t.Context(), m); err == nil {
				t.Error("it returns nil, though the lease has ended")
			}
			if now := row(); now != before {
				t.Errorf("the row is now %q, want %q", now, before)
			}
			complete(t, theirs)
		})
	}
}
