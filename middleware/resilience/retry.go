package resilience

import (
	"context"
	"errors"
	"fmt"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/retrypolicy"

	"github.com/reprise-go/reprise/core"
)

// newRetry makes a policy that tries again after every error.
func newRetry(c Retry) retrypolicy.RetryPolicy[any] {
	b := retrypolicy.NewBuilder[any]().WithMaxAttempts(c.Tries).ReturnLastFailure()
	b.WithBackoffFactor(c.Delay, c.MaxDelay, c.Factor)
	b.WithJitterFactor(c.Jitter)
	return b.Build()
}

// tried calls the handlers until they succeed, at most as often as configured.
func (s *sequence) tried(ctx context.Context) error {
	var before *core.Savepoint // nil without a transaction
	if s.retry != nil && s.scope.Transactions == core.TransactionSendsAtomicWithReceive {
		var err error
		if before, err = s.m.Savepoint(ctx); err != nil {
			return fmt.Errorf("resilience: policy %q: a retry needs a savepoint: %w", s.config.Name, err)
		}
	}
	err := s.countedTry(ctx)
	if s.retry == nil || err == nil || !s.retriable(err) {
		return err
	}
	return s.repeat(ctx, before, err)
}

// repeat makes further tries after the first one has failed.
func (s *sequence) repeat(ctx context.Context, before *core.Savepoint, last error) error {
	tries, begun := 1, false
	// The error of the executor is ignored: it is that of ctx, even if the last try
	// succeeded.
	_ = failsafe.With(s.retry).WithContext(ctx).Run(func() error {
		if !begun { // the first try has already been made: the executor gets its error
			begun = true
			return last
		}
		if !s.mayTryAgain() {
			return nil
		}
		if before != nil {
			if err := before.Rollback(ctx); err != nil {
				last = fmt.Errorf("resilience: policy %q: the work of a failed try could not be undone: %w; the try failed with: %w", s.config.Name, err, last)
				return nil
			}
		}
		tries++
		s.retries.Add(1)
		if last = s.countedTry(ctx); last == nil || !s.retriable(last) {
			return nil
		}
		return last
	})
	switch cause := context.Cause(ctx); {
	case last == nil || core.VerdictOf(last) != nil:
		return last
	case cause != nil && !isTimeout(cause) && tries < s.config.Retry.Tries:
		return fmt.Errorf("resilience: policy %q: ended after try %d of %d: %w: %w", s.config.Name, tries, s.config.Retry.Tries, cause, last)
	case tries == 1:
		return last
	}
	return fmt.Errorf("resilience: policy %q: %d tries failed, the last with: %w", s.config.Name, tries, last)
}

// isTimeout reports whether a cause is the time-out of a policy. That has a separate
// error.
func isTimeout(cause error) bool {
	_, ok := errors.AsType[*TimeoutError](cause)
	return ok
}

// retriable reports whether an error is tried again.
func (s *sequence) retriable(err error) bool {
	c := &s.config.Retry
	return core.VerdictOf(err) == nil && !isRefusal(err) && !s.isUnrecoverable(err) && s.selects(c.On, c.OnFunc, err)
}

// countedTry is try. If the circuit breaker counts tries, it counts the result.
func (s *sequence) countedTry(ctx context.Context) error {
	if s.breaker == nil || !s.config.Breaker.CountTries {
		return s.try(ctx)
	}
	return s.count(func() error { return s.try(ctx) })
}

// mayTryAgain reports whether the circuit breaker lets another try through, if it counts
// tries.
func (s *sequence) mayTryAgain() bool {
	if s.breaker == nil || !s.config.Breaker.CountTries {
		return true
	}
	p, refused, _ := s.breaker.enter()
	s.pass = p
	return refused == nil
}
