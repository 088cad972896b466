//go:build darwin || linux

package sqs

import (
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"
)

// A journal is the file that makes a store durable. It has one line of JSON for each change,
// written before the request is answered. It is not synced, because only processes fail, not
// the machine.
type journal struct {
	file    *os.File
	writing sync.Mutex // held while entries are written, and locked before the store
	entries []byte     // not yet written; the store's mutex guards them
	spare   []byte
}

// An entry is a change. The fields that it has depend on Do.
type entry struct {
	At           instant            `json:"at"`
	Do           string             `json:"do"`
	Queue        uint64             `json:"q,omitempty"`
	Definition   *queueEntry        `json:"queue,omitempty"`
	Message      *messageEntry      `json:"m,omitempty"`
	Received     []receivedEntry    `json:"r,omitempty"`
	Serial       uint64             `json:"s,omitempty"`
	Due          instant            `json:"due,omitempty"`
	Base         instant            `json:"base,omitempty"` // message.received
	Key          string             `json:"key,omitempty"`  // deduplicationKey
	ID           string             `json:"id,omitempty"`
	Sequence     string             `json:"seq,omitempty"`
	ARN          string             `json:"arn,omitempty"`
	Topic        *topicEntry        `json:"topic,omitempty"`
	Subscription *subscriptionEntry `json:"sub,omitempty"`
	Task         *taskEntry         `json:"task,omitempty"`
	Ahead        time.Duration      `json:"ahead,omitempty"`
}

// The values of entry.Do.
const (
	doQueue       = "queue" // create it or change its definition
	doDropQueue   = "-queue"
	doPurge       = "purge"
	doSend        = "send"
	doReceive     = "receive"
	doVisibility  = "visibility"
	doRemove      = "remove"
	doTopic       = "topic"
	doDropTopic   = "-topic"
	doSubscribe   = "subscribe"
	doUnsubscribe = "-subscribe"
	doPublish     = "publish" // with a deduplication id
	doTask        = "task"
	doAdvance     = "advance"
)

type queueEntry struct {
	Name       string            `json:"name"`
	FIFO       bool              `json:"fifo,omitempty"`
	Created    instant           `json:"created"`
	Modified   instant           `json:"modified"`
	Attributes map[string]string `json:"attributes"`
	Tags       map[string]string `json:"tags,omitempty"`
}

type messageEntry struct {
	ID            string      `json:"id"`
	Body          string      `json:"body"`
	Attributes    []attribute `json:"attributes,omitempty"`
	Trace         string      `json:"trace,omitempty"`
	Sender        string      `json:"sender,omitempty"`
	Order         uint64      `json:"order"`
	Group         string      `json:"group,omitempty"`
	Deduplication string      `json:"dedup,omitempty"`
	Sequence      string      `json:"seq,omitempty"`
	Sent          instant     `json:"sent"`
	Enqueued      instant     `json:"enqueued"`
	First         instant     `json:"first,omitempty"`
	Count         int         `json:"count,omitempty"`
	Source        string      `json:"source,omitempty"`
}

type receivedEntry struct {
	Serial  uint64  `json:"s"`
	Receive uint64  `json:"n"`
	Count   int     `json:"count"`
	Here    int     `json:"here"`
	First   instant `json:"first"`
	Due     instant `json:"due"`
}

type taskEntry struct {
	ID          string  `json:"id"`
	Source      string  `json:"source"`
	Destination string  `json:"destination,omitempty"`
	PerSecond   int     `json:"rate,omitempty"`
	Started     instant `json:"started"`
	Next        instant `json:"next"`
	Total       int     `json:"total"`
	Moved       int     `json:"moved"`
	Status      string  `json:"status"`
	Failure     string  `json:"failure,omitempty"`
}

// write records an entry. The store is locked.
func (l *journal) write(e *entry) {
	raw, err := json.Marshal(e)
	if err != nil {
		panic(fmt.Sprintf("sqs: journal: %v", err)) // it has strings and numbers only
	}
	l.entries = append(append(l.entries, raw...), '\n')
}

// flush writes the entries of all changes so far. The store is not locked.
func (st *store) flush() error {
	l := st.log
	if l == nil {
		return nil
	}
	l.writing.Lock()
	defer l.writing.Unlock()
	st.mu.Lock()
	entries := l.entries
	l.entries = l.spare[:0]
	st.mu.Unlock()
	l.spare = entries
	if len(entries) == 0 {
		return nil
	}
	if _, err := l.file.Write(entries); err != nil {
		return fmt.Errorf("sqs: write the journal %s: %w", l.file.Name(), err)
	}
	return nil
}

func (st *store) logQueueLocked(q *queue, now instant) {
	if st.log != nil {
		st.log.write(&entry{At: now, Do: doQueue, Queue: q.id, Definition: &queueEntry{q.name, q.fifo, q.created, q.modified, q.attributes, q.tags}})
	}
}

func (st *store) logDropQueueLocked(q *queue, now instant) {
	if st.log != nil {
		st.log.write(&entry{At: now, Do: doDropQueue, Queue: q.id})
	}
}

func (st *store) logPurgeLocked(q *queue, now instant) {
	if st.log != nil {
		st.log.write(&entry{At: now, Do: doPurge, Queue: q.id})
	}
}

// logSendLocked logs a message that a queue has received; key is "" if it is not remembered.
func (st *store) logSendLocked(q *queue, m *message, key string, now instant) {
	if st.log == nil {
		return
	}
	st.log.write(&entry{At: now, Do: doSend, Queue: q.id, Serial: m.serial, Due: m.due, Key: key, Message: &messageEntry{
		m.id, m.body, m.attributes, m.trace, m.sender, m.order, m.group, m.deduplication, m.sequence,
		m.sent, m.enqueued, m.first, m.count, m.source,
	}})
}

func (st *store) logReceiveLocked(q *queue, got []delivery, now instant) {
	if st.log == nil {
		return
	}
	received := make([]receivedEntry, len(got))
	for i, d := range got {
		m := d.message
		received[i] = receivedEntry{m.serial, m.receive, m.count, m.here, m.first, m.due}
	}
	st.log.write(&entry{At: now, Do: doReceive, Queue: q.id, Received: received})
}

func (st *store) logVisibilityLocked(q *queue, m *message, now instant) {
	if st.log != nil {
		st.log.write(&entry{At: now, Do: doVisibility, Queue: q.id, Serial: m.serial, Due: m.due, Base: m.received})
	}
}

func (st *store) logRemoveLocked(q *queue, m *message, now instant) {
	if st.log != nil {
		st.log.write(&entry{At: now, Do: doRemove, Queue: q.id, Serial: m.serial})
	}
}

func (st *store) logTaskLocked(t *moveTask, now instant) {
	if st.log != nil {
		st.log.write(&entry{At: now, Do: doTask, Task: &taskEntry{
			t.id, t.source, t.destination, t.perSecond, t.started, t.next, t.total, t.moved, t.status, t.failure,
		}})
	}
}

// logAdvanceLocked logs by how much the clock is ahead of the machine's.
func (st *store) logAdvanceLocked() {
	if st.log != nil {
		st.log.write(&entry{At: st.clock.now(), Do: doAdvance, Ahead: st.clock.ahead()})
	}
}
