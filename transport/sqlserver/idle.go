package sqlserver

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/notify"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/queues"
)

// A receiver of an empty queue fetches again when its wakeup is signaled, which this process does
// after its own sends and after the server's notifications, when the next delayed message
// is due, and, as a safety net, by polling.

// pollIntervals are the pauses between polls of an idle queue. They double from the first to the
// last, which costs one small query a second. If the server wakes receivers, the first
// pause is longer.
type pollIntervals struct{ first, firstNotified, last time.Duration }

var defaultPolls = pollIntervals{first: 5 * time.Millisecond, firstNotified: 250 * time.Millisecond, last: time.Second}

// wakeupGap is the time between two fetches of an idle queue that follow wakeups, after the
// first two that found no message: every role of the database may notify, as often as it
// likes. Receivers that compete for messages find none now and then, so these two are free.
const (
	wakeupGap   = 10 * time.Millisecond
	freeWakeups = 2
)

// afterWakeup counts a wakeup, and returns the pause until the fetch that follows it.
func (r *receiver) afterWakeup() (pause time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if r.wakeups++; r.wakeups > freeWakeups {
		pause = max(r.lastWakeup.Add(wakeupGap).Sub(now), 0)
	}
	r.lastWakeup = now.Add(pause)
	return pause
}

// nextPause returns the pause after a fetch that found no message. The first time it is
// 0: another receiver may have had the rows locked. A random part is subtracted so that
// receivers do not poll all at once; none is added, because a delayed message would be
// later than DelayPrecision says.
func (r *receiver) nextPause() time.Duration {
	first := r.t.pollIntervals.first
	if r.t.notifier.Listens() {
		first = r.t.pollIntervals.firstNotified
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	pause := r.pause
	r.pause = min(max(first, 2*r.pause), r.t.pollIntervals.last)
	return pause - rand.N(pause/10+1)
}

// wait returns when a fetch is likely to find a message, or no longer useful: the wakeup
// was signaled, a message has become available, or the receiver is closed or ctx has ended. A
// poll is one small query, which also says when the next delayed message is due.
func (r *receiver) wait(ctx context.Context, pause time.Duration) {
	for {
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-r.wakeup.Signal:
			timer.Stop()
			_ = transport.Sleep(ctx, r.closing, r.afterWakeup(), nil)
			return
		case <-ctx.Done():
		case <-r.closing.Done():
		}
		if timer.Stop() || ctx.Err() != nil || r.closing.Err() != nil {
			return
		}
		op := r.operations.Begin(ctx)
		text := r.q.Next
		if r.t.nserviceBusTables {
			text = r.q.NextForeign
		}
		next, found, err := r.t.server.NextDue(op, text)
		op.End()
		if err != nil || found && next <= 0 {
			return // the fetch finds out about an outage
		}
		if pause = r.nextPause(); found {
			pause = min(pause, max(next, time.Millisecond))
		}
	}
}

// addWakeup adds a wakeup for a receiver.
func (t *Transport) addWakeup(q *queues.Queue) *notify.Wakeup {
	b := t.wakeups.Add(q)
	if t.notifier != nil {
		t.notifier.Listen()
	}
	return b
}

// removeWakeup removes a wakeup.
func (t *Transport) removeWakeup(b *notify.Wakeup) {
	if b == nil {
		return
	}
	t.wakeups.Remove(b)
	if t.notifier != nil {
		t.notifier.Listen()
	}
}

// wakeReceivers wakes receivers of a queue, here and in other processes: a message has become
// available.
func (t *Transport) wakeReceivers(q *queues.Queue) {
	t.wakeups.Wake(q)
	if t.notifier != nil {
		t.notifier.Notify(q)
	}
}
