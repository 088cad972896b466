package sqlserver_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/internal/nservicebus"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// recorded is a row that NServiceBus 10.2 wrote into a table of PostgreSQL.
type recorded struct {
	Table   string
	Headers map[string]string
	Body    string
}

// forwardDestination names the table for which a row waits that NServiceBus has delayed.
const forwardDestination = "NServiceBus.SqlServer.ForwardDestination"

// recordings returns them by type. The one in the error table failed in an endpoint
// Interop.Net, the one in the audit table was handled there, and one waited in the
// endpoint's table of delayed messages.
func recordings(t *testing.T) map[string]*recorded {
	t.Helper()
	text, err := os.ReadFile("testdata/nservicebus/messages.json")
	if err != nil {
		t.Fatal(err)
	}
	var list []*recorded
	if err := json.Unmarshal(text, &list); err != nil {
		t.Fatal(err)
	}
	all := map[string]*recorded{}
	for _, r := range list {
		name, _, _ := strings.Cut(r.Headers[headers.MessageTypes], ",")
		all[name] = r
	}
	if len(all) != 7 {
		t.Fatalf("there are recordings of %d types, want 7", len(all))
	}
	return all
}

// insert adds a message to a table as NServiceBus does.
func (db *testDatabase) insert(t *testing.T, quotedTable string, sent map[string]string, body string) {
	t.Helper()
	text, err := json.Marshal(sent)
	if err != nil {
		t.Fatal(err)
	}
	id := db.column(t, `select gen_random_uuid()::text`)[0] // of the row
	db.exec(t, on(quotedTable, theirSend), id, nil, strings.ReplaceAll(string(text), "/", `\/`), []byte(body))
}

// fields returns what a message has, for comparison.
func fields(sent map[string]string, body []byte) map[string]string {
	all := map[string]string{"body": string(body)}
	for key, value := range sent {
		all["header "+key] = value
	}
	return all
}

// note is the body of all recorded messages.
type note struct {
	Text string
	N    int
}

func (r *recorded) want(t *testing.T) (n note) {
	t.Helper()
	if err := json.Unmarshal([]byte(r.Body), &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// rounds is how many rounds of attempts a message gets of two: NServiceBus leaves the time of
// the last delayed retry on a message that it moves, and a day after that there are no more,
// there and here. (ServiceControl removes it when it returns a message.)
func (r *recorded) rounds(t *testing.T) int {
	t.Helper()
	last, ok := r.Headers[headers.RetriesTimestamp]
	if !ok {
		return 2
	}
	at, err := headers.ParseTime(last)
	if err != nil {
		t.Fatal(err)
	}
	if time.Since(at) > 24*time.Hour {
		return 1
	}
	return 2
}

// twoRounds are two attempts, a delay, and two more.
func twoRounds() core.Recoverability {
	return core.Recoverability{
		ErrorQueue: "error", Immediate: core.Immediate{NumberOfRetries: 1}, Delayed: core.Delayed{NumberOfRetries: 1, TimeIncrease: 200 * time.Millisecond},
	}
}

// onBothKinds runs a test in a separate database, whose queues are in tables of Reprise or of
// NServiceBus, in each mode that retries. The schema is public, as that of the recordings.
func onBothKinds(t *testing.T, queues []string, run func(t *testing.T, db *testDatabase, cfg sqlserver.Config, mode core.TransactionMode)) {
	for name, theirs := range map[string]bool{"tables of Reprise": false, "tables of NServiceBus": true} {
		for _, mode := range bothModes {
			t.Run(fmt.Sprintf("%s, %v", name, mode), func(t *testing.T) {
				t.Parallel()
				db := newDatabase(t)
				for _, queue := range queues {
					if theirs {
						db.theirTable(t, queue)
					} else {
						provision(t, db.open(t, sqlserver.Config{}), queue)
					}
				}
				run(t, db, sqlserver.Config{NServiceBusTables: theirs}, mode)
			})
		}
	}
}

// TestNServiceBus_RecordedMessages inserts each message that NServiceBus wrote into a table, as
// NServiceBus does, and has an endpoint do all that endpoints do with messages. What comes out
// is compared with what went in.
func TestNServiceBus_RecordedMessages(t *testing.T) {
	t.Parallel()
	kept := nservicebus.Comparison{Table: nservicebus.Kept(
		nservicebus.Allowed{Name: "header " + forwardDestination, Kind: nservicebus.Missing, Reason: "of the way to this table; NServiceBus's receiver removes it too"},
	)}
	t.Cleanup(func() { kept.Used(t) })
	onBothKinds(t, []string{"Interop.Go", "error", "audit", "forwarded"}, func(t *testing.T, db *testDatabase, cfg sqlserver.Config, mode core.TransactionMode) {
		all := recordings(t)
		ep, err := core.New("Interop.Go", db.open(t, cfg), core.Config{
			Transactions: mode, AuditQueue: "audit", Logger: silent, Recoverability: twoRounds(), Concurrency: 2,
		})
		if err != nil {
			t.Fatal(err)
		}
		type attempt struct {
			id    string
			fails bool
		}
		var mu sync.Mutex
		attempts := map[attempt]int{}
		fails := false
		for name, r := range all {
			want := r.want(t)
			if name == "Interop.NetHappened" || name == "Interop.PingGo" {
				r.Body = "\uFEFF" + r.Body // Newtonsoft.Json, NServiceBus's other serializer, begins with a byte order mark
			}
			core.Handle(ep, core.NewMessageType[note](name), func(_ context.Context, m *core.Message, body note) error {
				mu.Lock()
				defer mu.Unlock()
				attempts[attempt{m.ID, fails}]++
				if body != want {
					t.Errorf("%s has the body %+v, want %+v", name, body, want)
				}
				for key, value := range r.Headers {
					if key != forwardDestination && m.Headers.Get(key) != value {
						t.Errorf("%s has the header %s=%q, want %q", name, key, m.Headers.Get(key), value)
					}
				}
				if fails {
					return errors.New("no")
				}
				return m.Forward("forwarded")
			})
		}
		run(t, ep)
		insertAll := func() {
			for _, r := range all {
				db.insert(t, db.table("Interop.Go"), r.Headers, r.Body)
			}
		}
		take := func(queue string) map[string]theirRow {
			taken := map[string]theirRow{}
			for len(taken) < len(all) {
				row := db.awaitAsThey(t, db.table(queue))
				taken[row.headers[headers.MessageID]] = row
			}
			return taken
		}
		insertAll()
		forwarded, audited := take("forwarded"), take("audit")
		await(t, "all are consumed", func() bool { return db.count(t, db.table("Interop.Go")) == "0" })
		mu.Lock()
		fails = true
		mu.Unlock()
		insertAll()
		failed := take("error")
		for name, r := range all {
			id := r.Headers[headers.MessageID]
			for situation, in := range map[string]map[string]theirRow{"forwarded": forwarded, "audited": audited, "moved": failed} {
				kept.Compare(t, situation, fields(r.Headers, []byte(r.Body)), fields(in[id].headers, in[id].body))
			}
			mu.Lock()
			if n := attempts[attempt{id, false}]; n != 1 {
				t.Errorf("%s was handled in %d attempts, want 1", name, n)
			}
			if n, want := attempts[attempt{id, true}], 2*r.rounds(t); n != want {
				t.Errorf("%s failed in %d attempts, want %d", name, n, want)
			}
			mu.Unlock()
		}
	})
}

// request returns the headers of the message that the recorded one in the error or audit table
// was made of.
func (r *recorded) request() map[string]string {
	sent := map[string]string{}
next:
	for key, value := range r.Headers {
		switch key {
		case headers.FailedQ, headers.TimeOfFailure, headers.TimeSent, headers.DeliverAt, headers.RetriesTimestamp, "NServiceBus.Version":
			continue
		}
		for _, prefix := range []string{"NServiceBus.ExceptionInfo.", "NServiceBus.Processing", "$.diagnostics."} {
			if strings.HasPrefix(key, prefix) {
				continue next
			}
		}
		sent[key] = value
	}
	return sent
}

// TestNServiceBus_WrittenAsTheirs has an endpoint of Reprise do what the endpoint Interop.Net of
// NServiceBus did, and compares all that both wrote.
func TestNServiceBus_WrittenAsTheirs(t *testing.T) {
	t.Parallel()
	written := nservicebus.Comparison{Table: nservicebus.Written(
		nservicebus.Allowed{Name: "header " + forwardDestination, Kind: nservicebus.Missing, Situations: []string{"delay"}, Reason: "the row in reprise_delayed has the destination in a column"},
		nservicebus.Allowed{Name: "header NServiceBus.ExceptionInfo.Data.Transport message ID", Kind: nservicebus.Missing, Situations: []string{"moved"}, Reason: "the id of the row, which is gone"},
	)}
	t.Cleanup(func() { written.Used(t) })
	onBothKinds(t, []string{"Interop.Go", "Interop.Net", "error", "audit"}, func(t *testing.T, db *testDatabase, cfg sqlserver.Config, mode core.TransactionMode) {
		all := recordings(t)
		transport := db.open(t, cfg)
		provision(t, transport)
		if err := transport.Subscribe(t.Context(), "Interop.Go", "Interop.NetHappened"); err != nil {
			t.Fatal(err)
		}
		ep, err := core.New("Interop.Net", transport, core.Config{
			Transactions: mode, AuditQueue: "audit", Logger: silent, Recoverability: twoRounds(), Concurrency: 2,
		})
		if err != nil {
			t.Fatal(err)
		}
		core.Handle(ep, pingNetType, func(_ context.Context, m *core.Message, body note) error {
			return m.Reply(pongFromNetType.Of(note{"reply to " + body.Text, body.N}))
		})
		core.Handle(ep, failInNetType, func(_ context.Context, _ *core.Message, body note) error {
			return fmt.Errorf("this always fails in .NET: %s", body.Text)
		})
		run(t, ep)
		for _, typeName := range []string{"Interop.PingNet", "Interop.FailInNet"} {
			db.insert(t, db.table("Interop.Net"), all[typeName].request(), all[typeName].Body)
		}
		if err := errors.Join(
			ep.Send(t.Context(), "Interop.Go", pingGoType.Of(note{"from .NET: grüße \u2028 \"quoted\"", 1})),
			ep.Send(t.Context(), "Interop.Go", failInGoType.Of(note{"fail", 2})),
			ep.Publish(t.Context(), netHappenedEvent.Of(note{"published in .NET", 3})),
		); err != nil {
			t.Fatal(err)
		}
		came := map[string]theirRow{}
		takeInto := func(n int, queues ...string) {
			await(t, fmt.Sprint(n, " messages are written"), func() bool {
				for _, queue := range queues {
					if row, ok := db.receiveAsThey(t, db.table(queue)); ok {
						came[row.headers[headers.MessageTypes]] = row
					}
				}
				return len(came) == n
			})
		}
		takeInto(6, "Interop.Go", "error", "audit")
		if err := ep.Send(t.Context(), "Interop.Go", delayedToGoType.Of(note{time.Now().String(), 5}).With(core.SendOptions{Delay: 200 * time.Millisecond})); err != nil {
			t.Fatal(err)
		}
		await(t, "the delay has ended", func() bool {
			return db.count(t, db.table("reprise_delayed")) == "0" &&
				db.column(t, `select count(*)::text from `+db.table("Interop.Go")+dueNow(cfg))[0] == "1"
		})
		takeInto(7, "Interop.Go")
		situations := map[string]string{
			"Interop.PongFromNet": "reply", "Interop.PingGo": "send", "Interop.FailInGo": "send", "Interop.NetHappened": "publish",
			"Interop.DelayedToGo": "delay", "Interop.FailInNet": "moved", "Interop.PingNet": "audited",
		}
		for name, theirs := range all {
			ours := came[name]
			written.Compare(t, situations[name], fields(theirs.Headers, []byte(theirs.Body)), fields(ours.headers, ours.body))
			var our note
			if err := json.Unmarshal(ours.body, &our); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if want := theirs.want(t); our != want && name != "Interop.DelayedToGo" {
				t.Errorf("%s: the body is %+v, NServiceBus wrote %+v", name, our, want)
			}
		}
	})
}

// dueNow selects the rows of a table that are due. A table of NServiceBus has no others.
func dueNow(cfg sqlserver.Config) string {
	if cfg.NServiceBusTables {
		return ""
	}
	return " where due <= now()"
}
