package sqlserver_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// run runs an endpoint until the end of the test.
func run(t *testing.T, ep *core.Endpoint) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- ep.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("endpoint %q: %v", ep.Name(), err)
			}
		case <-time.After(patience):
			t.Errorf("endpoint %q does not end", ep.Name())
		}
	})
	select {
	case <-ep.Ready():
	case err := <-ended:
		ended <- nil
		t.Fatalf("endpoint %q: %v", ep.Name(), err)
	case <-time.After(patience):
		t.Fatalf("endpoint %q does not start", ep.Name())
	}
}

var silent = slog.New(slog.NewTextHandler(io.Discard, nil))

// placeOrder is a message as their endpoints send it.
type placeOrder struct{ OrderID string }

// TestNServiceBus_EndpointOnTheirTables receives what theirs sent, fails at it in every
// way that retries have, and leaves in the error queue what their tools need to
// return it.
func TestNServiceBus_EndpointOnTheirTables(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	for _, c := range []struct {
		mode     core.TransactionMode
		attempts int32
	}{
		{core.TransactionNone, 1},
		{core.TransactionReceiveOnly, 4}, // two rounds of two
		{core.TransactionSendsAtomicWithReceive, 4},
	} {
		t.Run(c.mode.String(), func(t *testing.T) {
			t.Parallel()
			name, errorQueue := "Sales."+c.mode.String(), "error."+c.mode.String()
			table, errorTable := db.theirTable(t, name), db.theirTable(t, errorQueue)
			recoverability := core.Recoverability{ErrorQueue: errorQueue}
			recoverability.Immediate.NumberOfRetries = 1
			recoverability.Delayed = core.Delayed{NumberOfRetries: 1, TimeIncrease: 200 * time.Millisecond}
			if c.mode == core.TransactionNone {
				recoverability.Immediate, recoverability.Delayed = core.Immediate{NumberOfRetries: core.Off}, core.Delayed{NumberOfRetries: core.Off}
			}
			ep, err := core.New(name, db.open(t, sqlserver.Config{NServiceBusTables: true}), core.Config{
				Transactions: c.mode, Recoverability: recoverability, Logger: silent, Concurrency: 2,
			})
			if err != nil {
				t.Fatal(err)
			}
			var attempts atomic.Int32
			core.Handle(ep, placeOrderType, func(_ context.Context, _ *core.Message, body placeOrder) error {
				attempts.Add(1)
				return fmt.Errorf("no stock for %s", body.OrderID)
			})
			run(t, ep)
			db.exec(t, on(table, theirSend), "11111111-1111-4111-8111-111111111111", nil, theirHeaders, []byte(`{"OrderID":"A-1"}`))

			row := db.awaitAsThey(t, errorTable)
			if n := attempts.Load(); n != c.attempts {
				t.Errorf("%d attempts, want %d", n, c.attempts)
			}
			if schema, queue := theirAddress(row.headers[headers.FailedQ]); schema != db.schema || queue != name {
				t.Errorf("FailedQ is %s, which they read as %q and %q", row.headers[headers.FailedQ], schema, queue)
			}
			if string(row.body) != `{"OrderID":"A-1"}` || row.headers[headers.MessageID] != theirMessageID ||
				row.headers[headers.ReplyToAddress] != `"public"."Sales.Web"` || row.headers[headers.ExceptionMessage] != "no stock for A-1" {
				t.Errorf("in the error queue: %s %q", row.body, row.headers)
			}
			if _, ok := row.headers["NServiceBus.SqlServer.ForwardDestination"]; ok {
				t.Error("there is a header ForwardDestination")
			}
			await(t, "the input queue is empty", func() bool { return db.count(t, table) == "0" })
		})
	}
}

// TestNServiceBus_Conversation: a request of theirs is answered by an endpoint
// on tables of Reprise, in a transaction and without, and the answer reaches the
// address that they gave.
func TestNServiceBus_Conversation(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	for _, mode := range allModes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			name, web := "Sales."+mode.String(), db.theirTable(t, "Web."+mode.String())
			ep, err := core.New(name, db.open(t, sqlserver.Config{}), core.Config{
				Transactions: mode, Logger: silent, Provision: core.ProvisionAlways, Concurrency: 2,
			})
			if err != nil {
				t.Fatal(err)
			}
			core.Handle(ep, placeOrderType, func(_ context.Context, m *core.Message, body placeOrder) error {
				return errors.Join(
					m.Reply(orderPlacedType.Of(body)),
					m.Send(web, remindType.Of(body).With(core.SendOptions{Delay: 300 * time.Millisecond})),
				)
			})
			run(t, ep)
			fields := `{"NServiceBus.MessageId":"q","NServiceBus.EnclosedMessageTypes":"Sales.PlaceOrder, Sales.Messages",` +
				`"NServiceBus.ContentType":"application\/json","NServiceBus.ReplyToAddress":` + fmt.Sprintf("%q", web) + `}`
			asked := time.Now()
			db.exec(t, on(db.table(name), theirSend), "11111111-1111-4111-8111-111111111111", nil, fields, []byte(`{"OrderID":"A-1"}`))
			reply := db.awaitAsThey(t, web)
			if reply.headers[headers.MessageTypes] != "Sales.OrderPlaced" || reply.headers[headers.CorrelationID] != "q" || string(reply.body) != `{"OrderID":"A-1"}` {
				t.Errorf("the reply is %s %q", reply.body, reply.headers)
			}
			if schema, queue := theirAddress(reply.headers[headers.ReplyToAddress]); schema != db.schema || queue != name {
				t.Errorf("they would answer %s, which they read as %q and %q", reply.headers[headers.ReplyToAddress], schema, queue)
			}
			reminder := db.awaitAsThey(t, web)
			if reminder.headers[headers.MessageTypes] != "Sales.Remind" {
				t.Errorf("the reminder is %s %q", reminder.body, reminder.headers)
			}
			if remaining := 300*time.Millisecond - time.Since(asked); remaining > 0 {
				t.Errorf("the reminder is %v early", remaining)
			}
			if row, ok := db.receiveAsThey(t, web); ok {
				t.Errorf("one more message: %+v", row)
			}
		})
	}
}
