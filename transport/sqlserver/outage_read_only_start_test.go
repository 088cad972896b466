package sqlserver_test

import (
	"context"
	"database/sql"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/internal/testserver/postgres"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// starting is an endpoint that subscribes to a topic and creates what is missing.
type starting struct {
	log     logLines
	handled chan string
	ended   chan error
}

// startOn runs an endpoint, which the test ends.
func startOn(t *testing.T, cfg sqlserver.Config, topic string) *starting {
	t.Helper()
	s := &starting{handled: make(chan string, 1), ended: make(chan error, 1)}
	transport := open(t, cfg)
	ep, err := core.New(inputQueue, transport, core.Config{
		Provision: core.ProvisionAlways,
		Logger:    slog.New(slog.NewTextHandler(io.MultiWriter(t.Output(), &s.log), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := core.HandleEvent(ep, topic, func(_ context.Context, m *core.Inbound[[]byte]) error {
		s.handled <- string(m.Body)
		return nil
	}); err != nil {
		t.Fatal(err)
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

// wantMissing is for an endpoint that has something to write before it can start.
func (s *starting) wantMissing(t *testing.T, topic string) {
	t.Helper()
	err := next(t, "the end of Run", s.ended)
	if err == nil {
		t.Fatal("Run returned nil, want an error about the missing subscription")
	}
	for _, want := range []string{`does not have its subscription to ["` + topic + `"]`, "read-only", "25006"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want it to say %q", err, want)
		}
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
	h.Set(core.HeaderMessageID, "1")
	h.Set(core.HeaderMessageTypes, messageType)
	return h
}

// TestOutage_StartOnAReadOnlyServer: with everything there, nothing has to be written before the
// first message. It is received as soon as the server takes writes again.
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
			s := startOn(t, configure(t, db.url), topic)
			s.awaitRunning(t)
			startOn(t, configure(t, db.url), other).wantMissing(t, other)
			if len(s.handled) > 0 {
				t.Fatal("a message was handled: the server is not read-only, and this shows nothing")
			}
			set("off")
			if got := next(t, "a message", s.handled); got != "while it could be written" {
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
	standby, err := primary.StartStandby() // with a copy of what was prepared
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := standby.Stop(); err != nil {
			t.Error(err)
		}
	})
	url := standby.PasswordURL(database)
	s := startOn(t, sqlserver.Config{URL: url}, topic)
	s.awaitRunning(t)
	startOn(t, sqlserver.Config{URL: url}, other).wantMissing(t, other)
	if err := standby.Promote(); err != nil {
		t.Fatal(err)
	}
	if got := next(t, "a message", s.handled); got != "while it could be written" {
		t.Errorf("handled %q", got)
	}
	if err := primary.Kill(); err != nil { // nobody misses it
		t.Error(err)
	}
}
