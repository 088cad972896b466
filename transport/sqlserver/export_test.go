package sqlserver

import (
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/delayed"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/sqlexec"
)

// NeverPoll makes receivers of an idle queue wait for what wakes them, and for nothing
// else. It is called before the first receiver is opened.
func (t *Transport) NeverPoll() {
	t.pollIntervals = pollIntervals{first: time.Hour, firstNotified: time.Hour, last: time.Hour}
}

// Listens reports whether the server wakes receivers of this transport.
func (t *Transport) Listens() bool { return t.notifier.Listens() }

// Waits reports whether somebody waits for something to come to the queue.
func Waits(coreReceiver core.Receiver) bool {
	r := coreReceiver.(*receiver)
	return r.isIdle() && len(r.turn) == 1 && len(r.wakeup.Signal) == 0
}

// Failures returns of how many messages the receiver remembers failures, because
// their table does not.
func Failures(r core.Receiver) int { return r.(*receiver).count.Len() }

// ForwardWaits are how long a delayed message waits after each try to forward it that
// failed.
func ForwardWaits() []time.Duration { return slices.Clone(delayed.ForwardWaits) }

// WaitToForward replaces them, and how long it waits where it cannot be moved to the
// error queue either. It is called before the transport is used.
func (t *Transport) WaitToForward(move time.Duration, waits ...time.Duration) {
	t.delayed.Waits, t.delayed.MoveWait = waits, move
}

// Settling reports whether a settlement of a message whose handler has a transaction has
// begun, and has not ended.
func Settling(d core.Delivery) bool {
	mu := &d.(*leaseDelivery).work.mu
	if mu.TryLock() {
		mu.Unlock()
		return false
	}
	return true
}

// Number returns the number of the leases of a transport that has a receiver, or 0.
func (t *Transport) Number() int32 { return t.joinPresence().Own() }

// HasTransaction reports whether the handler of a leased message has a transaction.
func HasTransaction(d core.Delivery) bool {
	work := &d.(*leaseDelivery).work
	work.mu.Lock()
	defer work.mu.Unlock()
	return work.tx != nil
}

// PollToForward replaces how long a process waits for what others may have delayed. It is
// called before the transport is used.
func (t *Transport) PollToForward(poll time.Duration) { t.delayed.Poll = poll }

// LookToForward makes the transport look at once for what is to be forwarded.
func (t *Transport) LookToForward() {
	t.delayed.Watch()
	t.delayed.LookAt(time.Unix(0, 0))
}

// Pool returns the transport's connections to PostgreSQL.
func (t *Transport) Pool() *pgxpool.Pool { return t.db.(*sqlexec.PgxDatabase).Connections }

// WakeupGap is the time between two fetches of an idle queue that follow wakeups.
const WakeupGap = wakeupGap

// Channel returns the channel of a queue's notifications.
func (t *Transport) Channel(queue string) (string, error) {
	q, err := t.queues.Get(queue)
	if err != nil {
		return "", err
	}
	return q.Channel, nil
}
