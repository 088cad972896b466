package clock

import "container/heap"

// An Event is a moment at which the broker acts without a request: a lock, a schedule or
// a time to live ends. Its owner embeds it, so that it can be moved and removed in O(log
// n).
type Event struct {
	at       Instant
	serial   uint64 // orders events at the same moment by when they were set
	position int    // in the agenda, plus one; 0: not in the agenda
	Owner    interface{ FireLocked(ev *Event) }
}

// An Agenda has the future events, in a heap.
type Agenda struct {
	events eventHeap
	serial uint64
}

// IsSet reports whether an event is in an agenda.
func (ev *Event) IsSet() bool { return ev.position > 0 }

// Set puts an event into the agenda, or moves it.
func (a *Agenda) Set(ev *Event, at Instant) {
	a.serial++
	ev.at, ev.serial = at, a.serial
	if ev.position > 0 {
		heap.Fix(&a.events, ev.position-1)
		return
	}
	heap.Push(&a.events, ev)
}

// Remove removes an event from the agenda if it is there.
func (a *Agenda) Remove(ev *Event) {
	if ev.position > 0 {
		heap.Remove(&a.events, ev.position-1)
	}
}

// Pop removes and returns the first event if it is due.
func (a *Agenda) Pop(now Instant) *Event {
	if len(a.events) == 0 || a.events[0].at > now {
		return nil
	}
	return heap.Pop(&a.events).(*Event)
}

// Next returns the time of the first event, 0 if there is none.
func (a *Agenda) Next() Instant {
	if len(a.events) == 0 {
		return 0
	}
	return a.events[0].at
}

type eventHeap []*Event

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
	ev := x.(*Event)
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
