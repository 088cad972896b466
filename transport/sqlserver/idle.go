package sqlserver

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/reprise-go/reprise/transport"
)

// How a receiver of an empty queue learns that there is something to fetch: a bell,
// which this process rings after its own sends and when the server says that
// somebody sent something, the time at which the next delayed message is due, and
// polling as a safety net.

// polls are the pauses between looks at an idle queue, which double from the first to
// the last: it costs one small query a second. Where the server wakes receivers, they
// begin longer.
type polls struct{ first, firstWoken, last time.Duration }

var defaultPolls = polls{first: 5 * time.Millisecond, firstWoken: 250 * time.Millisecond, last: time.Second}

// nextPause returns how long to wait after a look at the queue that found nothing.
// The first time it is no time at all: another one may have had the rows locked. It is
// shorter than it could be, by chance, so that receivers do not look all at once; not
// longer, because a delayed message would be later than DelayPrecision says.
func (r *receiver) nextPause() time.Duration {
	first := r.t.polls.first
	if r.t.bellman.listens() {
		first = r.t.polls.firstWoken
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	pause := r.pause
	r.pause = min(max(first, 2*r.pause), r.t.polls.last)
	return pause - rand.N(pause/10+1)
}

// wait returns when it is worth to fetch, or pointless: the bell was rung, a message
// has become available, or the receiver or ctx is done for. A poll is one small
// query, which also says when the next delayed message is due.
func (r *receiver) wait(ctx context.Context, pause time.Duration) {
	for {
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-r.bell.rung:
		case <-ctx.Done():
		case <-r.closing.Done():
		}
		if timer.Stop() || ctx.Err() != nil || r.closing.Err() != nil {
			return
		}
		under := r.operations.begin(ctx)
		text := r.q.next
		if r.t.nserviceBusTables {
			text = r.q.nextForeign
		}
		next, some, err := r.t.until(under, text)
		under.end()
		if err != nil || some && next <= 0 {
			return // the fetch finds out about an outage
		}
		if pause = r.nextPause(); some {
			pause = min(pause, max(next, time.Millisecond))
		}
	}
}

// farAway is longer than anybody waits before the next look.
const farAway = 24 * time.Hour

// until asks a table for how long its next message waits, if there is some.
func (t *Transport) until(ctx context.Context, text string) (wait time.Duration, some bool, err error) {
	var next *int64
	err = t.read(ctx, query(func(scan scanner) error { return scan(&next) }, text))
	if err != nil || next == nil {
		return 0, false, err
	}
	return time.Duration(min(*next, farAway.Microseconds())) * time.Microsecond, true, nil
}

// bell is rung when a queue may have got a message. It stays rung until somebody
// looks.
type bell struct {
	of   *queue
	rung transport.Signal
}

// bells are those of this process's receivers, by the address of their queue.
type bells struct {
	mu   sync.RWMutex
	rung map[string][]*bell
}

// hang adds a bell for a receiver.
func (t *Transport) hang(of *queue) *bell {
	b := &bell{of: of, rung: transport.NewSignal()}
	t.bells.mu.Lock()
	t.bells.rung[of.table.address] = append(t.bells.rung[of.table.address], b)
	t.bells.mu.Unlock()
	if t.bellman != nil {
		t.bellman.listen()
	}
	return b
}

// takeDown removes a bell.
func (t *Transport) takeDown(b *bell) {
	if b == nil {
		return
	}
	t.bells.mu.Lock()
	left := slices.DeleteFunc(t.bells.rung[b.of.table.address], func(other *bell) bool { return other == b })
	if len(left) == 0 {
		delete(t.bells.rung, b.of.table.address)
	} else {
		t.bells.rung[b.of.table.address] = left
	}
	t.bells.mu.Unlock()
	if t.bellman != nil {
		t.bellman.listen()
	}
}

// ring wakes receivers of a queue, here and elsewhere: something in it has become
// available.
func (t *Transport) ring(of *queue) {
	t.bells.ring(of)
	if t.bellman != nil {
		t.bellman.notify(of)
	}
}

func (all *bells) ring(of *queue) {
	all.mu.RLock()
	defer all.mu.RUnlock()
	for _, b := range all.rung[of.table.address] {
		b.rung.Notify()
	}
}

// queues returns those that have a bell.
func (all *bells) queues() (list []*queue) {
	all.mu.RLock()
	defer all.mu.RUnlock()
	for _, hung := range all.rung {
		list = append(list, hung[0].of)
	}
	return list
}
