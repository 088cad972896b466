package pump

import "time"

// This file controls the number of a pump's workers.
//
// Where deliveries are settled without a slot, there are as many workers beside the slots
// as slots, from the beginning. More workers are started one by one, when there is work
// and all workers wait for a settlement, up to the number of deliveries that may be
// without a slot. Workers that were idle for a whole workerIdleTimeout end.

// workerPool counts a pump's workers. Their total is the length of pump.workers.
type workerPool[D, A any] struct {
	run         func(*Worker[D, A]) // a worker's goroutine
	target      int                 // workers above this number end
	idle        int                 // waiting for wakeUp
	starting    int                 // started, not running yet
	minIdle     int                 // the lowest idle since shrinkTimer was set
	shrinkTimer *time.Timer         // set while there are more than minWorkersLocked
}

// workerIdleTimeout is the time after which a worker that is not needed ends.
const workerIdleTimeout = time.Second

// minWorkersLocked returns the initial number of workers.
func (p *Pump[D, A]) minWorkersLocked() int {
	if p.rules.Prefetches {
		return 2 * p.limit
	}
	return p.limit
}

// maxWorkersLocked returns the highest number of workers.
func (p *Pump[D, A]) maxWorkersLocked() int {
	if p.rules.Prefetches {
		return p.limit + p.settlingLimitLocked(p.limit)
	}
	return p.limit
}

// resizePoolLocked adapts the number of workers to the current settings. Surplus workers
// end by themselves when they are woken.
func (p *Pump[D, A]) resizePoolLocked() {
	if p.stopping {
		p.pool.stopShrinkingLocked()
		return
	}
	p.pool.target = min(max(p.pool.target, p.minWorkersLocked()), p.maxWorkersLocked())
	p.spawnLocked()
}

// spawnLocked starts the workers that are missing.
func (p *Pump[D, A]) spawnLocked() {
	for len(p.workers) < p.pool.target {
		w := &Worker[D, A]{pump: p}
		p.workers[w] = struct{}{}
		p.pool.starting++
		p.wg.Go(func() { p.pool.run(w) })
	}
}

// canSpawnLocked reports whether one more worker can be started. A worker that is
// starting takes the waiting work, and wakes or starts the next.
func (p *Pump[D, A]) canSpawnLocked() bool {
	return p.rules.Prefetches && !p.stopping && p.pool.starting == 0 && p.pool.target < p.maxWorkersLocked()
}

func (p *Pump[D, A]) spawnOneLocked() {
	p.pool.target++
	p.spawnLocked()
	if p.pool.shrinkTimer == nil {
		p.pool.minIdle = p.pool.idle
		p.pool.shrinkTimer = time.AfterFunc(workerIdleTimeout, p.shrinkPool)
	}
}

// shrinkPool ends the workers that were not needed in the last period.
func (p *Pump[D, A]) shrinkPool() {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &p.pool
	if s.shrinkTimer == nil {
		return
	}
	surplus := min(s.minIdle, s.target-p.minWorkersLocked())
	s.target -= surplus
	for range surplus {
		p.wakeUp.Signal()
	}
	s.shrinkTimer, s.minIdle = nil, s.idle
	if s.target > p.minWorkersLocked() {
		s.shrinkTimer = time.AfterFunc(workerIdleTimeout, p.shrinkPool)
	}
}

func (s *workerPool[D, A]) stopShrinkingLocked() {
	if s.shrinkTimer != nil {
		s.shrinkTimer.Stop()
		s.shrinkTimer = nil
	}
}
