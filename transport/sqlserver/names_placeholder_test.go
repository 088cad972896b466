package sqlserver_test

import (
	"testing"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// A name that looks like a part of a statement that is filled in is a name like any other.
func TestNames_QueueLikeAPlaceholder(t *testing.T) {
	t.Parallel()
	for _, queue := range []string{"{n}", "a{n}b", "%[1]s{n}%d"} {
		t.Run(queue, func(t *testing.T) {
			t.Parallel()
			db := newSchema(t)
			for _, c := range []struct {
				name string
				cfg  sqlserver.Config
			}{
				{"ours " + queue, sqlserver.Config{}},
				{"theirs " + queue, sqlserver.Config{NServiceBusTables: true}},
			} {
				transport := db.open(t, c.cfg)
				provision(t, transport, c.name)
				for _, mode := range []core.TransactionMode{core.TransactionNone, core.TransactionReceiveOnly, core.TransactionSendsAtomicWithReceive} {
					send(t, transport, letter("1", c.name), letter("2", c.name))
					r := openReceiver(t, transport, c.name, mode)
					for range 2 {
						complete(t, receive(t, r))
					}
					if err := r.Close(t.Context()); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
}
