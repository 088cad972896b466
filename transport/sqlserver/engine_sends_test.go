package sqlserver_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// A sender of a message may name the queue for its acknowledgement, and an operator may drop
// the audit queue: neither undoes the handler's work, nor costs an attempt.
func TestEngineSends_RefusedOnesDoNotDecide(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]sqlserver.Config{
		"leases":                                {},
		"transactions on tables of NServiceBus": {NServiceBusTables: true},
	} {
		for _, library := range []string{"pgx", "database/sql"} {
			for _, mode := range []core.TransactionMode{core.TransactionNone, core.TransactionReceiveOnly, core.TransactionSendsAtomicWithReceive} {
				t.Run(name+"/"+library+"/"+mode.String(), func(t *testing.T) {
					t.Parallel()
					testRefusedEngineSends(t, cfg, library, mode)
				})
			}
		}
	}
}

func testRefusedEngineSends(t *testing.T, cfg sqlserver.Config, library string, mode core.TransactionMode) {
	f := newTopicFixture(t, cfg)
	provision(t, f.open(t, cfg), "error", "audit", "acks")
	f.grant(t, "grant all on all tables in schema "+schemaOf(f.testDatabase)+" to "+f.role)
	f.grant(t, "grant all on all sequences in schema "+schemaOf(f.testDatabase)+" to "+f.role)
	f.grant(t, "revoke all on "+f.table("denied")+" from "+f.role)
	pool := poolOf(t, f.roleURL)
	cfg.Pool = pool
	if library == "database/sql" {
		cfg.Pool, cfg.DB = nil, openDB(t, f.roleURL)
	}
	write := func(ctx context.Context, text string, args ...any) error {
		if mode == core.TransactionSendsAtomicWithReceive {
			return work(ctx, text, args...)
		}
		_, err := pool.Exec(ctx, text, args...)
		return err
	}

	var acks []string
	for why, queue := range f.badSubscribers() {
		if why != "an unreadable address" { // Config does not allow it
			acks = append(acks, queue)
		}
	}
	slices.Sort(acks)
	retries := 2
	if mode == core.TransactionNone {
		retries = core.Off
	}
	ep, err := core.New("input", f.open(t, cfg), core.Config{
		Transactions: mode, Concurrency: 2, Provision: core.ProvisionNever, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
		RetryAckQueues: append([]string{"acks"}, acks...), AuditQueue: "audit",
		Recoverability: core.Recoverability{ErrorQueue: "error", Immediate: core.Immediate{NumberOfRetries: retries}, Delayed: core.Delayed{NumberOfRetries: core.Off}},
	})
	if err != nil {
		t.Fatal(err)
	}
	runs := make(chan string, 100)
	core.Handle(ep, placeType, func(ctx context.Context, m *core.Message, body []byte) error {
		runs <- string(body)
		if err := write(ctx, `insert into `+f.table("work")+` values ($1)`, string(body)); err != nil {
			return err
		}
		return m.Send("good", sendType.Of(body))
	})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- ep.Run(ctx) }()
	defer func() {
		stop()
		if err := next(t, "the endpoint ends", done); err != nil {
			t.Errorf("the endpoint ended with %v", err)
		}
	}()

	sender := f.open(t, sqlserver.Config{})
	n := 0
	handle := func(ack string) {
		n++
		m := letter(fmt.Sprint(n, " ", ack), "input")
		m.Headers.Set(headers.MessageTypes, "orders.Place")
		m.Headers.Set(headers.ContentType, "application/octet-stream")
		m.Headers.Set(headers.RetryUniqueMessageID, "unique")
		m.Headers.Set(headers.RetryAckQueue, ack)
		send(t, sender, m)
		if got := next(t, "message "+m.ID+" is handled", runs); got != m.ID {
			t.Errorf("%s is handled while the only message is %s", got, m.ID)
		}
		await(t, "the message to good of "+m.ID+" is sent", func() bool {
			if len(runs) > 0 {
				t.Fatalf("%s is handled again", <-runs)
			}
			return f.count(t, f.table("good")) == fmt.Sprint(n) && f.count(t, f.table("work")) == fmt.Sprint(n)
		})
	}
	for _, ack := range acks {
		handle(ack)
	}
	handle("acks")
	await(t, "all audit copies are sent", func() bool { return f.count(t, f.table("audit")) == fmt.Sprint(n) })
	f.exec(t, `drop table `+f.table("audit"))
	for range 3 {
		handle("acks")
	}
	f.exec(t, `drop table `+f.table("acks"))
	for range 3 {
		handle("acks")
	}
	if len(runs) > 0 {
		t.Errorf("%s is handled again", <-runs)
	}
	f.wantCounts(t, "after refused acknowledgements and audit copies", map[string]int{"good": n, "work": n, "error": 0})
}
