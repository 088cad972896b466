package inmemory

// ring is a double-ended queue in one array, which grows and shrinks with its content. A
// slice used as a queue would keep its largest size, and a linked list costs an
// allocation per element.
type ring[T any] struct {
	items []T // len is 0 or a power of two
	head  int // index of the first element
	count int
}

const minRing = 16

func (r *ring[T]) len() int { return r.count }

func (r *ring[T]) at(i int) T { return r.items[(r.head+i)&(len(r.items)-1)] }

func (r *ring[T]) set(i int, item T) { r.items[(r.head+i)&(len(r.items)-1)] = item }

func (r *ring[T]) pushBack(item T) {
	if r.count == len(r.items) {
		r.resize(max(minRing, 2*r.count))
	}
	r.items[(r.head+r.count)&(len(r.items)-1)] = item
	r.count++
}

func (r *ring[T]) pushFront(item T) {
	if r.count == len(r.items) {
		r.resize(max(minRing, 2*r.count))
	}
	r.head = (r.head - 1) & (len(r.items) - 1)
	r.items[r.head] = item
	r.count++
}

// popFront removes and returns the first element, or the zero value if there is none.
func (r *ring[T]) popFront() T {
	var zero T
	if r.count == 0 {
		return zero
	}
	item := r.items[r.head]
	r.items[r.head] = zero
	r.head = (r.head + 1) & (len(r.items) - 1)
	r.count--
	if len(r.items) > 4*minRing && r.count <= len(r.items)/8 {
		r.resize(len(r.items) / 2)
	}
	return item
}

// keep removes all elements that are not wanted.
func (r *ring[T]) keep(wanted func(T) bool) {
	var kept ring[T]
	for i := range r.count {
		if item := r.at(i); wanted(item) {
			kept.pushBack(item)
		}
	}
	*r = kept
}

func (r *ring[T]) resize(size int) {
	items := make([]T, size)
	for i := range r.count {
		items[i] = r.at(i)
	}
	r.items, r.head = items, 0
}
