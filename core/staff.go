package core

import "time"

// This file is how many workers a pump has. All but thinOut is called with the
// pump's mu held.
//
// Where settlements overlap with handlers, there are as many workers beside the
// slots as slots, from the beginning. More are hired one by one, when there is
// something to do and everybody waits for a settlement, up to what may be held
// without a slot. Those that were idle for all of a staffPeriod leave again.

// staffing is a pump's workers in numbers. All that there are is the number of
// everyWorker.
type staffing struct {
	wanted   int         // those that are more leave
	idle     int         // waiting for wakeUp
	coming   int         // hired, not running yet
	spare    int         // the fewest that were idle since thinning began
	thinning *time.Timer // while there are more than the least
}

// staffPeriod is how long a worker that is not needed stays.
const staffPeriod = time.Second

// leastStaff is how many workers there are from the beginning.
func (p *pump) leastStaff() int {
	if p.overlap {
		return 2 * p.limit
	}
	return p.limit
}

// mostStaff is how many workers there can be.
func (p *pump) mostStaff() int {
	if p.overlap {
		return p.limit + p.besideSlots(p.limit)
	}
	return p.limit
}

// adjustStaff brings the number of workers in line with what holds now. Those that
// are too many leave by themselves, when they are woken.
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

// mayHire reports whether one more worker can be hired. One that is on its way
// does what there is to do, and wakes or hires the next.
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

// thinOut lets those workers go that were not needed in the period that ends.
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
