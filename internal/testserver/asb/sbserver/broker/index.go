package broker

import (
	"cmp"
	"container/heap"
	"slices"
)

// An index has messages in the order of their sequence numbers. A removed message stays
// in the list, marked as gone, until half of the list is gone: removal is O(1) on
// average.
type index struct {
	list []*message
	gone int
}

func (x *index) len() int { return len(x.list) - x.gone }

// add inserts a message. At the end, where most messages are added, that is O(1).
func (x *index) add(m *message) {
	if n := len(x.list); n == 0 || x.list[n-1].sequence < m.sequence {
		x.list = append(x.list, m)
		return
	}
	x.list = slices.Insert(x.list, x.from(m.sequence), m)
}

// from returns the position of the first message with at least the given sequence number.
func (x *index) from(sequence int64) int {
	i, _ := slices.BinarySearchFunc(x.list, sequence, func(m *message, s int64) int { return cmp.Compare(m.sequence, s) })
	return i
}

// get returns the message with a sequence number if it has the given state, else nil.
func (x *index) get(sequence int64, state messageState) *message {
	i := x.from(sequence)
	if i == len(x.list) || x.list[i].sequence != sequence || x.list[i].state != state {
		return nil
	}
	return x.list[i]
}

// remove counts a message that was marked as gone.
func (x *index) remove() {
	x.gone++
	if x.gone > 64 && x.gone > len(x.list)/2 {
		x.list = slices.DeleteFunc(x.list, func(m *message) bool { return m.state == gone })
		x.gone = 0
	}
}

// each calls f with the messages from a sequence number on until it returns false.
func (x *index) each(from int64, f func(*message) bool) {
	for _, m := range x.list[x.from(from):] {
		if m.state != gone && !f(m) {
			return
		}
	}
}

// all returns the messages, for callers that change the index.
func (x *index) all() []*message {
	all := make([]*message, 0, x.len())
	x.each(0, func(m *message) bool { all = append(all, m); return true })
	return all
}

// An availableHeap has messages that can be delivered, the lowest sequence number first.
type availableHeap []*message

func (h availableHeap) Len() int           { return len(h) }
func (h availableHeap) Less(i, j int) bool { return h[i].sequence < h[j].sequence }

func (h availableHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].position, h[j].position = i, j
}

func (h *availableHeap) Push(x any) {
	m := x.(*message)
	m.position = len(*h)
	*h = append(*h, m)
}

func (h *availableHeap) Pop() any {
	last := len(*h) - 1
	m := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return m
}

func (h *availableHeap) add(m *message)    { heap.Push(h, m) }
func (h *availableHeap) remove(m *message) { heap.Remove(h, m.position) }
