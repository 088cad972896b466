//go:build darwin || linux

package sqs

import (
	"math/rand/v2"
	"time"
)

// A queue holds messages. The store's mutex guards it: its methods require the lock.
//
// Each message is in the heap of its state (the heap of its group if it is ready, timed if it
// is delayed or in flight) and in ages, so that every operation takes at most logarithmic
// time.
type queue struct {
	id         uint64 // never reused, unlike the name
	name, arn  string
	fifo       bool
	created    instant
	modified   instant
	tags       map[string]string
	attributes map[string]string // that can be set
	settings                     // the same, parsed
	purged     instant

	messages map[uint64]*message
	groups   map[string]*group
	quiet    heap[*group] // with ready messages that may be received, oldest first
	noisy    heap[*group] // likewise; received from when quiet has no messages
	timed    heap[*message]
	ages     heap[*message]
	count    [3]int // of messages by state

	sent         memory // deduplication ids of FIFO queues
	attempts     map[string]attempt
	attemptOrder []sentKey // oldest first
	polls        []*poll   // waiting polls, in the order of their arrival
	pollsChanged chan struct{}
	alarm        *time.Timer // serves the polls when a message becomes ready

	duplicates int        // this many of the next deliveries are followed by a second one
	twins      []*message // copies for them, until the receive has ended
	shuffled   bool       // messages get random places
}

// A group holds the ready messages with the same group id. In a standard queue it is a
// tenant. In a FIFO queue its order is kept, and it is locked while any of its messages is in
// flight.
type group struct {
	id       string
	ready    heap[*message]
	inFlight int
	in       *heap[*group] // nil: no message of it can be received
	place    int
}

func newQueue(id uint64, name, arn string, fifo bool) *queue {
	q := &queue{
		id: id, name: name, arn: arn, fifo: fifo,
		tags: map[string]string{}, attributes: map[string]string{},
		messages: map[uint64]*message{}, groups: map[string]*group{},
		sent: newMemory(), attempts: map[string]attempt{}, pollsChanged: make(chan struct{}),
	}
	for _, h := range []*heap[*group]{&q.quiet, &q.noisy} {
		h.less = func(a, b *group) bool { return a.ready.items[0].order < b.ready.items[0].order }
		h.index = func(g *group, i int) { g.place = i }
	}
	q.timed.less = func(a, b *message) bool {
		return a.due < b.due || a.due == b.due && a.order < b.order
	}
	q.timed.index = func(m *message, i int) { m.place = i }
	q.ages.less = func(a, b *message) bool { return a.enqueued < b.enqueued }
	q.ages.index = func(m *message, i int) { m.age = i }
	return q
}

func (q *queue) group(id string) *group {
	g := q.groups[id]
	if g == nil {
		g = &group{id: id}
		g.ready.less = func(a, b *message) bool { return a.order < b.order }
		g.ready.index = func(m *message, i int) { m.place = i }
		q.groups[id] = g
	}
	return g
}

// insert adds a message, which is delayed until due.
func (q *queue) insert(m *message, now instant) {
	if q.shuffled && !q.fifo {
		m.order = rand.Uint64()
	}
	q.messages[m.serial] = m
	q.ages.push(m)
	if m.due > now {
		q.hide(m, delayed)
	} else {
		q.show(m)
	}
}

// show makes a message ready that is in no heap of a state.
func (q *queue) show(m *message) {
	m.state = ready
	q.count[ready]++
	g := q.group(m.group)
	g.ready.push(m)
	q.settleGroup(g)
}

// hide makes a message wait until it is due.
func (q *queue) hide(m *message, s state) {
	m.state = s
	q.count[s]++
	q.timed.push(m)
	if s == inFlight {
		g := q.group(m.group)
		g.inFlight++
		q.settleGroup(g)
	}
}

// detach takes a message out of the heap of its state.
func (q *queue) detach(m *message) {
	q.count[m.state]--
	g := q.group(m.group)
	switch m.state {
	case ready:
		g.leave() // the order of groups is that of their first messages
		g.ready.remove(m.place)
	case inFlight:
		q.timed.remove(m.place)
		g.inFlight--
	case delayed:
		q.timed.remove(m.place)
	}
	m.state = gone
	q.settleGroup(g)
}

// remove deletes a message.
func (q *queue) remove(m *message) {
	q.detach(m)
	q.ages.remove(m.age)
	delete(q.messages, m.serial)
}

func (g *group) leave() {
	if g.in != nil {
		g.in.remove(g.place)
		g.in = nil
	}
}

// settleGroup moves a group to the right heap after a change.
func (q *queue) settleGroup(g *group) {
	var in *heap[*group]
	switch {
	case len(g.ready.items) == 0:
		if g.inFlight == 0 {
			g.leave()
			delete(q.groups, g.id)
			return
		}
	case q.fifo && g.inFlight > 0:
	case !q.fifo && q.isNoisy(g):
		in = &q.noisy
	default:
		in = &q.quiet
	}
	if g.in == in && in != nil {
		in.fix(g.place)
		return
	}
	g.leave()
	if g.in = in; in != nil {
		in.push(g)
	}
}

// noisyInFlight is the least number of messages in flight that makes a tenant noisy.
const noisyInFlight = 10

// isNoisy reports whether a tenant of a standard queue has a disproportionate part of the
// messages in flight. The service does not document more about its decision
// (https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-fair-queues.html):
// here it is more than half of at least noisyInFlight.
func (q *queue) isNoisy(g *group) bool {
	return g.id != "" && g.inFlight >= noisyInFlight && 2*g.inFlight > q.count[inFlight]
}

// nextGroup returns the group to receive from, or nil.
func (q *queue) nextGroup() *group {
	for {
		g, ok := q.quiet.peek()
		if !ok {
			g, _ = q.noisy.peek()
			return g
		}
		if q.fifo || !q.isNoisy(g) {
			return g
		}
		q.settleGroup(g) // it became noisy since messages of others were deleted
	}
}

// settle processes all due events: messages expire, and messages whose delay or visibility
// timeout has ended become ready.
func (q *queue) settle(now instant) {
	for {
		m, ok := q.ages.peek()
		if !ok || m.enqueued.add(q.retention) > now {
			break
		}
		q.remove(m)
	}
	for {
		m, ok := q.timed.peek()
		if !ok || m.due > now {
			return
		}
		q.detach(m)
		q.show(m)
	}
}

// next returns when the next message becomes ready.
func (q *queue) next() (instant, bool) {
	m, ok := q.timed.peek()
	if !ok {
		return 0, false
	}
	return m.due, true
}

// setVisibility makes a message in flight ready at due.
func (q *queue) setVisibility(m *message, due, now instant) {
	m.due = due
	if due > now {
		q.timed.fix(m.place)
		return
	}
	q.detach(m)
	q.show(m)
}

// clear deletes all messages.
func (q *queue) clear() {
	for _, m := range q.messages {
		q.remove(m)
	}
}
