// Package calls makes calls into users' code, which may panic or end its goroutine.
package calls

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// Queue runs asynchronous calls into users' code, in order, on one goroutine, behind
// a bounded queue (R32).
type Queue struct {
	mu      sync.Mutex
	closed  bool
	calls   chan func()
	done    chan struct{}
	dropped atomic.Int64
	onPanic func(value any)
}

// New returns a queue with room for capacity calls, and starts its goroutine. onPanic is
// called with the value of a call that panics.
func New(capacity int, onPanic func(value any)) *Queue {
	q := &Queue{calls: make(chan func(), capacity), done: make(chan struct{}), onPanic: onPanic}
	go q.run()
	return q
}

// run makes the calls. A call that ends the goroutine (runtime.Goexit) does not end the
// others: a new goroutine continues.
func (q *Queue) run() {
	finished := false
	defer func() {
		if finished {
			close(q.done)
			return
		}
		defer func() { go q.run() }() // after the report, even if that ends the goroutine too
		Recover(func(any) {}, func() { q.onPanic(ErrGoexit) })
	}()
	for call := range q.calls {
		Recover(q.onPanic, call)
	}
	finished = true
}

// Add queues a call, or counts it as dropped.
func (q *Queue) Add(call func()) {
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

// Close waits until all queued calls have run, but not longer than the timeout: a call
// that never returns cannot be ended.
func (q *Queue) Close(timeout time.Duration) bool {
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

// Dropped returns the number of calls that the queue had no room for.
func (q *Queue) Dropped() int64 { return q.dropped.Load() }

// ErrGoexit is the error of a call that ended its goroutine.
var ErrGoexit = errors.New("the code called ended its goroutine with runtime.Goexit (testing's FailNow does)")

// Recover calls f and reports a panic to onPanic instead of passing it on.
func Recover(onPanic func(value any), f func()) {
	defer func() {
		if value := recover(); value != nil {
			onPanic(value)
		}
	}()
	f()
}

// ErrorText returns the text of an error, or "" for nil. A panic in a method of the error
// does not panic here.
func ErrorText(err error) (text string) {
	if err == nil {
		return ""
	}
	defer func() {
		if value := recover(); value != nil {
			text = "an error whose text cannot be read: its method Error panics"
		}
	}()
	return err.Error()
}
