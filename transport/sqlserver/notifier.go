package sqlserver

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/queues"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/sqlexec"
)

// notifier lets PostgreSQL wake idle receivers, in other processes too. NOTIFY takes a
// lock that all transactions of the server share when they commit, so it is never part of
// the transaction that sends: it follows the commit, on a separate connection, at most
// once in notifyPause for all queues together. A notification may be lost; polling makes
// up for that.
type notifier struct {
	t  *Transport
	db *sqlexec.PgxDatabase

	wake transport.Signal

	mu       sync.Mutex                 // guards the fields below
	notifies bool                       // the goroutine that notifies is running
	listener *notifyListener            // nil: the transport has had no receiver yet
	pending  map[*queues.Queue]struct{} // queues with new messages
	watched  []watchedTransaction
}

const (
	// The first message to a queue is notified at once. While messages keep arriving,
	// most receivers are awake, and the pauses double up to the last.
	notifyPause     = time.Millisecond
	lastNotifyPause = 8 * time.Millisecond
	notifyTimeout   = 5 * time.Second
)

func newNotifier(t *Transport, db *sqlexec.PgxDatabase) *notifier {
	return &notifier{t: t, db: db, pending: map[*queues.Queue]struct{}{}, wake: transport.NewSignal()}
}

// listen makes the server wake the receivers of this transport. It is called when their
// queues may have changed.
func (b *notifier) listen() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.listener == nil {
		l := joinNotifyListener(b.db.Connections, b)
		if !b.t.life.Go(func() {
			<-b.t.life.Context().Done()
			l.leave(b)
		}) {
			l.leave(b)
			return
		}
		b.listener = l
	}
	b.listener.update()
}

// listens reports whether the server wakes receivers. A transport without PostgreSQL has
// no notifier.
func (b *notifier) listens() bool {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.listener != nil && b.listener.listening.Load()
}

// presence returns the presence whose number is part of this transport's leases. The
// transport has a receiver. It returns nil if the transport is closed.
func (b *notifier) presence() *presence {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.listener == nil {
		return nil
	}
	p := b.listener.presence
	if !p.wanted.Swap(true) {
		b.listener.update()
	}
	return p
}

// leaveServer makes the listener leave a server that cannot be written to.
func (b *notifier) leaveServer() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.listener != nil {
		b.listener.changeServer()
	}
}

// notify soon wakes a queue's receivers in all processes.
func (b *notifier) notify(q *queues.Queue) {
	b.mu.Lock()
	b.pending[q] = struct{}{}
	b.start()
	b.mu.Unlock()
	b.wake.Notify()
}

// start is called with mu held.
func (b *notifier) start() {
	if !b.notifies {
		b.notifies = b.t.life.Go(b.run)
	}
}

func (b *notifier) run() {
	check := time.NewTimer(longestWatch) // next query about callers' transactions
	defer check.Stop()
	for {
		select {
		case <-b.wake:
		case <-check.C:
		case <-b.t.life.Context().Done():
			return
		}
		for pause := notifyPause; b.notifyPending(); pause = min(2*pause, lastNotifyPause) {
			if transport.Sleep(b.t.life.Context(), b.t.life.Context(), pause, nil) != nil {
				return
			}
		}
		check.Reset(b.nextCheck())
	}
}

// notifyPending notifies pending queues, and asks about callers' transactions when it is time to.
// It returns false if there was nothing to do.
func (b *notifier) notifyPending() bool {
	b.mu.Lock()
	pending := slices.Collect(maps.Keys(b.pending))
	clear(b.pending)
	b.mu.Unlock()
	b.send(pending)
	asked := b.checkWatched()
	return asked || len(pending) > 0
}

// notifyText does not wait for its commit to reach the disk: it has no data to lose.
const notifyText = `select set_config('synchronous_commit', 'off', true), pg_notify(channel, '') from unnest($1::text[]) as channel`

func (b *notifier) send(to []*queues.Queue) {
	if len(to) == 0 {
		return
	}
	channels := make([]string, len(to))
	for i, q := range to {
		channels[i] = q.Channel
	}
	ctx, cancel := context.WithTimeout(b.t.life.Context(), notifyTimeout)
	defer cancel()
	_ = b.db.Exec(ctx, sqlexec.Command(notifyText, channels)) // polling makes up for lost notifications
}

// watchedTransaction is a caller's transaction that sent messages.
type watchedTransaction struct {
	xid    string
	queues []*queues.Queue
	since  time.Time
	check  time.Time // when to ask the server
}

// watchTransaction notifies once a caller's transaction is committed. No event tells of that
// commit, so notifier asks the server, less and less often.
func (b *notifier) watchTransaction(xid string, queues []*queues.Queue) {
	if len(queues) == 0 {
		return
	}
	now := time.Now()
	b.mu.Lock()
	b.watched = append(b.watched, watchedTransaction{xid, queues, now, now.Add(notifyPause)})
	b.start()
	b.mu.Unlock()
	b.wake.Notify()
}

// The server is asked again after a tenth of the age of an expectation. After
// longestExpectation only polling is left.
const (
	longestWatch = time.Minute
	watchShare   = 10
)

// transactionID returns the identifier that outcomeText needs.
const transactionID = `select pg_current_xact_id()::text`

// outcomeText does not ask about transactions that may still be open: after a failover,
// one of them may be unknown to this server, and a query about it would fail.
const outcomeText = `select xid, case when xid::xid8 < pg_snapshot_xmax(pg_current_snapshot())
	then coalesce(pg_xact_status(xid::xid8), 'forgotten') else 'in progress' end
from unnest($1::text[]) as xid`

// nextCheck returns the time until the next query.
func (b *notifier) nextCheck() time.Duration {
	next := longestWatch
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.watched {
		next = min(next, time.Until(b.watched[i].check))
	}
	return max(next, notifyPause)
}

// checkWatched asks about all transactions if one of them is due, and reports whether it
// asked.
func (b *notifier) checkWatched() bool {
	now := time.Now()
	b.mu.Lock()
	if !slices.ContainsFunc(b.watched, func(e watchedTransaction) bool { return !now.Before(e.check) }) {
		b.mu.Unlock()
		return false
	}
	expected := b.watched
	b.watched = nil
	b.mu.Unlock()
	xids := make([]string, len(expected))
	for i := range expected {
		xids[i] = expected[i].xid
	}
	outcomes := map[string]string{}
	ctx, cancel := context.WithTimeout(b.t.life.Context(), notifyTimeout)
	defer cancel()
	_ = b.db.Exec(ctx, sqlexec.Query(func(scan sqlexec.Scanner) error {
		var xid, outcome string
		err := scan(&xid, &outcome)
		outcomes[xid] = outcome
		return err
	}, outcomeText, xids))
	var committed []*queues.Queue
	var open []watchedTransaction
	now = time.Now()
	for _, e := range expected {
		age := now.Sub(e.since)
		switch outcome := outcomes[e.xid]; {
		case outcome == "committed":
			committed = append(committed, e.queues...)
		case (outcome == "in progress" || outcome == "") && age < longestWatch:
			e.check = now.Add(max(age/watchShare, notifyPause))
			open = append(open, e)
		}
	}
	for _, q := range committed {
		b.t.wakeups.wake(q)
	}
	b.send(committed)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.watched = append(b.watched, open...)
	return true
}
