//go:build darwin || linux

package sqs

import (
	"context"
	"fmt"

	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/queues"
)

// A Message is a copy of a message in a queue, for tests.
type Message = queues.Message

// Contents are the messages in a queue: the ready messages in the order in which single
// receives would return them, the others by the time at which they become ready.
type Contents = queues.Contents

// Contents returns the messages in a queue, and whether there is such a queue.
func (s *Server) Contents(name string) (Contents, bool) {
	return s.current().queues.Contents(name)
}

// Queues returns the names of all queues.
func (s *Server) Queues() []string { return s.current().queues.QueueNames() }

// AwaitPolls returns when n long polls wait at a queue, or with an error when ctx ends or
// there is no such queue.
func (s *Server) AwaitPolls(ctx context.Context, queue string, n int) error {
	for {
		have, changed, ok := s.current().queues.WaitingPolls(queue)
		if !ok {
			return fmt.Errorf("sqs: await %d polls at %q: there is no such queue", n, queue)
		}
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
