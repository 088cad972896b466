//go:build darwin || linux

package sqs

import (
	"cmp"
	"context"
	"fmt"
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
func (s *Server) Contents(name string) (Contents, bool) {
	st := s.current()
	st.mu.Lock()
	defer st.mu.Unlock()
	q := st.queues[name]
	if q == nil {
		return Contents{}, false
	}
	q.settle(st.clock.now())
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
		ID: m.id, Body: m.body, Attributes: map[string]string{}, GroupID: m.group, DeduplicationID: m.deduplication,
		SequenceNumber: m.sequence, ReceiveCount: m.count, Sent: m.sent.time(), SourceARN: m.source,
	}
	if m.state != ready {
		out.Due = m.due.time()
	}
	for _, a := range m.attributes {
		out.Attributes[a.Name] = a.String + string(a.Binary) // it has one of them
	}
	return out
}

// Queues returns the names of all queues.
func (s *Server) Queues() []string {
	st := s.current()
	st.mu.Lock()
	defer st.mu.Unlock()
	return sortedKeys(st.queues)
}

// AwaitPolls returns when n long polls wait at a queue, or with an error when ctx ends or
// there is no such queue.
func (s *Server) AwaitPolls(ctx context.Context, queue string, n int) error {
	for {
		st := s.current()
		st.mu.Lock()
		q := st.queues[queue]
		if q == nil {
			st.mu.Unlock()
			return fmt.Errorf("sqs: await %d polls at %q: there is no such queue", n, queue)
		}
		have, changed := len(q.polls), q.pollsChanged
		st.mu.Unlock()
		if have == n {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("sqs: await %d polls at %q, where %d wait: %w", n, queue, have, context.Cause(ctx))
		}
	}
}
