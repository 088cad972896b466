package resilience

import (
	"errors"
	"fmt"

	"github.com/reprise-go/reprise/core"
)

// start describes the policy to the endpoint, and refuses an endpoint on which it cannot
// work.
func (p *Policy) start(s *core.StartUp, messageTypes []string) {
	s.Describe(p.steps(messageTypes)...)
	if s == nil {
		return
	}
	fail := func(format string, args ...any) {
		s.Fail(fmt.Errorf("resilience: policy %q: "+format, append([]any{p.config.Name}, args...)...))
	}
	if messageTypes != nil && len(messageTypes) == 0 {
		fail("For was called without message types; name some, or use Middleware for all")
	}
	switch refusal := p.config.Refusal; {
	case !p.refuses() || refusal == Fail:
	case s.Transactions() == core.TransactionNone:
		fail("Refusal is %v, but in transaction mode None no message can be kept, so a refused one would go to the error queue: "+
			"set Refusal to Fail, and let messages wait in their handlers with MaxWait of the strategies: %w", refusal, errors.ErrUnsupported)
	case refusal != PutBack && !s.CanDefer():
		fail("Refusal is %v, but on this transport nothing can be deferred (Capabilities.DelayedDelivery), so a refused message would go to the error queue: "+
			"set Refusal to PutBack: %w", refusal, errors.ErrUnsupported)
	}
	if p.refuses() && p.config.Refusal == RetryAfter && s.CanDefer() {
		for _, messageType := range append(messageTypes, "")[:max(1, len(messageTypes))] {
			if s.Recoverability(messageType).Delayed.MaxNumberOfRetries == 0 {
				fail("Refusal is RetryAfter, but delayed retries are off, so a refused message would go to the error queue; use Defer, or delayed retries")
				break
			}
		}
	}
	if p.retry != nil && s.Transactions() == core.TransactionSendsAtomicWithReceive && !s.Capabilities().Savepoints {
		fail("Retry.Tries is %d, but in transaction mode SendsAtomicWithReceive the work of a failed try would be committed with that of a later one, "+
			"since the transport cannot undo a part of it (Capabilities.Savepoints): use core.TransactionReceiveOnly, or immediate retries of the endpoint, which undo all of it: %w", p.config.Retry.Tries, errors.ErrUnsupported)
	}
}

// refuses reports whether there is a strategy that refuses messages.
func (p *Policy) refuses() bool { return p.breaker != nil || p.limiter != nil || p.places != nil }

// steps describes the nested strategies, the outermost first.
func (p *Policy) steps(messageTypes []string) []core.Step {
	var steps []core.Step
	add := func(s core.Step) {
		s.Name, s.MessageTypes = p.config.Name, messageTypes
		steps = append(steps, s)
	}
	verdict := p.config.Refusal != Fail
	if p.breaker != nil {
		add(core.Step{Kind: StrategyBreaker.String(), Refuses: verdict, OpensCircuit: true, Wait: p.config.Breaker.MaxWait, State: func() string { return p.State().String() }})
	}
	if p.limiter != nil {
		add(core.Step{Kind: StrategyRateLimit.String(), Refuses: verdict, Wait: p.config.RateLimit.MaxWait})
	}
	if p.places != nil {
		add(core.Step{Kind: StrategyBulkhead.String(), Refuses: verdict, Wait: p.config.Bulkhead.MaxWait})
	}
	if p.config.Timeout > 0 {
		add(core.Step{Kind: "total time-out", Limit: p.config.Timeout})
	}
	if p.retry != nil {
		add(core.Step{Kind: "retry", Tries: p.config.Retry.Tries, Wait: p.config.Retry.longestPauses()})
	}
	if p.config.TryTimeout > 0 {
		add(core.Step{Kind: "time-out per try", Limit: p.config.TryTimeout})
	}
	return steps
}
