package sqlserver

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

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
	var d microsoft
	name := func(queue string) table {
		t.Helper()
		table, err := d.table(queue, location{"shop", "dbo"})
		if err != nil {
			t.Fatal(err)
		}
		return table
	}
	queue, elsewhere := name("my orders; select@[my schema]@[my catalog]"), name("billing")
	q, sub, wait := d.queue(queue), d.subscriptions(name("SubscriptionRouting")), d.delayed(name(delayedTable))
	texts := map[string]string{
		"claim": q.claim, "complete": q.complete, "abandon": q.abandon, "release": q.release, "renew": q.renew, "contents": q.contents, "begin": q.begin,
		"take": q.take, "give-back": q.giveBack, "recount": q.recount, "retake": q.retake, "retake-foreign": q.retakeForeign, "take-foreign": q.takeForeign, "next": q.next, "next-foreign": q.nextForeign,
		"purge": q.purge, "purge-foreign": q.purgeForeign,
		"subscribers": sub.subscribers, "subscribed": sub.subscribed, "subscribe": sub.subscribe, "unsubscribe": sub.unsubscribe,
		"delayed-take": wait.take, "delayed-forward": wait.forward(queue), "delayed-postpone": wait.postpone, "delayed-remove": wait.remove, "delayed-next": wait.next,
		"savepoint-before-handler": d.savepoint(beforeHandler).SQL, "savepoint-after-handler": d.savepoint(afterHandler).SQL,
		"rollback-to": d.rollbackTo(beforeHandler).SQL, "intact": d.intact().SQL,
		"columns": d.columns(queue).SQL, "missing-rights": d.missing(append(d.receiving(queue), d.sending(elsewhere, false)...)).SQL, "lock-schema": d.lockSchema().SQL,
	}
	messages := make([]newRow, 3)
	messages[1].delay, messages[2].ttl = time.Hour, time.Minute
	for name, s := range map[string][]*sqlexec.Statement{
		"insert":          d.insert(q, messages[:1], false),
		"insert-rows":     d.insert(q, messages[:1:1], false),
		"insert-delay":    d.insert(q, messages[:2], false),
		"insert-all":      d.insert(q, messages, false),
		"insert-expires":  d.insert(q, messages[2:], true),
		"delayed-insert":  d.insertDelayed(wait, messages[:2]),
		"delayed-expires": d.insertDelayed(wait, messages),
	} {
		texts[name] = s[0].Args[0].(string)
	}
	for name, ddl := range map[string][]string{
		"create-queue":         d.createQueue(queue, false),
		"create-queue-here":    d.createQueue(elsewhere, false),
		"create-foreign":       d.createQueue(queue, true),
		"create-subscriptions": d.createSubscriptions(sub.table),
		"create-delayed":       d.createDelayed(wait.table),
	} {
		texts[name] = ddl[0]
	}
	for name, text := range texts {
		texts[name] = text + "\n"
	}
	return texts
}
