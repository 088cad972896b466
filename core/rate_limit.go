package core

import (
	"context"

	"github.com/reprise-go/reprise/core/internal/pump"

	"github.com/reprise-go/reprise/core/internal/ratelimit"
)

// newRateLimiter connects rate limiting with the pump. In rate-limited mode there
// is one slot; after each failed attempt nothing is fetched for TimeToWait.
func (r *runner) newRateLimiter() *ratelimit.Limiter {
	c := r.ep.config.Recoverability.RateLimit
	log := r.ep.log.rateLimit
	notify := func(limited bool, hook func(context.Context)) {
		if hook != nil {
			r.hookCalls.Add(func() { hook(r.valuesCtx) })
		}
		for _, o := range r.ep.observers.rateLimit {
			r.hookCalls.Add(func() { o.RateLimitChanged(r.valuesCtx, RateLimitChange{r.ep.observed, limited}) })
		}
	}
	return &ratelimit.Limiter{
		Threshold: c.ConsecutiveFailures,
		Filter:    c.Filter,
		OnPanic:   r.ep.observerPanicked,
		OnLimit: func() {
			r.pump.SetRateLimited(true)
			r.hookCalls.Add(func() {
				log.Warn("rate limiting began: one message is attempted at a time", "consecutive_failures", c.ConsecutiveFailures, "time_to_wait", c.TimeToWait)
			})
			notify(true, c.OnStarted)
		},
		OnProbe: func() { r.pump.WaitFor(pump.WaitRateLimited, c.TimeToWait) },
		OnNormal: func() {
			r.pump.SetRateLimited(false)
			r.hookCalls.Add(func() { log.Info("rate limiting ended") })
			notify(false, c.OnEnded)
		},
	}
}
