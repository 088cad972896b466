package pump

import (
	"context"
	"time"
)

// This file derives the slots, the workers and the receiver's MaxInFlight from the settings
// and the state of the pump.

// SetLimit changes the number of slots. If it becomes smaller, unstarted deliveries are
// released.
func (p *Pump[D, A]) SetLimit(limit int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requestedLimit = limit
	p.applyLimitsLocked()
}

// applyLimitsLocked updates the slots, the workers and the receiver's MaxInFlight to the
// current settings.
func (p *Pump[D, A]) applyLimitsLocked() {
	limit := p.requestedLimit
	if p.rateLimited {
		limit = 1
	}
	p.prefetchLimit = min(p.prefetchLimit, p.prefetchTargetLocked(limit))
	maxInFlight := p.receiverLimitLocked(limit)
	if p.isFetchStoppedLocked() || p.hasSuspectsLocked() && !p.isolation.probing {
		maxInFlight = 0
	}
	fewer := maxInFlight < p.maxInFlight || limit < p.limit
	p.limit = limit
	if maxInFlight != p.maxInFlight {
		p.maxInFlight = maxInFlight
		p.receiver.SetMaxInFlight(maxInFlight)
	}
	p.resizePoolLocked()
	if fewer {
		p.restartFetchLocked()
	}
	p.wakeUp.Broadcast()
}

// receiverLimitLocked returns the receiver's MaxInFlight for a given number of slots.
func (p *Pump[D, A]) receiverLimitLocked(limit int) int {
	if p.rateLimited || p.isolation.probing {
		return 1 + p.retained
	}
	n := limit + p.prefetchLimit + p.retained
	if p.rules.Prefetches {
		n += p.settlingLimitLocked(limit)
	}
	return n
}

// Retain adds n, which may be negative, to the number of deliveries kept without a slot:
// the receiver's MaxInFlight grows by n, so that none takes the place of another message.
func (p *Pump[D, A]) Retain(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.retained += n
	p.applyLimitsLocked()
}

// restartFetchLocked ends Receive calls in progress, so that they begin again with the
// current settings.
func (p *Pump[D, A]) restartFetchLocked() {
	p.interrupt()
	p.fetchCtx, p.interrupt = context.WithCancel(p.base)
}

// prefetchTargetLocked returns how many deliveries to prefetch beyond the free slots of a
// limit: none if one message at a time is attempted.
func (p *Pump[D, A]) prefetchTargetLocked(limit int) int {
	if !p.rules.Prefetches || p.rateLimited || p.stalled {
		return 0
	}
	return p.estimate.Target(limit, p.buffer.Room())
}

// measureLocked adds the time that a delivery had its slot.
func (p *Pump[D, A]) measureLocked(duration time.Duration) {
	p.estimate.Measure(duration)
	if target := p.prefetchTargetLocked(p.limit); p.estimate.Replaces(target, p.prefetchLimit, p.limit) {
		p.prefetchLimit = target
		p.applyLimitsLocked()
	}
}
