package sqlserver

import "github.com/reprise-go/reprise/transport/sqlserver/internal/queues"

// Expect lets the transport ask for the outcome of a transaction, as after a send in it.
func (t *Transport) Expect(xid, address string) error {
	q, err := t.queues.Get(address)
	if err == nil {
		t.notifier.watchTransaction(xid, []*queues.Queue{q})
	}
	return err
}

// ChannelOf returns the name of the channel on which the server tells of a queue.
func ChannelOf(address string) string { return queues.ChannelOf(address) }
