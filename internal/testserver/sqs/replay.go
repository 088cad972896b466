//go:build darwin || linux

package sqs

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// open applies the journal in a file to a new store, which writes further changes there. It
// creates the file if it does not exist.
func (st *store) open(path string) error {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("open the journal: %w", err)
	}
	if err := st.replayFile(file); err != nil {
		return errors.Join(fmt.Errorf("read the journal %s: %w; to fix: remove the file, and with it all queues and messages", path, err), file.Close())
	}
	st.log = &journal{file: file}
	now := st.clock.now()
	for _, q := range st.queues {
		q.settle(now)
	}
	for _, t := range st.tasks {
		st.armTaskLocked(t, now)
	}
	return nil
}

// replayFile applies all entries. It cuts off an incomplete last entry, whose request was not
// answered.
func (st *store) replayFile(file *os.File) error {
	r := &replay{store: st, byID: map[uint64]*queue{}}
	lines, end := bufio.NewReaderSize(file, 1<<16), int64(0)
	for n := 1; ; n++ {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		var e entry
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		if err := r.apply(&e); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		end += int64(len(line))
	}
	if err := file.Truncate(end); err != nil {
		return err
	}
	_, err := file.Seek(end, io.SeekStart)
	return err
}

// A replay applies entries to a store. No message becomes due before the end, so an
// entry applies to a message in any state.
type replay struct {
	store *store
	byID  map[uint64]*queue
}

func (r *replay) apply(e *entry) error {
	st := r.store
	switch e.Do {
	case doQueue:
		return r.queue(e)
	case doTopic:
		st.restoreTopic(e)
		return nil
	case doDropTopic:
		delete(st.topics, e.ARN)
		return nil
	case doSubscribe:
		return st.restoreSubscription(e)
	case doUnsubscribe:
		if t := st.topics[subscriptionTopic(e.ARN)]; t != nil {
			t.drop(e.ARN)
		}
		return nil
	case doPublish:
		if t := st.topics[e.ARN]; t != nil {
			t.sent.add(e.Key, sentMessage{e.ID, e.Sequence, e.At})
			t.published++
		}
		return nil
	case doTask:
		r.task(e.Task)
		return nil
	case doAdvance:
		st.clock.offset.Store(int64(e.Ahead))
		return nil
	}
	q := r.byID[e.Queue]
	if q == nil {
		return fmt.Errorf("%s: there is no queue %d", e.Do, e.Queue)
	}
	return r.message(q, e)
}

func (r *replay) queue(e *entry) error {
	st, d := r.store, e.Definition
	q := r.byID[e.Queue]
	if q == nil {
		q = newQueue(e.Queue, d.Name, st.queueARN(d.Name), d.FIFO)
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
func (r *replay) message(q *queue, e *entry) error {
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
	default:
		return fmt.Errorf("nothing is known of %q", e.Do)
	}
	return nil
}

func (r *replay) send(q *queue, e *entry) {
	d := e.Message
	m := &message{
		content: content{
			id: d.ID, body: d.Body, bodyMD5: md5Hex(d.Body), attributes: d.Attributes, attributesMD5: md5OfAttributes(d.Attributes),
			trace: d.Trace, sender: d.Sender,
		},
		serial: e.Serial, order: d.Order, group: d.Group, deduplication: d.Deduplication, sequence: d.Sequence,
		sent: d.Sent, enqueued: d.Enqueued, first: d.First, count: d.Count, source: d.Source, due: e.Due,
	}
	r.store.serial = max(r.store.serial, e.Serial)
	if e.Key != "" {
		q.sent.add(e.Key, sentMessage{m.id, m.sequence, e.At})
	}
	q.insert(m, e.At)
}

func (r *replay) task(d *taskEntry) {
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
