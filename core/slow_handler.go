package core

import "time"

// This file watches attempts that take long (Config.SlowHandler).

// oldestAttempt returns the duration of the longest running attempt.
func (p *pump) oldestAttempt() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	var oldest time.Duration
	for w := range p.workers {
		if w.hasSlot {
			oldest = max(oldest, time.Since(w.slotStart))
		}
	}
	return oldest
}

// reportSlow calls onSlow for attempts that have been running for slowAfter.
func (p *pump) reportSlow() {
	p.mu.Lock()
	if p.slowTimer == nil {
		p.mu.Unlock()
		return
	}
	next := time.Duration(-1)
	var found []*attempt
	var running []time.Duration
	for w := range p.workers {
		if !w.hasSlot || w.slowReported {
			continue
		}
		age := time.Since(w.slotStart)
		if left := p.slowAfter - age; left > 0 {
			if next < 0 || left < next {
				next = left
			}
			continue
		}
		w.slowReported = true
		if a := w.current.Load(); a != nil {
			found, running = append(found, a), append(running, age)
		}
	}
	p.slowTimer = nil
	if next >= 0 {
		p.slowTimer = time.AfterFunc(next, p.reportSlow)
	}
	p.mu.Unlock()
	for i, a := range found { // without the lock: it logs
		p.onSlow(a, running[i])
	}
}
