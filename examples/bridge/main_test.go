package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/internal/testserver/postgres"
	"github.com/reprise-go/reprise/internal/testserver/rabbitmq"
)

// database and broker are for all tests; each has a database and a virtual host.
var (
	database *postgres.Server
	broker   *rabbitmq.Server
)

func TestMain(m *testing.M) { os.Exit(withServers(m.Run)) }

func withServers(tests func() int) (code int) {
	var errs [2]error
	var starts sync.WaitGroup
	starts.Go(func() { database, errs[0] = postgres.Start(postgres.Config{}) })
	starts.Go(func() { broker, errs[1] = rabbitmq.Start(rabbitmq.Config{}) })
	starts.Wait()
	err := errors.Join(errs[:]...)
	if err == nil {
		code = tests()
	}
	if database != nil {
		err = errors.Join(err, database.Stop())
	}
	if broker != nil {
		err = errors.Join(err, broker.Stop())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func theOptions(t *testing.T) options {
	t.Helper()
	return options{
		database: database.PasswordURL(database.NewDatabase(t)), broker: broker.PasswordURL(broker.NewVHost(t)),
		orders: 3, logger: slog.New(slog.DiscardHandler),
	}
}

func TestStory(t *testing.T) {
	var out bytes.Buffer
	o := theOptions(t)
	for range 2 { // the second time there are orders
		if err := run(t.Context(), &out, o); err != nil {
			t.Fatal(err)
		}
	}
	const want = "3 orders are placed.\n3 mails are written.\n"
	if out.String() != want+want {
		t.Errorf("the story is:\n%s", &out)
	}
}

func TestWithoutServers(t *testing.T) {
	if err := run(t.Context(), os.Stdout, options{}); err == nil || !strings.Contains(err.Error(), "set DATABASE_URL and AMQP_URL") {
		t.Errorf("without servers: %v", err)
	}
}

// lines counts log lines.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) with(text string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.buf.String()) {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}

// patience is for what never happens; the speed of the machine is not tested.
const patience = 5 * time.Minute

// await waits until is returns true: nothing tells when.
func await(t *testing.T, subject string, is func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !is() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not after %v", subject, patience)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// RabbitMQ is killed while orders are placed, and restarted later: each order has one mail, no
// message of the bridge has failed, and the log has few lines about it.
func TestOutage_OfRabbitMQ(t *testing.T) {
	o := theOptions(t)
	var log lines
	o.logger = slog.New(slog.NewTextHandler(&log, nil))
	s, err := open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := errors.Join(<-done, s.close(context.Background())); err != nil {
			t.Error(err)
		}
	})
	if !s.isReady(ctx) {
		t.Fatal("the endpoints do not start")
	}
	const rounds, each = 2, 200
	for round := range rounds {
		place := func(n int) {
			for range n {
				if err := s.shop.place(ctx, "lamps"); err != nil {
					t.Fatal(err)
				}
			}
		}
		place(each / 2)
		if err := broker.Kill(); err != nil {
			t.Fatal(err)
		}
		place(each / 2)
		await(t, "the bridge has noticed", func() bool { return unreachable(s.carrier.Endpoints()) })
		if err := broker.Restart(); err != nil {
			t.Fatal(err)
		}
		if err := s.shop.awaitMails(ctx, (round+1)*each); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]int{
		`select count(*) from reprise_bridge.mails`:                 rounds * each,
		`select count(distinct order_id) from reprise_bridge.mails`: rounds * each,
		`select count(*) from reprise_bridge.error`:                 0,
	} {
		var got int
		if err := s.pool.QueryRow(ctx, name).Scan(&got); err != nil || got != want {
			t.Errorf("%s: %d, %v, want %d", name, got, err, want)
		}
	}
	await(t, "the queue of the bridge is empty", func() bool {
		var left int
		err := s.pool.QueryRow(ctx, `select count(*) from reprise_bridge."shop-bridge"`).Scan(&left)
		return err == nil && left == 0
	})
	for _, text := range []string{"reprise.ImmediateRetry", "reprise.DelayedRetry", "reprise.MoveToError"} {
		if found := log.with(text); len(found) > 0 {
			t.Errorf("%d attempts failed: %s", len(found), found[0])
		}
	}
	about := len(log.with("reprise.Bridge")) + len(log.with("reprise.PutBack"))
	t.Logf("%d log lines of the bridge about %d outages", about, rounds)
	if about > rounds*40 {
		t.Errorf("%d log lines of the bridge about %d outages", about, rounds)
	}
}

// unreachable reports whether the bridge cannot reach RabbitMQ.
func unreachable(endpoints []*core.Endpoint) bool {
	for _, ep := range endpoints {
		for _, m := range ep.Health().Middleware {
			if strings.HasPrefix(m.State, "open since") {
				return true
			}
		}
	}
	return false
}
