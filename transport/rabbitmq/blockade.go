package rabbitmq

import (
	"context"
	"fmt"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/core"
)

// blockade is what the broker does to connections that send while its memory or its
// disk is nearly full: it stops to read from them. Sends wait until it is over.
type blockade struct {
	mu    sync.Mutex
	over  chan struct{} // nil: there is none
	since time.Time
}

// wait returns when there is no blockade.
func (b *blockade) wait(life context.Context) error {
	b.mu.Lock()
	over := b.over
	b.mu.Unlock()
	if over == nil {
		return nil
	}
	select {
	case <-over:
		return nil
	case <-life.Done():
		return core.ErrClosed
	}
}

// active reports whether there is one.
func (b *blockade) active() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.over != nil
}

// watchBlocked follows what the broker says of the connection for sending, and tells
// the observers of all receivers.
func (t *Transport) watchBlocked(conn *amqp.Connection) {
	notices := conn.NotifyBlocked(make(chan amqp.Blocking, 16))
	t.goes(func() {
		for notice := range notices {
			if notice.Active {
				t.block(notice.Reason)
			} else {
				t.unblock()
			}
		}
		t.unblock() // the connection is lost
	})
}

func (t *Transport) block(reason string) {
	b := &t.blocked
	b.mu.Lock()
	if b.over == nil {
		b.over, b.since = make(chan struct{}), time.Now()
	}
	since := b.since
	b.mu.Unlock()
	t.tellObservers(core.ConnectionChange{Since: since, Err: fmt.Errorf("rabbitmq: the broker blocks who sends: %s; sends wait until it has freed memory or disk space", reason)})
}

func (t *Transport) unblock() {
	b := &t.blocked
	b.mu.Lock()
	over, since := b.over, b.since
	b.over = nil
	b.mu.Unlock()
	if over != nil {
		close(over)
		t.tellObservers(core.ConnectionChange{Connected: true, Since: since})
	}
}

// tellObservers tells the observers of all receivers.
func (t *Transport) tellObservers(change core.ConnectionChange) {
	t.mu.Lock()
	var observers []core.ConnectionObserver
	for r := range t.receivers {
		if o, ok := r.outages.Observer.(core.ConnectionObserver); ok {
			observers = append(observers, o)
		}
	}
	t.mu.Unlock()
	for _, o := range observers {
		o.ConnectionChanged(change)
	}
}
