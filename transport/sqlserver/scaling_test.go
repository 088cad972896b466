package sqlserver_test

import (
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// The query that docs/kubernetes.md gives a scaler counts the messages that wait and those
// that handlers have, and no delayed ones.
func TestKubernetes_QueryOfTheScaler(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	query := regexp.MustCompile(`query: "(select [^"]+)"`).FindSubmatch(text)
	if query == nil {
		t.Fatal("the page has no query")
	}
	for _, mode := range []core.TransactionMode{core.TransactionReceiveOnly, core.TransactionSendsAtomicWithReceive} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			db := newDatabase(t)
			transport := db.open(t, sqlserver.Config{Lease: time.Minute})
			provision(t, transport, "billing")
			send(t, transport, letter("handled", "billing"))
			receive(t, openReceiver(t, transport, "billing", mode))
			send(t, transport, letter("waits 1", "billing"), letter("waits 2", "billing"), delayed("later", "billing", time.Hour))
			if n := db.column(t, `select count::text from (`+string(query[1])+`) as counted`)[0]; n != "3" {
				t.Errorf("the query counts %s, want 3", n)
			}
		})
	}
}
