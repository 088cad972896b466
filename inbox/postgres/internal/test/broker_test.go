package postgres_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/inbox"
	"github.com/reprise-go/reprise/inbox/postgres"
	rabbitserver "github.com/reprise-go/reprise/internal/testserver/rabbitmq"
	"github.com/reprise-go/reprise/transport/rabbitmq"
)

// This file has the inbox on a broker without transactions, with processes that are killed.

// broker is the RabbitMQ of all tests that need one.
var broker struct {
	sync.Mutex
	server *rabbitserver.Server
}

// newBroker returns the URL of an empty virtual host.
func newBroker(t *testing.T) string {
	t.Helper()
	broker.Lock()
	defer broker.Unlock()
	if broker.server == nil {
		server, err := rabbitserver.Start(rabbitserver.Config{})
		if err != nil {
			t.Fatal(err)
		}
		broker.server = server
	}
	return broker.server.PasswordURL(broker.server.NewVHost(t))
}

func stopBroker() error {
	broker.Lock()
	defer broker.Unlock()
	if broker.server == nil {
		return nil
	}
	return broker.server.Stop()
}

// patience is for events that must happen. A test that needs it fails.
const patience = 2 * time.Minute

// await waits for a condition.
func await(t *testing.T, subject string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not happen", subject)
		}
	}
}

// connected opens a transport that the test closes.
func connected(t *testing.T, url string) *rabbitmq.Transport {
	t.Helper()
	transport, err := rabbitmq.Open(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := transport.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return transport
}

// running runs an endpoint until the test ends.
func running(t *testing.T, ep *core.Endpoint) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- ep.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// billing makes the endpoint: its handler inserts a row and sends an event about it.
func billing(transport core.Transport, pool *pgxpool.Pool, c core.Config) (*core.Endpoint, *inbox.Inbox, error) {
	store, err := postgres.New(pool, postgres.Config{})
	if err != nil {
		return nil, nil, err
	}
	box, err := inbox.New(inbox.Config{Store: store})
	if err != nil {
		return nil, nil, err
	}
	c.Middleware = []core.Middleware{box.Middleware()}
	ep, err := core.New("billing", transport, c)
	if err != nil {
		return nil, nil, err
	}
	core.Handle(ep, orderType, func(ctx context.Context, m *core.Message, _ []byte) error {
		tx, err := postgres.Tx(ctx)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, insertEffect, m.ID); err != nil {
			return err
		}
		return m.Send("events", billed.Of([]byte(m.ID)))
	})
	return ep, box, nil
}

func order(id string) core.Outgoing {
	return core.Outgoing{ID: id, Queue: "billing", Headers: core.HeadersFromMap(map[string]string{headers.MessageID: id, headers.MessageTypes: "order"})}
}

// ledger is an endpoint that notes the ids of the events about each message.
type ledger struct {
	mu  sync.Mutex
	ids map[string][]string
}

func newLedger(t *testing.T, transport core.Transport) *ledger {
	t.Helper()
	l := &ledger{ids: map[string][]string{}}
	ep, err := core.New("events", transport, core.Config{})
	if err != nil {
		t.Fatal(err)
	}
	core.Handle(ep, billed, func(_ context.Context, m *core.Message, body []byte) error {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.ids[string(body)] = append(l.ids[string(body)], m.ID)
		return nil
	})
	running(t, ep)
	return l
}

func (l *ledger) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.ids)
}

// worker is a process that runs the endpoint.
type worker struct {
	Database, Broker string
	Kill             int  // at which of its sends it kills itself; 0 is never
	After            bool // it does when the broker has accepted the send, not before
}

// workerVariable makes this program a worker.
const workerVariable = "REPRISE_TEST_INBOX_WORKER"

// mortal is a transport that kills its process beside a send.
type mortal struct {
	*rabbitmq.Transport
	worker worker
	sends  atomic.Int64
}

func (m *mortal) Send(ctx context.Context, out ...core.Outgoing) error {
	dies := len(out) > 0 && out[0].Reason == core.ReasonApplication && m.sends.Add(1) == int64(m.worker.Kill)
	if dies && !m.worker.After {
		die()
	}
	err := m.Transport.Send(ctx, out...)
	if dies && err == nil {
		die()
	}
	return err
}

// die is kill -9.
func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// work is the worker's main.
func work(text string) error {
	var w worker
	if err := json.Unmarshal([]byte(text), &w); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	go func() { // the test has ended
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	pool, err := pgxpool.New(ctx, w.Database)
	if err != nil {
		return err
	}
	defer pool.Close()
	transport, err := rabbitmq.Open(w.Broker)
	if err != nil {
		return err
	}
	ep, box, err := billing(&mortal{Transport: transport, worker: w}, pool, core.Config{Concurrency: 4})
	if err != nil {
		return err
	}
	return errors.Join(ep.Run(ctx), box.Close(context.Background()), transport.Close(context.Background()))
}

// start starts a worker.
func (w worker) start(t *testing.T) *exec.Cmd {
	t.Helper()
	text, err := json.Marshal(w)
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program) //nolint:gosec // it is this program
	cmd.Env = append(os.Environ(), workerVariable+"="+string(text))
	cmd.Stderr = t.Output()
	if _, err := cmd.StdinPipe(); err != nil { // whose end tells the worker that this process has ended
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd
}

// Processes are killed between the commit of a message and its sends, and between these and
// the settlement: each effect is there once, each event has left, always with one id.
func TestInbox_KilledProcesses(t *testing.T) {
	if testing.Short() {
		t.Skip("kills processes: not in short runs")
	}
	t.Parallel()
	d := newDatabase(t)
	url := newBroker(t)
	transport := connected(t, url)
	if err := transport.Provision(t.Context(), core.Topology{InputQueue: "billing", Queues: []string{"billing", "events", "error"}}); err != nil {
		t.Fatal(err)
	}
	events := newLedger(t, transport)
	const orders = 60
	for i := range orders {
		if err := transport.Send(t.Context(), order(fmt.Sprint("order ", i))); err != nil {
			t.Fatal(err)
		}
	}
	for i, kill := range []int{3, 5, 4, 6} {
		cmd := worker{d.url, url, kill, i%2 == 1}.start(t)
		err := cmd.Wait()
		if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
			t.Fatalf("worker %d was not killed: %v", i, err)
		}
	}
	last := worker{d.url, url, 0, false}.start(t)
	await(t, "an event about each order", func() bool { return events.len() == orders })
	if err := errors.Join(last.Process.Signal(syscall.SIGTERM), last.Wait()); err != nil {
		t.Error(err)
	}
	events.mu.Lock()
	defer events.mu.Unlock()
	for i := range orders {
		id := fmt.Sprint("order ", i)
		if n := d.effects(t, id); n != 1 {
			t.Errorf("%s has %d effects", id, n)
		}
		for _, event := range events.ids[id] {
			if event != events.ids[id][0] {
				t.Errorf("the events of %s have the ids %q", id, events.ids[id])
			}
		}
	}
}

// refusing is a transport that refuses the first send of an application.
type refusing struct {
	*rabbitmq.Transport

	mu  sync.Mutex
	ids []string // of the messages of each send
}

var errRefused = errors.New("refused once")

func (r *refusing) Send(ctx context.Context, out ...core.Outgoing) error {
	if len(out) > 0 && out[0].Reason == core.ReasonApplication {
		r.mu.Lock()
		r.ids = append(r.ids, out[0].ID)
		first := len(r.ids) == 1
		r.mu.Unlock()
		if first {
			return errRefused
		}
	}
	return r.Transport.Send(ctx, out...)
}

// An event whose message is committed is refused, and taken later: there is one row, the
// handler has run once, and the event has the id of the first try.
func TestInbox_RefusedSendIsRepeated(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	transport := &refusing{Transport: connected(t, newBroker(t))}
	if err := transport.Provision(t.Context(), core.Topology{InputQueue: "billing", Queues: []string{"billing", "events", "error"}}); err != nil {
		t.Fatal(err)
	}
	ep, box, err := billing(transport, d.pool, core.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := transport.Transport.Send(t.Context(), order("order 1")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := box.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	running(t, ep)
	events := newLedger(t, transport)
	await(t, "the event", func() bool { return events.len() == 1 })
	if n := d.effects(t, "order 1"); n != 1 {
		t.Errorf("%d effects", n)
	}
	events.mu.Lock()
	defer events.mu.Unlock()
	if got := events.ids["order 1"]; len(got) != 1 || got[0] != transport.ids[1] || transport.ids[0] != transport.ids[1] {
		t.Errorf("the event has the ids %q, the tries had %q", got, transport.ids)
	}
}
