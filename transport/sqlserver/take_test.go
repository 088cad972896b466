package sqlserver_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/queues"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// takesOf returns takes that replace each message by a copy in another queue.
func takesOf(all []queues.Message, to string) (takes []queues.Take) {
	for i := range all {
		m := &all[i]
		out := core.Outgoing{ID: m.ID, Queue: to, Headers: m.Headers, Body: m.Body, Reason: core.ReasonReturn}
		takes = append(takes, queues.Take{Key: m.Key, NativeID: m.NativeID, Out: []core.Outgoing{out}})
	}
	return takes
}

// taking takes messages, and returns the states.
func taking(t *testing.T, taker queues.Taker, queue string, takes ...queues.Take) (results []queues.TakeResult) {
	t.Helper()
	results, err := taker.Take(t.Context(), queue, takes)
	if err != nil {
		t.Fatal(err)
	}
	if len(results) != len(takes) {
		t.Fatalf("there are %d results of %d messages", len(results), len(takes))
	}
	return results
}

// countStates returns how many results have each state, such as "297 done, 3 refused".
func countStates(results []queues.TakeResult) string {
	n := map[queues.TakeState]int{}
	for _, r := range results {
		n[r.State]++
	}
	var list []string
	for state := queues.TakeUnknown; state <= queues.TakeRefused; state++ {
		if n[state] > 0 {
			list = append(list, fmt.Sprint(n[state], " ", state))
		}
	}
	return strings.Join(list, ", ")
}

// idsIn returns the message ids in a queue, in the order of arrival.
func idsIn(t *testing.T, browser queues.Browser, queue string) (ids []string) {
	t.Helper()
	for _, m := range browseAll(t, browser, queues.Request{Queue: queue, Limit: 1000, WithoutBody: true}) {
		ids = append(ids, m.ID)
	}
	return ids
}

// TestTake_RefusedOnesPreventNoOther: a table that is missing, one that refuses a row, and one that the role
// may not write to.
func TestTake_RefusedOnesPreventNoOther(t *testing.T) {
	bothLayouts(t, func(t *testing.T, db *testDatabase, owner *sqlserver.Transport) {
		provision(t, owner, "other", "picky", "forbidden")
		db.exec(t, `alter table `+db.table("picky")+` add check (convert_from(body, 'UTF8') not like '%7')`)
		var sent []core.Outgoing
		for i := range 300 {
			sent = append(sent, letter(fmt.Sprintf("%03d", i), "orders"))
		}
		send(t, owner, sent...)
		role, rawURL := db.role(t)
		for _, right := range []string{"usage on schema " + schemaOf(db), "select, update, delete on " + db.table("orders"), "insert on " + db.table("other"), "insert on " + db.table("picky"),
			"usage on all sequences in schema " + schemaOf(db)} {
			db.grant(t, "grant "+right+" to "+role)
		}
		transport := db.open(t, sqlserver.Config{URL: rawURL, NServiceBusTables: !owner.Capabilities().NativeDeliveryCount})
		takes := takesOf(browseAll(t, owner, queues.Request{Queue: "orders", Limit: 1000}), "other")
		for i := range takes {
			switch i % 10 {
			case 3:
				takes[i].Out[0].Queue = "missing"
			case 5:
				takes[i].Out = append(takes[i].Out, letter(takes[i].Out[0].ID, "forbidden"))
			case 7, 8:
				takes[i].Out[0].Queue = "picky"
			}
		}
		results := taking(t, transport, "orders", takes...)
		var left []string
		for i, r := range results {
			want, cause := queues.TakeRefused, error(nil)
			switch i % 10 {
			case 3:
				cause = core.ErrQueueNotFound
			case 5:
				if !isDenied(r.Err) {
					t.Errorf("result %d has the error %v, want that a right is missing", i, r.Err)
				}
			case 7:
				cause = core.ErrMessageRefused
			default:
				want = queues.TakeDone
			}
			if r.State != want || !errors.Is(r.Err, cause) && cause != nil || (r.Err != nil) != (want == queues.TakeRefused) {
				t.Errorf("result %d is %v, %v; want %v", i, r.State, r.Err, want)
			}
			if want == queues.TakeRefused {
				left = append(left, fmt.Sprintf("%03d", i))
			}
		}
		if got := idsIn(t, owner, "orders"); !slices.Equal(got, left) {
			t.Errorf("these are left: %q, want %q", got, left)
		}
		if got := idsIn(t, owner, "other"); len(got) != 180 || !slices.IsSorted(got) {
			t.Errorf("%d messages were replaced, want 180 in their order: %q", len(got), got)
		}
		for queue, n := range map[string]string{"picky": "30", "forbidden": "0"} {
			if got := db.count(t, db.table(queue)); got != n {
				t.Errorf("%s has %s messages, want %s", queue, got, n)
			}
		}
	})
}

// TestTake_EveryMessageOfTheQueue: more than one statement takes, delayed ones and replacements that are too
// large for one statement.
func TestTake_EveryMessageOfTheQueue(t *testing.T) {
	notInShortRuns(t)
	bothLayouts(t, func(t *testing.T, _ *testDatabase, transport *sqlserver.Transport) {
		provision(t, transport, "other")
		const n = 2_500
		var sent []core.Outgoing
		for i := range n {
			out := letter(fmt.Sprintf("%04d", i), "orders")
			if i >= n-200 {
				out.Delay = time.Hour
			}
			sent = append(sent, out)
		}
		send(t, transport, sent...)
		takes := takesOf(browseAll(t, transport, queues.Request{Queue: "orders", Limit: 700}), "other")
		large := &takes[n/2].Out[0]
		large.Body = make([]byte, 9<<20)
		takes[n/2].Out = append(takes[n/2].Out, *large)
		takes[1].Out = nil // removed
		takes = append(takes, takes[0], takes[n-1])
		results := taking(t, transport, "orders", takes...)
		if got := countStates(results); got != "2500 done, 2 gone" {
			t.Errorf("the results are %s", got)
		}
		if got := idsIn(t, transport, "orders"); len(got) > 0 {
			t.Errorf("%d messages are left", len(got))
		}
		if got := idsIn(t, transport, "other"); len(got) != n || !slices.IsSorted(got) {
			t.Errorf("%d messages were sent, want %d in their order", len(got), n)
		}
	})
}

// TestTake_WakesReceivers of the replacements, in another process too.
func TestTake_WakesReceivers(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	transport, other := db.open(t, sqlserver.Config{}), db.open(t, sqlserver.Config{URL: db.url})
	other.NeverPoll()
	provision(t, transport, "orders", "failed")
	send(t, transport, letter("1", "failed"))
	_, received := asleep(t, other, core.TransactionReceiveOnly)
	await(t, "the server wakes receivers", other.Listens)
	taking(t, transport, "failed", takesOf(browseAll(t, transport, queues.Request{Queue: "failed", Limit: 1}), "orders")...)
	if d := next(t, "the replacement is delivered", received); d.Incoming().ID != "1" {
		t.Errorf("message %s is delivered", d.Incoming().ID)
	}
}

// TestTake_WaitsForNoTransaction: a row that somebody has locked is locked, and the others are taken.
func TestTake_WaitsForNoTransaction(t *testing.T) {
	bothLayouts(t, func(t *testing.T, db *testDatabase, transport *sqlserver.Transport) {
		provision(t, transport, "other")
		send(t, transport, letter("1", "orders"), letter("2", "orders"))
		all := browseAll(t, transport, queues.Request{Queue: "orders", Limit: 10})
		tx, err := db.pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
		if _, err := tx.Exec(t.Context(), `select from `+db.table("orders")+` where headers like '%"1"%' for update`); err != nil {
			t.Fatal(err)
		}
		if got := countStates(taking(t, transport, "orders", takesOf(all, "other")...)); got != "1 done, 1 locked" {
			t.Errorf("the results are %s", got)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := countStates(taking(t, transport, "orders", takesOf(all, "other")...)); got != "1 done, 1 gone" {
			t.Errorf("afterwards the results are %s", got)
		}
	})
}

// TestTake_BesideReceivers: each message is taken or received, and no message both.
func TestTake_BesideReceivers(t *testing.T) {
	notInShortRuns(t)
	bothLayouts(t, func(t *testing.T, db *testDatabase, transport *sqlserver.Transport) {
		provision(t, transport, "other")
		const n = 1_000
		var sent []core.Outgoing
		for i := range n {
			sent = append(sent, letter(fmt.Sprint(i), "orders"))
		}
		send(t, transport, sent...)
		times := map[string]int{}
		var mu sync.Mutex
		ctx, stop := context.WithCancel(t.Context())
		var tools, receivers sync.WaitGroup
		for range 2 {
			r := openReceiver(t, transport, "orders", core.TransactionReceiveOnly)
			receivers.Go(func() {
				var got [4]core.Delivery
				for {
					n, err := r.Receive(ctx, got[:])
					if err != nil {
						return
					}
					for _, d := range got[:n] {
						if d.Incoming().Redelivered {
							err = d.Complete(t.Context())
							mu.Lock()
							times[d.Incoming().ID]++
							mu.Unlock()
						} else {
							err = d.Abandon(t.Context(), errors.New("no"))
						}
						if err != nil {
							t.Error(err)
						}
					}
				}
			})
			tool := db.open(t, sqlserver.Config{NServiceBusTables: !transport.Capabilities().NativeDeliveryCount})
			tools.Go(func() {
				for left := true; left; {
					left = false
					r := queues.Request{Queue: "orders", Limit: 50}
					for {
						page, err := tool.Browse(t.Context(), r)
						if err != nil {
							t.Error(err)
							return
						}
						left = left || len(page.Messages) > 0
						results, err := tool.Take(t.Context(), "orders", takesOf(page.Messages, "other"))
						if err != nil {
							t.Error(err)
							return
						}
						for _, result := range results {
							if result.State == queues.TakeRefused || result.State == queues.TakeUnknown {
								t.Errorf("a message is %v, %v", result.State, result.Err)
							}
						}
						if r.After = page.Next; r.After == "" {
							break
						}
					}
				}
			})
		}
		tools.Wait()
		stop()
		receivers.Wait()
		for _, id := range idsIn(t, transport, "other") {
			times[id]++
		}
		for _, m := range sent {
			if times[m.ID] != 1 {
				t.Errorf("message %s was taken or received %d times", m.ID, times[m.ID])
			}
		}
	})
}

// TestTake_LostConnectionIsUnknown: the server has not said whether it has executed the statement.
func TestTake_LostConnectionIsUnknown(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	transport := db.open(t, sqlserver.Config{})
	provision(t, transport, "orders", "other")
	send(t, transport, letter("1", "orders"), letter("2", "orders"))
	all := browseAll(t, transport, queues.Request{Queue: "orders", Limit: 10})
	unblock := db.block(t, "insert", "other")
	type outcome struct {
		results []queues.TakeResult
		err     error
	}
	ended := make(chan outcome, 1)
	go func() {
		results, err := transport.Take(t.Context(), "orders", append(takesOf(all, "other"), queues.Take{Key: "no key"}))
		ended <- outcome{results, err}
	}()
	awaitBlocked(t, db)
	db.exec(t, `select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`)
	o := next(t, "Take returns", ended)
	if got := countStates(o.results); !errors.Is(o.err, core.ErrUnavailable) || got != "2 unknown, 1 gone" {
		t.Errorf("the results are %s, %v", got, o.err)
	}
	unblock()
	if got := countStates(taking(t, transport, "orders", takesOf(all, "other")...)); got != "2 done" {
		t.Errorf("afterwards the results are %s", got)
	}
}

// block makes a table wait in a trigger for each row, until the function is called.
func (db *testDatabase) block(t *testing.T, event, table string) (unblock func()) {
	t.Helper()
	holder, err := db.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := holder.Exec(t.Context(), `select pg_advisory_lock(42)`); err != nil {
		t.Fatal(err)
	}
	db.exec(t, `create function wait() returns trigger language plpgsql as $$ begin perform pg_advisory_xact_lock_shared(42); return null; end $$`)
	db.exec(t, `create trigger wait after `+event+` on `+db.table(table)+` for each row execute function wait()`)
	unblock = sync.OnceFunc(func() {
		if _, err := holder.Exec(context.WithoutCancel(t.Context()), `select pg_advisory_unlock_all()`); err != nil {
			t.Error(err)
		}
		holder.Release()
	})
	t.Cleanup(unblock)
	return unblock
}

// takeVariable has the URL for a process that takes the messages of a queue.
const takeVariable = "REPRISE_TEST_SQLSERVER_TAKE"

// takeAndReplace is a process that takes the messages of the queue orders, each for one as large as its
// headers say.
func takeAndReplace(url string) error {
	transport, err := sqlserver.Open(url)
	if err != nil {
		return err
	}
	page, err := transport.Browse(context.Background(), queues.Request{Queue: "orders", Limit: 10})
	if err != nil {
		return err
	}
	takes := takesOf(page.Messages, "other")
	for i := range takes {
		if page.Messages[i].ID == "large" {
			takes[i].Out[0].Body = make([]byte, 17<<20)
		}
	}
	_, err = transport.Take(context.Background(), "orders", takes)
	return err
}

// TestTake_KilledProcess: the process that takes a message ends in the middle. The message is consumed
// and replaced, or neither.
func TestTake_KilledProcess(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	for name, c := range map[string]struct{ id, event, table string }{
		"while the replacement is added":      {"small", "insert", "other"},
		"while the message is removed":        {"small", "delete", "orders"},
		"before a large replacement is added": {"large", "delete", "orders"},
		"while a large replacement is added":  {"large", "insert", "other"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := newDatabase(t)
			transport := db.open(t, sqlserver.Config{})
			provision(t, transport, "orders", "other")
			send(t, transport, letter(c.id, "orders"))
			all := browseAll(t, transport, queues.Request{Queue: "orders", Limit: 10})
			unblock := db.block(t, c.event, c.table)
			child := exec.CommandContext(t.Context(), os.Args[0])
			child.Env = append(os.Environ(), takeVariable+"="+db.url+"&application_name=taker")
			if err := child.Start(); err != nil {
				t.Fatal(err)
			}
			awaitBlocked(t, db)
			if err := child.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = child.Wait()
			unblock()
			await(t, "the session of the process has ended", func() bool {
				return db.column(t, `select count(*)::text from pg_stat_activity where application_name = 'taker'`)[0] == "0"
			})
			taken := db.count(t, "other") == "1"
			if left := db.count(t, "orders"); (left == "1") == taken {
				t.Errorf("%s messages are left, and %s are replaced", left, db.count(t, "other"))
			}
			if c.id == "large" && c.event == "delete" && taken {
				t.Error("the message was replaced, though the process had ended before")
			}
			want := map[bool]string{true: "1 gone", false: "1 done"}[taken]
			takes := takesOf(all, "other")
			if c.id == "large" {
				takes[0].Out[0].Body = make([]byte, 17<<20)
			}
			for range 2 {
				if got := countStates(taking(t, transport, "orders", takes...)); got != want {
					t.Errorf("another process takes it: %s, want %s", got, want)
				}
				want = "1 gone"
			}
			if n := transport.Pool().Stat().AcquiredConns(); n > 0 {
				t.Errorf("%d connections are still in use", n)
			}
			if got := db.count(t, "other"); got != "1" {
				t.Errorf("%s messages are replaced", got)
			}
		})
	}
}

func TestTake_NamesTheMissingRight(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	owner := db.open(t, sqlserver.Config{})
	provision(t, owner, "orders")
	send(t, owner, letter("1", "orders"))
	all := browseAll(t, owner, queues.Request{Queue: "orders", Limit: 10})
	role, rawURL := db.role(t)
	transport := db.open(t, sqlserver.Config{URL: rawURL})
	for _, right := range []string{"usage on schema " + schemaOf(db), "select on " + db.table("orders"), "update on " + db.table("orders"), "delete on " + db.table("orders")} {
		verb, object, _ := strings.Cut(right, " on ")
		_, err := transport.Take(t.Context(), "orders", takesOf(all, "orders")[:1])
		if !isDenied(err) || !strings.Contains(err.Error(), verb) || !strings.Contains(err.Error(), " on "+object+" to "+role) {
			t.Errorf("without %s: %v", right, err)
		}
		db.grant(t, "grant "+right+" to "+role)
	}
	if got := taking(t, transport, "orders", takesOf(all, "orders")...); got[0].State != queues.TakeRefused || !isDenied(got[0].Err) {
		t.Errorf("without the right to send the result is %v, %v", got[0].State, got[0].Err)
	}
	if got := taking(t, transport, "orders", queues.Take{Key: all[0].Key}); got[0].State != queues.TakeDone {
		t.Errorf("to remove it: %v, %v", got[0].State, got[0].Err)
	}
}
