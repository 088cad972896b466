package sqlserver_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// table is a tracer that counts what is asked about a table, once it is answered, and how
// often the server says that there is none.
type table struct {
	name           string
	asked, missing atomic.Int64
}

type tableKey struct{}

func (o *table) start(ctx context.Context, asked string) context.Context {
	return context.WithValue(ctx, tableKey{}, strings.Contains(asked, o.name))
}

func (o *table) end(ctx context.Context, err error) {
	if about, _ := ctx.Value(tableKey{}).(bool); !about {
		return
	}
	var failed *pgconn.PgError
	if errors.As(err, &failed) && failed.Code == "42P01" {
		o.missing.Add(1)
	}
	o.asked.Add(1)
}

func (o *table) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	return o.start(ctx, data.SQL+fmt.Sprint(data.Args...))
}

func (o *table) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	o.end(ctx, data.Err)
}

func (o *table) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	var all strings.Builder
	for _, q := range data.Batch.QueuedQueries {
		all.WriteString(q.SQL)
	}
	return o.start(ctx, all.String())
}

func (*table) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (o *table) TraceBatchEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchEndData) {
	o.end(ctx, data.Err)
}

// What is due and cannot be forwarded is tried again after a while, not at once.
func TestDelayed_RefusedForwardIsRetried(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	owner := db.open(t, sqlserver.Config{})
	provision(t, owner)
	theirs, waiting := db.theirTable(t, "theirs"), db.table("reprise_delayed")
	role, roleURL := db.role(t)
	db.exec(t, `grant usage on schema `+schemaOf(db)+` to `+role)
	db.exec(t, `grant insert on `+waiting+` to `+role)
	seen := &table{name: "delete from " + waiting}
	transport := db.open(t, sqlserver.Config{Pool: tracedPool(t, roleURL, seen)})
	send(t, transport, delayed("1", "theirs", 50*time.Millisecond))
	await(t, "it is due", func() bool {
		return len(db.column(t, `select destination from `+waiting+` where due <= now()`)) == 1
	})
	await(t, "it is tried", func() bool { return seen.asked.Load() > 0 })
	before := seen.asked.Load()
	time.Sleep(500 * time.Millisecond)          // what must not happen: it is to be tried after a minute
	if n := seen.asked.Load() - before; n > 4 { // an attempt is two statements
		t.Errorf("%d statements in half a second, want those of one attempt, and of another one that was under way", n)
	}
	if n := db.count(t, theirs); n != "0" {
		t.Errorf("%s messages were forwarded, though nobody may", n)
	}
}

// Where no message was ever delayed on its way to NServiceBus there may be no table for it.
func TestDelayed_ReceivingWithoutTheTable(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	waiting := db.table("reprise_delayed")
	seen := &table{name: waiting}
	provision(t, db.open(t, sqlserver.Config{}), "orders")
	db.exec(t, `drop table `+waiting)
	transport := db.open(t, sqlserver.Config{Pool: tracedPool(t, db.url, seen)})
	openReceiver(t, transport, "orders", core.TransactionReceiveOnly)
	await(t, "it is looked for", func() bool { return seen.asked.Load() > 0 })
	if n := seen.missing.Load(); n != 0 {
		t.Errorf("%d errors in the server's log, because a table that nobody needs does not exist", n)
	}
	theirs := db.theirTable(t, "theirs")
	send(t, transport, delayed("1", "theirs", time.Millisecond))
	if row := db.awaitAsThey(t, theirs); row.headers[headers.MessageID] != "1" {
		t.Errorf("they got %+v", row)
	}
}
