package sqlserver

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// How a receiver of an empty queue learns that there is something to fetch: a bell,
// which this process rings after its own sends and when the server says that
// somebody sent something, the time at which the next delayed message is due, and
// polling as a safety net.

// The pauses between polls double, from firstPoll to lastPoll: an idle queue costs one
// poll a second. Where the server wakes receivers there are two short ones at most.
const (
	firstPoll = 5 * time.Millisecond
	lastPoll  = time.Second
	wokenPoll = 250 * time.Millisecond
)

// nextPause returns how long to wait after a fetch that brought nothing. The first
// time it is no time at all: another one may have had the rows locked.
func (r *receiver) nextPause(ctx context.Context) time.Duration {
	first := firstPoll
	if r.t.bellman != nil && r.t.bellman.listening.Load() {
		first = wokenPoll
	}
	r.mu.Lock()
	pause := r.pause
	r.pause = min(max(first, 2*r.pause), lastPoll)
	r.mu.Unlock()
	if pause == 0 {
		return 0
	}
	if due, ok := r.t.untilDue(ctx, r.q.due); ok && due < pause {
		return max(due, time.Millisecond)
	}
	return pause + rand.N(pause/10)
}

// untilDue asks a table for how long its next delayed message waits.
func (t *Transport) untilDue(ctx context.Context, text string) (time.Duration, bool) {
	if text == "" {
		return 0, false
	}
	var next *int64
	if err := t.db.exec(ctx, query(func(scan scanner) error { return scan(&next) }, text)); err != nil || next == nil {
		return 0, false // the next poll finds out about an outage
	}
	return time.Duration(*next) * time.Microsecond, true
}

// wait returns when it is worth to look again.
func (r *receiver) wait(ctx context.Context, pause time.Duration) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.bell.rung:
	case <-ctx.Done():
	case <-r.closing.Done():
	}
}

// bell is rung when a queue may have got a message. It stays rung until somebody
// looks.
type bell struct {
	of   *queue
	rung chan struct{}
}

func (b *bell) ring() {
	select {
	case b.rung <- struct{}{}:
	default:
	}
}

// bells are those of this process's receivers, by the address of their queue.
type bells struct {
	mu   sync.RWMutex
	rung map[string][]*bell
}

// hang adds a bell for a receiver.
func (t *Transport) hang(of *queue) *bell {
	b := &bell{of: of, rung: make(chan struct{}, 1)}
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
		b.ring()
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
