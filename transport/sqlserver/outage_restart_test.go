package sqlserver_test

import (
	"testing"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/internal/testserver/postgres"
)

// bothModes are those in which no message may be lost.
var bothModes = []core.TransactionMode{core.TransactionReceiveOnly, core.TransactionSendsAtomicWithReceive}

// A server goes, at full load, and comes back: twice, because the second time finds
// what the first has left.
func TestOutage_ServerRestartsUnderLoad(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	for _, c := range []struct {
		name string
		end  func(*postgres.Server) error
	}{
		{"killed", (*postgres.Server).Kill},
		{"shut down", (*postgres.Server).Shutdown},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			const messages, concurrency = 1000, 16
			s := postgres.StartFor(t, postgres.Config{})
			var all []*business
			for _, mode := range bothModes {
				e := newBusiness(t, brokerOn(t, s), mode)
				e.transport.Lease = outageLease
				e.config.Concurrency = concurrency
				e.order(messages)
				all = append(all, e)
			}
			for _, e := range all {
				e.run()
			}
			for _, count := range []int{messages / 10, messages / 2} {
				for _, e := range all {
					await(t, "messages are handled", func() bool { return e.written() >= count })
				}
				if err := c.end(s); err != nil {
					t.Fatal(err)
				}
				for _, e := range all {
					told := len(e.changes.all())
					await(t, "the endpoint has noticed", func() bool { return len(e.changes.all()) > told })
				}
				if err := s.Restart(); err != nil {
					t.Fatal(err)
				}
			}
			for _, e := range all {
				e.awaitDone()
				e.checkDone(messages)
				await(t, "the last that the observer is told is the end of the outage", func() bool {
					changes := e.changes.all()
					return changes[len(changes)-1].Connected
				})
			}
		})
	}
}
