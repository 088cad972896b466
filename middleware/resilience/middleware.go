package resilience

import (
	"errors"
	"fmt"

	"github.com/reprise-go/reprise/core"
)

// middleware is a policy for some message types.
type middleware struct {
	*Policy
	types []string // nil is all
}

// Describe implements core.Middleware. It refuses an endpoint on which the policy cannot
// work.
func (w *middleware) Describe(s core.MiddlewareScope) ([]core.MiddlewareFacts, error) {
	var errs []error
	fail := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("resilience: policy %q: "+format, append([]any{w.config.Name}, args...)...))
	}
	if w.types != nil && len(w.types) == 0 {
		fail("For was called without message types; name some, or use Middleware for all")
	}
	switch refusal := w.config.Refusal; {
	case !w.refuses() || refusal == Fail:
	case s.Transactions == core.TransactionNone:
		fail("Refusal is %v, but in transaction mode None no message can be kept, so a refused one would go to the error queue: "+
			"set Refusal to Fail, and let messages wait in their handlers with MaxWait of the strategies: %w", refusal, errors.ErrUnsupported)
	case refusal == RetryAfter && !s.CanDefer():
		fail("Refusal is %v, but on this transport nothing can be deferred (Capabilities.DelayedDelivery), so a refused message would go to the error queue: "+
			"set Refusal to Defer: %w", refusal, errors.ErrUnsupported)
	}
	if w.retry != nil && s.Transactions == core.TransactionSendsAtomicWithReceive && !s.Capabilities.Savepoints {
		fail("Retry.Tries is %d, but in transaction mode SendsAtomicWithReceive the work of a failed try would be committed with that of a later one, "+
			"since the transport cannot undo a part of it (Capabilities.Savepoints): use core.TransactionReceiveOnly, or immediate retries of the endpoint, which undo all of it: %w", w.config.Retry.Tries, errors.ErrUnsupported)
	}
	return w.facts(), errors.Join(errs...)
}

// refuses reports whether there is a strategy that refuses messages.
func (p *Policy) refuses() bool { return p.breaker != nil || p.limiter != nil || p.places != nil }

// facts describes the nested strategies, the outermost first.
func (w *middleware) facts() (all []core.MiddlewareFacts) {
	add := func(by Strategy, f core.MiddlewareFacts) {
		f.Kind, f.Name, f.MessageTypes = by.String(), w.config.Name, w.types
		f.Refusals = []error{w.refusal(&RefusedError{Policy: w.config.Name, By: by}, 0)}
		all = append(all, f)
	}
	if w.breaker != nil {
		add(StrategyBreaker, core.MiddlewareFacts{State: func() string { return w.State().String() }})
	}
	if w.limiter != nil {
		add(StrategyRateLimit, core.MiddlewareFacts{})
	}
	if w.places != nil {
		add(StrategyBulkhead, core.MiddlewareFacts{})
	}
	if w.retry != nil {
		all = append(all, core.MiddlewareFacts{Kind: "retry", Name: w.config.Name, MessageTypes: w.types, Runs: w.config.Retry.Tries})
	}
	return all
}
