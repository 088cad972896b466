package inmemory

// index has all messages of a queue in the order of their numbers, so that a look finds its
// place again by the number of a message that may have left. The queue's lock guards it.
type index struct {
	entries ring[indexed]
	left    int // entries of messages that have left
}

type indexed struct {
	seq     uint64
	message *message // nil: it has left
}

func (x *index) add(m *message) {
	x.entries.pushBack(indexed{m.seq, m})
	// Of two senders, the one with the higher number may be here first.
	for i := x.entries.len() - 1; i > 0 && x.entries.at(i-1).seq > m.seq; i-- {
		x.entries.set(i, x.entries.at(i-1))
		x.entries.set(i-1, indexed{m.seq, m})
	}
}

// remove forgets a message, in time O(log n) on average. Its entry stays until it is the first, or until half of the
// entries are free.
func (x *index) remove(seq uint64) {
	x.entries.set(x.search(seq), indexed{seq: seq})
	x.left++
	for x.entries.len() > 0 && x.entries.at(0).message == nil {
		x.entries.popFront()
		x.left--
	}
	if x.left > minRing && 2*x.left > x.entries.len() {
		x.entries.keep(func(e indexed) bool { return e.message != nil })
		x.left = 0
	}
}

// get returns the message with a number, or nil if it has left.
func (x *index) get(seq uint64) *message {
	if i := x.search(seq); i < x.entries.len() && x.entries.at(i).seq == seq {
		return x.entries.at(i).message
	}
	return nil
}

// search returns the place of the first entry with this number or a higher one. It is fast near
// the beginning, which most messages leave.
func (x *index) search(seq uint64) int {
	low, high := 0, 1
	for high < x.entries.len() && x.entries.at(high).seq < seq {
		low, high = high, 2*high
	}
	high = min(high, x.entries.len())
	for low < high {
		if middle := int(uint(low+high) / 2); x.entries.at(middle).seq < seq {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low
}
