package resilience

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/reprise-go/reprise/core"
)

// Strategy is a part of a policy that can refuse messages.
type Strategy int

// The strategies that refuse messages.
const (
	StrategyBreaker Strategy = iota + 1
	StrategyRateLimit
	StrategyBulkhead
)

// String returns the strategy's name.
func (s Strategy) String() string {
	switch s {
	case StrategyBreaker:
		return "circuit breaker"
	case StrategyRateLimit:
		return "rate limiter"
	case StrategyBulkhead:
		return "bulkhead"
	default:
		return fmt.Sprintf("Strategy(%d)", int(s))
	}
}

// RefusedError is the error of a message that was not let through to its handlers. The
// error of a circuit breaker matches core.ErrCircuitOpen.
type RefusedError struct {
	Policy string
	By     Strategy
	// Until is the earliest time at which the message may be let through, as far as that
	// is known.
	Until time.Time
	// Cause is the text of the failure that opened the circuit, which was another
	// message's.
	Cause string
}

// Error implements error.
func (e *RefusedError) Error() string {
	text := fmt.Sprintf("resilience: policy %q: the %v refuses messages until %s", e.Policy, e.By, e.Until.Format(time.RFC3339Nano))
	if e.Cause != "" {
		text += "; the failure that opened the circuit: " + e.Cause
	}
	return text
}

// Is reports that the error of a circuit breaker matches core.ErrCircuitOpen.
func (e *RefusedError) Is(target error) bool {
	return e.By == StrategyBreaker && target == core.ErrCircuitOpen
}

// TimeoutError is the failure of a try, or of all tries, that took too long. It is also
// the cause with which their context is canceled. It matches context.DeadlineExceeded.
type TimeoutError struct {
	Policy string
	Limit  time.Duration
	Total  bool  // of all tries with their pauses (Config.Timeout), not of one (TryTimeout)
	Err    error // the handler's error; nil in the cause of its context
}

// Error implements error.
func (e *TimeoutError) Error() string {
	kind := "time-out of a try"
	if e.Total {
		kind = "total time-out"
	}
	text := fmt.Sprintf("resilience: policy %q: %s after %v", e.Policy, kind, e.Limit)
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns the handler's error.
func (e *TimeoutError) Unwrap() error { return e.Err }

// Is reports that a *TimeoutError matches context.DeadlineExceeded.
func (e *TimeoutError) Is(target error) bool { return target == context.DeadlineExceeded }

// isRefusal reports whether a policy refused the message.
func isRefusal(err error) bool {
	_, ok := errors.AsType[*RefusedError](err)
	return ok
}

// aboutMessage reports whether an error says nothing about the service that handlers
// call, and would not change with another try.
func aboutMessage(err error) bool {
	return errors.Is(err, core.ErrUndecodable) || errors.Is(err, core.ErrMalformed) || errors.Is(err, core.ErrNoHandler) || errors.Is(err, core.ErrNoType)
}

// selects reports whether a strategy applies to an error. It always applies to the
// time-outs of the policy itself.
func (p *Policy) selects(on []error, onFunc func(error) bool, err error) bool {
	if on == nil && onFunc == nil {
		return true
	}
	for _, target := range on {
		if errors.Is(err, target) {
			return true
		}
	}
	if timeout, ok := errors.AsType[*TimeoutError](err); ok && timeout.Policy == p.config.Name {
		return true
	}
	return onFunc != nil && onFunc(err)
}
