package core

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/reprise-go/reprise/internal/bounded"
)

// This file ends an endpoint, or calls OnReached, when too many of its messages failed
// permanently (R50).

// UnacceptableMessageLimit limits how many messages may fail permanently before the
// endpoint ends.
type UnacceptableMessageLimit struct {
	// Count is the number of messages that were moved to an error, dead-letter or invalid
	// queue. The default, 0, means no limit.
	Count int

	// Window restricts the count to this sliding window. The default, 0, counts since
	// [Endpoint.Run] or [Endpoint.Resume].
	Window time.Duration

	// OnReached is called at the limit instead of ending the endpoint, which it may
	// [Endpoint.Pause]. err matches [ErrUnacceptableMessageLimit], and has the ids of the
	// newest messages that failed. ctx has the values of Run's context and does not end. A
	// separate goroutine calls it, and no message is started until it returns. Then the
	// count starts from 0: at once, or with [Endpoint.Resume].
	OnReached func(ctx context.Context, err error)
}

// maxFailedIDs is the number of message ids in the error of a limit.
const maxFailedIDs = 10

// terminalFailures counts messages that were moved to an error, dead-letter or invalid
// queue.
type terminalFailures struct {
	mu      sync.Mutex
	reached bool // the limit was reached, so that no more are counted
	times   []time.Time
	newest  []string // ids
}

// count counts a message, and returns an error if that reaches the limit.
func (t *terminalFailures) count(messageID string, at time.Time, limit *UnacceptableMessageLimit) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.reached {
		return nil
	}
	t.times = append(t.times, at)
	within := ""
	if limit.Window > 0 {
		t.times = slices.DeleteFunc(t.times, func(other time.Time) bool { return at.Sub(other) > limit.Window })
		within = " within " + limit.Window.String()
	}
	if len(t.newest) == maxFailedIDs {
		t.newest = slices.Delete(t.newest, 0, 1)
	}
	t.newest = append(t.newest, strings.Clone(bounded.Name(messageID)))
	n := len(t.times)
	if n < limit.Count {
		return nil
	}
	t.reached = true
	return fmt.Errorf("%w: %d messages failed for good%s, the newest: %q", ErrUnacceptableMessageLimit, n, within, t.newest[max(0, len(t.newest)-n):])
}

// restart starts the count from 0. While OnReached is running only its return does that.
func (t *terminalFailures) restart(returned bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.reached || returned {
		t.reached, t.times, t.newest = false, nil, nil
	}
}

// countTerminalFailure counts a message that was moved permanently. At the limit it ends
// the endpoint or, until OnReached has returned, stops fetching (R50).
func (r *runner) countTerminalFailure(messageID string, at time.Time) {
	limit := &r.ep.config.Recoverability.UnacceptableMessageLimit
	isEnding := r.fetchCtx.Err() != nil
	if limit.Count == 0 || r.ep.isPaused() || isEnding && limit.OnReached == nil {
		return
	}
	err := r.terminalFailures.count(messageID, at, limit)
	switch {
	case err == nil:
	case limit.OnReached != nil:
		r.pump.PauseFetching()
		r.limitCalls.Add(func() { r.limitReached(err) })
	case r.end(err) && r.inRunAll: // RunAll returns the error when all endpoints have ended
		r.raiseCritical(fmt.Errorf("%w; this endpoint ends, the others of RunAll continue", err))
	}
}

// limitReached calls OnReached, which may panic, or end its goroutine.
func (r *runner) limitReached(err error) {
	defer r.pump.ResumeFetching()
	defer r.terminalFailures.restart(true)
	r.ep.log.endpoint.Warn("too many messages failed for good; OnReached is called", "error", err)
	r.ep.config.Recoverability.UnacceptableMessageLimit.OnReached(r.valuesCtx, err)
}

// logLimit logs the effect of the limit at the start.
func (r *runner) logLimit() {
	limit := &r.ep.config.Recoverability.UnacceptableMessageLimit
	if limit.Count == 0 {
		return
	}
	text := "Run ends when as many messages as the limit have failed for good"
	if limit.OnReached != nil {
		text = "OnReached is called when as many messages as the limit have failed for good"
	}
	r.ep.log.endpoint.Info(text, "limit", limit.Count, "window", limit.Window)
}
