package core

import (
	"sync"
	"sync/atomic"
	"time"
)

// callQueue runs asynchronous calls into users' code, in order, on one goroutine, behind
// a bounded queue (R32).
type callQueue struct {
	mu      sync.Mutex
	closed  bool
	calls   chan func()
	done    chan struct{}
	dropped atomic.Int64
	onPanic func(value any)
}

func newCallQueue(capacity int, onPanic func(value any)) *callQueue {
	q := &callQueue{calls: make(chan func(), capacity), done: make(chan struct{}), onPanic: onPanic}
	go q.run()
	return q
}

// run makes the calls. A call that ends the goroutine (runtime.Goexit) does not end the
// others: a new goroutine continues.
func (q *callQueue) run() {
	finished := false
	defer func() {
		if finished {
			close(q.done)
			return
		}
		go q.run()
		recoverTo(func(any) {}, func() { q.onPanic(errGoexit) })
	}()
	for call := range q.calls {
		recoverTo(q.onPanic, call)
	}
	finished = true
}

// add queues a call, or counts it as dropped.
func (q *callQueue) add(call func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		q.dropped.Add(1)
		return
	}
	select {
	case q.calls <- call:
	default:
		q.dropped.Add(1)
	}
}

// close waits until all queued calls have run, but not longer than the timeout: a call
// that never returns cannot be ended.
func (q *callQueue) close(timeout time.Duration) bool {
	q.mu.Lock()
	if !q.closed {
		q.closed = true
		close(q.calls)
	}
	q.mu.Unlock()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-q.done:
		return true
	case <-timer.C:
		return false
	}
}
