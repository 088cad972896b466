package resilience

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/failsafe-go/failsafe-go/retrypolicy"

	"github.com/reprise-go/reprise/core"
)

// Policy has strategies with their state: that of the circuit, the rate and the places.
// All methods may be called from several goroutines, and the middleware may be given to
// several endpoints.
type Policy struct {
	config  Config
	breaker *breaker // nil without one, as the fields below
	limiter *limiter
	places  *places
	retry   retrypolicy.RetryPolicy[any]

	tries, retries, refused, timedOut atomic.Int64
}

// New makes a policy. Its error lists all mistakes in the configuration.
func New(c Config) (*Policy, error) {
	given := c.Name
	c, err := c.resolve()
	if err != nil {
		return nil, fmt.Errorf("resilience: policy %q: %w", given, err)
	}
	p := &Policy{config: c}
	if c.Breaker.Failures > 0 {
		p.breaker = newBreaker(c.Name, c.Breaker, p.tell)
	}
	if c.RateLimit.Messages > 0 {
		p.limiter = newLimiter(c.Name, c.RateLimit)
	}
	if c.Bulkhead.Concurrency > 0 {
		p.places = newPlaces(c.Name, c.Bulkhead)
	}
	if c.Retry.Tries > 0 {
		p.retry = newRetry(c.Retry)
	}
	return p, nil
}

// State returns the state of the circuit breaker; without one it is Closed. An open
// circuit whose time has passed is Open until the next message tries it.
func (p *Policy) State() State {
	if p.breaker == nil {
		return Closed
	}
	return p.breaker.now()
}

// Stats has the counts of a policy since it was made, for the metrics of a team that
// watches retries within attempts.
type Stats struct {
	State    State // of the circuit breaker
	Tries    int64 // calls of handlers
	Retries  int64 // calls that were not the first of their sequence
	Refused  int64 // messages not let through by breaker, limiter or bulkhead
	TimedOut int64 // tries, and sequences of tries, that took too long
}

// Stats returns the counts of the policy.
func (p *Policy) Stats() Stats {
	return Stats{p.State(), p.tries.Load(), p.retries.Load(), p.refused.Load(), p.timedOut.Load()}
}

// tell logs a change of the circuit, and calls the hook.
func (p *Policy) tell(change StateChange) {
	change.log(p.config.Logger)
	if p.config.OnStateChange == nil {
		return
	}
	defer func() {
		if value := recover(); value != nil {
			logger(p.config.Logger).Error("OnStateChange panicked", "policy", p.config.Name, "panic", value)
		}
	}()
	p.config.OnStateChange(change)
}

func logger(l *slog.Logger) *slog.Logger {
	if l == nil {
		return slog.Default()
	}
	return l
}

// Middleware returns the policy as middleware, for all messages.
func (p *Policy) Middleware() core.Middleware { return &middleware{Policy: p} }

// For returns the policy as middleware for messages of some types; it passes others on
// unchanged. The state is shared with all other middleware of the policy.
func (p *Policy) For(messageTypes ...string) core.Middleware {
	return &middleware{p, append([]string{}, messageTypes...)}
}

// Wrap implements core.Middleware.
func (w *middleware) Wrap(scope core.MiddlewareScope, next core.HandlerFunc) core.HandlerFunc {
	return (&guard{w.Policy, next, scope, w.types}).handle
}

// guard is a policy around the handlers of one endpoint.
type guard struct {
	*Policy
	next         core.HandlerFunc
	scope        core.MiddlewareScope // of the endpoint
	messageTypes []string             // nil is all
}

func (g *guard) handle(ctx context.Context, m *core.Message) error {
	if g.messageTypes != nil && !slices.Contains(g.messageTypes, m.Type) {
		return g.next(ctx, m)
	}
	s := &sequence{guard: g, ctx: ctx, m: m}
	if g.breaker == nil {
		return s.limited()
	}
	pass, refused, err := g.breaker.wait(ctx)
	if refused != nil || err != nil {
		return s.refuse(refused, err)
	}
	s.pass = pass
	return s.counted()
}

// sequence is the passage of one message through a policy.
type sequence struct {
	*guard
	ctx  context.Context // the context that the policy was called with
	m    *core.Message
	pass pass // through the circuit breaker
}

// counted makes the circuit breaker count the result.
func (s *sequence) counted() error {
	if !s.config.Breaker.CountTries {
		return s.count(s.limited)
	}
	defer func() { s.pass.leave(neutral, nil) }() // unless a try did
	return s.limited()
}

// count makes the circuit breaker count the result of f.
func (s *sequence) count(f func() error) error {
	err, result := errPanic, neutral
	if c := &s.config.Breaker; c.On == nil && c.OnFunc == nil {
		result = failure // if f does not return
	}
	defer func() { s.pass.leave(result, err) }()
	err = f()
	result = s.judge(err)
	return err
}

var errPanic = errors.New("the handler panicked, or ended its goroutine")

// judge classifies an error by the service that handlers call. Of several independent
// handlers one that failed for the service's sake is enough, whichever of them decides.
func (s *sequence) judge(err error) outcome {
	if several, ok := errors.AsType[*core.HandlersError](err); ok && !hasEnded(s.ctx) {
		for _, failed := range several.Failures {
			if s.judge(failed.Err) == failure {
				return failure
			}
		}
	}
	switch {
	case err == nil:
		return success
	case core.VerdictOf(err) != nil, isRefusal(err), s.isUnrecoverable(err), hasEnded(s.ctx):
		return neutral
	case !s.selects(s.config.Breaker.On, s.config.Breaker.OnFunc, err):
		return neutral
	}
	return failure
}

// isUnrecoverable reports whether an error concerns the message itself.
func (s *sequence) isUnrecoverable(err error) bool {
	return aboutMessage(err) || s.scope.Recoverability(s.m.Type).IsUnrecoverable(err)
}

// hasEnded reports whether the message was lost or canceled, not whether it took too
// long.
func hasEnded(ctx context.Context) bool { return errors.Is(ctx.Err(), context.Canceled) }

// limited waits for rate limiter and bulkhead.
func (s *sequence) limited() error {
	if s.limiter != nil {
		if refused, err := s.limiter.wait(s.ctx); refused != nil || err != nil {
			return s.refuse(refused, err)
		}
	}
	if s.places != nil {
		if refused, err := s.places.wait(s.ctx); refused != nil || err != nil {
			return s.refuse(refused, err)
		}
		defer s.places.leave()
	}
	return s.timeout(s.ctx, s.config.Timeout, true, s.tried)
}

// refuse returns the error for a message that is not let through, or whose context ended
// first.
func (s *sequence) refuse(refused *RefusedError, ended error) error {
	if ended != nil {
		return fmt.Errorf("resilience: policy %q: the message ended while it waited to be let through: %w", s.config.Name, ended)
	}
	s.refused.Add(1)
	delay := max(time.Until(refused.Until), time.Millisecond)
	delay += time.Duration(rand.Float64() * refusalJitter * float64(delay))
	return s.refusal(refused, delay)
}

// refusal returns the error for a message that is not let through.
func (p *Policy) refusal(refused *RefusedError, delay time.Duration) error {
	switch p.config.Refusal {
	case RetryAfter:
		return core.RetryAfter(refused, delay)
	case Fail:
		return refused
	default:
		return core.Refuse(refused, delay)
	}
}

// timeout calls f with a context that ends after limit, if there is one.
func (s *sequence) timeout(ctx context.Context, limit time.Duration, total bool, f func(context.Context) error) error {
	if limit == 0 {
		return f(ctx)
	}
	cause := &TimeoutError{Policy: s.config.Name, Limit: limit, Total: total}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, cause)
	defer cancel()
	err := f(ctx)
	if err == nil || core.VerdictOf(err) != nil || !errors.Is(context.Cause(ctx), cause) {
		return err
	}
	s.timedOut.Add(1)
	return &TimeoutError{Policy: cause.Policy, Limit: limit, Total: total, Err: err}
}

// try calls the handlers once.
func (s *sequence) try(ctx context.Context) error {
	s.tries.Add(1)
	return s.timeout(ctx, s.config.TryTimeout, false, s.call)
}

func (s *sequence) call(ctx context.Context) error { return s.next(ctx, s.m) }
