package sqlserver

// Expect lets the transport ask for the outcome of a transaction, as after a send in it.
func (t *Transport) Expect(xid, address string) error {
	q, err := t.queues.get(address)
	if err == nil {
		t.notifier.watchTransaction(xid, []*queue{q})
	}
	return err
}

// ChannelOf returns the name of the channel on which the server tells of a queue.
func ChannelOf(address string) string { return channelOf(address) }
