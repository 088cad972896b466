package queues

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// A Message is a copy of a message in a queue, for tests.
type Message struct {
	ID, Body        string
	Attributes      map[string]string // binary values as strings of their bytes
	GroupID         string
	DeduplicationID string
	SequenceNumber  string
	ReceiveCount    int
	Sent            time.Time
	Due             time.Time // the end of the delay or of the visibility timeout
	SourceARN       string    // of the queue whose redrive policy moved it here
}

// Contents are the messages in a queue: the ready messages in the order in which single
// receives would return them, the others by the time at which they become ready.
type Contents struct {
	Ready, Delayed, InFlight []Message
}

// Contents returns the messages in a queue, and whether there is such a queue.
func (st *Store) Contents(name string) (Contents, bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	q := st.queues[name]
	if q == nil {
		return Contents{}, false
	}
	q.settle(st.clock.Now())
	all := make([]*message, 0, len(q.messages))
	for _, m := range q.messages {
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b *message) int {
		if a.state == ready && b.state == ready {
			return cmp.Compare(a.order, b.order)
		}
		return cmp.Or(cmp.Compare(a.state, b.state), cmp.Compare(a.due, b.due), cmp.Compare(a.order, b.order))
	})
	var c Contents
	for _, m := range all {
		switch m.state {
		case ready:
			c.Ready = append(c.Ready, m.inspect())
		case delayed:
			c.Delayed = append(c.Delayed, m.inspect())
		default:
			c.InFlight = append(c.InFlight, m.inspect())
		}
	}
	return c, true
}

func (m *message) inspect() Message {
	out := Message{
		ID: m.ID, Body: m.Body, Attributes: map[string]string{}, GroupID: m.group, DeduplicationID: m.deduplication,
		SequenceNumber: m.sequence, ReceiveCount: m.count, Sent: m.sent.Time(), SourceARN: m.source,
	}
	if m.state != ready {
		out.Due = m.due.Time()
	}
	for _, a := range m.Attributes {
		out.Attributes[a.Name] = a.String + string(a.Binary) // it has one of them
	}
	return out
}

// QueueNames returns the names of all queues in order.
func (st *Store) QueueNames() []string {
	st.mu.Lock()
	defer st.mu.Unlock()
	return slices.Sorted(maps.Keys(st.queues))
}

// WaitingPolls returns how many long polls wait at a queue, a channel that is closed when their number changes, and
// whether there is such a queue.
func (st *Store) WaitingPolls(name string) (n int, changed <-chan struct{}, ok bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	q := st.queues[name]
	if q == nil {
		return 0, nil, false
	}
	return len(q.polls), q.pollsChanged, true
}
