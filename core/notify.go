package core

import (
	"sync"
	"sync/atomic"
	"time"
)

// notifier runs asynchronous calls into users' code, in order, on one goroutine, behind a
// bounded queue (R32).
type notifier struct {
	mu      sync.Mutex
	closed  bool
	calls   chan func()
	done    chan struct{}
	dropped atomic.Int64
	caught  func(value any)
}

func newNotifier(capacity int, caught func(value any)) *notifier {
	n := &notifier{calls: make(chan func(), capacity), done: make(chan struct{}), caught: caught}
	go n.run()
	return n
}

// run makes the calls. A call that ends the goroutine (runtime.Goexit) does not end the
// others: a new goroutine continues.
func (n *notifier) run() {
	finished := false
	defer func() {
		if finished {
			close(n.done)
			return
		}
		go n.run()
		guarded(func(any) {}, func() { n.caught(errGoexit) })
	}()
	for call := range n.calls {
		guarded(n.caught, call)
	}
	finished = true
}

// notify queues a call, or counts it as dropped.
func (n *notifier) notify(call func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		n.dropped.Add(1)
		return
	}
	select {
	case n.calls <- call:
	default:
		n.dropped.Add(1)
	}
}

// close waits until all queued calls have run, but not longer than the timeout: a call
// that never returns cannot be ended.
func (n *notifier) close(timeout time.Duration) bool {
	n.mu.Lock()
	if !n.closed {
		n.closed = true
		close(n.calls)
	}
	n.mu.Unlock()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-n.done:
		return true
	case <-timer.C:
		return false
	}
}
