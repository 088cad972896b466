package broker

import "container/heap"

// An event is a moment at which the broker acts without a request: a lock, a schedule or
// a time to live ends. Its owner embeds it, so that it can be moved and removed in O(log
// n).
type event struct {
	at       instant
	serial   uint64 // orders events at the same moment by when they were set
	position int    // in the agenda, plus one; 0: not in the agenda
	owner    interface{ fireLocked(ev *event) }
}

// An agenda has the future events, in a heap.
type agenda struct {
	events eventHeap
	serial uint64
}

// set puts an event into the agenda, or moves it.
func (a *agenda) set(ev *event, at instant) {
	a.serial++
	ev.at, ev.serial = at, a.serial
	if ev.position > 0 {
		heap.Fix(&a.events, ev.position-1)
		return
	}
	heap.Push(&a.events, ev)
}

// remove removes an event from the agenda if it is there.
func (a *agenda) remove(ev *event) {
	if ev.position > 0 {
		heap.Remove(&a.events, ev.position-1)
	}
}

// pop removes and returns the first event if it is due.
func (a *agenda) pop(now instant) *event {
	if len(a.events) == 0 || a.events[0].at > now {
		return nil
	}
	return heap.Pop(&a.events).(*event)
}

// next returns the time of the first event, 0 if there is none.
func (a *agenda) next() instant {
	if len(a.events) == 0 {
		return 0
	}
	return a.events[0].at
}

type eventHeap []*event

func (h eventHeap) Len() int { return len(h) }

func (h eventHeap) Less(i, j int) bool {
	if h[i].at != h[j].at {
		return h[i].at < h[j].at
	}
	return h[i].serial < h[j].serial
}

func (h eventHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].position, h[j].position = i+1, j+1
}

func (h *eventHeap) Push(x any) {
	ev := x.(*event)
	*h = append(*h, ev)
	ev.position = len(*h)
}

func (h *eventHeap) Pop() any {
	last := len(*h) - 1
	ev := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	ev.position = 0
	return ev
}
