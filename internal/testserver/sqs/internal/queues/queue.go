package queues

import (
	"math/rand/v2"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/clock"
	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/deduplication"
	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/heap"
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
	created    clock.Instant
	modified   clock.Instant
	tags       map[string]string
	attributes map[string]string // that can be set
	settings                     // the same, parsed
	purged     clock.Instant

	messages map[uint64]*message
	groups   map[string]*group
	quiet    heap.Heap[*group] // with ready messages that may be received, oldest first
	noisy    heap.Heap[*group] // likewise; received from when quiet has no messages
	timed    heap.Heap[*message]
	ages     heap.Heap[*message]
	count    [3]int // of messages by state

	sent         deduplication.Memory // deduplication ids of FIFO queues
	attempts     map[string]attempt
	attemptOrder []deduplication.SentKey // oldest first
	polls        []*poll                 // waiting polls, in the order of their arrival
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
	ready    heap.Heap[*message]
	inFlight int
	in       *heap.Heap[*group] // nil: no message of it can be received
	place    int
}

func newQueue(id uint64, name, arn string, fifo bool) *queue {
	q := &queue{
		id: id, name: name, arn: arn, fifo: fifo,
		tags: map[string]string{}, attributes: map[string]string{},
		messages: map[uint64]*message{}, groups: map[string]*group{},
		sent: deduplication.New(), attempts: map[string]attempt{}, pollsChanged: make(chan struct{}),
	}
	for _, h := range []*heap.Heap[*group]{&q.quiet, &q.noisy} {
		h.Less = func(a, b *group) bool { return a.ready.Items[0].order < b.ready.Items[0].order }
		h.Index = func(g *group, i int) { g.place = i }
	}
	q.timed.Less = func(a, b *message) bool {
		return a.due < b.due || a.due == b.due && a.order < b.order
	}
	q.timed.Index = func(m *message, i int) { m.place = i }
	q.ages.Less = func(a, b *message) bool { return a.enqueued < b.enqueued }
	q.ages.Index = func(m *message, i int) { m.age = i }
	return q
}

func (q *queue) group(id string) *group {
	g := q.groups[id]
	if g == nil {
		g = &group{id: id}
		g.ready.Less = func(a, b *message) bool { return a.order < b.order }
		g.ready.Index = func(m *message, i int) { m.place = i }
		q.groups[id] = g
	}
	return g
}

// insert adds a message, which is delayed until due.
func (q *queue) insert(m *message, now clock.Instant) {
	if q.shuffled && !q.fifo {
		m.order = rand.Uint64()
	}
	q.messages[m.serial] = m
	q.ages.Push(m)
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
	g.ready.Push(m)
	q.settleGroup(g)
}

// hide makes a message wait until it is due.
func (q *queue) hide(m *message, s state) {
	m.state = s
	q.count[s]++
	q.timed.Push(m)
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
		g.ready.Remove(m.place)
	case inFlight:
		q.timed.Remove(m.place)
		g.inFlight--
	case delayed:
		q.timed.Remove(m.place)
	}
	m.state = gone
	q.settleGroup(g)
}

// remove deletes a message.
func (q *queue) remove(m *message) {
	q.detach(m)
	q.ages.Remove(m.age)
	delete(q.messages, m.serial)
}

func (g *group) leave() {
	if g.in != nil {
		g.in.Remove(g.place)
		g.in = nil
	}
}

// settleGroup moves a group to the right heap after a change.
func (q *queue) settleGroup(g *group) {
	var in *heap.Heap[*group]
	switch {
	case len(g.ready.Items) == 0:
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
		in.Fix(g.place)
		return
	}
	g.leave()
	if g.in = in; in != nil {
		in.Push(g)
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
		g, ok := q.quiet.Peek()
		if !ok {
			g, _ = q.noisy.Peek()
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
func (q *queue) settle(now clock.Instant) {
	for {
		m, ok := q.ages.Peek()
		if !ok || m.enqueued.Add(q.retention) > now {
			break
		}
		q.remove(m)
	}
	for {
		m, ok := q.timed.Peek()
		if !ok || m.due > now {
			return
		}
		q.detach(m)
		q.show(m)
	}
}

// next returns when the next message becomes ready.
func (q *queue) next() (clock.Instant, bool) {
	m, ok := q.timed.Peek()
	if !ok {
		return 0, false
	}
	return m.due, true
}

// setVisibility makes a message in flight ready at due.
func (q *queue) setVisibility(m *message, due, now clock.Instant) {
	m.due = due
	if due > now {
		q.timed.Fix(m.place)
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
