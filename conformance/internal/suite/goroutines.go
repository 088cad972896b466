package suite

import (
	"runtime/debug"
	"sync"
)

// Goroutines beside a case's own. A panic in one of them, in the transport or because of
// its results, would end the whole test binary.

// goInGroup runs f in a goroutine and adds it to all.
func (t *caseT) goInGroup(all *sync.WaitGroup, f func()) { all.Go(func() { t.recoverPanic(f) }) }

// goGuarded runs f in a goroutine. f signals its end in a deferred call.
func (t *caseT) goGuarded(f func()) {
	go t.recoverPanic(f)
}

// recoverPanic runs f, and turns a panic into a failure.
func (t *caseT) recoverPanic(f func()) {
	defer func() {
		if problem := recover(); problem != nil {
			t.fail("neither the transport nor the harness panics", "panic: %v\n%s", problem, debug.Stack())
		}
	}()
	f()
}
