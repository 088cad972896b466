package broker_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/asb/amqp10"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/broker"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/condition"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/properties"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/rules"
)

// restart opens the journal of a namespace again. The broker before is not closed, as if its
// process had been killed.
func (n *namespace) restart(cfg broker.Config, dir string) *namespace {
	n.t.Helper()
	cfg.Clock, cfg.Dir = n.clock, dir
	b, err := broker.New(cfg)
	n.must(err)
	n.t.Cleanup(func() {
		if err := b.Close(); err != nil {
			n.t.Error(err)
		}
	})
	return &namespace{b, n.t, n.clock}
}

// restarts runs a test with the n-th restart of a namespace: the journal is written anew by each.
func restarts(t *testing.T, cfg broker.Config, prepare func(*namespace), check func(*namespace)) {
	t.Helper()
	for _, times := range []int{1, 2} {
		t.Run(fmt.Sprint(times), func(t *testing.T) {
			dir := t.TempDir()
			first := cfg
			first.Dir = dir
			n := newNamespace(t, first)
			prepare(n)
			for range times {
				n = n.restart(cfg, dir)
			}
			n.t = t
			check(n)
		})
	}
}

func TestJournal_Messages(t *testing.T) {
	var lockedAt, deferredAt broker.Delivery
	var scheduled []int64
	restarts(t, broker.Config{}, func(n *namespace) {
		n.queue("q", properties.Queue{MaxDeliveryCount: 5, LockDuration: time.Minute})
		n.send("q", "completed")
		n.settle("q", n.receive("q"), broker.Complete)
		n.send("q", "abandoned", withID("m"), withProperty("int8", int8(1)), withProperty("time", start), withProperty("uuid", amqp10.UUID{1}))
		n.settle("q", n.receive("q"), broker.Abandon)
		n.settle("q", n.receive("q"), broker.Abandon)
		c := n.consume("q")
		abandoned := n.next(c)
		n.send("q", "locked")
		lockedAt = n.next(c)
		n.send("q", "deferred")
		deferredAt = n.next(c)
		n.must(n.Settle("q", deferredAt.LockToken, broker.Settlement{Outcome: broker.Defer, Properties: map[string]any{"k": "v"}}))
		n.send("q", "dead")
		n.must(n.Settle("q", n.next(c).LockToken, broker.Settlement{Outcome: broker.DeadLetter, Reason: "r"}))
		n.settle("q", abandoned, broker.Release)
		var err error
		scheduled, err = n.Schedule("q", newMessage("scheduled", scheduledAt(start.Add(time.Hour))), newMessage("cancelled", scheduledAt(start.Add(time.Hour))))
		n.must(err)
		n.must(n.CancelScheduled("q", scheduled[1]))
		n.send("q", "expires", withTTL(30*time.Second))
	}, func(n *namespace) {
		c := n.consume("q")
		got := c.Next(10)
		equal(n.t, "the messages", bodies(got), "[abandoned expires]")
		m := got[0].Message
		equal(n.t, "the delivery count", got[0].DeliveryCount, 2)
		equal(n.t, "the message id", m.Properties.MessageID, any("m"))
		equal(n.t, "the int8", m.ApplicationProperties["int8"], any(int8(1)))
		equal(n.t, "the time", m.ApplicationProperties["time"].(time.Time).Equal(start), true)
		equal(n.t, "the UUID", m.ApplicationProperties["uuid"], any(amqp10.UUID{1}))
		equal(n.t, "the time to live", got[1].Message.Header.TTL, 30*time.Second)
		n.settle("q", got[1], broker.Release)
		n.settle("q", got[0], broker.Complete)
		n.settle("q", lockedAt, broker.Complete)
		deferred, err := n.ReceiveDeferred("q", broker.PeekLock, nil, deferredAt.SequenceNumber)
		n.must(err)
		equal(n.t, "the property", deferred[0].Message.ApplicationProperties["k"], any("v"))
		equal(n.t, "the deferred message's delivery count", deferred[0].DeliveryCount, 1)
		n.settle("q", deferred[0], broker.Complete)
		dead := n.receive("q/$DeadLetterQueue")
		equal(n.t, "the reason", dead.Message.ApplicationProperties["DeadLetterReason"], any("r"))
		n.settle("q/$DeadLetterQueue", dead, broker.Complete)
		n.refuses(n.CancelScheduled("q", scheduled[1]), condition.MessageNotFound)
		n.clock.Advance(30 * time.Second)
		equal(n.t, "the messages after 30 seconds", len(c.Next(1)), 0)
		n.clock.Advance(time.Hour)
		got = c.Next(10)
		equal(n.t, "the messages after an hour", bodies(got), "[scheduled]")
		equal(n.t, "the sequence number", got[0].SequenceNumber, 9)
		info, err := n.Queue("q")
		n.must(err)
		equal(n.t, "the number of messages", info.Runtime.Active, 1)
	})
}

func TestJournal_LockEnds(t *testing.T) {
	restarts(t, broker.Config{}, func(n *namespace) {
		n.queue("q", properties.Queue{LockDuration: time.Minute})
		n.send("q", "a")
		n.receive("q")
		n.clock.Advance(30 * time.Second)
	}, func(n *namespace) {
		n.nothing("q")
		n.clock.Advance(30 * time.Second)
		equal(n.t, "the delivery count", n.receive("q").DeliveryCount, 1)
	})
}

func TestJournal_Sessions(t *testing.T) {
	restarts(t, broker.Config{}, func(n *namespace) {
		n.queue("q", properties.Queue{RequiresSession: true})
		for i := range 3 {
			n.send("q", fmt.Sprint(i), inSession("s"))
		}
		c := n.accept("s")
		got := c.Next(2)
		n.must(n.SetSessionState("q", "s", []byte("x")))
		n.settle("q", got[0], broker.Complete)
		n.send("q", "deferred", inSession("t"))
		other := n.accept("t")
		n.settle("q", n.next(other), broker.Defer)
		id := "t"
		_, err := n.ReceiveDeferred("q", broker.PeekLock, &id, 4)
		n.must(err)
		n.accept("cleared")
		n.must(n.SetSessionState("q", "cleared", []byte("x")))
		n.must(n.SetSessionState("q", "cleared", nil))
	}, func(n *namespace) {
		// The receiver of the session has ended with the process.
		got := n.accept("s").Next(3)
		equal(n.t, "the messages", bodies(got), "[1 2]")
		equal(n.t, "the delivery count", got[0].DeliveryCount, 0)
		state, err := n.SessionState("q", "s")
		n.must(err)
		equal(n.t, "the state", string(state), "x")
		ids, err := n.Sessions("q", time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC), 0, 10)
		n.must(err)
		equal(n.t, "the sessions", fmt.Sprint(ids), "[s t]")
		id := "t"
		equal(n.t, "the available messages of t", len(n.accept(id).Next(5)), 0)
		deferred, err := n.ReceiveDeferred("q", broker.PeekLock, &id, 4)
		n.must(err)
		equal(n.t, "the deferred message", body(deferred[0]), "deferred")
	})
}

func TestJournal_Entities(t *testing.T) {
	changed := properties.Queue{LockDuration: 5 * time.Second, ForwardDeadLetteredMessagesTo: "errors", UserMetadata: "x"}
	restarts(t, broker.Config{AutoCreate: true}, func(n *namespace) {
		n.queue("errors", properties.Queue{})
		n.queue("q", properties.Queue{})
		n.must(n.UpdateQueue("q", changed))
		n.queue("deleted", properties.Queue{})
		n.send("deleted", "a")
		n.must(n.DeleteQueue("deleted"))
		n.must(n.CreateTopic("gone", properties.Topic{}))
		n.must(n.CreateSubscription("gone", "s", properties.Subscription{}, rules.Rule{}))
		n.must(n.DeleteTopic("gone"))
		n.must(n.CreateTopic("t", properties.Topic{RequiresDuplicateDetection: true}))
		n.must(n.CreateSubscription("t", "s", properties.Subscription{}, rules.Rule{Name: "c", Filter: rules.CorrelationFilter{
			Subject: new("l"), Properties: map[string]any{"n": int32(1), "b": true},
		}}))
		n.must(n.CreateSubscription("t", "sql", properties.Subscription{}, rules.Rule{Name: "sql", Filter: rules.SQLFilter{
			Expression: "n = @n", Parameters: map[string]any{"@n": int64(1)},
		}, Action: &rules.Action{Expression: "SET n = @m", Parameters: map[string]any{"@m": 2.5}}}))
		n.must(n.CreateSubscription("t", "none", properties.Subscription{}, rules.Rule{Filter: rules.FalseFilter{}}))
		n.must(n.CreateSubscription("t", "all", properties.Subscription{}, rules.Rule{Filter: rules.TrueFilter{}}))
		n.send("t", "first", withID("1"))
		n.send("auto", "a", inSession("x"))
	}, func(n *namespace) {
		info, err := n.Queue("q")
		n.must(err)
		equal(n.t, "the metadata", info.Properties.UserMetadata, "x")
		equal(n.t, "the lock duration", info.Properties.LockDuration, 5*time.Second)
		for _, path := range []string{"gone/Subscriptions/s"} {
			_, err := n.Entity(path)
			n.refuses(err, condition.NotFound)
		}
		n.nothing("deleted") // created anew
		n.send("t", "duplicate", withID("1"))
		n.send("t", "second", withID("2"), withProperty("n", int64(1)), withProperty("b", true), func(m *amqp10.Message) { m.Properties.Subject = new("l") })
		for name, want := range map[string]string{"s": "[second]", "sql": "[second]", "none": "[]", "all": "[first second]"} {
			got := n.consume("t/Subscriptions/" + name).Next(5)
			equal(n.t, "the messages of "+name, bodies(got), want)
			if name == "sql" {
				equal(n.t, "the property", got[0].Message.ApplicationProperties["n"], any(2.5))
			}
			if name == "all" {
				equal(n.t, "the sequence number", got[1].SequenceNumber, 2)
			}
		}
		id := "x"
		c, err := n.Consume(n.t.Context(), "auto", broker.ConsumerConfig{AcceptSession: true, Session: &id})
		n.must(err)
		equal(n.t, "the messages", bodies(c.Next(5)), "[a]")
	})
}

// A journal that has grown is replaced by one with the present state.
func TestJournal_IsReplaced(t *testing.T) {
	dir := t.TempDir()
	cfg := broker.Config{Tier: properties.Premium}
	cfg.Dir = dir
	n := newNamespace(t, cfg)
	n.queue("q", properties.Queue{})
	n.queue("duplicates", properties.Queue{RequiresDuplicateDetection: true})
	n.send("duplicates", "a", withID("1"))
	n.queue("sessions", properties.Queue{RequiresSession: true})
	id := "s"
	c, err := n.Consume(t.Context(), "sessions", broker.ConsumerConfig{AcceptSession: true, Session: &id})
	n.must(err)
	n.must(n.SetSessionState("sessions", "s", []byte("x")))
	n.must(c.Close())
	n.send("q", "kept")
	kept := n.receive("q")
	path := filepath.Join(dir, "servicebus.journal")
	size := func() int64 {
		t.Helper()
		info, err := os.Stat(path)
		n.must(err)
		return info.Size()
	}
	large := strings.Repeat("x", 1000<<10)
	for last := int64(0); size() >= last; {
		last = size()
		if last > 100<<20 {
			t.Fatalf("the journal has %d bytes", last)
		}
		n.send("q", large)
		n.settle("q", n.receive("q"), broker.Complete)
	}
	if size() > 10<<20 {
		t.Errorf("the new journal has %d bytes", size())
	}
	n.send("q", "after")
	n = n.restart(cfg, dir)
	n.settle("q", kept, broker.Complete)
	equal(t, "the messages", bodies(n.consume("q").Next(5)), "[after]")
	n.send("duplicates", "b", withID("1"))
	equal(t, "the messages without duplicates", bodies(n.consume("duplicates").Next(5)), "[a]")
	_, err = n.Consume(t.Context(), "sessions", broker.ConsumerConfig{AcceptSession: true, Session: &id})
	n.must(err)
	state, err := n.SessionState("sessions", "s")
	n.must(err)
	equal(t, "the state", string(state), "x")
}

func TestJournal_DamagedFiles(t *testing.T) {
	tests := []struct {
		name   string
		damage func(string) string
		opens  bool
	}{
		{"the last line is incomplete", func(s string) string { return s + `[{"m":{"e":1,"n":9,"s"` }, true},
		{"a line in the middle is incomplete", func(s string) string { return s[:10] + "\n" + s }, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			n := newNamespace(t, broker.Config{Dir: dir})
			n.queue("q", properties.Queue{})
			n.send("q", "a")
			path := filepath.Join(dir, "servicebus.journal")
			raw, err := os.ReadFile(path)
			n.must(err)
			n.must(os.WriteFile(path, []byte(test.damage(string(raw))), 0o600))
			second, err := broker.New(broker.Config{Clock: n.clock, Dir: dir})
			if test.opens {
				n.must(err)
				n = &namespace{second, t, n.clock}
				equal(t, "the body", body(n.receive("q")), "a")
				return
			}
			if err == nil || !strings.Contains(err.Error(), "to fix:") {
				t.Errorf("got the error %v", err)
			}
		})
	}
	if _, err := broker.New(broker.Config{Dir: filepath.Join(t.TempDir(), "missing")}); err == nil {
		t.Error("a directory that does not exist is accepted")
	}
}

const killedEnv = "REPRISE_TEST_BROKER_KILLED"

// TestJournal_Killed kills a process that sends and completes messages: the next one has every
// message that was accepted and not completed, and no other.
func TestJournal_Killed(t *testing.T) {
	if dir := os.Getenv(killedEnv); dir != "" {
		sendUntilKilled(t, dir)
		return
	}
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0], "-test.run=^TestJournal_Killed$", "-test.v")
	cmd.Env = append(os.Environ(), killedEnv+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	accepted := 0
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if i, ok := strings.CutPrefix(lines.Text(), "accepted "); ok {
			if accepted, err = strconv.Atoi(i); err != nil {
				t.Fatal(err)
			}
			if accepted == 300 {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	_ = cmd.Wait() // it was killed

	b, err := broker.New(broker.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	messages, err := b.Peek("q", 0, 1<<20, nil)
	if err != nil {
		t.Fatal(err)
	}
	there := map[int]bool{}
	for _, m := range messages {
		i, err := strconv.Atoi(string(m.Body()))
		if err != nil {
			t.Fatal(err)
		}
		there[i] = true
	}
	if accepted < 300 {
		t.Fatalf("only %d messages were sent", accepted)
	}
	for i := range accepted + 1 {
		if even := i%2 == 0; there[i] == even {
			t.Errorf("message %d of %d: it is there: %v, want %v", i, accepted, there[i], !even)
		}
	}
}

// sendUntilKilled sends messages, and completes those with an even number.
func sendUntilKilled(t *testing.T, dir string) {
	b, err := broker.New(broker.Config{Dir: dir, AutoCreate: true})
	if err != nil {
		t.Fatal(err)
	}
	c, err := b.Consume(t.Context(), "q", broker.ConsumerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; ; i++ {
		if err := b.Send("q", newMessage(strconv.Itoa(i))); err != nil {
			t.Fatal(err)
		}
		d := c.Next(1)[0]
		if i%2 == 0 {
			if err := c.Settle(d.LockToken, broker.Settlement{Outcome: broker.Complete}); err != nil {
				t.Fatal(err)
			}
		}
		fmt.Println("accepted", i)
	}
}
