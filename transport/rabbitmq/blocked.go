package rabbitmq

import (
	"context"
	"fmt"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
)

// blockedConns is the set of connections that the broker blocks (connection.blocked): it
// stops reading from publishing connections while its memory or disk is nearly full. Sends
// wait until no connection is blocked.
type blockedConns struct {
	mu        sync.Mutex
	unblocked chan struct{} // closed when none is blocked any more; nil: none is blocked
	conns     map[*connection]bool
	since     time.Time // when the first of them was blocked
	lastEnd   time.Time // when the last blocked connection was unblocked
}

// wait returns when no connection is blocked. If one is, it first calls before.
func (b *blockedConns) wait(life context.Context, before func()) error {
	b.mu.Lock()
	unblocked := b.unblocked
	b.mu.Unlock()
	if unblocked == nil {
		return nil
	}
	before()
	select {
	case <-unblocked:
		return nil
	case <-life.Done():
		return core.ErrClosed
	}
}

// add records that conn is blocked, and returns the time since which any connection is.
func (b *blockedConns) add(conn *connection) (since time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.unblocked == nil {
		b.unblocked, b.conns, b.since = make(chan struct{}), map[*connection]bool{}, time.Now()
	}
	b.conns[conn] = true
	return b.since
}

// remove records that conn is no longer blocked. If it was the last blocked connection,
// remove returns the time since which any connection was.
func (b *blockedConns) remove(conn *connection) (since time.Time, was bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.conns[conn] {
		return time.Time{}, false
	}
	delete(b.conns, conn)
	if len(b.conns) > 0 {
		return time.Time{}, false
	}
	close(b.unblocked)
	b.unblocked, b.conns, b.lastEnd = nil, nil, time.Now()
	return b.since, true
}

// isBlocked reports whether a connection is blocked.
func (b *blockedConns) isBlocked() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.unblocked != nil
}

// unblockedTime returns the time that the broker has had to answer a request made at since.
// Time during which a connection was blocked does not count: a blocked request has waited
// since the unblocking.
func (b *blockedConns) unblockedTime(since time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.unblocked != nil:
		return 0
	case b.lastEnd.After(since):
		return time.Since(b.lastEnd)
	}
	return time.Since(since)
}

// watchBlocked follows the broker's notices about a publishing connection, and tells the
// observers of all receivers.
func (t *Transport) watchBlocked(conn *connection) {
	notices := conn.NotifyBlocked(make(chan amqp.Blocking, 16))
	t.life.Go(func() {
		for notice := range notices {
			if notice.Active {
				t.onBlocked(conn, notice.Reason)
			} else if since, was := t.blocked.remove(conn); was {
				t.onUnblocked(since)
			}
		}
		// The connection is lost. It is unknown whether the broker can be reached.
		if since, was := t.blocked.remove(conn); was && t.awaitReconnect() {
			t.onUnblocked(since)
		}
	})
}

func (t *Transport) onBlocked(conn *connection, reason string) {
	since := t.blocked.add(conn)
	t.notifyReceivers(core.ConnectionChange{Since: since, Err: fmt.Errorf("rabbitmq: the broker blocks who sends: %s; sends wait until it has freed memory or disk space", reason)})
}

// onUnblocked tells observers that the broker no longer blocks connections, unless it
// blocks one again.
func (t *Transport) onUnblocked(since time.Time) {
	if !t.blocked.isBlocked() {
		t.notifyReceivers(core.ConnectionChange{Connected: true, Since: since})
	}
}

// awaitReconnect waits for a publishing connection. It returns false if the transport ends
// first.
func (t *Transport) awaitReconnect() bool {
	var outages transport.Outages
	life := t.life.Context()
	err := outages.Retry(life, func() error {
		_, err := t.sendConn.get(life)
		return err
	}, func(error) bool { return true }, func(d time.Duration) error { return t.pause(life, d) })
	return err == nil
}

// notifyReceivers tells the endpoints of all receivers. It reports a connection only to
// receivers that are connected; the others report theirs when they have reconnected.
func (t *Transport) notifyReceivers(change core.ConnectionChange) {
	for _, open := range t.life.Receivers() {
		r := open.(*receiver)
		tell := r.outages.ConnectionChanged
		if tell != nil && (!change.Connected || !r.isInterrupted()) {
			tell(change)
		}
	}
}
