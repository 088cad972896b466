package queues

import (
	"time"

	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/clock"
	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/content"
)

// An entry is a change of queues, in the journal. The fields that it has depend on Do.
type entry struct {
	At         clock.Instant   `json:"at"`
	Do         string          `json:"do"`
	Queue      uint64          `json:"q,omitempty"`
	Definition *queueEntry     `json:"queue,omitempty"`
	Message    *messageEntry   `json:"m,omitempty"`
	Received   []receivedEntry `json:"r,omitempty"`
	Serial     uint64          `json:"s,omitempty"`
	Due        clock.Instant   `json:"due,omitempty"`
	Base       clock.Instant   `json:"base,omitempty"` // message.received
	Key        string          `json:"key,omitempty"`  // deduplication.Key
	Task       *taskEntry      `json:"task,omitempty"`
	Ahead      time.Duration   `json:"ahead,omitempty"`
}

// The values of entry.Do.
const (
	doQueue      = "queue" // create it or change its definition
	doDropQueue  = "-queue"
	doPurge      = "purge"
	doSend       = "send"
	doReceive    = "receive"
	doVisibility = "visibility"
	doRemove     = "remove"
	doTask       = "task"
	doAdvance    = "advance"
)

type queueEntry struct {
	Name       string            `json:"name"`
	FIFO       bool              `json:"fifo,omitempty"`
	Created    clock.Instant     `json:"created"`
	Modified   clock.Instant     `json:"modified"`
	Attributes map[string]string `json:"attributes"`
	Tags       map[string]string `json:"tags,omitempty"`
}

type messageEntry struct {
	ID            string              `json:"id"`
	Body          string              `json:"body"`
	Attributes    []content.Attribute `json:"attributes,omitempty"`
	Trace         string              `json:"trace,omitempty"`
	Sender        string              `json:"sender,omitempty"`
	Order         uint64              `json:"order"`
	Group         string              `json:"group,omitempty"`
	Deduplication string              `json:"dedup,omitempty"`
	Sequence      string              `json:"seq,omitempty"`
	Sent          clock.Instant       `json:"sent"`
	Enqueued      clock.Instant       `json:"enqueued"`
	First         clock.Instant       `json:"first,omitempty"`
	Count         int                 `json:"count,omitempty"`
	Source        string              `json:"source,omitempty"`
}

type receivedEntry struct {
	Serial  uint64        `json:"s"`
	Receive uint64        `json:"n"`
	Count   int           `json:"count"`
	Here    int           `json:"here"`
	First   clock.Instant `json:"first"`
	Due     clock.Instant `json:"due"`
}

type taskEntry struct {
	ID          string        `json:"id"`
	Source      string        `json:"source"`
	Destination string        `json:"destination,omitempty"`
	PerSecond   int           `json:"rate,omitempty"`
	Started     clock.Instant `json:"started"`
	Next        clock.Instant `json:"next"`
	Total       int           `json:"total"`
	Moved       int           `json:"moved"`
	Status      string        `json:"status"`
	Failure     string        `json:"failure,omitempty"`
}

func (st *Store) logQueueLocked(q *queue, now clock.Instant) {
	if st.log != nil {
		st.log.WriteLocked(&entry{At: now, Do: doQueue, Queue: q.id, Definition: &queueEntry{q.name, q.fifo, q.created, q.modified, q.attributes, q.tags}})
	}
}

func (st *Store) logDropQueueLocked(q *queue, now clock.Instant) {
	if st.log != nil {
		st.log.WriteLocked(&entry{At: now, Do: doDropQueue, Queue: q.id})
	}
}

func (st *Store) logPurgeLocked(q *queue, now clock.Instant) {
	if st.log != nil {
		st.log.WriteLocked(&entry{At: now, Do: doPurge, Queue: q.id})
	}
}

// logSendLocked logs a message that a queue has received; key is "" if it is not remembered.
func (st *Store) logSendLocked(q *queue, m *message, key string, now clock.Instant) {
	if st.log == nil {
		return
	}
	st.log.WriteLocked(&entry{At: now, Do: doSend, Queue: q.id, Serial: m.serial, Due: m.due, Key: key, Message: &messageEntry{
		m.ID, m.Body, m.Attributes, m.Trace, m.Sender, m.order, m.group, m.deduplication, m.sequence,
		m.sent, m.enqueued, m.first, m.count, m.source,
	}})
}

func (st *Store) logReceiveLocked(q *queue, got []delivery, now clock.Instant) {
	if st.log == nil {
		return
	}
	received := make([]receivedEntry, len(got))
	for i, d := range got {
		m := d.message
		received[i] = receivedEntry{m.serial, m.receive, m.count, m.here, m.first, m.due}
	}
	st.log.WriteLocked(&entry{At: now, Do: doReceive, Queue: q.id, Received: received})
}

func (st *Store) logVisibilityLocked(q *queue, m *message, now clock.Instant) {
	if st.log != nil {
		st.log.WriteLocked(&entry{At: now, Do: doVisibility, Queue: q.id, Serial: m.serial, Due: m.due, Base: m.received})
	}
}

func (st *Store) logRemoveLocked(q *queue, m *message, now clock.Instant) {
	if st.log != nil {
		st.log.WriteLocked(&entry{At: now, Do: doRemove, Queue: q.id, Serial: m.serial})
	}
}

func (st *Store) logTaskLocked(t *moveTask, now clock.Instant) {
	if st.log != nil {
		st.log.WriteLocked(&entry{At: now, Do: doTask, Task: &taskEntry{
			t.id, t.source, t.destination, t.perSecond, t.started, t.next, t.total, t.moved, t.status, t.failure,
		}})
	}
}

// logAdvanceLocked logs by how much the clock is ahead of the machine's.
func (st *Store) logAdvanceLocked() {
	if st.log != nil {
		st.log.WriteLocked(&entry{At: st.clock.Now(), Do: doAdvance, Ahead: st.clock.Ahead()})
	}
}
