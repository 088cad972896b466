package microsoft

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/reprise-go/reprise/transport/sqlserver/internal/dialect"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/sqlexec"
)

var updateTSQL = flag.Bool("update-tsql", false, "write the statements for Microsoft SQL Server to the directory tsql")

// TestTSQL keeps every statement that the dialect makes in the directory tsql, where
// scripts/tsql has a T-SQL parser read them. The command that writes them again:
//
//	go test -run TestTSQL -update-tsql
func TestTSQL(t *testing.T) {
	texts := allTSQL(t)
	for name, text := range texts {
		file := filepath.Join("tsql", name+".sql")
		if *updateTSQL {
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		switch kept, err := os.ReadFile(file); {
		case err != nil:
			t.Error(err)
		case string(kept) != text:
			t.Errorf("%s is not what the dialect makes any more; go test -run TestTSQL -update-tsql writes it again. Now it is:\n%s", file, text)
		}
	}
	files, err := filepath.Glob("tsql/*.sql")
	if err != nil || len(files) != len(texts) {
		t.Errorf("tsql has %d files (%v), but there are %d statements", len(files), err, len(texts))
	}
}

// allTSQL returns every text by a name for it. The names of tables are such that
// nothing parses if they are not quoted.
func allTSQL(t *testing.T) map[string]string {
	t.Helper()
	var d Dialect
	name := func(queue string) dialect.Table {
		t.Helper()
		table, err := d.Table(queue, dialect.Location{Catalog: "shop", Schema: "dbo"})
		if err != nil {
			t.Fatal(err)
		}
		return table
	}
	queue, elsewhere := name("my orders; select@[my schema]@[my catalog]"), name("billing")
	q, sub, wait := d.Queue(queue), d.Subscriptions(name("SubscriptionRouting")), d.Delayed(name(dialect.DelayedTable))
	texts := map[string]string{
		"claim": q.Claim, "complete": q.Complete, "abandon": q.Abandon, "release": q.Release, "renew": q.Renew, "contents": q.Contents, "begin": q.Begin,
		"take": q.Take, "give-back": q.GiveBack, "recount": q.Recount, "retake": q.Retake, "retake-foreign": q.RetakeForeign, "take-foreign": q.TakeForeign, "next": q.Next, "next-foreign": q.NextForeign,
		"purge": q.Purge, "purge-foreign": q.PurgeForeign,
		"subscribers": sub.Subscribers, "subscribed": sub.Subscribed, "subscribe": sub.Subscribe, "unsubscribe": sub.Unsubscribe,
		"remove-queue": sub.RemoveQueue, "remove-topic": sub.RemoveTopic,
		"delayed-take": wait.Take, "delayed-forward": wait.Forward(queue), "delayed-postpone": wait.Postpone, "delayed-remove": wait.Remove, "delayed-remove-queue": wait.RemoveQueue, "delayed-next": wait.Next,
		"savepoint-before-handler": d.Savepoint(dialect.BeforeHandler).SQL, "savepoint-after-handler": d.Savepoint(dialect.AfterHandler).SQL,
		"rollback-to": d.RollbackTo(dialect.BeforeHandler).SQL, "intact": d.Intact().SQL,
		"columns": d.Columns(queue).SQL, "missing-rights": d.Missing(append(d.Receiving(queue), d.Sending(elsewhere, false)...)).SQL, "lock-schema": d.LockSchema().SQL,
	}
	messages := make([]dialect.NewRow, 3)
	messages[1].Delay, messages[2].TTL = time.Hour, time.Minute
	for name, s := range map[string][]*sqlexec.Statement{
		"insert":          d.Insert(q, messages[:1], false),
		"insert-rows":     d.Insert(q, messages[:1:1], false),
		"insert-delay":    d.Insert(q, messages[:2], false),
		"insert-all":      d.Insert(q, messages, false),
		"insert-expires":  d.Insert(q, messages[2:], true),
		"delayed-insert":  d.InsertDelayed(wait, messages[:2]),
		"delayed-expires": d.InsertDelayed(wait, messages),
	} {
		texts[name] = s[0].Args[0].(string)
	}
	for name, ddl := range map[string][]string{
		"create-queue":         d.CreateQueue(queue, false),
		"create-queue-here":    d.CreateQueue(elsewhere, false),
		"create-foreign":       d.CreateQueue(queue, true),
		"create-subscriptions": d.CreateSubscriptions(sub.Table),
		"create-delayed":       d.CreateDelayed(wait.Table),
	} {
		texts[name] = ddl[0]
	}
	for name, text := range texts {
		texts[name] = text + "\n"
	}
	return texts
}
