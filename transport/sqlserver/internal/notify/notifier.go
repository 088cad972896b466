// Package notify wakes receivers of idle queues: those of the same transport, and through
// PostgreSQL's LISTEN and NOTIFY those of other processes.
package notify

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/presence"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/queues"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/sqlexec"
)

// Notifier lets PostgreSQL wake idle receivers, in other processes too. NOTIFY takes a
// lock that all transactions of the server share when they commit, so it is never part of
// the transaction that sends: it follows the commit, on a separate connection, at most
// once in firstPause for all queues together. A notification may be lost; polling makes
// up for that.
type Notifier struct {
	life    *transport.Lifecycle
	db      *sqlexec.PgxDatabase
	wakeups *Wakeups                             // of the transport's receivers
	freed   func(q *queues.Queue, due time.Time) // called for released messages, with the first one's due

	wake transport.Signal

	mu       sync.Mutex                 // guards the fields below
	notifies bool                       // the goroutine that notifies is running
	listener *listener                  // nil: the transport has had no receiver yet
	pending  map[*queues.Queue]struct{} // queues with new messages
	watched  []watchedTransaction
}

const (
	// The first message to a queue is notified at once. While messages keep arriving,
	// most receivers are awake, and the pauses double up to the last.
	firstPause = time.Millisecond
	lastPause  = 8 * time.Millisecond
	timeout    = 5 * time.Second
)

// New returns the notifier of a transport.
func New(life *transport.Lifecycle, db *sqlexec.PgxDatabase, all *Wakeups, freed func(q *queues.Queue, due time.Time)) *Notifier {
	return &Notifier{life: life, db: db, wakeups: all, freed: freed, pending: map[*queues.Queue]struct{}{}, wake: transport.NewSignal()}
}

// Listen makes the server wake the receivers of this transport. It is called when their
// queues may have changed.
func (b *Notifier) Listen() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.listener == nil {
		l := joinListener(b.db.Connections, b)
		if !b.life.Go(func() {
			<-b.life.Context().Done()
			l.leave(b)
		}) {
			l.leave(b)
			return
		}
		b.listener = l
	}
	b.listener.update()
}

// Listens reports whether the server wakes receivers. A transport without PostgreSQL has
// no notifier.
func (b *Notifier) Listens() bool {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.listener != nil && b.listener.listening.Load()
}

// Presence returns the presence whose number is part of this transport's leases. The
// transport has a receiver. It returns nil if the transport is closed.
func (b *Notifier) Presence() *presence.Presence {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.listener == nil {
		return nil
	}
	p := b.listener.presence
	if p.Want() {
		b.listener.update()
	}
	return p
}

// LeaveServer makes the listener leave a server that cannot be written to.
func (b *Notifier) LeaveServer() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.listener != nil {
		b.listener.changeServer()
	}
}

// Notify soon wakes a queue's receivers in all processes.
func (b *Notifier) Notify(q *queues.Queue) {
	b.mu.Lock()
	b.pending[q] = struct{}{}
	b.start()
	b.mu.Unlock()
	b.wake.Notify()
}

// start is called with mu held.
func (b *Notifier) start() {
	if !b.notifies {
		b.notifies = b.life.Go(b.run)
	}
}

func (b *Notifier) run() {
	check := time.NewTimer(LongestWatch) // next query about callers' transactions
	defer check.Stop()
	for {
		select {
		case <-b.wake:
		case <-check.C:
		case <-b.life.Context().Done():
			return
		}
		for pause := firstPause; b.notifyPending(); pause = min(2*pause, lastPause) {
			if transport.Sleep(b.life.Context(), b.life.Context(), pause, nil) != nil {
				return
			}
		}
		check.Reset(b.nextCheck())
	}
}

// notifyPending notifies pending queues, and asks about callers' transactions when it is time to.
// It returns false if there was nothing to do.
func (b *Notifier) notifyPending() bool {
	b.mu.Lock()
	pending := slices.Collect(maps.Keys(b.pending))
	clear(b.pending)
	b.mu.Unlock()
	b.send(pending)
	asked := b.checkWatched()
	return asked || len(pending) > 0
}

// Text does not wait for its commit to reach the disk: it has no data to lose.
const Text = `select pg_catalog.set_config('synchronous_commit', 'off', true), pg_catalog.pg_notify(channel, '') from pg_catalog.unnest($1::pg_catalog.text[]) as channel`

func (b *Notifier) send(to []*queues.Queue) {
	if len(to) == 0 {
		return
	}
	channels := make([]string, len(to))
	for i, q := range to {
		channels[i] = q.Channel
	}
	ctx, cancel := context.WithTimeout(b.life.Context(), timeout)
	defer cancel()
	_ = b.db.Exec(ctx, sqlexec.Command(Text, channels)) // polling makes up for lost notifications
}

// watchedTransaction is a caller's transaction that sent messages.
type watchedTransaction struct {
	xid    string
	queues []*queues.Queue
	since  time.Time
	check  time.Time // when to ask the server
}

// WatchTransaction notifies once a caller's transaction is committed. No event tells of that
// commit, so notifier asks the server, less and less often.
func (b *Notifier) WatchTransaction(xid string, queues []*queues.Queue) {
	if len(queues) == 0 {
		return
	}
	now := time.Now()
	b.mu.Lock()
	b.watched = append(b.watched, watchedTransaction{xid, queues, now, now.Add(firstPause)})
	b.start()
	b.mu.Unlock()
	b.wake.Notify()
}

// The server is asked again after a tenth of the age of a watch. After
// LongestWatch only polling is left.
const (
	LongestWatch = time.Minute
	watchShare   = 10
)

// TransactionID returns the identifier that outcomeText needs, and the client_encoding of the
// session.
const TransactionID = `select pg_catalog.pg_current_xact_id()::pg_catalog.text, pg_catalog.current_setting('client_encoding')`

// outcomeText does not ask about transactions that may still be open: after a failover,
// one of them may be unknown to this server, and a query about it would fail.
const outcomeText = `select id, case when id::pg_catalog.xid8 operator(pg_catalog.<) pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())
	then coalesce(pg_catalog.pg_xact_status(id::pg_catalog.xid8), 'forgotten') else 'in progress' end
from pg_catalog.unnest($1::pg_catalog.text[]) as id`

// nextCheck returns the time until the next query.
func (b *Notifier) nextCheck() time.Duration {
	next := LongestWatch
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.watched {
		next = min(next, time.Until(b.watched[i].check))
	}
	return max(next, firstPause)
}

// checkWatched asks about all transactions if one of them is due, and reports whether it
// asked.
func (b *Notifier) checkWatched() bool {
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
	ctx, cancel := context.WithTimeout(b.life.Context(), timeout)
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
		case (outcome == "in progress" || outcome == "") && age < LongestWatch:
			e.check = now.Add(max(age/watchShare, firstPause))
			open = append(open, e)
		}
	}
	for _, q := range committed {
		b.wakeups.Wake(q)
	}
	b.send(committed)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.watched = append(b.watched, open...)
	return true
}
