package core

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Shutdown ends Run in two steps: no new message is started, and running handlers may
// finish until ctx ends; then their contexts are cancelled. It returns nil when all
// handlers have ended and their messages are settled, which is before the observers have
// got all events and before Run returns. When ctx ends before that, it returns ctx's
// error at once: Run returns at most 10 s later. Without a Run in progress it does
// nothing. If ctx cannot end, DrainTimeout cancels the handlers' contexts.
//
// Called with the context of a handler of this endpoint it does not wait, since
// it would wait for the handler: it returns nil, and Run ends after it. Observers,
// OnCriticalError and the hooks of RateLimit may call it.
func (ep *Endpoint) Shutdown(ctx context.Context) error {
	ep.mu.Lock()
	r := ep.current
	ep.mu.Unlock()
	if r == nil {
		return nil
	}
	if a, ok := ctx.Value(attemptKey{}).(*attempt); ok && a.delivery != nil && a.message.env == ep.env {
		r.end(nil)
		return nil
	}
	if ctx.Done() != nil {
		r.mu.Lock()
		r.byRequest = true
		r.mu.Unlock()
	}
	r.end(nil)
	select {
	case <-r.drained:
		return nil
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.hurried {
		r.hurried = true
		close(r.hurry)
	}
	return context.Cause(ctx)
}

// drain ends the run.
func (r *runner) drain() error {
	drainEnd := time.Now().Add(r.ep.config.DrainTimeout)
	r.stopFetch()
	r.pump.stop()
	r.handleConsumed()
	idle := make(chan struct{})
	go func() {
		r.pump.wait()
		close(idle)
	}()
	r.ep.log.endpoint.Info("endpoint is draining", "in_flight", r.pump.inFlight())

	var err error
	if !r.waitDrained(idle) {
		r.cancelWork(ErrShutdown)
		grace := time.NewTimer(handlerGrace)
		defer grace.Stop()
		select {
		case <-idle:
		case <-grace.C:
			err = r.unfinished()
		}
	}
	r.cancelWork(ErrShutdown) // for a HandleFailed that the backlog runs again
	deadline := time.Now().Add(closeGrace)
	r.putBacks.stop()
	if !r.kept.stop(time.Until(deadline)) {
		r.ep.log.endpoint.Warn("a message that was put back could not be released in time; it is redelivered")
	}
	if !r.pausing.stop(time.Until(deadline)) {
		r.ep.log.endpoint.Warn("a message that waited for its retry could not be given back in time; it is redelivered")
	}
	if !r.backlog.stop(time.Until(deadline)) {
		r.ep.log.endpoint.Warn("a settlement that was tried again has not returned; its message is redelivered")
	}
	if !r.renewer.stop(time.Until(deadline)) {
		r.ep.log.endpoint.Warn("a renewal of a lock has not returned after its context ended; it is left behind")
	}
	r.closeReceiver(max(time.Until(deadline), closeGrace/4), time.Until(drainEnd))
	r.ep.log.repeats.tell()
	close(r.drained)
	r.closeNotifiers(time.Now().Add(max(time.Until(deadline), closeGrace/4)))
	r.ep.log.endpoint.Info("endpoint has stopped")
	return err
}

// waitDrained reports whether all handlers returned in time.
func (r *runner) waitDrained(idle <-chan struct{}) bool {
	timeout := time.NewTimer(r.ep.config.DrainTimeout)
	defer timeout.Stop()
	for {
		select {
		case <-idle:
			return true
		case <-r.hurry:
			return false
		case <-timeout.C:
			r.mu.Lock()
			byRequest := r.byRequest
			r.mu.Unlock()
			if !byRequest {
				return false
			}
		}
	}
}

// unfinished returns an error with the messages whose handlers, or whose settlements,
// have not returned.
func (r *runner) unfinished() error {
	var handlers, settlements []string
	for _, a := range r.pump.attempts() {
		name := fmt.Sprintf("message %s (%s)", a.message.incoming.ID, a.message.handledAs().messageType)
		if a.returned.Load() {
			settlements = append(settlements, name)
		} else {
			handlers = append(handlers, name)
		}
	}
	slices.Sort(handlers)
	slices.Sort(settlements)
	var errs []error
	if len(handlers) > 0 {
		errs = append(errs, fmt.Errorf("%w %v after their contexts were cancelled: %s", ErrHandlersRunning, handlerGrace, strings.Join(handlers, ", ")))
	}
	if len(settlements) > 0 {
		errs = append(errs, fmt.Errorf("the transport has neither sent for nor settled messages whose handlers have returned: %s", strings.Join(settlements, ", ")))
	}
	if len(errs) == 0 {
		return fmt.Errorf("a call of the transport (Receive, or Release of an unstarted message) has not returned %v after its context ended (C3)", handlerGrace)
	}
	return errors.Join(errs...)
}

// closeReceiver closes the receiver, and waits for it for least, or for most if that is
// longer: a request in progress may return messages until the end of its wait at the
// broker, and these have to be given back. A Shutdown whose context has ended waits for
// least.
func (r *runner) closeReceiver(least, most time.Duration) {
	ctx, cancel := context.WithTimeout(r.values, max(least, most))
	defer cancel()
	if most > least {
		closed := make(chan struct{})
		defer close(closed)
		go func() {
			select {
			case <-closed:
			case <-r.hurry:
				time.AfterFunc(least, cancel)
			}
		}()
	}
	if err := r.receiver.Close(ctx); err != nil {
		r.ep.log.endpoint.Warn("receiver could not be closed", "error", err)
	}
}

// closeNotifiers waits for the calls of the user's code that are queued, once.
func (r *runner) closeNotifiers(deadline time.Time) {
	if r.toldAll {
		return
	}
	r.toldAll = true
	r.outages.stop()
	told := true
	for _, n := range []*notifier{r.parks, r.notifier, r.criticals, r.hooks} {
		if n == nil {
			continue
		}
		told = n.close(time.Until(deadline)) && told
	}
	if !told {
		r.ep.log.endpoint.Warn("an observer or hook has not returned; it is left behind")
	}
}
