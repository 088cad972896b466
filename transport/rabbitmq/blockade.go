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

// blockade is the broker's memory or disk alarm: the broker stops reading from publishing
// connections while its memory or disk is nearly full. Sends wait until the alarm ends.
type blockade struct {
	mu    sync.Mutex
	over  chan struct{}        // nil: there is no blockade
	of    map[*connection]bool // the blocked connections
	since time.Time
	ended time.Time // the end of the last one
}

// wait returns when there is no blockade. If there is one, it first calls before.
func (b *blockade) wait(life context.Context, before func()) error {
	b.mu.Lock()
	over := b.over
	b.mu.Unlock()
	if over == nil {
		return nil
	}
	before()
	select {
	case <-over:
		return nil
	case <-life.Done():
		return core.ErrClosed
	}
}

// start records that conn is blocked, and returns the time at which the blockade began.
func (b *blockade) start(conn *connection) (since time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over == nil {
		b.over, b.of, b.since = make(chan struct{}), map[*connection]bool{}, time.Now()
	}
	b.of[conn] = true
	return b.since
}

// end records that conn is no longer blocked. If it was the last blocked connection, end
// returns the time at which the blockade began.
func (b *blockade) end(conn *connection) (since time.Time, was bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.of[conn] {
		return time.Time{}, false
	}
	delete(b.of, conn)
	if len(b.of) > 0 {
		return time.Time{}, false
	}
	close(b.over)
	b.over, b.of, b.ended = nil, nil, time.Now()
	return b.since, true
}

// active reports whether there is a blockade.
func (b *blockade) active() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.over != nil
}

// waited returns the time that the broker has had to answer a request made at since. The
// time of a blockade does not count: a blocked request has waited since the end of the
// blockade.
func (b *blockade) waited(since time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.over != nil:
		return 0
	case b.ended.After(since):
		return time.Since(b.ended)
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
				t.block(conn, notice.Reason)
			} else if since, was := t.blocked.end(conn); was {
				t.unblocked(since)
			}
		}
		// The connection is lost. It is unknown whether the broker can be reached.
		if since, was := t.blocked.end(conn); was && t.reconnects() {
			t.unblocked(since)
		}
	})
}

func (t *Transport) block(conn *connection, reason string) {
	since := t.blocked.start(conn)
	t.tellReceivers(core.ConnectionChange{Since: since, Err: fmt.Errorf("rabbitmq: the broker blocks who sends: %s; sends wait until it has freed memory or disk space", reason)})
}

// unblocked tells observers of the end of a blockade, unless there is a new one.
func (t *Transport) unblocked(since time.Time) {
	if !t.blocked.active() {
		t.tellReceivers(core.ConnectionChange{Connected: true, Since: since})
	}
}

// reconnects waits for a publishing connection. It returns false if the transport ends
// first.
func (t *Transport) reconnects() bool {
	var outages transport.Outages
	life := t.life.Context()
	err := outages.Retry(life, func() error {
		_, err := t.sending.get(life)
		return err
	}, func(error) bool { return true }, func(d time.Duration) error { return t.pause(life, d) })
	return err == nil
}

// tellReceivers tells the endpoints of all receivers. It reports a connection only to
// receivers that are connected; the others report theirs when they have reconnected.
func (t *Transport) tellReceivers(change core.ConnectionChange) {
	for _, open := range t.life.Receivers() {
		r := open.(*receiver)
		tell := r.outages.ConnectionChanged
		if tell != nil && (!change.Connected || !r.interrupted()) {
			tell(change)
		}
	}
}
