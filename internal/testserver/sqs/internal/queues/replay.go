package queues

import (
	"encoding/json"
	"fmt"

	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/content"
	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/deduplication"
	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/journal"
)

// A Replay applies entries of a journal to a new store. No message becomes due before the end, so an
// entry applies to a message in any state.
type Replay struct {
	store *Store
	byID  map[uint64]*queue
}

// NewReplay returns a replay for a store that is not in use yet.
func NewReplay(st *Store) *Replay { return &Replay{store: st, byID: map[uint64]*queue{}} }

// End has the store write further changes to the journal, and begin to work.
func (r *Replay) End(log *journal.Journal) {
	st := r.store
	st.log = log
	now := st.clock.Now()
	for _, q := range st.queues {
		q.settle(now)
	}
	for _, t := range st.tasks {
		st.armTaskLocked(t, now)
	}
}

// Apply applies an entry, and reports whether it is one of queues.
func (r *Replay) Apply(line []byte) (known bool, err error) {
	var e entry
	if err := json.Unmarshal(line, &e); err != nil {
		return false, err
	}
	switch e.Do {
	case doQueue:
		return true, r.queue(&e)
	case doTask:
		r.task(e.Task)
		return true, nil
	case doAdvance:
		r.store.clock.SetAhead(e.Ahead)
		return true, nil
	case doDropQueue, doPurge, doSend, doReceive, doVisibility, doRemove:
		q := r.byID[e.Queue]
		if q == nil {
			return true, fmt.Errorf("%s: there is no queue %d", e.Do, e.Queue)
		}
		r.message(q, &e)
		return true, nil
	}
	return false, nil
}

func (r *Replay) queue(e *entry) error {
	st, d := r.store, e.Definition
	q := r.byID[e.Queue]
	if q == nil {
		q = newQueue(e.Queue, d.Name, st.QueueARN(d.Name), d.FIFO)
		r.byID[e.Queue], st.queues[d.Name] = q, q
		st.lastQueue = max(st.lastQueue, e.Queue)
		delete(st.deleted, d.Name)
	}
	s, err := st.parseSettings(d.Attributes)
	if err != nil {
		return fmt.Errorf("queue %s: %w", d.Name, err)
	}
	q.created, q.tags = d.Created, d.Tags
	if q.tags == nil {
		q.tags = map[string]string{}
	}
	q.attributes, q.settings, q.modified = d.Attributes, s, d.Modified
	return nil
}

// message applies an entry about a queue's messages.
func (r *Replay) message(q *queue, e *entry) {
	m := q.messages[e.Serial]
	switch e.Do {
	case doDropQueue:
		r.store.dropQueueLocked(q, e.At)
	case doPurge:
		q.purged = e.At
		q.clear()
	case doSend:
		r.send(q, e)
	case doReceive:
		for _, d := range e.Received {
			if m := q.messages[d.Serial]; m != nil {
				q.detach(m)
				m.count, m.here, m.first, m.receive, m.received, m.due = d.Count, d.Here, d.First, d.Receive, e.At, d.Due
				q.hide(m, inFlight)
			}
		}
	case doVisibility:
		if m != nil {
			q.detach(m)
			m.due, m.received = e.Due, e.Base
			q.hide(m, inFlight)
		}
	case doRemove:
		if m != nil {
			q.remove(m)
		}
	}
}

func (r *Replay) send(q *queue, e *entry) {
	d := e.Message
	m := &message{
		Content: content.Content{
			ID: d.ID, Body: d.Body, BodyMD5: content.MD5(d.Body), Attributes: d.Attributes, AttributesMD5: content.MD5OfAttributes(d.Attributes),
			Trace: d.Trace, Sender: d.Sender,
		},
		serial: e.Serial, order: d.Order, group: d.Group, deduplication: d.Deduplication, sequence: d.Sequence,
		sent: d.Sent, enqueued: d.Enqueued, first: d.First, count: d.Count, source: d.Source, due: e.Due,
	}
	r.store.serial = max(r.store.serial, e.Serial)
	if e.Key != "" {
		q.sent.Add(e.Key, deduplication.Sent{ID: m.ID, Sequence: m.sequence, At: e.At})
	}
	q.insert(m, e.At)
}

func (r *Replay) task(d *taskEntry) {
	t := &moveTask{
		id: d.ID, source: d.Source, destination: d.Destination, perSecond: d.PerSecond, started: d.Started, next: d.Next,
		total: d.Total, moved: d.Moved, status: d.Status, failure: d.Failure,
	}
	for i, other := range r.store.tasks {
		if other.id == t.id {
			r.store.tasks[i] = t
			return
		}
	}
	r.store.tasks = append(r.store.tasks, t)
}
