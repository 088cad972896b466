package core

import "time"

// This file stops and resumes fetching: for a while, until a pause or parking ends, and for
// good.

// waitReason is the reason why a pump neither fetches nor starts for a while.
type waitReason int

const (
	waitRateLimited waitReason = iota // after a failure in rate-limited mode
	waitPutBack                       // after a message was put back
)

// waitFor stops fetching and starting for d from now; it replaces a wait for the same
// reason. Unstarted deliveries are released, unless the broker would count that as an
// attempt and the wait is short.
func (p *pump) waitFor(reason waitReason, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopping {
		return
	}
	p.waitEnds[reason] = time.Now().Add(d)
	if p.waitTimer == nil {
		p.waitTimer = time.AfterFunc(d, p.waitEnded)
		p.applyLimitsLocked()
		p.watchStallLocked()
	}
	if d >= hangTimeout {
		p.releaseHungLocked()
	}
}

// endWait ends the wait for a reason early.
func (p *pump) endWait(reason waitReason) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endWaitLocked(reason)
	p.applyLimitsLocked()
}

// waitsUntil returns when the wait for a reason ends, or the zero time.
func (p *pump) waitsUntil(reason waitReason) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waitTimer == nil {
		return time.Time{}
	}
	return p.waitEnds[reason]
}

// lastWaitLocked returns when the last wait ends.
func (p *pump) lastWaitLocked() (last time.Time) {
	for _, until := range p.waitEnds {
		if until.After(last) {
			last = until
		}
	}
	return last
}

// waitEnded is called by the timer.
func (p *pump) waitEnded() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waitTimer == nil {
		return
	}
	if left := time.Until(p.lastWaitLocked()); left > 0 { // it was extended
		p.waitTimer = time.AfterFunc(left, p.waitEnded)
		return
	}
	p.endWaitsLocked()
	p.applyLimitsLocked()
}

// endWaitLocked ends the wait for a reason. A wait for another reason continues.
func (p *pump) endWaitLocked(reason waitReason) {
	p.waitEnds[reason] = time.Time{}
	switch left := time.Until(p.lastWaitLocked()); {
	case left <= 0:
		p.endWaitsLocked()
	case p.waitTimer != nil:
		p.waitTimer.Reset(left)
	}
}

func (p *pump) endWaitsLocked() {
	p.waitEnds = [len(p.waitEnds)]time.Time{}
	if p.waitTimer != nil {
		stopTimer(&p.waitTimer)
		p.endStallLocked()
	}
}

// setPaused stops or resumes fetching for the application. Unstarted deliveries are
// released or, if the broker would count that as an attempt, handled.
func (p *pump) setPaused(paused bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.paused = paused
	p.applyLimitsLocked()
}

// setParked stops fetching and releases unstarted deliveries, or resumes fetching.
func (p *pump) setParked(parked bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.parked = parked
	if !parked {
		p.endStallLocked()
	}
	p.applyLimitsLocked()
	if parked && !p.stopping {
		p.releaseHungLocked()
	}
}

// pauseFetching stops fetching and starting, until resumeFetching was called as often.
func (p *pump) pauseFetching() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fetchPauses++
	p.applyLimitsLocked()
	p.watchStallLocked()
}

func (p *pump) resumeFetching() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fetchPauses--
	p.endStallLocked()
	p.applyLimitsLocked()
}

// setRateLimited reduces the slots to one, or ends this mode and its wait.
func (p *pump) setRateLimited(limited bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rateLimited = limited
	if !limited {
		p.endWaitLocked(waitRateLimited)
	}
	p.applyLimitsLocked()
}

// stop ends fetching; workers end with the deliveries they have.
func (p *pump) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopLocked()
}

func (p *pump) stopLocked() {
	p.stopping = true
	p.endWaitsLocked()
	stopTimer(&p.stallTimer)
	stopTimer(&p.slowTimer)
	p.isolation.stopTimersLocked()
	p.applyLimitsLocked()
	p.interrupt()
	p.releasePrefetchedLocked()
}
