//go:build darwin || linux

package sqs

// A heap is a binary heap whose items know their index, so that any of them can be
// removed or moved in logarithmic time.
type heap[T any] struct {
	items []T
	less  func(a, b T) bool
	index func(item T, i int) // called with each item's new index; -1: it was removed
}

func (h *heap[T]) push(item T) {
	h.items = append(h.items, item)
	h.index(item, len(h.items)-1)
	h.up(len(h.items) - 1)
}

// peek returns the least item, or false if there is none.
func (h *heap[T]) peek() (least T, ok bool) {
	if len(h.items) == 0 {
		return least, false
	}
	return h.items[0], true
}

func (h *heap[T]) remove(i int) T {
	item, last := h.items[i], len(h.items)-1
	h.swap(i, last)
	var none T
	h.items[last] = none
	h.items = h.items[:last]
	h.index(item, -1)
	if i < last {
		h.fix(i)
	}
	return item
}

// fix restores the order after the item at i has changed.
func (h *heap[T]) fix(i int) {
	if !h.down(i) {
		h.up(i)
	}
}

func (h *heap[T]) swap(i, j int) {
	if i == j {
		return
	}
	h.items[i], h.items[j] = h.items[j], h.items[i]
	h.index(h.items[i], i)
	h.index(h.items[j], j)
}

func (h *heap[T]) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !h.less(h.items[i], h.items[parent]) {
			return
		}
		h.swap(i, parent)
		i = parent
	}
}

func (h *heap[T]) down(i int) (moved bool) {
	for {
		child := 2*i + 1
		if child >= len(h.items) {
			return moved
		}
		if right := child + 1; right < len(h.items) && h.less(h.items[right], h.items[child]) {
			child = right
		}
		if !h.less(h.items[child], h.items[i]) {
			return moved
		}
		h.swap(i, child)
		i, moved = child, true
	}
}
