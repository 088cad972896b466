package sqlserver_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// What docs/transports/sqlserver.md gives operators to run is run here: every block of
// SQL in it has a name in a comment before it, and is used by a test of that name.

// document returns the blocks of SQL by their names.
func document(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../../docs/transports/sqlserver.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := map[string]string{}
	for _, found := range regexp.MustCompile("(?s)<!-- sql: ([a-z-]+) -->\n```sql\n(.*?)```\n").FindAllStringSubmatch(string(text), -1) {
		if _, repeated := blocks[found[1]]; repeated {
			t.Errorf("the document has two blocks named %q", found[1])
		}
		blocks[found[1]] = found[2]
	}
	if n := strings.Count(string(text), "```sql\n"); n != len(blocks) {
		t.Errorf("the document has %d blocks of SQL, but %d have a name", n, len(blocks))
	}
	return blocks
}

// operator has a database with the queues that the document speaks of.
type operator struct {
	*testDatabase
	transport *sqlserver.Transport
	block     func(name string) string
}

// sql runs a block, in which 42 stands for a message, and returns the rows by column.
func (o *operator) sql(t *testing.T, name string, replacements ...string) (rows []map[string]any) {
	t.Helper()
	text := strings.NewReplacer(replacements...).Replace(o.block(name))
	ctx, cancel := context.WithTimeout(t.Context(), patience) // a handler's transaction must not be waited for
	defer cancel()
	found, err := o.pool.Query(ctx, text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	rows, err = pgx.CollectRows(found, pgx.RowToMap)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return rows
}

// sqlAll is sql for a block of several statements.
func (o *operator) sqlAll(t *testing.T, name string, replacements ...string) {
	t.Helper()
	o.exec(t, strings.NewReplacer(replacements...).Replace(o.block(name)))
}

// one is sql for a block that returns one row.
func (o *operator) one(t *testing.T, name string, replacements ...string) map[string]any {
	t.Helper()
	rows := o.sql(t, name, replacements...)
	if len(rows) != 1 {
		t.Fatalf("%s: %d rows, want one: %v", name, len(rows), rows)
	}
	return rows[0]
}

func (o *operator) wantRow(t *testing.T, row map[string]any, want map[string]string) {
	t.Helper()
	for column, value := range want {
		if got := fmt.Sprint(row[column]); got != value {
			t.Errorf("%s is %q, want %q: %v", column, got, value, row)
		}
	}
}

// wantCounts compares numbers of messages, by table.
func (o *operator) wantCounts(t *testing.T, want map[string]string) {
	t.Helper()
	for table, n := range want {
		if got := o.count(t, table); got != n {
			t.Errorf("%s has %s rows, want %s", table, got, n)
		}
	}
}

// seq returns the number of the only message in a queue, which is put for 42.
func (o *operator) seq(t *testing.T, queue string) []string {
	t.Helper()
	seqs := o.column(t, `select seq::text from `+queue)
	if len(seqs) != 1 {
		t.Fatalf("there are %d messages in %s, want one", len(seqs), queue)
	}
	return []string{"seq = 42", "seq = " + seqs[0]}
}

const invoiceType = "billing.WriteInvoice"

// invoice is a message to billing as an endpoint sends it.
func invoice(id string) core.Outgoing {
	out := letter(id, "billing")
	out.Headers.Set(headers.MessageTypes, invoiceType)
	out.Headers.Set(headers.ContentType, core.JSON.ContentType())
	out.Body = []byte(`{"OrderID":42}`)
	return out
}

// billing runs the endpoint until the end of the test.
func (o *operator) billing(t *testing.T, mode core.TransactionMode, handler func(context.Context, *core.Message, WriteInvoice) error) {
	t.Helper()
	ep, err := core.New("billing", o.transport, core.Config{
		Transactions: mode, Logger: silent,
		Recoverability: core.Recoverability{Immediate: core.Immediate{NumberOfRetries: core.Off}, Delayed: core.Delayed{NumberOfRetries: core.Off}},
	})
	if err != nil {
		t.Fatal(err)
	}
	core.Handle(ep, writeInvoice, handler)
	run(t, ep)
}

// operations are tests of blocks, by the names of these.
type operations map[string]func(t *testing.T, o *operator)

func TestOperations(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	blocks := document(t)
	tested := map[string]bool{}
	all := operations{}
	for _, group := range []operations{operationsOnTables, operationsOnMessages} {
		maps.Copy(all, group)
	}
	for names, test := range all {
		for name := range strings.SplitSeq(names, ", ") {
			tested[name] = true
		}
		t.Run(names, func(t *testing.T) {
			t.Parallel()
			db := newDatabase(t)
			o := &operator{testDatabase: db, transport: db.open(t, sqlserver.Config{Lease: time.Minute}), block: func(name string) string {
				if blocks[name] == "" {
					t.Fatalf("the document has no block named %q", name)
				}
				return blocks[name]
			}}
			provision(t, o.transport, "billing", "error", "shop")
			test(t, o)
		})
	}
	for name := range blocks {
		if !tested[name] {
			t.Errorf("nothing tests the block %q", name)
		}
	}
}
