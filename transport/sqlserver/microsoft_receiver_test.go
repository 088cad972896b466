package sqlserver

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	mssql "github.com/microsoft/go-mssqldb"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/dialect"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/microsoft"
)

// What the engine makes of Microsoft SQL Server's answers, and of what go-mssqldb
// makes of them.

func textsOf(t *testing.T, queue string) *dialect.QueueTexts {
	t.Helper()
	table, err := microsoft.Dialect{}.Table(queue, dialect.Location{Catalog: "shop", Schema: "dbo"})
	if err != nil {
		t.Fatal(err)
	}
	return microsoft.Dialect{}.Queue(table)
}

// insertOf is the statement that sends a message without delay.
func insertOf(t *testing.T, queue string) string {
	t.Helper()
	return microsoft.Dialect{}.Insert(textsOf(t, queue), make([]dialect.NewRow, 1), false)[0].Args[0].(string)
}

func openStandIn(t *testing.T, s *standIn, options ...string) *Transport {
	t.Helper()
	transport, err := New(Config{URL: s.url(options...), Experimental: MicrosoftSQLServer})
	if err != nil {
		t.Fatal(err)
	}
	transport.delayed.Off = true // and so it never does: its transactions would come between those of the test
	t.Cleanup(func() {
		if err := transport.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return transport
}

// message is the row of one, for the first time delivered.
func message(seq int) []any {
	due := time.Date(2026, 3, 29, 1, 30, 0, 123456700, time.UTC)
	return []any{"0E984725-C51C-4BF4-9960-E1C80E27ABA0", seq, `{"NServiceBus.MessageId":"order 7"}`, []byte{}, due, 1, 1, "", 3_600_000_000, ""}
}

// claimed is the row of a message that a claim returns.
func claimed(seq int) []any { return append(message(seq), 0) }

// claimedLarge is one of a message whose contents a claim does not return.
func claimedLarge(seq int) []any {
	row := message(seq)
	row[2] = ""
	return append(row, 300<<20)
}

// steps names requests, and makes sure that all that belongs to a transaction was in
// one and the same.
func steps(t *testing.T, requests []request) (names []string) {
	t.Helper()
	known := map[string]string{}
	for _, queue := range []string{"orders", "billing"} {
		q := textsOf(t, queue)
		for text, name := range map[string]string{
			q.Claim: "claim", q.Complete: "complete", q.Abandon: "abandon", q.Release: "release",
			q.Contents: "contents", q.Begin: "begin",
			q.Take: "take", q.GiveBack: "give back", q.Retake: "retake", insertOf(t, queue): "insert",
		} {
			known[text] = name + " " + queue
		}
	}
	d := microsoft.Dialect{}
	known[d.Savepoint(dialect.BeforeHandler).SQL] = "savepoint"
	known[d.Savepoint(dialect.AfterHandler).SQL] = "second savepoint"
	known[d.RollbackTo(dialect.BeforeHandler).SQL] = "undo"
	known[d.RollbackTo(dialect.AfterHandler).SQL] = "undo sends"
	known[d.Intact().SQL] = "intact"
	var transaction uint64
	for _, r := range requests {
		name, ok := known[r.text]
		if !ok {
			name = r.text
		}
		names = append(names, name)
		switch {
		case r.text == begins:
			if r.transaction != 0 {
				t.Errorf("%s came within a transaction", name)
			}
			transaction = 0
		case transaction == 0:
			transaction = r.transaction
		case r.transaction != transaction:
			t.Errorf("%s came in the transaction %d, not in %d, as what was before it: %q", name, r.transaction, transaction, names)
		}
	}
	return names
}

func wantSteps(t *testing.T, s *standIn, want ...string) {
	t.Helper()
	if got := steps(t, s.requests()); !slices.Equal(got, want) {
		t.Errorf("the server got %q, want %q", got, want)
	}
}

func TestMicrosoft_Send(t *testing.T) {
	t.Parallel()
	insert := insertOf(t, "orders")
	for name, c := range map[string]struct {
		before func(s *standIn)
		state  core.SendState // SendAccepted: no error
		is     error
		number int32
	}{
		"is accepted when the server says so":                  {state: core.SendAccepted},
		"is refused as a duplicate key":                        {before: says(insert, failsWith(2627, 14)), state: core.SendRefused, number: 2627},
		"is refused without a table":                           {before: says(insert, failsWith(208, 16)), state: core.SendRefused, is: core.ErrQueueNotFound, number: 208},
		"is refused as a deadlock's victim":                    {before: says(insert, failsWith(1205, 13)), state: core.SendRefused, number: 1205},
		"is refused after a lock's time-out":                   {before: says(insert, failsWith(1222, 16)), state: core.SendRefused, number: 1222},
		"is refused with a full disk":                          {before: says(insert, failsWith(1105, 17)), state: core.SendRefused, number: 1105},
		"is unknown when the server is gone before it answers": {before: says(insert, reply{severs: true}), state: core.SendUnknown},
		"is unknown when the session is killed":                {before: says(insert, failsWith(596, 21)), state: core.SendUnknown, number: 596},
		"is refused when nothing listens":                      {before: (*standIn).stop, state: core.SendRefused},
	} {
		t.Run(name, func(t *testing.T) {
			s := startStandIn(t)
			transport := openStandIn(t, s)
			if c.before != nil {
				c.before(s)
			}
			err := transport.Send(t.Context(), core.Outgoing{ID: "7", Queue: "orders"})
			if c.state == core.SendAccepted {
				if err != nil {
					t.Fatal(err)
				}
				wantSteps(t, s, "insert orders")
				return
			}
			wantSendState(t, err, c.state)
			if c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("the error is %v, want %v", err, c.is)
			}
			var server mssql.Error
			if errors.As(err, &server) != (c.number != 0) || server.Number != c.number {
				t.Errorf("the error is %v, want that of the number %d", err, c.number)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("the password is in %v", err)
			}
		})
	}
}

func says(text string, replies ...reply) func(s *standIn) {
	return func(s *standIn) { s.says(text, replies...) }
}

func wantSendState(t *testing.T, err error, want core.SendState) {
	t.Helper()
	var send *core.SendError
	if !errors.As(err, &send) {
		t.Fatalf("the error is %v, want a SendError", err)
	}
	for _, r := range send.Results {
		if r.State != want {
			t.Errorf("the message %s is %v, want %v: %v", r.ID, r.State, want, err)
		}
	}
}

func TestMicrosoft_SendToSeveralQueuesIsOneTransaction(t *testing.T) {
	t.Parallel()
	s := startStandIn(t)
	transport := openStandIn(t, s)
	out := []core.Outgoing{{ID: "1", Queue: "orders"}, {ID: "2", Queue: "billing"}}
	if err := transport.Send(t.Context(), out...); err != nil {
		t.Fatal(err)
	}
	wantSteps(t, s, begins, "insert orders", "insert billing", commits)

	s.says(insertOf(t, "billing"), failsWith(2627, 14))
	wantSendState(t, transport.Send(t.Context(), out...), core.SendRefused)
	wantSteps(t, s, begins, "insert orders", "insert billing", rollsBack)

	s.says(commits, reply{severs: true})
	wantSendState(t, transport.Send(t.Context(), out...), core.SendUnknown)
}

// TestMicrosoft_SendInATransactionThatHasEnded is about a deadlock that the caller
// took no notice of: the server would carry out what comes next outside of any
// transaction.
func TestMicrosoft_SendInATransactionThatHasEnded(t *testing.T) {
	t.Parallel()
	s := startStandIn(t)
	transport := openStandIn(t, s)
	db, err := sql.Open("sqlserver", s.url())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	const business = "update stock"
	victim := failsWith(1205, 13)
	victim.ends = true
	s.says(business, victim)
	if _, err := tx.ExecContext(t.Context(), business); err == nil {
		t.Fatal("the statement did not fail")
	}
	wantSendState(t, transport.Send(WithSQLTx(t.Context(), tx), core.Outgoing{ID: "1", Queue: "orders"}), core.SendRefused)
	if err := tx.Commit(); err == nil {
		t.Error("the commit succeeded")
	}
	wantSteps(t, s, begins, business)
}

func TestMicrosoft_ParameterTypes(t *testing.T) {
	t.Parallel()
	s := startStandIn(t)
	transport := openStandIn(t, s)
	err := transport.Send(t.Context(),
		core.Outgoing{ID: "1", Queue: "orders", Headers: core.HeadersFromMap(map[string]string{"key": "värde 𝄞"})},
		core.Outgoing{ID: "1", Queue: "orders", Body: bytes.Repeat([]byte{0, 255}, 10_000), Delay: time.Hour + 1},
		core.Outgoing{ID: "1", Queue: "orders", Body: []byte("x"), TimeToBeReceived: time.Microsecond - 1},
	)
	if err != nil {
		t.Fatal(err)
	}
	r := s.requests()
	if len(r) != 1 {
		t.Fatalf("the server got %v", r)
	}
	want := map[string]any{
		"@h0": `{"key":"värde 𝄞","Reprise.MessageID":"1"}`, "@b0": []byte{}, "@t0": int64(0), "@d0": int64(0),
		"@h1": `{"Reprise.MessageID":"1"}`, "@b1": bytes.Repeat([]byte{0, 255}, 10_000), "@t1": int64(0), "@d1": int64(3_600_000_001),
		"@h2": `{"Reprise.MessageID":"1"}`, "@b2": []byte("x"), "@t2": int64(1), "@d2": int64(0),
		"@h3": nil, "@b3": nil, "@t3": nil, "@d3": nil,
	}
	if len(r[0].args) != len(want) {
		t.Errorf("there are %d arguments, want %d", len(r[0].args), len(want))
	}
	for name, value := range want {
		if got := r[0].args[name]; !reflect.DeepEqual(got, value) { // an empty body is not NULL
			t.Errorf("%s is %#v, want %#v", name, got, value)
		}
	}
	if want := "@h0 nvarchar(max), @b0 varbinary(max), @t0 bigint, @d0 bigint, @h1 "; !strings.HasPrefix(r[0].declared, want) {
		t.Errorf("the parameters are declared as %q, want %q...", r[0].declared, want)
	}
}

// receive opens a receiver and receives one message.
func receive(t *testing.T, transport *Transport, cfg core.ReceiverConfig) (core.Receiver, core.Delivery) {
	t.Helper()
	cfg.Queue, cfg.MaxInFlight = "orders", 1
	r, err := transport.OpenReceiver(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close(context.Background()) })
	dst := make([]core.Delivery, 1)
	if n, err := r.Receive(t.Context(), dst); n != 1 || err != nil {
		t.Fatalf("Receive returned %d, %v", n, err)
	}
	return r, dst[0]
}

func TestMicrosoft_Lease(t *testing.T) {
	t.Parallel()
	s := startStandIn(t)
	q := textsOf(t, "orders")
	s.says(q.Claim, reply{rows: [][]any{claimed(7)}})
	s.says(q.Complete, reply{rows: [][]any{{7}}})
	// Upon this depends what go-mssqldb makes of a datetime2, but not of a
	// datetimeoffset.
	transport := openStandIn(t, s, "timezone=Asia/Tokyo")
	_, d := receive(t, transport, core.ReceiverConfig{Mode: core.TransactionReceiveOnly})
	in := d.Incoming()
	if in.ID != "order 7" || in.NativeID != message(7)[0] || in.DeliveryCount != 1 || in.Redelivered || len(in.Body) != 0 || in.Malformed != nil {
		t.Errorf("the message is %+v", in)
	}
	if want := message(7)[4].(time.Time); !in.EnqueuedAt.Equal(want) {
		t.Errorf("it became available at %v, want %v", in.EnqueuedAt, want)
	}
	if left := time.Until(in.ExpiresAt); left > time.Hour || left < time.Hour-time.Minute {
		t.Errorf("it expires in %v, want an hour", left)
	}
	if err := d.Complete(t.Context()); err != nil {
		t.Error(err)
	}
	if err := d.Complete(t.Context()); !errors.Is(err, core.ErrSettled) {
		t.Errorf("the second settlement returned %v", err)
	}
	r := s.requests()
	if got := steps(t, r); !slices.Equal(got, []string{"claim orders", "complete orders"}) {
		t.Fatalf("the server got %q", got)
	}
	if a := r[0].args; a["@p1"] != int64(1) || a["@p2"] != defaultLease.Microseconds() || !a["@p3"].(time.Time).Equal(time.Time{}) {
		t.Errorf("the arguments of the claim are %v", a)
	}
	if a := r[1].args; a["@p1"] != "[[7,1]]" || r[1].declared != "@p1 nvarchar(max)" {
		t.Errorf("the arguments of the settlement are %v, declared as %s", a, r[1].declared)
	}
}

func TestMicrosoft_LargeMessageIsFetchedAfterTheClaim(t *testing.T) {
	t.Parallel()
	s := startStandIn(t)
	q := textsOf(t, "orders")
	s.says(q.Claim, reply{rows: [][]any{claimedLarge(7)}})
	s.says(q.Contents, reply{rows: [][]any{{7, `{"NServiceBus.MessageId":"order 7"}`, []byte("large"), "no stock"}}})
	s.says(q.Complete, reply{rows: [][]any{{7}}})
	_, d := receive(t, openStandIn(t, s), core.ReceiverConfig{Mode: core.TransactionReceiveOnly, MaxReceiveBytes: 1 << 20})
	in := d.Incoming()
	if in.ID != "order 7" || in.NativeID != message(7)[0] || string(in.Body) != "large" || in.LastError != "no stock" || in.DeliveryCount != 1 {
		t.Errorf("the message is %+v", in)
	}
	if err := d.Complete(t.Context()); err != nil {
		t.Error(err)
	}
	r := s.requests()
	if got := steps(t, r); !slices.Equal(got, []string{"claim orders", "contents orders", "complete orders"}) {
		t.Fatalf("the server got %q", got)
	}
	if a := r[0].args; a["@p4"] != int64(1<<20/3) {
		t.Errorf("the arguments of the claim are %v", a)
	}
	if a := r[1].args; a["@p1"] != "[[7,1]]" {
		t.Errorf("the arguments of contents are %v", a)
	}
}

func TestMicrosoft_LostLease(t *testing.T) {
	t.Parallel()
	s := startStandIn(t)
	q := textsOf(t, "orders")
	s.says(q.Claim, reply{rows: [][]any{claimed(7)}})
	_, d := receive(t, openStandIn(t, s), core.ReceiverConfig{Mode: core.TransactionReceiveOnly})
	if err := d.Abandon(t.Context(), errors.New("it's \"bad\"")); !errors.Is(err, core.ErrLockLost) {
		t.Errorf("Abandon returned %v", err)
	}
	r := s.requests()
	if got := r[len(r)-1].args["@p1"]; got != `[[7,1,"it's \"bad\""]]` {
		t.Errorf("the server got %v", got)
	}
}

func TestMicrosoft_SettlementSurvivesAnOutage(t *testing.T) {
	t.Parallel()
	s := startStandIn(t)
	q := textsOf(t, "orders")
	s.says(q.Claim, reply{rows: [][]any{claimed(7)}})
	s.says(q.Complete, failsWith(1205, 13), reply{severs: true}, reply{}) // the second had been carried out
	_, d := receive(t, openStandIn(t, s), core.ReceiverConfig{Mode: core.TransactionReceiveOnly})
	if err := d.Complete(t.Context()); err != nil {
		t.Error(err)
	}
	wantSteps(t, s, "claim orders", "complete orders", "complete orders", "complete orders")
}

// outageLog is what an observer is told.
type outageLog struct {
	mu   sync.Mutex
	errs []error
}

// ConnectionChanged is that of a core.ReceiverConfig.
func (l *outageLog) ConnectionChanged(change core.ConnectionChange) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.errs = append(l.errs, change.Err)
}

func TestMicrosoft_ReceiveRetriesTransientErrors(t *testing.T) {
	t.Parallel()
	for mode, text := range map[core.TransactionMode]string{
		core.TransactionReceiveOnly:            textsOf(t, "orders").Claim,
		core.TransactionSendsAtomicWithReceive: textsOf(t, "orders").Take,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			s := startStandIn(t)
			victim := failsWith(1205, 13)
			victim.ends = mode == core.TransactionSendsAtomicWithReceive
			row := message(7)
			if mode == core.TransactionReceiveOnly {
				row = claimed(7)
			}
			s.says(text, victim, failsWith(1222, 16), failsWith(3906, 16), reply{severs: true}, reply{rows: [][]any{row}})
			observer := &outageLog{}
			_, d := receive(t, openStandIn(t, s), core.ReceiverConfig{Mode: mode, ConnectionChanged: observer.ConnectionChanged})
			if d.Incoming().ID != "order 7" {
				t.Errorf("the message is %+v", d.Incoming())
			}
			observer.mu.Lock()
			defer observer.mu.Unlock()
			if len(observer.errs) != 5 || observer.errs[4] != nil {
				t.Errorf("the observer was told of %v, want four errors and the end of them", observer.errs)
			}
		})
	}
}

func TestMicrosoft_ReceiveReturnsPermanentErrors(t *testing.T) {
	t.Parallel()
	s := startStandIn(t)
	s.says(textsOf(t, "orders").Claim, failsWith(229, 14))
	transport := openStandIn(t, s)
	r, err := transport.OpenReceiver(t.Context(), core.ReceiverConfig{Queue: "orders", Mode: core.TransactionReceiveOnly, MaxInFlight: 1})
	if err != nil {
		t.Fatal(err)
	}
	n, err := r.Receive(t.Context(), make([]core.Delivery, 1))
	var server mssql.Error
	if n != 0 || !errors.As(err, &server) || server.Number != 229 {
		t.Errorf("Receive returned %d, %v", n, err)
	}
}
