package sqlserver_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// undeliverables is an observer that keeps what it is told.
type undeliverables struct {
	mu  sync.Mutex
	all []core.Undeliverable
}

// MessageUndeliverable is that of a core.ReceiverConfig.
func (u *undeliverables) MessageUndeliverable(e core.Undeliverable) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.all = append(u.all, e)
}

// forMessage returns the reports about a message.
func (u *undeliverables) forMessage(id string) (told []core.Undeliverable) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, e := range u.all {
		if e.MessageID == id {
			told = append(told, e)
		}
	}
	return told
}

// listens opens a receiver of a queue "ours", which listens to what cannot be delivered.
func (u *undeliverables) listens(t *testing.T, transport *sqlserver.Transport, errorQueue string) core.Receiver {
	t.Helper()
	provision(t, transport, "ours")
	r, err := transport.OpenReceiver(t.Context(), core.ReceiverConfig{Queue: "ours", Mode: core.TransactionReceiveOnly, MaxInFlight: 1, MessageUndeliverable: u.MessageUndeliverable, ErrorQueue: errorQueue})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close(context.WithoutCancel(t.Context())) })
	return r
}

// forwardNow makes all delayed messages due, and lets transports look.
func (db *testDatabase) forwardNow(t *testing.T, transports ...*sqlserver.Transport) {
	t.Helper()
	db.exec(t, `update `+db.table("reprise_delayed")+` set due = now()`)
	for _, transport := range transports {
		transport.LookToForward()
	}
}

// TestUndeliverable_BlocksNoOther: a delayed message whose queue is gone waits on with
// the error in its row, it is told, and the others are punctual. Made again, its queue
// gets it.
func TestUndeliverable_BlocksNoOther(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	gone, theirs, waiting := db.theirTable(t, "gone"), db.theirTable(t, "theirs"), db.table("reprise_delayed")
	transport := db.open(t, sqlserver.Config{})
	told := &undeliverables{}
	told.listens(t, transport, "")
	const delay = time.Hour
	send(t, transport, delayed("0", "gone", delay), delayed("1", "theirs", delay), delayed("2", "gone", delay), delayed("3", "theirs", delay))
	// An address that cannot be read, as an older or a newer version might write.
	db.exec(t, `insert into `+waiting+` (destination, headers, body, due) values ('"half', '{}', '', now())`)
	db.exec(t, `drop table `+gone)
	db.forwardNow(t, transport)
	for _, want := range []string{"1", "3"} {
		if row := db.awaitAsThey(t, theirs); string(row.body) != want {
			t.Errorf("they got %s, want %s", row.body, want)
		}
	}
	postponed := `select attempts || ' ' || last_error from ` + waiting + ` where attempts > 0 order by seq`
	await(t, "the others are postponed", func() bool { return len(db.column(t, postponed)) == 3 })
	for i, want := range []string{"gone", "gone", "half"} {
		if got := db.column(t, postponed)[i]; !strings.Contains(got, want) {
			t.Errorf("postponed after %q, want an error that names %q", got, want)
		}
	}
	for id, c := range map[string]struct {
		queue string
		is    error
	}{"0": {gone, core.ErrQueueNotFound}, "2": {gone, core.ErrQueueNotFound}, "": {`"half`, nil}} {
		await(t, "message "+id+" is told", func() bool { return len(told.forMessage(id)) > 0 })
		e := told.forMessage(id)[0]
		if e.Queue != c.queue || e.Tries != 1 || e.RetryIn != sqlserver.ForwardWaits()[0] || e.MovedTo != "" || e.Err == nil || c.is != nil && !errors.Is(e.Err, c.is) {
			t.Errorf("told of message %q: %+v", id, e)
		}
	}
	// The queue comes back, and the operator does not want to wait.
	db.theirTable(t, "gone")
	db.exec(t, `update `+waiting+` set due = now()`)
	send(t, transport, delayed("4", "gone", time.Millisecond)) // so that the test need not wait either
	var got []string
	for range 3 {
		got = append(got, string(db.awaitAsThey(t, gone).body))
	}
	if slices.Sort(got); !slices.Equal(got, []string{"0", "2", "4"}) {
		t.Errorf("they got %q", got)
	}
}

// TestUndeliverable_EndsInTheErrorQueue of the endpoint, after the last try, with its
// body, the reason and its destination. An operator reads of the first try and of the
// move, and a critical error is raised once.
func TestUndeliverable_EndsInTheErrorQueue(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	for _, c := range []struct {
		name   string
		errors func(t *testing.T, db *testDatabase, transport *sqlserver.Transport)
	}{
		{"made by Reprise", func(t *testing.T, _ *testDatabase, transport *sqlserver.Transport) {
			provision(t, transport, "failures")
		}},
		{"made by NServiceBus", func(t *testing.T, db *testDatabase, _ *sqlserver.Transport) { db.theirTable(t, "failures") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			db := newSchema(t)
			gone := db.theirTable(t, "gone")
			transport := db.open(t, sqlserver.Config{})
			transport.WaitToForward(time.Hour, time.Millisecond, time.Millisecond, time.Millisecond)
			provision(t, transport, "ours")
			c.errors(t, db, transport)
			var log logLines
			told := &undeliverables{}
			criticals := make(chan error, 10)
			ep, err := core.New("ours", transport, core.Config{
				Provision: core.ProvisionNever,
				Observers: []core.Observer{{
					MessageUndeliverable: told.MessageUndeliverable,
					CriticalError:        func(_ context.Context, _ *core.Endpoint, err error) { criticals <- err },
				}},
				Logger:         slog.New(slog.NewTextHandler(io.MultiWriter(t.Output(), &log), nil)),
				Recoverability: core.Recoverability{ErrorQueue: "failures"},
			})
			if err != nil {
				t.Fatal(err)
			}
			core.HandleDefault(ep, func(context.Context, *core.Message) error { return nil })
			ctx, stop := context.WithCancel(t.Context())
			ran := make(chan error, 1)
			go func() { ran <- ep.Run(ctx) }()
			<-ep.Ready()
			db.exec(t, `drop table `+gone)
			for i := range 3 {
				id := fmt.Sprint(i + 1)
				text, err := json.Marshal(map[string]string{headers.MessageID: id, "a": "b", headers.ExceptionMessage: "of another failure"})
				if err != nil {
					t.Fatal(err)
				}
				db.exec(t, `insert into `+db.table("reprise_delayed")+` (destination, headers, body, due, expires)
					values ($1, $2, $3, now(), (now() + interval '1 hour') at time zone 'utc')`, gone, string(text), []byte("body "+id))
			}
			send(t, transport, delayed("wake", "ours", time.Millisecond))
			critical := next(t, "a critical error is raised", criticals)
			if !strings.Contains(critical.Error(), "4 tries") || !strings.Contains(critical.Error(), "failures") || !errors.Is(critical, core.ErrQueueNotFound) {
				t.Errorf("the critical error is %v", critical)
			}
			// The reader's transport forwards, too, with pauses of minutes between its tries.
			await(t, "all are moved", func() bool { return db.count(t, db.table("reprise_delayed")) == "0" })
			got := map[string]string{}
			r := openReceiverOf(t, db, "failures")
			for range 3 {
				d := receive(t, r)
				in := d.Incoming()
				got[in.ID] = string(in.Body)
				for key, want := range map[string]string{headers.FailedQ: gone, "a": "b"} {
					if v := in.Headers.Get(key); v != want {
						t.Errorf("message %s: header %s is %q, want %q", in.ID, key, v, want)
					}
				}
				if reason := in.Headers.Get(headers.ExceptionMessage); !strings.Contains(reason, "gone") || !strings.Contains(reason, core.ErrQueueNotFound.Error()) {
					t.Errorf("message %s: the reason is %q", in.ID, reason)
				}
				if _, err := headers.ParseTime(in.Headers.Get(headers.TimeOfFailure)); err != nil {
					t.Errorf("message %s: the time of the failure: %v", in.ID, err)
				}
				complete(t, d)
			}
			if got["1"] != "body 1" || got["2"] != "body 2" || got["3"] != "body 3" {
				t.Errorf("the error queue has %v", got)
			}
			for _, id := range []string{"1", "2", "3"} {
				await(t, "all is told of message "+id, func() bool { return len(told.forMessage(id)) == 4 })
				for i, e := range told.forMessage(id) {
					if e.Tries != i+1 || (e.MovedTo != "") != (i == 3) || (e.RetryIn == 0) != (i == 3) || e.MoveErr != nil {
						t.Errorf("try %d of message %s was told as %+v", i+1, id, e)
					}
				}
			}
			stop()
			if err := next(t, "Run returns", ran); err != nil {
				t.Error(err)
			}
			if first, moved := log.count("cannot be put into its queue; it is tried again"), log.count("was moved to the error queue"); first != 3 || moved != 3 {
				t.Errorf("%d lines about first tries and %d about moves, want 3 each", first, moved)
			}
			if n := len(criticals); n != 0 {
				t.Errorf("%d more critical errors about the same queue", n)
			}
			if n := db.count(t, db.table("reprise_delayed")); n != "0" {
				t.Errorf("%s messages still wait", n)
			}
		})
	}
}

// openReceiverOf receives from a queue made by either.
func openReceiverOf(t *testing.T, db *testDatabase, queue string) core.Receiver {
	t.Helper()
	for _, foreign := range []bool{false, true} {
		transport := db.open(t, sqlserver.Config{NServiceBusTables: foreign})
		if r, err := transport.OpenReceiver(t.Context(), core.ReceiverConfig{Queue: queue, Mode: core.TransactionNone, MaxInFlight: 1}); err == nil {
			return r
		}
	}
	t.Fatalf("nobody can receive from %s", queue)
	return nil
}

// TestUndeliverable_ErrorQueueIsMissingToo it stays, that is told, and it is moved
// when the error queue is there again.
func TestUndeliverable_ErrorQueueIsMissingToo(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	gone := db.theirTable(t, "gone")
	transport := db.open(t, sqlserver.Config{})
	transport.WaitToForward(50*time.Millisecond, time.Millisecond)
	told := &undeliverables{}
	told.listens(t, transport, "failures")
	send(t, transport, delayed("1", "gone", time.Hour))
	db.exec(t, `drop table `+gone)
	db.forwardNow(t, transport)
	await(t, "the move fails twice", func() bool { return len(told.forMessage("1")) >= 3 })
	for i, e := range told.forMessage("1")[:3] {
		if e.Tries != i+1 || e.MovedTo != "" || e.RetryIn == 0 || !errors.Is(e.Err, core.ErrQueueNotFound) || (e.MoveErr != nil) != (i > 0) || i > 0 && !errors.Is(e.MoveErr, core.ErrQueueNotFound) {
			t.Errorf("try %d was told as %+v", i+1, e)
		}
	}
	if text := db.column(t, `select last_error from `+db.table("reprise_delayed")); len(text) != 1 || !strings.Contains(text[0], "gone") || !strings.Contains(text[0], "failures") {
		t.Errorf("the row's error is %q, want both", text)
	}
	provision(t, transport, "failures")
	if id := receive(t, openReceiver(t, transport, "failures", core.TransactionNone)).Incoming().ID; id != "1" {
		t.Errorf("received %s from the error queue", id)
	}
}

// TestUndeliverable_WithoutAReceiver no try counts: there is no observer, and no error
// queue. A process that receives reports it.
func TestUndeliverable_WithoutAReceiver(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	gone, waiting := db.theirTable(t, "gone"), db.table("reprise_delayed")
	sender, err := sqlserver.New(sqlserver.Config{URL: db.url, Schema: db.schema})
	if err != nil {
		t.Fatal(err)
	}
	sender.WaitToForward(time.Hour) // it would be moved at once
	send(t, sender, delayed("1", "gone", time.Hour))
	db.exec(t, `drop table `+gone)
	db.forwardNow(t, sender)
	await(t, "the sender tries", func() bool {
		return len(db.column(t, `select destination from `+waiting+` where last_error is not null and attempts = 0`)) == 1
	})
	closed(t, sender)
	receiving := db.open(t, sqlserver.Config{})
	told := &undeliverables{}
	db.exec(t, `update `+waiting+` set due = now()`)
	told.listens(t, receiving, "")
	await(t, "it is told", func() bool { return len(told.forMessage("1")) > 0 })
	if e := told.forMessage("1")[0]; e.Tries != 1 {
		t.Errorf("told as %+v, want the first try", e)
	}
}

// TestUndeliverable_IsReportedOnce, however many processes try, and its tries are counted
// once.
func TestUndeliverable_IsReportedOnce(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	db := newSchema(t)
	gone := db.theirTable(t, "gone")
	told := &undeliverables{}
	var transports []*sqlserver.Transport
	for range 4 {
		transport := db.open(t, sqlserver.Config{})
		transport.WaitToForward(time.Hour, 20*time.Millisecond, 20*time.Millisecond, 20*time.Millisecond)
		told.listens(t, transport, "failures")
		transports = append(transports, transport)
	}
	provision(t, transports[0], "failures")
	const messages = 30
	for i := range messages {
		send(t, transports[i%4], delayed(fmt.Sprint(i), "gone", time.Hour))
	}
	db.exec(t, `drop table `+gone)
	db.forwardNow(t, transports...)
	await(t, "all are moved", func() bool { return db.count(t, db.table("failures")) == fmt.Sprint(messages) })
	for i := range messages {
		id := fmt.Sprint(i)
		await(t, "all is told of message "+id, func() bool { return len(told.forMessage(id)) >= 4 })
		var tries []int
		for _, e := range told.forMessage(id) {
			tries = append(tries, e.Tries)
		}
		if slices.Sort(tries); !slices.Equal(tries, []int{1, 2, 3, 4}) {
			t.Errorf("of message %s the tries %v were told", id, tries)
		}
	}
}

// TestUndeliverable_GoesToItsSender: of several endpoints on one transport, the one that
// sent it is told, and has it in its error queue.
func TestUndeliverable_GoesToItsSender(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	gone := db.theirTable(t, "gone")
	transport := db.open(t, sqlserver.Config{})
	transport.WaitToForward(time.Hour)
	provision(t, transport, "first", "second", "errors of first", "errors of second")
	told := map[string]*undeliverables{}
	for _, queue := range []string{"first", "second"} {
		told[queue] = &undeliverables{}
		if _, err := transport.OpenReceiver(t.Context(), core.ReceiverConfig{Queue: queue, Mode: core.TransactionReceiveOnly, MaxInFlight: 1, MessageUndeliverable: told[queue].MessageUndeliverable, ErrorQueue: "errors of " + queue}); err != nil {
			t.Fatal(err)
		}
	}
	for id, sender := range map[string]string{"1": "first", "2": "second", "3": "another"} {
		out := delayed(id, "gone", time.Hour)
		out.Headers.Set(headers.OriginatingEndpoint, sender)
		send(t, transport, out)
	}
	db.exec(t, `drop table `+gone)
	db.forwardNow(t, transport)
	for queue, want := range map[string][]string{"first": {"1", "3"}, "second": {"2"}} {
		for _, id := range want {
			await(t, "message "+id+" is told", func() bool { return len(told[queue].forMessage(id)) == 1 })
			if e := told[queue].forMessage(id)[0]; e.MovedTo != db.table("errors of "+queue) {
				t.Errorf("message %s was told as %+v", id, e)
			}
		}
		if n := db.count(t, db.table("errors of "+queue)); n != fmt.Sprint(len(want)) {
			t.Errorf("%s messages in the error queue of %s, want %d", n, queue, len(want))
		}
	}
}

// TestUndeliverable_IsTriedForADay: some ten tries, at first soon.
func TestUndeliverable_IsTriedForADay(t *testing.T) {
	t.Parallel()
	waits := sqlserver.ForwardWaits()
	var all time.Duration
	for _, wait := range waits {
		all += wait
	}
	if tries := len(waits) + 1; tries != 11 || all != 23*time.Hour+21*time.Minute+11*time.Second || !slices.IsSorted(waits) {
		t.Errorf("%d tries in %v by %v, want the 11 in 23 h 21 min that the documentation names", tries, all, waits)
	}
}
