package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"testing"

	"github.com/reprise-go/reprise/internal/testserver/postgres"
)

// server is for all tests; each has a separate database.
var server *postgres.Server

// databaseVariable makes the test's binary the service, which can be killed.
const databaseVariable = "REPRISE_TEST_OUTBOX_DATABASE"

func TestMain(m *testing.M) {
	quiet := options{logger: slog.New(slog.DiscardHandler)}
	if quiet.database = os.Getenv(databaseVariable); quiet.database != "" {
		quiet.listen = "127.0.0.1:0"
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(1) // the test that started it has died
		}()
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
		defer stop()
		if err := run(ctx, os.Stdout, quiet); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	var err error
	if server, err = postgres.Start(postgres.Config{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if err := server.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

const wantStory = `
1. Somebody orders 2 lamps. Nothing unusual.

   shop     order 1 is placed, and the message to billing sent
   billing  attempt 1 at billing.WriteInvoice: handled
   shop     attempt 1 at billing.InvoiceWritten: handled

   In the tables: order 1 is invoiced.
   Invoices: 1. Messages to billing: 0. In the error queue: 0.

2. Somebody orders 90000 lamps. There are fewer, but the handler learns that after the message was sent.

   shop     order 2 is not placed: out of stock

   In the tables: order 2 is not there.
   Invoices: 0. Messages to billing: 0. In the error queue: 0.

3. Somebody orders 3 kettles. The tax office does not answer at first, when the invoice is written already.

   shop     order 3 is placed, and the message to billing sent
   billing  attempt 1 at billing.WriteInvoice: failed: tax office: no answer
   billing  attempt 2 at billing.WriteInvoice: failed: tax office: no answer
   billing  attempt 3 at billing.WriteInvoice: handled
   shop     attempt 1 at billing.InvoiceWritten: handled

   In the tables: order 3 is invoiced.
   Invoices: 1. Messages to billing: 0. In the error queue: 0.

4. Somebody orders 500 teapots. The tax office wants a form that the shop does not have, when the invoice is written already.

   shop     order 4 is placed, and the message to billing sent
   billing  attempt 1 at billing.WriteInvoice: failed: order 4: tax office: teapots need form 27b
   shop     attempt 1 at shop.RefuseOrder: handled

   In the tables: order 4 is refused: order 4: tax office: teapots need form 27b.
   Invoices: 0. Messages to billing: 0. In the error queue: 1.
`

func TestStory(t *testing.T) {
	t.Parallel()
	database := server.PasswordURL(server.NewDatabase(t)) // of a user who is no superuser
	var out bytes.Buffer
	if err := run(t.Context(), &out, options{database: database, logger: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	if out.String() != wantStory {
		t.Errorf("the story is:\n%s\nwant:\n%s", &out, wantStory)
	}

	// A second run prints the same, about other orders.
	out.Reset()
	if err := run(t.Context(), &out, options{database: database, logger: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	secondRun := strings.NewReplacer("order 5", "order 1", "order 6", "order 2", "order 7", "order 3", "order 8", "order 4").Replace(out.String())
	if secondRun != wantStory {
		t.Errorf("the second time the story is:\n%s", &out)
	}
}

func TestWithoutDatabase(t *testing.T) {
	t.Parallel()
	err := run(t.Context(), os.Stdout, options{logger: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), "export DATABASE_URL=postgres://") {
		t.Errorf("without a database: %v; want an error that says how to name one", err)
	}
	// Of a password with a / in it a URL has a part elsewhere, where no reader takes it for a password.
	err = run(t.Context(), os.Stdout, options{database: "postgres://app:s3c/r@et@localhost/shop", logger: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), "%2F") || strings.Contains(err.Error(), "et@") {
		t.Errorf("with a URL that is none: %v; want an error that says how to write one, without a part of the password", err)
	}
	unreachable := strings.Replace(server.PasswordURL("postgres"), server.Addr(), "127.0.0.1:1", 1)
	err = run(t.Context(), os.Stdout, options{database: unreachable, logger: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), "create the tables: failed to connect") || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("with a database that cannot be reached: %v; want an error that says so, without the password", err)
	}
}
