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

// blockade is what the broker does to connections that send while its memory or its
// disk is nearly full: it stops to read from them. Sends wait until it has ended.
type blockade struct {
	mu    sync.Mutex
	over  chan struct{}        // nil: there is none
	of    map[*connection]bool // those that are blocked
	since time.Time
	ended time.Time // the last one
}

// wait returns when there is no blockade. If there is one, it calls before first.
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

// start notes one of a connection, and returns since when there is one.
func (b *blockade) start(conn *connection) (since time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over == nil {
		b.over, b.of, b.since = make(chan struct{}), map[*connection]bool{}, time.Now()
	}
	b.of[conn] = true
	return b.since
}

// end notes the end of that of a connection. If it was the last one, it returns since when
// there was one.
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

// active reports whether there is one.
func (b *blockade) active() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.over != nil
}

// waited is for how long the broker has let something wait that it could have done: what
// was held up by a blockade has waited since its end.
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

// watchBlocked follows what the broker says of a connection for sending, and tells
// the observers of all receivers.
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
		// The connection is lost. Whether the broker can be reached is not known.
		if since, was := t.blocked.end(conn); was && t.reconnects() {
			t.unblocked(since)
		}
	})
}

func (t *Transport) block(conn *connection, reason string) {
	since := t.blocked.start(conn)
	t.tellReceivers(core.ConnectionChange{Since: since, Err: fmt.Errorf("rabbitmq: the broker blocks who sends: %s; sends wait until it has freed memory or disk space", reason)})
}

// unblocked tells observers of the end of a blockade, unless there is another one.
func (t *Transport) unblocked(since time.Time) {
	if !t.blocked.active() {
		t.tellReceivers(core.ConnectionChange{Connected: true, Since: since})
	}
}

// reconnects returns when there is a connection for sending, or none any more.
func (t *Transport) reconnects() bool {
	var outages transport.Outages
	life := t.life.Context()
	err := outages.Retry(life, func() error {
		_, err := t.sending.get(life)
		return err
	}, func(error) bool { return true }, func(d time.Duration) error { return t.pause(life, d) })
	return err == nil
}

// tellReceivers tells the endpoints of all receivers. Of a connection it does not tell those
// of receivers that have none: they will be told when these do.
func (t *Transport) tellReceivers(change core.ConnectionChange) {
	for _, open := range t.life.Receivers() {
		r := open.(*receiver)
		tell := r.outages.ConnectionChanged
		if tell != nil && (!change.Connected || !r.interrupted()) {
			tell(change)
		}
	}
}
