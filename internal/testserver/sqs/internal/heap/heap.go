// Package heap has a heap from which any item can be removed.
package heap

// A Heap is a binary heap whose items know their index, so that any of them can be
// removed or moved in logarithmic time.
type Heap[T any] struct {
	Items []T
	Less  func(a, b T) bool
	Index func(item T, i int) // called with each item's new index; -1: it was removed
}

// Push adds an item.
func (h *Heap[T]) Push(item T) {
	h.Items = append(h.Items, item)
	h.Index(item, len(h.Items)-1)
	h.up(len(h.Items) - 1)
}

// Peek returns the first item, or false if there is none.
func (h *Heap[T]) Peek() (first T, ok bool) {
	if len(h.Items) == 0 {
		return first, false
	}
	return h.Items[0], true
}

// Remove removes and returns the item at i.
func (h *Heap[T]) Remove(i int) T {
	item, last := h.Items[i], len(h.Items)-1
	h.swap(i, last)
	var none T
	h.Items[last] = none
	h.Items = h.Items[:last]
	h.Index(item, -1)
	if i < last {
		h.Fix(i)
	}
	return item
}

// Fix restores the order after the item at i has changed.
func (h *Heap[T]) Fix(i int) {
	if !h.down(i) {
		h.up(i)
	}
}

func (h *Heap[T]) swap(i, j int) {
	if i == j {
		return
	}
	h.Items[i], h.Items[j] = h.Items[j], h.Items[i]
	h.Index(h.Items[i], i)
	h.Index(h.Items[j], j)
}

func (h *Heap[T]) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !h.Less(h.Items[i], h.Items[parent]) {
			return
		}
		h.swap(i, parent)
		i = parent
	}
}

func (h *Heap[T]) down(i int) (moved bool) {
	for {
		child := 2*i + 1
		if child >= len(h.Items) {
			return moved
		}
		if right := child + 1; right < len(h.Items) && h.Less(h.Items[right], h.Items[child]) {
			child = right
		}
		if !h.Less(h.Items[child], h.Items[i]) {
			return moved
		}
		h.swap(i, child)
		i, moved = child, true
	}
}
