package conformance

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
)

// crowd is the handlers of one case. It counts how many run at the same time and
// how often each message was given to one, and holds them back at a gate until
// the case lets them through.
type crowd struct {
	t    *trial
	gate chan struct{}

	mu        sync.Mutex
	now, most int
	begun     map[string]int // by body
}

func (t *trial) crowd() *crowd {
	return &crowd{t: t, gate: make(chan struct{}), begun: map[string]int{}}
}

// handle is a handler that waits at the gate. It fails only if its context ends
// there.
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

// enter counts one more, and returns how often its message was there.
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
	ctx, cancel := c.t.patient()
	defer cancel()
	for range n {
		select {
		case c.gate <- struct{}{}:
		case <-ctx.Done():
			c.t.stop(fmt.Sprintf("%d handlers run, one after the other", n), "there is none after %v", c.t.patience())
		}
	}
}

// open lets all through from now on.
func (c *crowd) open() { close(c.gate) }

// running is how many are there now.
func (c *crowd) running() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// peak is how many were there at the same time since the last call.
func (c *crowd) peak() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	most := c.most
	c.most = c.now
	return most
}

// of is how often a message was there.
func (c *crowd) of(body string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.begun[body]
}

// messages is how many different ones were there.
func (c *crowd) messages() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.begun)
}

// once checks that each of the messages was given to a handler once, in any of
// the crowds, but for what the broker itself duplicates.
func (t *trial) once(msgs []core.Outgoing, crowds ...*crowd) {
	t.times(1, msgs, crowds...)
}

// times is once for n attempts.
func (t *trial) times(n int, msgs []core.Outgoing, crowds ...*crowd) {
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

// jobs returns n commands with the type and bodies that endpoints of the cases
// take.
func (t *trial) jobs(queue string, n int) []core.Outgoing {
	out := make([]core.Outgoing, n)
	for i := range out {
		out[i] = t.command(queue, "job", fmt.Sprintf("job %d", i))
	}
	return out
}

// reach waits until count is as high as wanted, however long it takes as long as
// something changes, and stops the case if nothing does.
func (t *trial) reach(what string, want int, count func() int) {
	last, since := count(), time.Now()
	for pause := time.Millisecond; last < want; pause = min(2*pause, 50*time.Millisecond) {
		time.Sleep(pause)
		switch n := count(); {
		case n != last:
			last, since = n, time.Now()
		case time.Since(since) > t.patience():
			t.stop(fmt.Sprintf("%s: their number reaches %d", what, want), "it is %d, and has not changed for %v", last, t.patience())
		}
	}
}

// steady checks that a number stays what it is.
func (t *trial) steady(what string, want int, count func() int) {
	t.rest(t.quiet())
	if n := count(); n != want {
		t.stop(fmt.Sprintf("%s stays %d", what, want), "%d after %v", n, t.quiet())
	}
}
