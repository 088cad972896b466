package sqlserver_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/internal/testserver/postgres"
	"github.com/reprise-go/reprise/internal/testserver/proxy"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// What endpoints do whose server fails: for each message they write a row and send
// another one, as most handlers do. What became of both is read past the transport.

// brokerOn is a database and a network of the test's own on a server that it does not
// stop.
func brokerOn(t *testing.T, s *postgres.Server) *broker {
	t.Helper()
	p, err := proxy.New(s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	database := s.NewDatabase(t)
	return &broker{server: s, proxy: p, database: database, url: postgres.Via(s.PasswordURL(database), p.Addr())}
}

// minLease is the shortest that Config takes.
const minLease = time.Second

// outageLease is for tests in which leases run out because of an outage, and must not run
// out because the machine is busy: handlers would run again and again.
const outageLease = 6 * time.Second

// next waits for a value, or the end, of a channel.
func next[T any](t *testing.T, subject string, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(patience):
		t.Fatalf("not within %v: %s", patience, subject)
		panic("unreachable")
	}
}

// The queues of a business, and its tables: written has a row for each commit of a
// handler, for any kind of message.
const (
	inputQueue  = "orders"
	outputQueue = "invoices"
	errorQueue  = "error"
)

// business is an endpoint in one transaction mode.
type business struct {
	t      *testing.T
	broker *broker
	mode   core.TransactionMode
	app    *pgxpool.Pool // of the application, past the proxy

	config    core.Config
	transport sqlserver.Config
	handle    func(ctx context.Context, m *core.Message, body []byte) error

	ordered int // messages
	changes outageLog
	log     logLines
}

// newBusiness makes the database, with everything in it. The endpoint is made by
// run, and may be configured until then.
func newBusiness(t *testing.T, b *broker, mode core.TransactionMode) *business {
	t.Helper()
	app, err := pgxpool.New(t.Context(), b.server.URL(b.database))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !t.Failed() { // it waits for the connection of a handler that hangs
			app.Close()
		}
	})
	e := &business{t: t, broker: b, mode: mode, app: app}
	e.exec(`create table written (key text not null, delivery integer not null)`)
	e.exec(`grant all on written to ` + postgres.User)
	e.handle = e.work
	e.transport = sqlserver.Config{URL: b.url}
	e.config = core.Config{
		Transactions: mode,
		Concurrency:  4,
		Provision:    core.ProvisionNever,
		Logger:       slog.New(slog.NewTextHandler(io.MultiWriter(t.Output(), &e.log), nil)),
		Observers:    []core.Observer{{ConnectionChanged: e.changes.ConnectionChanged}},
		Recoverability: core.Recoverability{
			ErrorQueue: errorQueue,
			// Operations that fail because of an outage are repeated until it has ended.
			Immediate:     core.Immediate{NumberOfRetries: 1_000_000},
			Delayed:       core.Delayed{NumberOfRetries: core.Off},
			MaxDeliveries: core.Off,
		},
	}
	past := open(t, sqlserver.Config{URL: b.server.PasswordURL(b.database)})
	provision(t, past, inputQueue, outputQueue, errorQueue)
	closed(t, past)
	return e
}

// work is the handler unless a test has another one.
func (e *business) work(ctx context.Context, m *core.Message, body []byte) error {
	if err := e.write(ctx, m, body); err != nil {
		return err
	}
	return m.Send(outputQueue, sendType.Of(body))
}

// write writes the row: in the message's transaction where there is one.
func (e *business) write(ctx context.Context, m *core.Message, body []byte) error {
	const text = `insert into written values ($1, $2)`
	if e.mode == core.TransactionSendsAtomicWithReceive {
		return work(ctx, text, string(body), m.Attempt)
	}
	_, err := e.app.Exec(ctx, text, string(body), m.Attempt)
	return err
}

// exec runs a statement as the superuser, past the transport.
func (e *business) exec(text string, args ...any) {
	e.t.Helper()
	if _, err := e.app.Exec(e.t.Context(), text, args...); err != nil {
		e.t.Fatalf("%s: %v", text, err)
	}
}

// number returns the number that a query returns, or -1 where the server does not
// answer.
func (e *business) number(text string, args ...any) int {
	var n int
	if err := e.app.QueryRow(context.Background(), text, args...).Scan(&n); err != nil {
		return -1
	}
	return n
}

// keys returns how often each value of a column is in a table.
func (e *business) keys(text string) map[string]int {
	e.t.Helper()
	rows, err := e.app.Query(e.t.Context(), text)
	if err != nil {
		e.t.Fatal(err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		e.t.Fatal(err)
	}
	found := map[string]int{}
	for _, key := range list {
		found[key]++
	}
	return found
}

// order puts n messages into the input queue, past the transport: "1", "2", and
// so on.
func (e *business) order(n int) {
	e.t.Helper()
	e.exec(`insert into `+inputQueue+` (headers, body)
select '{"NServiceBus.MessageId": "' || i || '", "NServiceBus.EnclosedMessageTypes": "orders.Place", "NServiceBus.ContentType": "application/octet-stream"}', convert_to(i::text, 'UTF8')
from generate_series($1::int, $2::int) as i`, e.ordered+1, e.ordered+n)
	e.ordered += n
}

// run starts the endpoint, which ends with the test.
func (e *business) run() {
	e.t.Helper()
	e.runOn(open(e.t, e.transport))
}

// runOn is run with a transport that others may use too.
func (e *business) runOn(transport *sqlserver.Transport) {
	e.t.Helper()
	endpoint, err := core.New(inputQueue, transport, e.config)
	if err != nil {
		e.t.Fatal(err)
	}
	core.Handle(endpoint, placeType, e.handle)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- endpoint.Run(ctx) }()
	e.t.Cleanup(func() {
		stop()
		select {
		case err := <-done:
			if err != nil {
				e.t.Errorf("the endpoint ended with %v", err)
			}
		case <-time.After(patience):
			e.t.Errorf("the endpoint has not ended within %v", patience)
		}
	})
}

// waiting is how many messages are in the input queue, in work or not.
func (e *business) waiting() int { return e.number(`select count(*) from ` + inputQueue) }

// written is how many rows handlers have committed.
func (e *business) written() int { return e.number(`select count(*) from written`) }

// awaitDone returns when every message has been consumed.
func (e *business) awaitDone() {
	e.t.Helper()
	await(e.t, "all messages are consumed", func() bool { return e.waiting() == 0 })
}

// checkDone checks that each of n messages was handled and sent another one: once
// in the atomic mode, at least once otherwise, and that none failed for good.
func (e *business) checkDone(n int) {
	e.t.Helper()
	once := e.mode == core.TransactionSendsAtomicWithReceive
	for name, found := range map[string]map[string]int{
		"written": e.keys(`select key from written`),
		"sent":    e.keys(`select convert_from(body, 'UTF8') from ` + outputQueue),
	} {
		var missing, repeated []string
		for i := range n {
			key := fmt.Sprint(i + 1)
			switch times := found[key]; {
			case times == 0:
				missing = append(missing, key)
			case times > 1:
				repeated = append(repeated, key)
			}
			delete(found, key)
		}
		if len(missing) > 0 {
			e.t.Errorf("%d of %d were never %s: %s", len(missing), n, name, strings.Join(missing, " "))
		}
		if once && len(repeated) > 0 {
			e.t.Errorf("%d of %d were %s more than once: %s", len(repeated), n, name, strings.Join(repeated, " "))
		}
		if len(found) > 0 {
			e.t.Errorf("%s, but never ordered: %v", name, slices.Sorted(maps.Keys(found)))
		}
	}
	if failed := e.number(`select count(*) from ` + errorQueue); failed != 0 {
		e.t.Errorf("%d messages were moved to the error queue", failed)
	}
}

// checkAttempt checks that all that handlers committed is the work of the same attempt:
// 1 is the first.
func (e *business) checkAttempt(want int) {
	e.t.Helper()
	if n := e.number(`select count(*) from written where delivery <> $1`, want); n != 0 {
		e.t.Errorf("%d rows were not written by attempt %d", n, want)
	}
}

// checkNoOutage checks that nothing looked like one.
func (e *business) checkNoOutage() {
	e.t.Helper()
	if changes := e.changes.all(); len(changes) > 0 {
		e.t.Errorf("the observer is told of outages, %d times: %v", len(changes), changes[0].Err)
	}
}

// outageLog is what an observer is told of outages.
type outageLog struct {
	mu      sync.Mutex
	changes []core.ConnectionChange
}

// ConnectionChanged is that of a core.ReceiverConfig.
func (l *outageLog) ConnectionChanged(change core.ConnectionChange) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changes = append(l.changes, change)
}

func (l *outageLog) all() []core.ConnectionChange {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.changes)
}

// logLines is what the endpoint logged.
type logLines struct {
	mu    sync.Mutex
	lines []string
}

// Write implements io.Writer.
func (l *logLines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, string(line))
	return len(line), nil
}

// count returns how many lines have a text.
func (l *logLines) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, line := range l.lines {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

func (l *logLines) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = nil
}
