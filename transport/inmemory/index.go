package inmemory

import "sort"

// index has all messages of a queue in the order of their numbers, so that a look finds its
// place again by the number of a message that may have left. The queue's lock guards it.
type index struct {
	entries ring[indexed]
	first   uint64 // place of the first entry; those of the others follow
	left    int    // entries of messages that have left
}

type indexed struct {
	seq     uint64
	message *message // nil: it has left
}

func (x *index) add(m *message) {
	i := x.entries.len()
	x.entries.pushBack(indexed{m.seq, m})
	// Of two senders, the one with the higher number may be here first.
	for ; i > 0 && x.entries.at(i-1).seq > m.seq; i-- {
		x.put(i, x.entries.at(i-1))
	}
	x.put(i, indexed{m.seq, m})
}

// put sets an entry, and the place of its message.
func (x *index) put(i int, e indexed) {
	x.entries.set(i, e)
	if e.message != nil {
		e.message.listed = x.first + uint64(i)
	}
}

// remove forgets a message, in time O(1) on average. Its entry stays until it is the first, or
// until half of the entries are free.
func (x *index) remove(m *message) {
	x.entries.set(int(m.listed-x.first), indexed{seq: m.seq})
	x.left++
	for x.entries.len() > 0 && x.entries.at(0).message == nil {
		x.entries.popFront()
		x.first++
		x.left--
	}
	if x.left > minRing && 2*x.left > x.entries.len() {
		x.entries.keep(func(e indexed) bool { return e.message != nil })
		x.left = 0
		for i := range x.entries.len() {
			x.put(i, x.entries.at(i))
		}
	}
}

// get returns the message with a number, or nil if it has left.
func (x *index) get(seq uint64) *message {
	if i := x.search(seq); i < x.entries.len() && x.entries.at(i).seq == seq {
		return x.entries.at(i).message
	}
	return nil
}

// search returns the index of the first entry with this number or a higher one.
func (x *index) search(seq uint64) int {
	return sort.Search(x.entries.len(), func(i int) bool { return x.entries.at(i).seq >= seq })
}
