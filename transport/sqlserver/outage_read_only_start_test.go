package sqlserver_test

import (
	"context"
	"database/sql"
	"io"
	"log/slog"
	"testing"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/internal/testserver/postgres"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// starting is an endpoint that subscribes to topics and creates what is missing.
type starting struct {
	log   logLines
	ended chan error
}

// startOn runs an endpoint, which the test ends. handled gets what it handles.
func startOn(t *testing.T, cfg sqlserver.Config, handled chan string, topics ...string) *starting {
	t.Helper()
	s := &starting{ended: make(chan error, 1)}
	transport := open(t, cfg)
	ep, err := core.New(inputQueue, transport, core.Config{
		Provision: core.ProvisionAlways,
		Logger:    slog.New(slog.NewTextHandler(io.MultiWriter(t.Output(), &s.log), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, topic := range topics {
		core.HandleEvent(ep, core.NewEvent[[]byte](topic), func(_ context.Context, _ *core.Message, body []byte) error {
			handled <- string(body)
			return nil
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.ended <- ep.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return s
}

// awaitRunning returns when the endpoint runs.
func (s *starting) awaitRunning(t *testing.T) {
	t.Helper()
	await(t, "the endpoint is running", func() bool { return s.log.count("endpoint is running")+len(s.ended) > 0 })
	if len(s.ended) > 0 {
		t.Fatalf("Run ended at the start: %v", <-s.ended)
	}
}

// awaitMissing returns when the endpoint waits, because it has something to write before it can
// start, and has said what.
func (s *starting) awaitMissing(t *testing.T, topic string) {
	t.Helper()
	for _, want := range []string{"endpoint waits to receive", `does not have its subscription to [\"` + topic + `\"]`, "read-only", "25006"} {
		await(t, "the endpoint waits, and says "+want, func() bool { return s.log.count(want)+len(s.ended) > 0 })
	}
	if len(s.ended) > 0 {
		t.Fatalf("Run ended at the start: %v", <-s.ended)
	}
}

// prepare creates an endpoint's queues and its subscription, and publishes to it.
func prepare(t *testing.T, url, topic string) {
	t.Helper()
	owner := open(t, sqlserver.Config{URL: url})
	provision(t, owner, inputQueue, errorQueue)
	if err := owner.Subscribe(t.Context(), inputQueue, topic); err != nil {
		t.Fatal(err)
	}
	send(t, owner, core.Outgoing{ID: "1", Topic: topic, Body: []byte("while it could be written"), Headers: typed(topic)})
	closed(t, owner)
}

// typed returns the headers of a message of a type.
func typed(messageType string) (h core.Headers) {
	h.Set(headers.MessageID, "1")
	h.Set(headers.MessageTypes, messageType)
	return h
}

// TestOutage_StartOnAReadOnlyServer: with everything there, nothing has to be written before the
// first message. It is received as soon as the server takes writes again, and an endpoint that
// has to write before that waits for it.
func TestOutage_StartOnAReadOnlyServer(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	const topic, other = "orders.Placed", "orders.Cancelled"
	for over, configure := range map[string]func(t *testing.T, url string) sqlserver.Config{
		"pgx":          func(_ *testing.T, url string) sqlserver.Config { return sqlserver.Config{URL: url} },
		"database/sql": func(t *testing.T, url string) sqlserver.Config { return sqlserver.Config{DB: unkept(t, url)} },
	} {
		t.Run(over, func(t *testing.T) {
			t.Parallel()
			db := newDatabase(t)
			prepare(t, db.url, topic)
			set := func(value string) {
				if _, err := server.Exec(t.Context(), "postgres", `alter database "`+db.name+`" set default_transaction_read_only = `+value); err != nil {
					t.Fatal(err)
				}
			}
			set("on")
			handled := make(chan string, 1)
			startOn(t, configure(t, db.url), handled, topic).awaitRunning(t)
			waiting := startOn(t, configure(t, db.url), handled, topic, other)
			waiting.awaitMissing(t, other)
			if len(handled) > 0 {
				t.Fatal("a message was handled: the server is not read-only, and this shows nothing")
			}
			set("off")
			waiting.awaitRunning(t)
			if got := next(t, "a message", handled); got != "while it could be written" {
				t.Errorf("handled %q", got)
			}
		})
	}
}

// unkept returns a pool that keeps no connection: a session's default lasts as long as it.
func unkept(t *testing.T, url string) *sql.DB {
	db := openDB(t, url)
	db.SetMaxIdleConns(-1)
	return db
}

// TestOutage_StartOnAStandby, which is promoted later.
func TestOutage_StartOnAStandby(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	const topic, other = "orders.Placed", "orders.Cancelled"
	primary := postgres.StartFor(t, postgres.Config{})
	database := primary.NewDatabase(t)
	prepare(t, primary.PasswordURL(database), topic)
	standby, err := primary.StartStandby() // with a copy of the prepared data
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := standby.Stop(); err != nil {
			t.Error(err)
		}
	})
	url := standby.PasswordURL(database)
	handled := make(chan string, 1)
	startOn(t, sqlserver.Config{URL: url}, handled, topic).awaitRunning(t)
	waiting := startOn(t, sqlserver.Config{URL: url}, handled, topic, other)
	waiting.awaitMissing(t, other)
	if err := standby.Promote(); err != nil {
		t.Fatal(err)
	}
	waiting.awaitRunning(t)
	if got := next(t, "a message", handled); got != "while it could be written" {
		t.Errorf("handled %q", got)
	}
	if err := primary.Kill(); err != nil { // no test misses it
		t.Error(err)
	}
}
