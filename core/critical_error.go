package core

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprise-go/reprise/core/health"
	"github.com/reprise-go/reprise/core/internal/calls"
)

// RaiseCritical reports an error of the application as a critical error: it is logged,
// counted in [Endpoint.Health] and given to [Observer.CriticalError], as the endpoint's own
// are; without a Run in progress before RaiseCritical returns. The endpoint continues. A
// nil error is ignored.
func (ep *Endpoint) RaiseCritical(err error) {
	if err == nil {
		return
	}
	ep.mu.Lock()
	r := ep.current
	ep.mu.Unlock()
	if r != nil {
		r.raiseCritical(err)
		return
	}
	ep.criticals.record(context.Background(), err)
	for _, o := range ep.observers.critical {
		calls.Recover(ep.observers.onPanic, func() { o.CriticalError(context.Background(), ep, err) })
	}
}

// criticalErrors logs and counts critical errors, for Health. The Endpoint owns it. All methods
// may be called concurrently.
type criticalErrors struct {
	log   *slog.Logger
	count atomic.Int64
	last  atomic.Pointer[health.CriticalError]
}

// record logs and counts a critical error.
func (c *criticalErrors) record(ctx context.Context, err error) {
	c.count.Add(1)
	c.last.Store(&health.CriticalError{Err: err, At: time.Now()})
	c.log.ErrorContext(ctx, "critical error", "error", err)
}

// raiseCritical raises a critical error of the endpoint.
func (r *runner) raiseCritical(err error) { r.raiseCriticalContext(r.valuesCtx, err) }

// raiseCriticalContext is raiseCritical with the context of an attempt for the log.
func (r *runner) raiseCriticalContext(ctx context.Context, err error) {
	r.ep.criticals.record(ctx, err)
	for _, o := range r.ep.observers.critical {
		r.criticalCalls.Add(func() { o.CriticalError(r.valuesCtx, r.ep, err) })
	}
}

// outageLogInterval is the time between warnings about one outage.
const outageLogInterval = time.Minute

// outageLog writes the log lines of outages: a warning at the beginning and one a
// minute afterwards, and all other tries to connect at level Debug. Only the goroutine of
// the hooks uses it.
type outageLog struct {
	connected bool      // a connection was made once in this Run
	warnedAt  time.Time // zero: there is no outage
	tries     int       // failed since the beginning
}

func (l *outageLog) write(log *slog.Logger, e *ConnectionChange) {
	lost, restored := "connection lost", "connection restored"
	if !l.connected {
		lost, restored = "endpoint waits to receive: its broker cannot be reached", "broker is reached"
	}
	if e.Connected {
		log.Info(restored, "since", e.Since)
		*l = outageLog{connected: true}
		return
	}
	level := slog.LevelDebug
	now := time.Now()
	if l.warnedAt.IsZero() || now.Sub(l.warnedAt) >= outageLogInterval {
		level, l.warnedAt = slog.LevelWarn, now
	}
	l.tries++
	log.Log(context.Background(), level, lost, "error", e.Err, "since", e.Since, "tries", l.tries, "retry_in", e.RetryIn)
}

// outageAlarm raises one critical error for an outage that the transport reported and
// that has lasted for Config.OutageLimit. It has a timer, because an adapter may be silent
// while it reconnects.
type outageAlarm struct {
	limit time.Duration // 0 means no limit
	raise func(err error)

	raising sync.Mutex // taken before mu, so that a slow log does not hold mu
	mu      sync.Mutex
	current *reportedOutage // nil while connected
	stopped bool
}

// reportedOutage is an outage, from the first report of a lost connection to the report
// of a restored one.
type reportedOutage struct {
	since time.Time
	err   error // the newest that was reported
	timer *time.Timer
}

// changed handles a report of the transport.
func (o *outageAlarm) changed(e ConnectionChange) {
	if o.limit <= 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.stopped:
	case e.Connected:
		o.endLocked()
	case o.current != nil: // another try to connect has failed
		if e.Err != nil {
			o.current.err = e.Err
		}
	default:
		begun := &reportedOutage{since: time.Now(), err: e.Err}
		if !e.Since.IsZero() && e.Since.Before(begun.since) {
			begun.since = e.Since
		}
		begun.timer = time.AfterFunc(time.Until(begun.since.Add(o.limit)), func() { o.expired(begun) })
		o.current = begun
	}
}

// expired raises the critical error, unless the connection was restored just now.
func (o *outageAlarm) expired(begun *reportedOutage) {
	o.raising.Lock()
	defer o.raising.Unlock()
	o.mu.Lock()
	lasts := o.current == begun
	err := begun.err
	o.mu.Unlock()
	if lasts {
		o.raise(begun.lastingError(o.limit, err))
	}
}

func (o *outageAlarm) endLocked() {
	if o.current != nil {
		o.current.timer.Stop()
		o.current = nil
	}
}

// stop ends the alarm. None is raised after it has returned.
func (o *outageAlarm) stop() {
	o.raising.Lock() // one that is being raised has been
	defer o.raising.Unlock()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stopped = true
	o.endLocked()
}

// lastingError is the critical error of the outage. err is the newest that the transport
// reported, or nil.
func (o *reportedOutage) lastingError(limit time.Duration, err error) error {
	lasting := fmt.Errorf("%w since %s, for longer than Config.OutageLimit (%v); the endpoint goes on reconnecting",
		ErrOutage, o.since.UTC().Format(time.RFC3339), limit)
	if err == nil {
		return lasting
	}
	return fmt.Errorf("%w: %w", lasting, err)
}
