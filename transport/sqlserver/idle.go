package sqlserver

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/reprise-go/reprise/transport"
)

// A receiver of an empty queue fetches again when its bell rings, which this process does
// after its own sends and after the server's notifications, when the next delayed message
// is due, and, as a safety net, by polling.

// polls are the pauses between polls of an idle queue. They double from the first to the
// last, which costs one small query a second. If the server wakes receivers, the first
// pause is longer.
type polls struct{ first, firstWoken, last time.Duration }

var defaultPolls = polls{first: 5 * time.Millisecond, firstWoken: 250 * time.Millisecond, last: time.Second}

// nextPause returns the pause after a fetch that found no message. The first time it is
// 0: another receiver may have had the rows locked. A random part is subtracted so that
// receivers do not poll all at once; none is added, because a delayed message would be
// later than DelayPrecision says.
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

// wait returns when a fetch is likely to find a message, or no longer useful: the bell
// rang, a message has become available, or the receiver is closed or ctx has ended. A
// poll is one small query, which also says when the next delayed message is due.
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

// farAway is longer than any wait before the next poll.
const farAway = 24 * time.Hour

// until asks a table for the time until its next message is due. some is false if it has
// none.
func (t *Transport) until(ctx context.Context, text string) (wait time.Duration, some bool, err error) {
	var next *int64
	err = t.read(ctx, query(func(scan scanner) error { return scan(&next) }, text))
	if err != nil || next == nil {
		return 0, false, err
	}
	return time.Duration(min(*next, farAway.Microseconds())) * time.Microsecond, true, nil
}

// bell rings when a queue may have got a message. It stays rung until its receiver looks.
type bell struct {
	of   *queue
	rung transport.Signal
}

// bells are the bells of this process's receivers, by the address of their queue.
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

// ring wakes receivers of a queue, here and in other processes: a message has become
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

// queues returns the queues that have a bell.
func (all *bells) queues() (list []*queue) {
	all.mu.RLock()
	defer all.mu.RUnlock()
	for _, hung := range all.rung {
		list = append(list, hung[0].of)
	}
	return list
}
