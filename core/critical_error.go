package core

import (
	"context"
	"time"

	"github.com/reprise-go/reprise/core/internal/calls"
)

// RaiseCritical reports an error of the application as a critical error: it is logged,
// counted in [Endpoint.Health] and given to [Config.OnCriticalError], as the endpoint's
// own are. The endpoint continues; OnCriticalError decides whether to call
// [Endpoint.Shutdown]. If no Run is in progress, OnCriticalError is called before
// RaiseCritical returns. A nil error is ignored.
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
	ep.recordCritical(context.Background(), err)
	if f := ep.config.OnCriticalError; f != nil {
		calls.Recover(ep.observerPanicked, func() { f(context.Background(), err) })
	}
}

// recordCritical logs and counts a critical error.
func (ep *Endpoint) recordCritical(ctx context.Context, err error) {
	ep.criticals.Add(1)
	ep.lastCritical.Store(&CriticalError{Err: err, At: time.Now()})
	ep.log.endpoint.ErrorContext(ctx, "critical error", "error", err)
}

// raiseCritical raises a critical error of the endpoint.
func (r *runner) raiseCritical(err error) { r.raiseCriticalContext(r.valuesCtx, err) }

// raiseCriticalContext is raiseCritical with the context of an attempt for the log.
func (r *runner) raiseCriticalContext(ctx context.Context, err error) {
	r.ep.recordCritical(ctx, err)
	if f := r.ep.config.OnCriticalError; f != nil {
		r.criticalCalls.Add(func() { f(r.valuesCtx, err) })
	}
}

// CriticalError is a failure of the endpoint's own work, or an error that the application
// raised ([Endpoint.RaiseCritical]).
type CriticalError struct {
	Err error
	At  time.Time
}
