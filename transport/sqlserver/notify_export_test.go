package sqlserver

import "github.com/reprise-go/reprise/transport/sqlserver/internal/queues"

// Expect lets the transport ask for the outcome of a transaction, as after a send in it.
func (t *Transport) Expect(xid, address string) error {
	q, err := t.queues.Get(address)
	if err == nil {
		t.notifier.WatchTransaction(xid, []*queues.Queue{q})
	}
	return err
}
