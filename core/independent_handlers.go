package core

import (
	"cmp"
	"context"
	"fmt"
	"time"
)

// dispatchIndependent runs all handlers, and records the deciding failure if several
// fail. If a message has several types, the handlers of one type may not be independent:
// they stop each other, but none of another type.
func dispatchIndependent(ctx context.Context, m *Message, handlers *handlerSet) error {
	var failures []HandlerFailure
	var failing []failingHandler
	useSavepoints := m.deps.composer.caps.Savepoints && m.transaction() != nil
	name, began, failed := "", time.Time{}, true
	defer func() { // also if a handler ends its goroutine
		if failed {
			m.recordFailingHandler(&failingHandler{name: name, began: began, failed: time.Now()})
		}
	}()
	fail := func(err error) {
		failures = append(failures, HandlerFailure{name, err})
		failing = append(failing, failingHandler{name: name, began: began, failed: time.Now()})
	}
	stopped, skipped := 0, false // handlers that are not independent and may not run: those before this index, or all
	for i, handler := range handlers.handlers {
		independent, end := handlers.independentAt(i)
		if !independent {
			if skipped || i < stopped {
				continue
			}
			m.resetSkip() // which an independent handler has requested
		}
		m.typeScope = handlers.scopeOf(i)
		name, began = handlers.names[i], time.Now()
		if ctx.Err() != nil {
			fail(fmt.Errorf("%w: %w", errNotRun, context.Cause(ctx)))
			break
		}
		if err, canContinue := runIndependent(ctx, m, handler, useSavepoints); err != nil {
			fail(err)
			if !canContinue {
				break
			}
			stopped = end
		}
		skipped = skipped || !independent && m.skipsRemaining()
	}
	failed = false
	if len(failures) == 0 {
		return nil
	}
	chosen := m.deps.decidingFailure(m, failures)
	m.recordFailingHandler(&failing[chosen])
	if len(failures) == 1 {
		return failures[0].Err
	}
	return &HandlersError{failures, failures[chosen].Err, len(handlers.handlers)}
}

// runIndependent runs one handler. canContinue is false if the next one cannot run.
func runIndependent(ctx context.Context, m *Message, handler HandlerFunc, useSavepoint bool) (err error, canContinue bool) {
	if !useSavepoint {
		return callRecovered(handler, ctx, m), true
	}
	savepoint, err := m.Savepoint(ctx)
	if err != nil {
		return err, false
	}
	if err = callRecovered(handler, ctx, m); err == nil {
		return nil, true
	}
	if rollbackErr := savepoint.Rollback(ctx); rollbackErr != nil {
		return &rollbackError{err, rollbackErr}, false
	}
	return err, true
}

// rollbackError is the failure of a handler whose work could not be undone alone.
type rollbackError struct{ err, rollback error }

func (e *rollbackError) Error() string { return e.err.Error() + "; " + e.rollback.Error() }
func (e *rollbackError) Unwrap() error { return e.err }

// decidingFailure returns the position of the failure that decides about the message.
func (deps *messageDeps) decidingFailure(m *Message, failures []HandlerFailure) int {
	config := deps.configFor(m.Type)
	chosen, best := 0, precedence{}
	for i, f := range failures {
		if p := precedenceOf(f.Err, config, m); i == 0 || p.compare(best) < 0 {
			chosen, best = i, p
		}
	}
	return chosen
}

// precedence orders the failures of independent handlers. The lowest decides.
type precedence struct {
	rank  int
	delay time.Duration
}

// The ranks: first the failures that request another try, then those that end the
// message.
const (
	rankRetryAfter = iota
	rankError
	rankDefer
	rankRefused
	rankPutBack
	rankReject
	rankInvalid
	rankUnrecoverable
	rankMoveTo
	rankDiscard
)

func (p precedence) compare(other precedence) int {
	return cmp.Or(cmp.Compare(p.rank, other.rank), cmp.Compare(other.delay, p.delay))
}

// precedenceOf also handles errors whose methods panic, and an UnrecoverableFunc that
// panics.
func precedenceOf(err error, config RecoverabilityConfig, m *Message) (p precedence) {
	defer func() {
		if recover() != nil {
			p = precedence{rank: rankError}
		}
	}()
	v := VerdictOf(err)
	unrecoverable := func() bool { return config.isUnrecoverableWith(v, err) }
	if v == nil {
		if unrecoverable() {
			return precedence{rank: rankUnrecoverable}
		}
		return precedence{rank: rankError}
	}
	switch v.Kind {
	case VerdictRetryAfter:
		if m.DelayedRetries >= config.Delayed.MaxNumberOfRetries || unrecoverable() {
			return precedence{rank: rankUnrecoverable}
		}
		return precedence{rankRetryAfter, v.Delay}
	case VerdictDefer:
		switch {
		case v.Refused:
			return precedence{rankRefused, v.Delay}
		case config.requeueLimit > 0 && m.Deferrals >= config.requeueLimit || unrecoverable():
			return precedence{rank: rankUnrecoverable}
		}
		return precedence{rankDefer, cmp.Or(v.Delay, config.requeueDelay)}
	case VerdictPutBack:
		return precedence{rank: rankPutBack}
	case VerdictReject:
		return precedence{rank: rankReject}
	case VerdictInvalid:
		return precedence{rank: rankInvalid}
	case VerdictMoveTo:
		return precedence{rank: rankMoveTo}
	case VerdictDiscard:
		return precedence{rank: rankDiscard}
	}
	return precedence{rank: rankUnrecoverable}
}
