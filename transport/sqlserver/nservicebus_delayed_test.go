package sqlserver_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// delayed is a letter that becomes available later.
func delayed(id, queue string, delay time.Duration) core.Outgoing {
	out := letter(id, queue)
	out.Delay = delay
	return out
}

func TestNServiceBus_DelayedMessageWaitsBesideTheirTable(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	waiting := db.table("reprise_delayed")
	theirs := db.theirTable(t, "theirs")
	transport := db.open(t, sqlserver.Config{}) // a sender: it receives nothing
	const delay = 500 * time.Millisecond
	headers := map[string]string{headers.MessageID: "1", "a": "\x00/\"\\ \u00e4"}
	out := core.Outgoing{ID: "1", Queue: "theirs", Headers: core.HeadersFromMap(headers), Body: []byte("b\x00"), Delay: delay, TimeToBeReceived: time.Hour}
	sent := time.Now()
	send(t, transport, out)
	if got := db.column(t, `select destination from `+waiting); !slices.Equal(got, []string{theirs}) && time.Since(sent) < delay {
		t.Errorf("waiting for %q, want %q", got, theirs)
	}
	row := db.awaitAsThey(t, theirs)
	took := time.Since(sent)
	if took < delay {
		t.Errorf("they got it after %v, want %v at least", took, delay)
	}
	if !maps.Equal(row.headers, inColumn(t, headers)) || string(row.body) != "b\x00" || row.expired != 0 {
		t.Errorf("they got %+v", row)
	}
	if n := db.count(t, waiting); n != "0" {
		t.Errorf("%s messages still wait", n)
	}
}

func TestNServiceBus_TimeToBeReceivedCountsFromTheSend(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	theirs := db.theirTable(t, "theirs")
	out := delayed("1", "theirs", 50*time.Millisecond)
	out.TimeToBeReceived = 10 * time.Millisecond
	send(t, db.open(t, sqlserver.Config{}), out)
	if row := db.awaitAsThey(t, theirs); row.expired != 1 {
		t.Errorf("they got %+v, which has expired", row)
	}
}

func TestNServiceBus_LongDelay(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	theirs := db.theirTable(t, "theirs")
	transport := db.open(t, sqlserver.Config{})
	provision(t, transport, "ours")
	for _, delay := range []time.Duration{24 * time.Hour, 100 * 365 * 24 * time.Hour, math.MaxInt64} {
		for _, queue := range []string{"theirs", "ours"} {
			send(t, transport, delayed("1", queue, delay))
			send(t, transport, delayed("2", queue, delay), letter("3", queue))
		}
	}
	for table, want := range map[string]string{theirs: "3", db.table("ours"): "9", db.table("reprise_delayed"): "6"} {
		if n := db.count(t, table); n != want {
			t.Errorf("%s rows in %s, want %s", n, table, want)
		}
	}
	for _, table := range []string{db.table("ours"), db.table("reprise_delayed")} {
		withinADay := db.column(t, `select due::text from `+table+` where due between now() + interval '1 hour' and now() + interval '25 hours'`)
		unbounded := db.column(t, `select due::text from `+table+` where due > now() + interval '99 years'`)
		if len(withinADay) != 2 || len(unbounded) != 4 {
			t.Errorf("%s: due in a day %q, in a century or more %q", table, withinADay, unbounded)
		}
	}
}

// TestNServiceBus_DelayedMessageOutlivesItsSender: any transport that receives forwards it.
func TestNServiceBus_DelayedMessageOutlivesItsSender(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	theirs := db.theirTable(t, "theirs")
	const delay = 1500 * time.Millisecond
	sender, err := sqlserver.New(sqlserver.Config{URL: db.url, Schema: db.schema})
	if err != nil {
		t.Fatal(err)
	}
	sent := time.Now()
	send(t, sender, delayed("1", "theirs", delay))
	closed(t, sender)
	other := db.open(t, sqlserver.Config{})
	other.PollToForward(time.Hour) // it looks at once, and when it has seen that something is due
	provision(t, other, "ours")
	openReceiver(t, other, "ours", core.TransactionReceiveOnly)
	row := db.awaitAsThey(t, theirs)
	if took := time.Since(sent); took < delay {
		t.Errorf("they got it after %v, want %v", took, delay)
	}
	if row.headers[headers.MessageID] != "1" {
		t.Errorf("they got %+v", row)
	}
}

// TestNServiceBus_ForwardersShareTheWork: none waits for a row that another one has, and none
// forwards what another one does.
func TestNServiceBus_ForwardersShareTheWork(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	db := newSchema(t)
	theirs, waiting := db.theirTable(t, "theirs"), db.table("reprise_delayed")
	const forwarders, each = 3, 150 // more than one batch
	transports := make([]*sqlserver.Transport, forwarders)
	for i := range transports {
		transports[i] = db.open(t, sqlserver.Config{})
	}
	provision(t, transports[0])
	const delay = 5 * time.Second // until the row is locked
	sent := time.Now()
	for i, transport := range transports {
		msgs := make([]core.Outgoing, each)
		for j := range msgs {
			msgs[j] = delayed(fmt.Sprintf("%d-%d", i, j), "theirs", delay)
		}
		send(t, transport, msgs...)
	}
	// Somebody has one row, and does not let go of it.
	tx, err := db.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), `select from `+waiting+` order by due, seq limit 1 for update`); err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for len(got) < forwarders*each-1 {
		row := db.awaitAsThey(t, theirs)
		if took := time.Since(sent); took < delay {
			t.Fatalf("they got %s after %v", row.body, took)
		}
		got[string(row.body)]++
	}
	if n := db.count(t, waiting); n != "1" {
		t.Errorf("%s messages still wait, want the one that is locked", n)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	send(t, transports[0], delayed("last", "theirs", time.Millisecond)) // so that no receiver has to wait for the next poll
	for range 2 {
		got[string(db.awaitAsThey(t, theirs).body)]++
	}
	for id, n := range got {
		if n != 1 {
			t.Errorf("they got %s %d times", id, n)
		}
	}
	if n := db.count(t, theirs); n != "0" || len(got) != forwarders*each+1 {
		t.Errorf("they got %d different messages, and %s more wait", len(got), n)
	}
}

// TestNServiceBus_QueueBecomesOneOfReprise is forwarded to it too.
func TestNServiceBus_QueueBecomesOneOfReprise(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	theirs := db.theirTable(t, "q")
	transport := db.open(t, sqlserver.Config{})
	send(t, transport, delayed("1", "q", time.Hour))
	db.exec(t, `drop table `+theirs)
	provision(t, transport, "q")
	db.forwardNow(t, transport)
	r := openReceiver(t, transport, "q", core.TransactionReceiveOnly)
	d := receive(t, r)
	if id := d.Incoming().ID; id != "1" {
		t.Errorf("received %s", id)
	}
	complete(t, d)
}

// TestNServiceBus_DelayedMessageOfAHandlersTransaction: without a commit nothing
// waits, with it each message once.
func TestNServiceBus_DelayedMessageOfAHandlersTransaction(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	input, theirs, waiting := db.theirTable(t, "input"), db.theirTable(t, "theirs"), db.table("reprise_delayed")
	transport := db.open(t, sqlserver.Config{NServiceBusTables: true})
	provision(t, transport)
	db.exec(t, on(input, theirSend), "11111111-1111-4111-8111-111111111111", nil, theirHeaders, nil)
	r := openReceiver(t, transport, "input", core.TransactionSendsAtomicWithReceive)
	d := receive(t, r)
	err := d.CompleteWith(t.Context(), []core.Outgoing{delayed("0", "theirs", time.Millisecond), letter("0", "no such queue")})
	if !errors.Is(err, core.ErrQueueNotFound) {
		t.Errorf("CompleteWith = %v, want ErrQueueNotFound", err)
	}
	if n := db.count(t, waiting); n != "0" {
		t.Errorf("%s messages wait after a CompleteWith that failed", n)
	}
	if err := d.CompleteWith(t.Context(), []core.Outgoing{delayed("1", "theirs", time.Millisecond), letter("2", "theirs")}); err != nil {
		t.Fatal(err)
	}
	got := []string{string(db.awaitAsThey(t, theirs).body), string(db.awaitAsThey(t, theirs).body)}
	if slices.Sort(got); !slices.Equal(got, []string{"1", "2"}) {
		t.Errorf("they got %q", got)
	}
	if n := db.count(t, theirs); n != "0" {
		t.Errorf("they get %s more", n)
	}
}

// TestNServiceBus_DelayedMessageIsCommittedLate: when it is due has come and
// gone by then, and so has the look at the table at that time.
func TestNServiceBus_DelayedMessageIsCommittedLate(t *testing.T) {
	t.Parallel()
	const delay = 100 * time.Millisecond
	pause := fmt.Sprint((5 * delay).Seconds())
	for name, commitLate := range map[string]func(t *testing.T, db *testDatabase, transport *sqlserver.Transport){
		"because the server is slow": func(t *testing.T, db *testDatabase, transport *sqlserver.Transport) {
			slow := db.table("slow")
			db.exec(t, `create function `+slow+`() returns trigger language plpgsql as 'begin perform pg_sleep(`+pause+`); return null; end'`)
			db.exec(t, `create trigger slow after insert on `+db.table("reprise_delayed")+` execute function `+slow+`()`)
			send(t, transport, delayed("1", "theirs", delay))
		},
		"by a caller": func(t *testing.T, db *testDatabase, transport *sqlserver.Transport) {
			tx, err := db.pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			send(t, &inTransaction{transport, tx}, delayed("1", "theirs", delay))
			if _, err := tx.Exec(t.Context(), `select pg_sleep(`+pause+`)`); err != nil {
				t.Fatal(err)
			}
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := newSchema(t)
			theirs := db.theirTable(t, "theirs")
			transport := db.open(t, sqlserver.Config{})
			transport.PollToForward(time.Hour)
			provision(t, transport)
			commitLate(t, db, transport)
			db.awaitAsThey(t, theirs)
		})
	}
}
