package pump

import (
	"context"
	"time"

	"github.com/reprise-go/reprise/core/internal/prefetch"
)

// This file gives prefetched deliveries back when no slot becomes free for them.

const (
	// StallTimeout is the time for which all slots may hang before unstarted deliveries are
	// released to other instances.
	StallTimeout = time.Second
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
func (p *Pump[D, A]) watchStallLocked() {
	if !p.rules.Prefetches || p.stallTimer != nil || p.stopping || p.buffer.Len() == 0 && !p.mayHavePrefetchedLocked() {
		return
	}
	released := p.releasedSlots
	p.stallTimer = time.AfterFunc(StallTimeout, func() { p.checkStall(released) })
}

// mayHavePrefetchedLocked reports whether the receiver may keep deliveries that wait for
// a slot, or until starting is allowed again.
func (p *Pump[D, A]) mayHavePrefetchedLocked() bool {
	return p.rules.CountsReleases && (p.busySlots > 0 || p.fetchPauses > 0 || p.waitTimer != nil)
}

// checkStall ends prefetching if no slot was released since the last check.
func (p *Pump[D, A]) checkStall(released int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stallTimer == nil { // stopped
		return
	}
	p.stallTimer = nil
	starts := p.busySlots < p.limit && (!p.isFetchStoppedLocked() || p.handlesPrefetchedLocked())
	if p.releasedSlots != released || starts || p.buffer.Len() == 0 && !p.rules.CountsReleases {
		p.stallCount = 0
		p.watchStallLocked()
		return
	}
	p.stallCount++
	p.stalled = true
	p.applyLimitsLocked()
	if p.rules.CountsReleases && time.Duration(p.stallCount)*StallTimeout >= hangTimeout {
		p.releaseHungLocked()
	}
	p.watchStallLocked()
}

// releaseHungLocked releases prefetched deliveries although the broker counts that as an
// attempt: nothing was started for too long, and other instances could handle them.
func (p *Pump[D, A]) releaseHungLocked() {
	if !p.rules.CountsReleases || p.hanging {
		return
	}
	p.hanging = true
	p.applyLimitsLocked() // the receiver fetches nothing more
	p.releasePrefetchedLocked()
}

// endStallLocked is called when a slot is released, or a wait has ended.
func (p *Pump[D, A]) endStallLocked() {
	p.stalled, p.stallCount = false, 0
	if p.hanging && !p.stopping && p.fetchPauses == 0 && p.waitTimer == nil {
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
func (p *Pump[D, A]) releasePrefetchedLocked() {
	if !p.rules.CountsReleases || !p.rules.Prefetches || p.prefetchRelease != nil {
		return
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(p.base))
	r := &prefetchRelease{stop, make(chan struct{})}
	p.prefetchRelease = r
	go func() {
		defer close(r.done)
		deliveries := make([]D, prefetch.MaxCounted)
		for {
			n, err := p.receiver.Receive(ctx, deliveries)
			for _, d := range deliveries[:min(max(n, 0), len(deliveries))] {
				if any(d) != nil {
					p.calls.Release(p.calls.Fetched(d))
				}
			}
			if err != nil || n <= 0 {
				return
			}
		}
	}()
}

// endPrefetchReleaseLocked ends the run of releasePrefetchedLocked.
func (p *Pump[D, A]) endPrefetchReleaseLocked() {
	if p.prefetchRelease != nil {
		p.prefetchRelease.stop()
		p.prefetchRelease = nil
	}
}
