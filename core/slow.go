package core

import "time"

// This file watches attempts that take long.

// oldest returns the duration of the longest running attempt.
func (p *pump) oldest() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	var oldest time.Duration
	for w := range p.everyWorker {
		if w.occupied {
			oldest = max(oldest, time.Since(w.since))
		}
	}
	return oldest
}

// watchSlow calls onSlow for attempts that have been running for slow.
func (p *pump) watchSlow() {
	p.mu.Lock()
	if p.slowTimer == nil {
		p.mu.Unlock()
		return
	}
	next := time.Duration(-1)
	var found []*attempt
	var running []time.Duration
	for w := range p.everyWorker {
		if !w.occupied || w.told {
			continue
		}
		age := time.Since(w.since)
		if left := p.slow - age; left > 0 {
			if next < 0 || left < next {
				next = left
			}
			continue
		}
		w.told = true
		if a := w.current.Load(); a != nil {
			found, running = append(found, a), append(running, age)
		}
	}
	p.slowTimer = nil
	if next >= 0 {
		p.slowTimer = time.AfterFunc(next, p.watchSlow)
	}
	p.mu.Unlock()
	for i, a := range found { // without the lock: it logs
		p.onSlow(a, running[i])
	}
}
