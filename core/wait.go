package core

import "time"

// waitReason is the reason why a pump neither fetches nor starts for a while.
type waitReason int

const (
	waitRateLimited waitReason = iota // after a failure in rate-limited mode
	waitPutBack                       // after a message was put back
)

// waitFor stops fetching and starting for d from now; it replaces a wait for the same
// reason. Unstarted deliveries are given back, unless the broker would count that as an
// attempt and the wait is short.
func (p *pump) waitFor(reason waitReason, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopping {
		return
	}
	p.waits[reason] = time.Now().Add(d)
	if p.waiting == nil {
		p.waiting = time.AfterFunc(d, p.waited)
		p.apply()
		p.watchStall()
	}
	if d >= hangWindow {
		p.hang()
	}
}

// endWait ends the wait for a reason early.
func (p *pump) endWait(reason waitReason) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endWaitLocked(reason)
	p.apply()
}

// waitsUntil returns when the wait for a reason ends, or the zero time.
func (p *pump) waitsUntil(reason waitReason) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiting == nil {
		return time.Time{}
	}
	return p.waits[reason]
}

// lastWaitLocked returns when the last wait ends.
func (p *pump) lastWaitLocked() (last time.Time) {
	for _, until := range p.waits {
		if until.After(last) {
			last = until
		}
	}
	return last
}

// waited is called by the timer.
func (p *pump) waited() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiting == nil {
		return
	}
	if left := time.Until(p.lastWaitLocked()); left > 0 { // it was extended
		p.waiting = time.AfterFunc(left, p.waited)
		return
	}
	p.endWaitsLocked()
	p.apply()
}

// endWaitLocked ends the wait for a reason. A wait for another reason continues.
func (p *pump) endWaitLocked(reason waitReason) {
	p.waits[reason] = time.Time{}
	switch left := time.Until(p.lastWaitLocked()); {
	case left <= 0:
		p.endWaitsLocked()
	case p.waiting != nil:
		p.waiting.Reset(left)
	}
}

func (p *pump) endWaitsLocked() {
	p.waits = [len(p.waits)]time.Time{}
	if p.waiting != nil {
		stopTimer(&p.waiting)
		p.endStall()
	}
}

func stopTimer(t **time.Timer) {
	if *t != nil {
		(*t).Stop()
		*t = nil
	}
}
