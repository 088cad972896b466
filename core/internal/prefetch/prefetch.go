// Package prefetch computes how many deliveries are worth fetching before a slot is free.
//
// A fetch and a settlement cost about the same for one message and for a hundred. For fast
// handlers a large number of deliveries is therefore prefetched, regardless of the number
// of slots: as many as they handle in targetQueueTime. For slow handlers few or none are
// prefetched: other instances could handle them.
package prefetch

import (
	"math"
	"time"
)

const (
	// maxQueueTime is the longest expected wait of an unstarted delivery.
	maxQueueTime = 500 * time.Millisecond
	// targetQueueTime is the same limit if more deliveries are prefetched than there are
	// slots.
	targetQueueTime = 20 * time.Millisecond
)

// Max limits the prefetched deliveries if there are fewer slots than that, and MaxCounted
// limits them if the broker counts a release as an attempt: those cannot be released if
// handlers become slow.
const (
	Max        = 1024
	MaxCounted = 256
)

// Estimate computes the number of deliveries from the measured time of handlers.
type Estimate struct {
	// Max limits the deliveries beyond a smaller number of slots.
	Max int

	averageTime time.Duration // moving average of the time a delivery has its slot
	samples     int           // deliveries in averageTime, up to Max
}

// Measure adds the time that a delivery had its slot.
func (e *Estimate) Measure(duration time.Duration) {
	if e.samples == 0 {
		e.averageTime = duration
	}
	e.averageTime += (duration - e.averageTime) / 8
	e.samples = min(e.samples+1, e.Max)
}

// Target returns how many deliveries to prefetch beyond the free ones of these slots, of
// which no more than room: as many as there are slots, more if handlers are fast, fewer
// if they are slow, none while that is unknown. One fast handler says nothing about the
// next: beyond the number of slots, no more are prefetched than were measured.
func (e *Estimate) Target(slots, room int) int {
	switch {
	case e.samples == 0:
		return 0
	case e.averageTime > maxQueueTime:
		return min(e.handledWithin(slots, maxQueueTime), room)
	}
	return min(max(slots, min(e.handledWithin(slots, targetQueueTime), e.Max, e.samples)), room)
}

// Keep returns how many prefetched deliveries may go on waiting for handlers that were
// fast before: they are not released because one handler took longer.
func (e *Estimate) Keep(slots int) int {
	if e.samples == 0 {
		return 0
	}
	return min(e.handledWithin(slots, maxQueueTime), e.Max)
}

// Replaces reports whether target replaces the limit, which the receiver is told: only
// after large changes, at the maximum, and when no more deliveries than slots may be
// prefetched any longer.
func (e *Estimate) Replaces(target, limit, slots int) bool {
	switch {
	case target == limit:
		return false
	case target > limit:
		return target >= 2*limit || target == e.Max
	default:
		return 2*target <= limit || target <= slots && limit > slots
	}
}

// handledWithin returns how many deliveries these slots handle in a window.
func (e *Estimate) handledWithin(slots int, window time.Duration) int {
	return int(min(time.Duration(slots)*window/max(e.averageTime, 1), math.MaxInt32))
}
