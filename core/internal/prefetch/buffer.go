package prefetch

import "slices"

// Buffer has the deliveries that were fetched and not started, in the order of their
// arrival, and counts their bytes.
type Buffer[T any] struct {
	Bytes
	// Size returns the bytes of a delivery. It is called only if there is a limit.
	Size func(T) int

	items []T
	head  int // of items: the deliveries before it have been taken
}

// Len returns the number of deliveries.
func (b *Buffer[T]) Len() int { return len(b.items) - b.head }

// Push adds deliveries. It reuses the room of taken ones, so that the buffer stays as
// small as its content.
func (b *Buffer[T]) Push(items ...T) {
	if b.head > 0 && len(b.items)+len(items) > cap(b.items) {
		n := copy(b.items, b.items[b.head:])
		clear(b.items[n:])
		b.items, b.head = b.items[:n], 0
	}
	b.items = append(b.items, items...)
	if b.Limit > 0 {
		for _, item := range items {
			b.Add(b.Size(item))
		}
	}
}

// Take removes the delivery that arrived first. There must be one.
func (b *Buffer[T]) Take() T {
	item := b.items[b.head]
	clear(b.items[b.head : b.head+1])
	b.head++
	b.removed(item)
	return item
}

// TakeLast removes the n deliveries that arrived last.
func (b *Buffer[T]) TakeLast(n int) []T {
	at := len(b.items) - n
	items := slices.Clone(b.items[at:])
	clear(b.items[at:])
	b.items = b.items[:at]
	b.removed(items...)
	return items
}

// removed counts the bytes of removed deliveries, and begins again at the start of an
// empty buffer.
func (b *Buffer[T]) removed(items ...T) {
	if b.Limit > 0 {
		for _, item := range items {
			b.Remove(b.Size(item))
		}
	}
	if b.head == len(b.items) {
		b.items, b.head = b.items[:0], 0
	}
}
