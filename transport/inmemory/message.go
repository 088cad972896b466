package inmemory

import (
	"container/heap"
	"time"

	"github.com/reprise-go/reprise/core"
)

// message is one stored copy. Its queue's lock guards the fields that change: those from
// delivered on.
type message struct {
	seq         uint64 // order of sending, over all queues
	listed      uint64 // its place in the index of its queue
	id          string
	nativeID    string
	headers     core.Headers
	body        []byte // never written; copies for several subscribers share it
	group       string
	props       map[string]string // never written, too
	sent        time.Time
	delay       time.Duration
	expires     time.Time // zero: never
	ordered     bool      // the group is kept in order
	generatedID bool      // an adapter made the id, as a header says

	delivered bool
	state     messageState
	failures  int // deliveries that count
	lastError string
	holder    *delivery // while held

	// deadline is when the message's state changes by itself: a delayed message becomes
	// due or expires, a ready one expires, one in flight loses its lock.
	deadline time.Time
	place    int // in the queue's deadlines, from 1; 0: it has no deadline
}

type messageState uint8

const (
	delayed messageState = iota
	ready
	waiting // for earlier messages of its group
	held
	leaving // taken by a tool, and its replacements are being sent
	gone
)

// incoming returns the Incoming of the message's next delivery.
func (m *message) incoming() core.Incoming {
	return core.Incoming{
		ID:            m.id,
		IDSent:        !m.generatedID,
		NativeID:      m.nativeID,
		Headers:       m.headers,
		Body:          m.body,
		GroupKey:      m.group,
		Properties:    m.props,
		DeliveryCount: 1 + m.failures,
		Redelivered:   m.delivered,
		LastError:     m.lastError,
		EnqueuedAt:    m.sent.Add(m.delay),
		ExpiresAt:     m.expires,
	}
}

func (m *message) expired(now time.Time) bool {
	return !m.expires.IsZero() && !now.Before(m.expires)
}

// deadlines is a heap of messages, the earliest deadline first and, for equal ones, the
// message sent first. Each message knows its place, so that a settlement can remove the
// deadline of its lock, and none accumulate here.
type deadlines []*message

func (d *deadlines) add(m *message, at time.Time) {
	m.deadline = at
	heap.Push(d, m)
}

func (d *deadlines) move(m *message, at time.Time) {
	m.deadline = at
	heap.Fix(d, m.place-1)
}

func (d *deadlines) remove(m *message) {
	if m.place > 0 {
		heap.Remove(d, m.place-1)
	}
}

// Len, Less, Swap, Push and Pop are for container/heap.

func (d deadlines) Len() int { return len(d) }

func (d deadlines) Less(i, j int) bool {
	if c := d[i].deadline.Compare(d[j].deadline); c != 0 {
		return c < 0
	}
	return d[i].seq < d[j].seq
}

func (d deadlines) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].place, d[j].place = i+1, j+1
}

func (d *deadlines) Push(x any) {
	m := x.(*message)
	*d = append(*d, m)
	m.place = len(*d)
}

func (d *deadlines) Pop() any {
	last := len(*d) - 1
	m := (*d)[last]
	(*d)[last] = nil
	*d = (*d)[:last]
	m.place = 0
	return m
}
