package sqlserver_test

import (
	"context"
	"log/slog"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/internal/testserver/postgres"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// The role's password changes, and its sessions end. The pool's BeforeConnect has the new
// password at once, or only later: then the endpoint waits.
func TestOutage_PasswordIsRotated(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	quoted, rawURL := db.role(t)
	db.exec(t, `grant usage, create on schema `+schemaOf(db)+` to `+quoted)
	var password atomic.Pointer[string]
	tell := func(text string) { password.Store(&text) }
	tell(postgres.Password)
	u, err := url.Parse(rawURL)
	if err != nil {
		t.Fatal(err)
	}
	role := u.User.Username()
	u.User = url.User(role)
	exec := func(statement string) {
		t.Helper()
		if _, err := server.Exec(t.Context(), db.name, statement); err != nil {
			t.Fatal(err)
		}
	}
	exec("grant " + quoted + " to " + postgres.User) // the other transport sends to the role's tables
	endSessions := func() {
		t.Helper()
		exec("select pg_terminate_backend(pid) from pg_stat_activity where usename = '" + role + "'")
	}
	rotate := func(text string) {
		t.Helper()
		exec("alter role " + quoted + " password '" + text + "'")
		endSessions()
	}
	pool := poolWith(t, u.String(), func(cfg *pgxpool.Config) {
		cfg.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
			c.Password = *password.Load()
			return nil
		}
	})
	ep, err := core.New("billing", db.open(t, sqlserver.Config{Pool: pool}), core.Config{
		Logger: slog.New(slog.DiscardHandler), Provision: core.ProvisionAlways, Concurrency: 2,
	})
	if err != nil {
		t.Fatal(err)
	}
	handled := make(chan string, 10)
	core.Handle(ep, core.NewMessageType[[]byte]("order"), func(_ context.Context, _ *core.Message, body []byte) error {
		handled <- string(body)
		return nil
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- ep.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case <-ep.Ready():
	case err := <-ended:
		ended <- err
		t.Fatal("the endpoint has not started")
	}
	other := db.open(t, sqlserver.Config{URL: db.url})
	awaitHandled := func(body string) {
		t.Helper()
		if err := other.Send(t.Context(), core.Outgoing{ID: body, Queue: "billing", Headers: core.HeadersFromMap(map[string]string{
			"NServiceBus.EnclosedMessageTypes": "order", "NServiceBus.ContentType": "application/octet-stream",
		}), Body: []byte(body)}); err != nil {
			t.Fatal(err)
		}
		select {
		case got := <-handled:
			if got != body {
				t.Errorf("%q was handled, want %q", got, body)
			}
		case <-time.After(patience):
			t.Fatalf("%q is not handled: %v", body, ep.Health().ConnectionError)
		}
	}
	awaitHandled("with the first password")
	tell("s3cret-2")
	rotate("s3cret-2")
	awaitHandled("with the second password")
	rotate("s3cret-3")
	await(t, "Health reports the refusal", func() bool {
		h := ep.Health()
		if !h.Running {
			t.Fatalf("the endpoint has ended: %v", h.RunError)
		}
		if h.ConnectionError != nil && strings.Contains(h.ConnectionError.Error(), "s3cret") {
			t.Errorf("Health shows the password: %v", h.ConnectionError)
		}
		endSessions() // one that was beginning when the password changed is not listed at first
		return !h.Connected && h.ConnectionError != nil && strings.Contains(h.ConnectionError.Error(), "28P01") && strings.Contains(h.ConnectionError.Error(), role)
	})
	tell("s3cret-3")
	awaitHandled("with the third password")
	await(t, "Health reports the connection", func() bool { return ep.Health().Connected })
}
