package core

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/reprise-go/reprise/core/internal/calls"
	"github.com/reprise-go/reprise/internal/bounded"
)

// Shutdown ends [Endpoint.Run]: no new message is started, and running handlers may finish
// until ctx ends; then their contexts are cancelled. If ctx cannot end, that is after
// [Config.DrainTimeout]. It returns nil when all messages are settled, which is before Run
// returns, and without a Run in progress. When ctx ends before that, it returns ctx's error
// at once: Run returns at most 10 s later.
//
// Observers and callbacks may call it. Called with the context of a handler of this
// endpoint it does not wait, since it would wait for the handler: it returns nil.
func (ep *Endpoint) Shutdown(ctx context.Context) error {
	ep.mu.Lock()
	r := ep.current
	ep.mu.Unlock()
	if r == nil {
		return nil
	}
	if a, ok := ctx.Value(attemptKey{}).(*attempt); ok && a.delivery != nil && a.message.deps == ep.deps {
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
	if !r.forced {
		r.forced = true
		close(r.forceStop)
	}
	return context.Cause(ctx)
}

// drain ends the run.
func (r *runner) drain() error {
	drainEnd := time.Now().Add(r.ep.config.DrainTimeout)
	r.stopFetch()
	r.pump.Stop()
	idle := make(chan struct{})
	go func() {
		r.pump.Wait()
		close(idle)
	}()
	r.ep.log.endpoint.Info("endpoint is draining", "in_flight", r.pump.InFlight())

	var err error
	if !r.waitDrained(idle) {
		r.cancelHandlers(ErrShutdown)
		grace := time.NewTimer(handlerGrace)
		defer grace.Stop()
		select {
		case <-idle:
		case <-grace.C:
			err = r.unfinishedError()
		}
	}
	r.cancelHandlers(ErrShutdown) // for a HandleFailed that the backlog runs again
	deadline := time.Now().Add(closeGrace)
	r.ep.unfinished.stop(deadline, r.ep.log.endpoint)
	if !r.renewer.Stop(time.Until(deadline)) {
		r.ep.log.endpoint.Warn("a renewal of a lock has not returned after its context ended; it is left behind")
	}
	r.closeReceiver(max(time.Until(deadline), closeGrace/4), time.Until(drainEnd))
	close(r.drained)
	r.closeCallQueues(time.Now().Add(max(time.Until(deadline), closeGrace/4)))
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
		case <-r.forceStop:
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

// unfinishedError returns an error with the messages whose handlers, or whose
// settlements, have not returned.
func (r *runner) unfinishedError() error {
	var handlers, settlements []string
	for _, a := range r.pump.Attempts() {
		name := fmt.Sprintf("message %s (%s)", bounded.Name(a.message.incoming.ID), bounded.Name(a.message.handledAs().messageType))
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

// closeReceiver closes the receiver, and waits for it for minimum, or for maximum if that
// is longer: a request in progress may return messages until the end of its wait at the
// broker, and these have to be released. A Shutdown whose context has ended waits for
// minimum.
func (r *runner) closeReceiver(minimum, maximum time.Duration) {
	ctx, cancel := context.WithTimeout(r.valuesCtx, max(minimum, maximum))
	defer cancel()
	if maximum > minimum {
		closed := make(chan struct{})
		defer close(closed)
		go func() {
			select {
			case <-closed:
			case <-r.forceStop:
				time.AfterFunc(minimum, cancel)
			}
		}()
	}
	if err := r.receiver.Close(ctx); err != nil {
		r.ep.log.endpoint.Warn("receiver could not be closed", "error", err)
	}
}

// closeCallQueues waits for the calls of the user's code that are queued, once.
func (r *runner) closeCallQueues(deadline time.Time) {
	if r.callQueuesClosed {
		return
	}
	r.callQueuesClosed = true
	r.outages.stop()
	finished := true
	for _, q := range []*calls.Queue{r.limitCalls, r.recoveryCalls, r.criticalCalls, r.hookCalls} {
		if q == nil {
			continue
		}
		finished = q.Close(time.Until(deadline)) && finished
	}
	if !finished {
		r.ep.log.endpoint.Warn("an observer or hook has not returned; it is left behind")
	}
}

// end makes Run drain and return err. Only the first call has an effect, and returns true.
func (r *runner) end(err error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.hasEnded {
		return false
	}
	r.hasEnded = true
	r.endErr = err
	close(r.ended)
	r.stopFetch()
	return true
}

// interruptedByShutdown reports whether a failure of user code may come from the
// shutdown, which has cancelled its context, and the message can be released.
func (r *runner) interruptedByShutdown() bool {
	return r.handlerCtx.Err() != nil && r.ep.mode != TransactionNone
}
