package pump

import (
	"time"

	"github.com/reprise-go/reprise/core/internal/timers"
)

// This file stops and resumes fetching: for a while, until a pause ends, and for
// good.

// WaitReason is the reason why a pump neither fetches nor starts for a while.
type WaitReason int

const (
	WaitRateLimited WaitReason = iota // after a failure in rate-limited mode
	WaitPutBack                       // after a message was put back
)

// WaitFor stops fetching and starting for d from now; it replaces a wait for the same
// reason. Unstarted deliveries are released, unless the broker would count that as an
// attempt and the wait is short.
func (p *Pump[D, A]) WaitFor(reason WaitReason, d time.Duration) {
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

// WaitsUntil returns when the wait for a reason ends, or the zero time.
func (p *Pump[D, A]) WaitsUntil(reason WaitReason) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waitTimer == nil {
		return time.Time{}
	}
	return p.waitEnds[reason]
}

// lastWaitLocked returns when the last wait ends.
func (p *Pump[D, A]) lastWaitLocked() (last time.Time) {
	for _, end := range p.waitEnds {
		if end.After(last) {
			last = end
		}
	}
	return last
}

// waitEnded is called by the timer.
func (p *Pump[D, A]) waitEnded() {
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
func (p *Pump[D, A]) endWaitLocked(reason WaitReason) {
	p.waitEnds[reason] = time.Time{}
	switch left := time.Until(p.lastWaitLocked()); {
	case left <= 0:
		p.endWaitsLocked()
	case p.waitTimer != nil:
		p.waitTimer.Reset(left)
	}
}

func (p *Pump[D, A]) endWaitsLocked() {
	p.waitEnds = [len(p.waitEnds)]time.Time{}
	if p.waitTimer != nil {
		timers.Stop(&p.waitTimer)
		p.endStallLocked()
	}
}

// SetPaused stops or resumes fetching for the application. Unstarted deliveries are
// released or, if the broker would count that as an attempt, handled.
func (p *Pump[D, A]) SetPaused(paused bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.paused = paused
	p.applyLimitsLocked()
}

// PauseFetching stops fetching and starting, until ResumeFetching was called as often.
func (p *Pump[D, A]) PauseFetching() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fetchPauses++
	p.applyLimitsLocked()
	p.watchStallLocked()
}

// ResumeFetching ends one PauseFetching.
func (p *Pump[D, A]) ResumeFetching() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fetchPauses--
	p.endStallLocked()
	p.applyLimitsLocked()
}

// SetRateLimited reduces the slots to one, or ends this mode and its wait.
func (p *Pump[D, A]) SetRateLimited(limited bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rateLimited = limited
	if !limited {
		p.endWaitLocked(WaitRateLimited)
	}
	p.applyLimitsLocked()
}

// Stop ends fetching; workers end with the deliveries they have.
func (p *Pump[D, A]) Stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopLocked()
}

func (p *Pump[D, A]) stopLocked() {
	p.stopping = true
	p.endWaitsLocked()
	timers.Stop(&p.stallTimer)
	timers.Stop(&p.slowTimer)
	p.isolation.stopTimersLocked()
	p.applyLimitsLocked()
	p.interrupt()
	p.releasePrefetchedLocked()
}
