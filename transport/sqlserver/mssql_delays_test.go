//go:build mssql

package sqlserver_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// awaitAt waits for n messages in a table and returns their bodies, which stay there.
func (d *mssqlDatabase) awaitAt(t *testing.T, name string, n int) []string {
	t.Helper()
	await(t, fmt.Sprintf("%d messages arrive in %s", n, name), func() bool { return d.count(t, name) >= n })
	bodies := d.column(t, `select cast(Body as varchar(max)) from `+d.table(name))
	slices.Sort(bodies)
	return bodies
}

// TestMSSQL_DelayedMessageWaitsBesideTheirTable, and outlives its sender.
func TestMSSQL_DelayedMessageWaitsBesideTheirTable(t *testing.T) {
	t.Parallel()
	d := newMSSQL(t)
	d.theirs(t, "theirs")
	const delay = 1500 * time.Millisecond
	sender, err := sqlserver.New(d.config(sqlserver.Config{}))
	if err != nil {
		t.Fatal(err)
	}
	out := delayed("1", "theirs", delay)
	out.TimeToBeReceived = time.Hour
	sent := time.Now()
	send(t, sender, out)
	if got := d.column(t, `select Destination from `+d.table("reprise_delayed")); !slices.Equal(got, []string{d.at("theirs")}) {
		t.Errorf("waiting for %q, want %q", got, d.at("theirs"))
	}
	closed(t, sender)
	other := d.open(t, sqlserver.Config{})
	provision(t, other, "ours")
	openReceiver(t, other, "ours", core.TransactionReceiveOnly)
	bodies := d.awaitAt(t, "theirs", 1)
	if took := time.Since(sent); took < delay {
		t.Errorf("they got it after %v, want %v at least", took, delay)
	}
	if n := d.number(t, `select count(*) from `+d.table("theirs")+` where Expires > getutcdate()`); n != 1 || bodies[0] != "1" {
		t.Errorf("they got %q, of which %d expire later", bodies, n)
	}
	if n := d.count(t, "reprise_delayed"); n != 0 {
		t.Errorf("%d messages still wait", n)
	}
}

// TestMSSQL_LongDelay, up to the end of what the server can hold.
func TestMSSQL_LongDelay(t *testing.T) {
	t.Parallel()
	d := newMSSQL(t)
	d.theirs(t, "theirs")
	transport := d.open(t, sqlserver.Config{})
	provision(t, transport, "ours")
	for _, delay := range []time.Duration{24 * time.Hour, 100 * 365 * 24 * time.Hour, math.MaxInt64} {
		for _, queue := range []string{"theirs", "ours"} {
			send(t, transport, delayed("1", queue, delay))
			send(t, transport, delayed("2", queue, delay), letter("3", queue))
		}
	}
	for name, want := range map[string]int{"theirs": 3, "ours": 9, "reprise_delayed": 6} {
		if n := d.count(t, name); n != want {
			t.Errorf("%d rows in %s, want %d", n, name, want)
		}
	}
	for _, name := range []string{"ours", "reprise_delayed"} {
		withinADay := d.number(t, `select count(*) from `+d.table(name)+` where Due between dateadd(hour, 1, sysutcdatetime()) and dateadd(hour, 25, sysutcdatetime())`)
		unbounded := d.number(t, `select count(*) from `+d.table(name)+` where Due > dateadd(year, 99, sysutcdatetime())`)
		if withinADay != 2 || unbounded != 4 {
			t.Errorf("%s: %d are due in a day and %d in a century or more, want 2 and 4", name, withinADay, unbounded)
		}
	}
}

// TestMSSQL_ForwardersShareTheWork: none waits for a row that another session has locked,
// and none forwards what another one does.
func TestMSSQL_ForwardersShareTheWork(t *testing.T) {
	t.Parallel()
	d := newMSSQL(t)
	d.theirs(t, "theirs")
	const forwarders, each = 3, 150 // more than one batch
	transports := make([]*sqlserver.Transport, forwarders)
	for i := range transports {
		transports[i] = d.open(t, sqlserver.Config{})
	}
	provision(t, transports[0])
	send(t, transports[0], delayed("locked", "theirs", 1500*time.Millisecond))
	_, unlock := d.lock(t, `select count(*) from `+d.table("reprise_delayed")+` with (xlock, rowlock, holdlock)`)
	for i, transport := range transports {
		msgs := make([]core.Outgoing, each)
		for j := range msgs {
			msgs[j] = delayed(fmt.Sprintf("%d-%d", i, j), "theirs", 1500*time.Millisecond)
		}
		send(t, transport, msgs...)
	}
	bodies := d.awaitAt(t, "theirs", forwarders*each)
	if slices.Contains(bodies, "locked") {
		t.Error("the locked message was forwarded")
	}
	unlock()
	bodies = d.awaitAt(t, "theirs", forwarders*each+1)
	if len(slices.Compact(bodies)) != forwarders*each+1 || d.count(t, "theirs") != forwarders*each+1 {
		t.Errorf("they got %d messages, some of them twice", d.count(t, "theirs"))
	}
}

// TestMSSQL_DelayedMessageIsCommittedLate: when it is due has come and
// gone by then.
func TestMSSQL_DelayedMessageIsCommittedLate(t *testing.T) {
	t.Parallel()
	d := newMSSQL(t)
	d.theirs(t, "theirs")
	transport := d.open(t, sqlserver.Config{})
	provision(t, transport)
	tx, err := d.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := transport.Send(sqlserver.WithSQLTx(t.Context(), tx), delayed("1", "theirs", 100*time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.ExecContext(t.Context(), `waitfor delay '00:00:00.500'`); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	d.awaitAt(t, "theirs", 1)
}

// TestMSSQL_QueueOfADelayedMessageIsGone holds up no other, is told, and ends in the
// error queue.
func TestMSSQL_QueueOfADelayedMessageIsGone(t *testing.T) {
	t.Parallel()
	d := newMSSQL(t)
	d.theirs(t, "gone", "theirs")
	transport := d.open(t, sqlserver.Config{})
	transport.WaitToForward(time.Hour, 10*time.Millisecond, 10*time.Millisecond)
	provision(t, transport, "failures")
	told := &undeliverables{}
	told.listens(t, transport, "failures")
	const delay = time.Second
	send(t, transport, delayed("0", "gone", delay), delayed("1", "theirs", delay), delayed("2", "gone", delay), delayed("3", "theirs", delay))
	d.exec(t, `drop table `+d.table("gone"))
	if got := d.awaitAt(t, "theirs", 2); !slices.Equal(got, []string{"1", "3"}) {
		t.Errorf("they got %q", got)
	}
	if got := d.awaitAt(t, "failures", 2); !slices.Equal(got, []string{"0", "2"}) {
		t.Errorf("the error queue has %q", got)
	}
	for _, id := range []string{"0", "2"} {
		await(t, "all is told of message "+id, func() bool { return len(told.forMessage(id)) == 3 })
		for i, e := range told.forMessage(id) {
			if e.Queue != d.at("gone") || e.Tries != i+1 || (e.MovedTo != "") != (i == 2) {
				t.Errorf("try %d of message %s was told as %+v", i+1, id, e)
			}
		}
	}
	if n := d.count(t, "reprise_delayed"); n != 0 {
		t.Errorf("%d messages still wait", n)
	}
}
