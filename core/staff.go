package core

import "time"

// This file controls the number of a pump's workers. All functions but thinOut are called
// with the pump's mu held.
//
// Where settlements overlap with handlers, there are as many workers beside the slots as
// slots, from the beginning. More workers are started one by one, when there is work and
// all workers wait for a settlement, up to the number of deliveries that may be without a
// slot. Workers that were idle for a whole staffPeriod end.

// staffing counts a pump's workers. Their total is the length of everyWorker.
type staffing struct {
	wanted   int         // workers above this number end
	idle     int         // waiting for wakeUp
	coming   int         // started, not running yet
	spare    int         // the lowest idle since thinning began
	thinning *time.Timer // set while there are more than leastStaff
}

// staffPeriod is the time after which a worker that is not needed ends.
const staffPeriod = time.Second

// leastStaff returns the initial number of workers.
func (p *pump) leastStaff() int {
	if p.overlap {
		return 2 * p.limit
	}
	return p.limit
}

// mostStaff returns the highest number of workers.
func (p *pump) mostStaff() int {
	if p.overlap {
		return p.limit + p.besideSlots(p.limit)
	}
	return p.limit
}

// adjustStaff adapts the number of workers to the current settings. Surplus workers end
// by themselves when they are woken.
func (p *pump) adjustStaff() {
	if p.stopping {
		p.staffing.stopThinning()
		return
	}
	p.staffing.wanted = min(max(p.staffing.wanted, p.leastStaff()), p.mostStaff())
	p.hire()
}

// hire starts the workers that are missing.
func (p *pump) hire() {
	for len(p.everyWorker) < p.staffing.wanted {
		w := &worker{pump: p}
		p.everyWorker[w] = struct{}{}
		p.staffing.coming++
		p.wg.Go(w.run)
	}
}

// mayHire reports whether one more worker can be started. A worker that is starting takes
// the waiting work, and wakes or starts the next.
func (p *pump) mayHire() bool {
	return p.overlap && !p.stopping && p.staffing.coming == 0 && p.staffing.wanted < p.mostStaff()
}

func (p *pump) hireOneMore() {
	p.staffing.wanted++
	p.hire()
	if p.staffing.thinning == nil {
		p.staffing.spare = p.staffing.idle
		p.staffing.thinning = time.AfterFunc(staffPeriod, p.thinOut)
	}
}

// thinOut ends the workers that were not needed in the last period.
func (p *pump) thinOut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &p.staffing
	if s.thinning == nil {
		return
	}
	leaving := min(s.spare, s.wanted-p.leastStaff())
	s.wanted -= leaving
	for range leaving {
		p.wakeUp.Signal()
	}
	s.thinning, s.spare = nil, s.idle
	if s.wanted > p.leastStaff() {
		s.thinning = time.AfterFunc(staffPeriod, p.thinOut)
	}
}

func (s *staffing) stopThinning() {
	if s.thinning != nil {
		s.thinning.Stop()
		s.thinning = nil
	}
}
