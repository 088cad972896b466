package suite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
)

// groupQueue returns an empty queue for this case that keeps groups.
func (t *caseT) groupQueue(transport core.Transport) string {
	var queue string
	if t.suite.h.GroupQueue != nil {
		queue = t.suite.h.GroupQueue(t)
	} else {
		queue = t.queue(transport)
	}
	if describer, ok := transport.(core.Describer); ok && !describer.KeepsGroups(queue) {
		t.stop("KeepsGroups reports true for a queue that Harness.GroupQueue names, or without that for any", "it reports false for %q", queue)
	}
	return queue
}

// groupMessage returns a message of a group.
func (t *caseT) groupMessage(queue, group, body string) core.Outgoing {
	m := t.command(queue, "job", body)
	m.GroupKey = group
	return m
}

// sendGroup sends messages of one group, each with a separate Send.
func (t *caseT) sendGroup(transport core.Transport, queue, group string, bodies ...string) {
	for _, body := range bodies {
		t.send(transport, t.groupMessage(queue, group, body))
	}
}

// groupDelay is the delay with which the cases postpone messages.
func (t *caseT) groupDelay() time.Duration { return t.delay() }

// outlasting returns a delay that is longer than the cases wait.
func (t *caseT) outlasting() time.Duration {
	delay := 23 * time.Hour // a delayed retry may have no longer delay (R5)
	for _, limit := range []time.Duration{t.caps.MaxLockTime, t.caps.MaxDelay} {
		if limit > 0 {
			delay = min(delay, limit/2)
		}
	}
	return delay
}

// notPostponed checks that Postpone is refused and changes nothing.
func (t *caseT) notPostponed(r *receiver) {
	d := r.next()
	ctx, cancel := t.withTimeout()
	defer cancel()
	if err := d.Postpone(ctx, time.Second, errHandler); !errors.Is(err, errors.ErrUnsupported) {
		t.fail("Postpone is refused with an error that matches errors.ErrUnsupported", "%v", err)
	}
	t.complete(d)
}

// groupRetries configures retries; a delay of 0 stands for a short one.
func (t *caseT) groupRetries(immediate, delayed int, delay time.Duration) func(*core.Config) {
	return func(c *core.Config) {
		c.Recoverability.Immediate, c.Recoverability.Delayed = t.immediate(immediate), t.delayed(delayed)
		if delay > 0 {
			c.Recoverability.Delayed.Delays = slices.Repeat([]time.Duration{delay}, delayed)
		}
	}
}

// groupService returns an endpoint with such retries on a queue that keeps groups.
func (t *caseT) groupService(transport core.Transport, immediate, delayed int, delay time.Duration) *service {
	return t.serviceOn(transport, t.groupQueue(transport), t.queue(transport), t.groupRetries(immediate, delayed, delay))
}

// handlingLog records the attempts of an endpoint, in their order.
type handlingLog struct {
	t        *caseT
	mu       sync.Mutex
	attempts []string // "body, attempt / delayed retries"
	times    []time.Time
}

// record registers a handler that records each attempt.
func (s *service) record(do func(m *core.Message) error) *handlingLog {
	h := &handlingLog{t: s.t}
	s.handle("job", func(_ context.Context, m *core.Message) error {
		h.mu.Lock()
		h.attempts = append(h.attempts, fmt.Sprintf("%s %d/%d", m.RawBody(), m.Attempt, m.DelayedRetries))
		h.times = append(h.times, time.Now())
		n := len(h.attempts)
		h.mu.Unlock()
		if n > endless {
			return nil
		}
		return do(m)
	})
	return h
}

func (h *handlingLog) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.attempts)
}

// inOrder checks the attempts and their order.
func (h *handlingLog) inOrder(want ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !slices.Equal(h.attempts, want) {
		h.t.fail(fmt.Sprintf("the messages of a group are handled in this order (attempt/delayed retries): %s", strings.Join(want, ", ")), "%s", strings.Join(h.attempts, ", "))
	}
}

// at returns the time at which attempt i began.
func (h *handlingLog) at(i int) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.times[min(i, len(h.times)-1)]
}
