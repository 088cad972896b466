package conformance

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
)

// crowd counts the running handlers of one case, and the calls for each message. It
// blocks handlers until the case lets them through.
type crowd struct {
	t    *caseT
	gate chan struct{}

	mu        sync.Mutex
	now, most int
	begun     map[string]int // by body
}

func (t *caseT) crowd() *crowd {
	return &crowd{t: t, gate: make(chan struct{}), begun: map[string]int{}}
}

// handle is a handler that waits for permission. It fails only if its context ends
// before.
func (c *crowd) handle(ctx context.Context, m *core.Message) error {
	c.enter(string(m.RawBody()))
	defer c.leave()
	select {
	case <-c.gate:
		return nil
	case <-c.t.ctx.Done(): // the case was stopped
		return errCaseEnded
	case <-ctx.Done():
		return ctx.Err()
	}
}

// enter counts one more handler, and returns the number of calls for its message.
func (c *crowd) enter(body string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now++
	c.most = max(c.most, c.now)
	c.begun[body]++
	return c.begun[body]
}

func (c *crowd) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now--
}

// pass lets n handlers through.
func (c *crowd) pass(n int) {
	ctx, cancel := c.t.withTimeout()
	defer cancel()
	for range n {
		select {
		case c.gate <- struct{}{}:
		case <-ctx.Done():
			c.t.stop(fmt.Sprintf("%d handlers run, one after the other", n), "there is none after %v", c.t.timeout())
		}
	}
}

// open lets all handlers through from now on.
func (c *crowd) open() { close(c.gate) }

// running returns the number of running handlers.
func (c *crowd) running() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// peak returns the highest number of concurrent handlers since the last call.
func (c *crowd) peak() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	most := c.most
	c.most = c.now
	return most
}

// of returns the number of handler calls for a message.
func (c *crowd) of(body string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.begun[body]
}

// messages returns the number of different messages.
func (c *crowd) messages() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.begun)
}

// wantOnce checks that each message was given to a handler once, in any of the crowds,
// except for the broker's own duplicates.
func (t *caseT) wantOnce(msgs []core.Outgoing, crowds ...*crowd) {
	t.wantTimes(1, msgs, crowds...)
}

// wantTimes is wantOnce for n attempts.
func (t *caseT) wantTimes(n int, msgs []core.Outgoing, crowds ...*crowd) {
	wrong := map[string]int{}
	for _, m := range msgs {
		attempts := 0
		for _, c := range crowds {
			attempts += c.of(string(m.Body))
		}
		if attempts < n || attempts > n && !t.caps.MayDuplicate {
			wrong[string(m.Body)] = attempts
		}
	}
	if len(wrong) > 0 {
		t.fail(fmt.Sprintf("each of %d messages is given to a handler %d times", len(msgs), n), "how often these were instead: %s", listed(wrong))
	}
}

// jobs returns n commands with the type and the bodies that the endpoints of the cases
// handle.
func (t *caseT) jobs(queue string, n int) []core.Outgoing {
	out := make([]core.Outgoing, n)
	for i := range out {
		out[i] = t.command(queue, "job", fmt.Sprintf("job %d", i))
	}
	return out
}

// awaitCount waits until count is as high as wanted. It waits as long as the count
// changes, and stops the case when it does not change for too long.
func (t *caseT) awaitCount(what string, want int, count func() int) {
	last, since := count(), time.Now()
	for pause := time.Millisecond; last < want; pause = min(2*pause, 50*time.Millisecond) {
		time.Sleep(pause)
		switch n := count(); {
		case n != last:
			last, since = n, time.Now()
		case time.Since(since) > t.timeout():
			t.stop(fmt.Sprintf("%s: their number reaches %d", what, want), "it is %d, and has not changed for %v", last, t.timeout())
		}
	}
}

// wantSteady checks that a number does not change.
func (t *caseT) wantSteady(what string, want int, count func() int) {
	t.sleep(t.quietPeriod())
	if n := count(); n != want {
		t.stop(fmt.Sprintf("%s stays %d", what, want), "%d after %v", n, t.quietPeriod())
	}
}
