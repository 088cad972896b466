package sqlserver

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/reprise-go/reprise/transport"
)

// bellman lets PostgreSQL wake idle receivers, in other processes too. A NOTIFY takes
// a lock that all transactions of the server share when they commit, so it is never
// part of the transaction that sends: it follows the commit, on a connection of its
// own, at most once in notifyPause for all queues together. It may be lost, which
// polling makes good.
type bellman struct {
	t  *Transport
	db *pgxDatabase

	kicked transport.Signal

	mu       sync.Mutex          // guards what follows
	notifies bool                // the goroutine that notifies is there
	listener *notifyListener     // nil: the transport has had no receiver yet
	pending  map[*queue]struct{} // got messages
	expected []expectation
}

const (
	// The first message to a queue is told of at once. While more keep coming, what
	// they wake is awake for the most part, and the pauses double up to the last.
	notifyPause     = time.Millisecond
	lastNotifyPause = 8 * time.Millisecond
	notifyTimeout   = 5 * time.Second
)

func newBellman(t *Transport, db *pgxDatabase) *bellman {
	return &bellman{t: t, db: db, pending: map[*queue]struct{}{}, kicked: transport.NewSignal()}
}

// listen makes the server wake the receivers of this transport, whose queues may have
// changed.
func (b *bellman) listen() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.listener == nil {
		l := joinNotifyListener(b.db.connections, b)
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
// no bellman.
func (b *bellman) listens() bool {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.listener != nil && b.listener.listening.Load()
}

// presence returns what has the number of the leases of this transport, which has a receiver. It is nil
// where the transport is closed.
func (b *bellman) presence() *presence {
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

// leave makes it listen to another server than the one that cannot be written to.
func (b *bellman) leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.listener != nil {
		b.listener.changeServer()
	}
}

// channelOf returns the name of a queue's channel, which like all names is limited.
func channelOf(address string) string {
	sum := sha256.Sum256([]byte(address))
	return "reprise_" + hex.EncodeToString(sum[:12])
}

// notify wakes a queue's receivers everywhere, soon.
func (b *bellman) notify(q *queue) {
	b.mu.Lock()
	b.pending[q] = struct{}{}
	b.start()
	b.mu.Unlock()
	b.kicked.Notify()
}

// start is called with mu held.
func (b *bellman) start() {
	if !b.notifies {
		b.notifies = b.t.life.Go(b.notifying)
	}
}

func (b *bellman) notifying() {
	check := time.NewTimer(longestExpectation) // when to ask about callers' transactions
	defer check.Stop()
	for {
		select {
		case <-b.kicked:
		case <-check.C:
		case <-b.t.life.Context().Done():
			return
		}
		for pause := notifyPause; b.work(); pause = min(2*pause, lastNotifyPause) {
			if transport.Sleep(b.t.life.Context(), b.t.life.Context(), pause, nil) != nil {
				return
			}
		}
		check.Reset(b.nextCheck())
	}
}

// work notifies of what there is, and asks about callers' transactions when it is time
// to. It returns false if there was nothing to do.
func (b *bellman) work() bool {
	b.mu.Lock()
	pending := slices.Collect(maps.Keys(b.pending))
	clear(b.pending)
	b.mu.Unlock()
	b.send(pending)
	asked := b.checkExpected()
	return asked || len(pending) > 0
}

// notifyText does not wait for its commit to reach the disk: there is nothing to
// lose.
const notifyText = `select set_config('synchronous_commit', 'off', true), pg_notify(channel, '') from unnest($1::text[]) as channel`

func (b *bellman) send(to []*queue) {
	if len(to) == 0 {
		return
	}
	channels := make([]string, len(to))
	for i, q := range to {
		channels[i] = q.channel
	}
	ctx, cancel := context.WithTimeout(b.t.life.Context(), notifyTimeout)
	defer cancel()
	_ = b.db.exec(ctx, command(notifyText, channels)) // polling makes good what is lost
}

// expectation is a transaction of a caller's that sent something.
type expectation struct {
	xid    string
	queues []*queue
	since  time.Time
	check  time.Time // when the server is asked
}

// expect notifies once a caller's transaction is committed. Nobody tells when that
// is, so the server is asked, more and more seldom.
func (b *bellman) expect(xid string, queues []*queue) {
	if len(queues) == 0 {
		return
	}
	now := time.Now()
	b.mu.Lock()
	b.expected = append(b.expected, expectation{xid, queues, now, now.Add(notifyPause)})
	b.start()
	b.mu.Unlock()
	b.kicked.Notify()
}

// An expectation is checked after a tenth of the time that has passed since it
// began. Past longestExpectation, polling has to do.
const (
	longestExpectation = time.Minute
	expectationShare   = 10
)

// transactionID is what outcomeText asks about.
const transactionID = `select pg_current_xact_id()::text`

// outcomeText does not ask about what has not ended for certain: among it may be a
// transaction that this server has never heard of, after a failover, and to ask about
// that fails.
const outcomeText = `select xid, case when xid::xid8 < pg_snapshot_xmax(pg_current_snapshot())
	then coalesce(pg_xact_status(xid::xid8), 'forgotten') else 'in progress' end
from unnest($1::text[]) as xid`

// nextCheck returns how long there is nothing to ask.
func (b *bellman) nextCheck() time.Duration {
	next := longestExpectation
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.expected {
		next = min(next, time.Until(b.expected[i].check))
	}
	return max(next, notifyPause)
}

// checkExpected asks about all transactions if it is time to ask about one, and reports
// whether it was.
func (b *bellman) checkExpected() bool {
	now := time.Now()
	b.mu.Lock()
	if !slices.ContainsFunc(b.expected, func(e expectation) bool { return !now.Before(e.check) }) {
		b.mu.Unlock()
		return false
	}
	expected := b.expected
	b.expected = nil
	b.mu.Unlock()
	xids := make([]string, len(expected))
	for i := range expected {
		xids[i] = expected[i].xid
	}
	outcomes := map[string]string{}
	ctx, cancel := context.WithTimeout(b.t.life.Context(), notifyTimeout)
	defer cancel()
	_ = b.db.exec(ctx, query(func(scan scanner) error {
		var xid, outcome string
		err := scan(&xid, &outcome)
		outcomes[xid] = outcome
		return err
	}, outcomeText, xids))
	var committed []*queue
	var open []expectation
	now = time.Now()
	for _, e := range expected {
		age := now.Sub(e.since)
		switch outcome := outcomes[e.xid]; {
		case outcome == "committed":
			committed = append(committed, e.queues...)
		case (outcome == "in progress" || outcome == "") && age < longestExpectation:
			e.check = now.Add(max(age/expectationShare, notifyPause))
			open = append(open, e)
		}
	}
	for _, q := range committed {
		b.t.bells.ring(q)
	}
	b.send(committed)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expected = append(b.expected, open...)
	return true
}
