package suite

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
)

// blockingHandler counts the running handlers of one case, and the calls for each
// message. It blocks handlers until the case lets them through.
type blockingHandler struct {
	t    *caseT
	gate chan struct{}

	mu               sync.Mutex
	current, highest int
	started          map[string]int // by body
}

func (t *caseT) blockingHandler() *blockingHandler {
	return &blockingHandler{t: t, gate: make(chan struct{}), started: map[string]int{}}
}

// handle is a handler that waits for permission. It fails only if its context ends
// before.
func (h *blockingHandler) handle(ctx context.Context, m *core.Message) error {
	h.enter(string(m.RawBody()))
	defer h.leave()
	select {
	case <-h.gate:
		return nil
	case <-h.t.ctx.Done(): // the case was stopped
		return errCaseEnded
	case <-ctx.Done():
		return ctx.Err()
	}
}

// enter counts one more handler, and returns the number of calls for its message.
func (h *blockingHandler) enter(body string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.current++
	h.highest = max(h.highest, h.current)
	h.started[body]++
	return h.started[body]
}

func (h *blockingHandler) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.current--
}

// release lets n handlers through.
func (h *blockingHandler) release(n int) {
	ctx, cancel := h.t.withTimeout()
	defer cancel()
	for range n {
		select {
		case h.gate <- struct{}{}:
		case <-ctx.Done():
			h.t.stop(fmt.Sprintf("%d handlers run, one after the other", n), "there is none after %v", h.t.timeout())
		}
	}
}

// releaseAll lets all handlers through from now on.
func (h *blockingHandler) releaseAll() { close(h.gate) }

// running returns the number of running handlers.
func (h *blockingHandler) running() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.current
}

// maxConcurrent returns the highest number of concurrent handlers since the last call.
func (h *blockingHandler) maxConcurrent() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	highest := h.highest
	h.highest = h.current
	return highest
}

// calls returns the number of handler calls for a message.
func (h *blockingHandler) calls(body string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.started[body]
}

// messages returns the number of different messages.
func (h *blockingHandler) messages() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.started)
}

// wantOnce checks that each message was given to a handler once, by any of the handlers,
// except for the broker's own duplicates.
func (t *caseT) wantOnce(msgs []core.Outgoing, handlers ...*blockingHandler) {
	t.wantTimes(1, msgs, handlers...)
}

// wantTimes is wantOnce for n attempts.
func (t *caseT) wantTimes(n int, msgs []core.Outgoing, handlers ...*blockingHandler) {
	wrong := map[string]int{}
	for _, m := range msgs {
		attempts := 0
		for _, h := range handlers {
			attempts += h.calls(string(m.Body))
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
func (t *caseT) awaitCount(subject string, want int, count func() int) {
	last, since := count(), time.Now()
	for pause := time.Millisecond; last < want; pause = min(2*pause, 50*time.Millisecond) {
		time.Sleep(pause)
		switch n := count(); {
		case n != last:
			last, since = n, time.Now()
		case time.Since(since) > t.timeout():
			t.stop(fmt.Sprintf("%s: their number reaches %d", subject, want), "it is %d, and has not changed for %v", last, t.timeout())
		}
	}
}

// wantSteady checks that a number does not change.
func (t *caseT) wantSteady(subject string, want int, count func() int) {
	t.sleep(t.quietPeriod())
	if n := count(); n != want {
		t.stop(fmt.Sprintf("%s stays %d", subject, want), "%d after %v", n, t.quietPeriod())
	}
}
