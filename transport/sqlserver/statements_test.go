package sqlserver_test

import (
	"reflect"
	"testing"
	"time"

	testserver "github.com/reprise-go/reprise/internal/testserver/postgres"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/dialect"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/postgres"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/sqlexec"
)

// TestStatements_NamesAreQualified: no statement looks up a function, an operator, a type or a
// table of the catalogue along search_path, where another role may have put its own.
func TestStatements_NamesAreQualified(t *testing.T) {
	t.Parallel()
	found, err := testserver.UnqualifiedNamesInSource(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range found {
		t.Error(name)
	}

	var d postgres.Dialect
	table, err := d.Table("orders", dialect.Location{Schema: "public"})
	if err != nil {
		t.Fatal(err)
	}
	other, err := d.Table("other", dialect.Location{Schema: "public"})
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{}
	add := func(name string, statements ...*sqlexec.Statement) {
		for _, s := range statements {
			texts[s.SQL] = name
		}
	}
	fields := func(list any) {
		v := reflect.ValueOf(list).Elem()
		for i := range v.NumField() {
			if f := v.Field(i); f.Kind() == reflect.String {
				texts[f.String()] = v.Type().Field(i).Name
			}
		}
	}
	queue, to, delayed, subscriptions := d.Queue(table), d.Queue(other), d.Delayed(table), d.Subscriptions(table)
	fields(queue)
	fields(delayed)
	fields(subscriptions)
	texts[delayed.Forward(table)] = "Forward"
	for _, n := range []int{1, 2} {
		add("Claim", d.Claim(queue, n, time.Second, time.Time{}, 1, 1))
		add("Take", d.Take(queue, n, time.Time{}), d.TakeForeign(queue, n))
		for _, row := range []dialect.NewRow{{}, {Delay: time.Second}, {TTL: time.Second}, {Delay: time.Second, TTL: time.Second}} {
			var rows []dialect.NewRow
			for range n {
				rows = append(rows, row)
			}
			add("Insert", d.Insert(queue, rows, false)...)
			add("InsertDelayed", d.InsertDelayed(delayed, rows)...)
			for _, waits := range []bool{false, true} {
				add("CompleteAndSend", postgres.CompleteAndSend(queue, delayed, []int64{1}, []int32{1},
					[]postgres.Sent{{Of: 1, To: to, Waits: waits, Messages: rows}, {Of: 1, To: queue, Messages: rows}}))
			}
		}
	}
	add("Savepoint", d.Savepoint("s"), d.RollbackTo("s"), d.Intact())
	add("Columns", d.Columns(table))
	for _, foreign := range []bool{false, true} {
		for _, text := range d.CreateQueue(table, foreign) {
			texts[text] = "CreateQueue"
		}
	}
	for _, text := range append(d.CreateSubscriptions(table), d.CreateDelayed(table)...) {
		texts[text] = "Create"
	}
	add("NotifyTrigger", d.NotifyTrigger(table), d.HasNotifyTrigger(table))
	add("ForeignOwner", d.ForeignOwner(table))
	add("LockSchema", d.LockSchema())
	add("Missing", d.Missing(d.Receiving(table)))
	for _, store := range []*postgres.Store{postgres.OwnStore(table), postgres.ForeignStore(table), postgres.DelayedStore(other, table)} {
		add("Store", store.Last(), store.Read(postgres.Part{}), store.Read(postgres.Part{Seqs: []int64{1}}),
			store.Depth(nil), store.Depth(postgres.DelayedStore(other, table)),
			store.Take(nil, nil, delayed, nil), store.Take(nil, nil, delayed, []postgres.Sent{{Of: 1, To: to, Messages: []dialect.NewRow{{}}}}))
	}
	add("Queues", d.Queues("public"))
	if len(texts) < 50 {
		t.Fatalf("only %d statements", len(texts))
	}
	for text, name := range texts {
		for _, part := range testserver.UnqualifiedNames(text) {
			t.Errorf("%s: %s\n%s", name, part, text)
		}
	}
}
