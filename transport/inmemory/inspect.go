package inmemory

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/reprise-go/reprise/core"
)

// Depth is the number of messages in a queue, by state.
type Depth struct {
	Ready    int // waiting for a receiver, or for earlier messages of their group
	Delayed  int // waiting until they are due
	InFlight int // waiting for their settlement
}

// Total is the number of all messages in the queue.
func (d Depth) Total() int { return d.Ready + d.Delayed + d.InFlight }

// Queues returns the names of the broker's queues in order, without the dead-letter queues.
func (t *Transport) Queues() []string {
	names := slices.Sorted(maps.Keys(t.broker.directory.Load().queues))
	return slices.DeleteFunc(names, func(name string) bool { return strings.HasSuffix(name, deadLetterSuffix) })
}

// Depth returns how many messages a queue holds now. For a queue that does not exist the
// error matches core.ErrQueueNotFound.
func (t *Transport) Depth(queue string) (Depth, error) {
	q, err := t.broker.queue(queue)
	if err != nil {
		return Depth{}, fmt.Errorf("inmemory: depth: %w", err)
	}
	q.mu.Lock()
	defer q.unlock()
	q.advance(time.Now())
	return Depth{Ready: q.available() + q.groups.waiting, Delayed: q.delayed, InFlight: q.inFlight}, nil
}

// Peek returns copies of the ready messages, the next one first, then of the messages
// that wait for others of their group, in the order of sending. It leaves the messages in
// the queue. It does not return delayed messages or messages in flight. DeliveryCount is
// that of the next delivery, if the broker counts.
func (t *Transport) Peek(queue string) ([]core.Incoming, error) {
	q, err := t.broker.queue(queue)
	if err != nil {
		return nil, fmt.Errorf("inmemory: peek: %w", err)
	}
	q.mu.Lock()
	defer q.unlock()
	q.advance(time.Now())
	found := make([]*message, 0, q.available()+q.groups.waiting)
	for i := range q.ready.len() {
		if m := q.ready.at(i); m.state == ready {
			found = append(found, m)
		}
	}
	var inGroups []*message
	for i := range q.stored.entries.len() {
		if m := q.stored.entries.at(i).message; m != nil && m.state == waiting {
			inGroups = append(inGroups, m)
		}
	}
	messages := make([]core.Incoming, 0, cap(found))
	for _, m := range append(found, inGroups...) {
		in := m.incoming()
		in.Body = bytes.Clone(in.Body)
		messages = append(messages, in)
	}
	return messages, nil
}
