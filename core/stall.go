package core

import (
	"context"
	"time"

	"github.com/reprise-go/reprise/core/internal/prefetch"
)

// This file gives prefetched deliveries back when no slot becomes free for them.

const (
	// stallTimeout is the time for which all slots may hang before unstarted deliveries are
	// released to other instances.
	stallTimeout = time.Second
	// hangTimeout is the time without a start after which unstarted deliveries are released
	// if the broker counts that as an attempt: longer than handlers wait for a service that
	// is unavailable.
	hangTimeout = 2 * time.Minute
)

// watchStallLocked starts to check whether all slots hang while deliveries are
// prefetched: the duration of a handler is measured when it ends, and hanging handlers
// may never end.
//
// If the broker counts releases, the receiver may have prefetched deliveries that the
// pump does not know of, and keeps them while nothing is to be started.
func (p *pump) watchStallLocked() {
	if !p.prefetches || p.stallTimer != nil || p.stopping || p.buffer.Len() == 0 && !p.mayHavePrefetchedLocked() {
		return
	}
	released := p.releasedSlots
	p.stallTimer = time.AfterFunc(stallTimeout, func() { p.checkStall(released) })
}

// mayHavePrefetchedLocked reports whether the receiver may keep deliveries that wait for
// a slot, or until starting is allowed again.
func (p *pump) mayHavePrefetchedLocked() bool {
	return p.countsReleases && (p.busySlots > 0 || p.fetchPauses > 0 || p.waitTimer != nil)
}

// checkStall ends prefetching if no slot was released since the last check.
func (p *pump) checkStall(released int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stallTimer == nil { // stopped
		return
	}
	p.stallTimer = nil
	starts := p.busySlots < p.limit && (!p.isFetchStoppedLocked() || p.handlesPrefetchedLocked())
	if p.releasedSlots != released || starts || p.buffer.Len() == 0 && !p.countsReleases {
		p.stallCount = 0
		p.watchStallLocked()
		return
	}
	p.stallCount++
	p.stalled = true
	p.applyLimitsLocked()
	if p.countsReleases && time.Duration(p.stallCount)*stallTimeout >= hangTimeout {
		p.releaseHungLocked()
	}
	p.watchStallLocked()
}

// releaseHungLocked releases prefetched deliveries although the broker counts that as an
// attempt: nothing was started for too long, and other instances could handle them.
func (p *pump) releaseHungLocked() {
	if !p.countsReleases || p.hanging {
		return
	}
	p.hanging = true
	p.applyLimitsLocked() // the receiver fetches nothing more
	p.releasePrefetchedLocked()
}

// endStallLocked is called when a slot is released, or a wait has ended.
func (p *pump) endStallLocked() {
	p.stalled, p.stallCount = false, 0
	if p.hanging && !p.stopping && !p.parked && p.fetchPauses == 0 && p.waitTimer == nil {
		p.hanging = false
		p.endPrefetchReleaseLocked()
		p.applyLimitsLocked()
	}
}

// prefetchRelease is one run of releasePrefetchedLocked.
type prefetchRelease struct {
	stop context.CancelFunc
	done chan struct{}
}

// releasePrefetchedLocked starts to take prefetched deliveries from the receiver and to
// release them. If the broker does not count releases, the receiver does so by itself
// when its limit is 0.
func (p *pump) releasePrefetchedLocked() {
	if !p.countsReleases || !p.prefetches || p.prefetchRelease != nil {
		return
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(p.base))
	r := &prefetchRelease{stop, make(chan struct{})}
	p.prefetchRelease = r
	go func() {
		defer close(r.done)
		deliveries := make([]Delivery, prefetch.MaxCounted)
		for {
			n, err := p.receiver.Receive(ctx, deliveries)
			for _, d := range deliveries[:min(max(n, 0), len(deliveries))] {
				if d != nil {
					p.release(fetchedDelivery{d, p.watch(d)})
				}
			}
			if err != nil || n <= 0 {
				return
			}
		}
	}()
}

// endPrefetchReleaseLocked ends the run of releasePrefetchedLocked.
func (p *pump) endPrefetchReleaseLocked() {
	if p.prefetchRelease != nil {
		p.prefetchRelease.stop()
		p.prefetchRelease = nil
	}
}
