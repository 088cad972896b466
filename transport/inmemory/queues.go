package inmemory

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/reprise-go/reprise/core/queues"
	"github.com/reprise-go/reprise/transport"
)

// lookAtOnce is the most entries of a queue that a look reads under the queue's lock.
const lookAtOnce = 100

// Browse implements [queues.Browser]. The messages are in the order of sending: one that is
// redelivered keeps its place. Their keys are their native ids.
func (t *Transport) Browse(ctx context.Context, r queues.Request) (queues.Page, error) {
	page, err := t.browse(ctx, &r)
	if err != nil {
		return queues.Page{}, fmt.Errorf("inmemory: browse %q: %w", r.Queue, err)
	}
	for i := range page.Messages {
		m := &page.Messages[i]
		m.Properties = maps.Clone(m.Properties)
		if r.WithoutBody {
			m.Body = nil
		} else {
			m.Body = bytes.Clone(m.Body)
		}
	}
	return page, nil
}

func (t *Transport) browse(ctx context.Context, r *queues.Request) (page queues.Page, err error) {
	if err := t.life.Err(ctx); err != nil {
		return page, err
	}
	if !t.caps.Browse {
		return page, transport.Unsupported("Browse")
	}
	if err := transport.PrepareBrowse(r); err != nil {
		return page, err
	}
	q, err := t.broker.queue(r.Queue)
	if err != nil {
		return page, err
	}
	if r.Keys != nil {
		page.Messages, err = t.lookUp(q, r)
		return page, err
	}
	after := uint64(0)
	if r.After != "" {
		if after, err = t.broker.parseCursor(r.After, q); err != nil {
			return page, err
		}
	}
	for more, bytes := true, 0; more; {
		if err := ctx.Err(); err != nil {
			return page, err
		}
		now := time.Now()
		q.mu.Lock()
		q.advance(now)
		i := q.stored.search(after + 1)
		end := min(i+lookAtOnce, q.stored.entries.len())
		more = end < q.stored.entries.len()
		for ; i < end; i++ {
			entry := q.stored.entries.at(i)
			if m := entry.message; m != nil && !m.expired(now) {
				if len(page.Messages) == r.Limit || bytes >= r.MaxBytes {
					page.Next, more = cursor(after, q), false
					break
				}
				page.Messages = append(page.Messages, t.look(m))
				bytes += m.size(r)
			}
			after = entry.seq
		}
		q.unlock()
	}
	return page, nil
}

// lookUp returns the messages with the keys of r that are in the queue.
func (t *Transport) lookUp(q *queue, r *queues.Request) ([]queues.Message, error) {
	found := make([]queues.Message, 0, len(r.Keys))
	now, bytes := time.Now(), 0
	for chunk := range slices.Chunk(r.Keys, lookAtOnce) {
		q.mu.Lock()
		q.advance(now)
		for _, key := range chunk {
			if m := q.find(key, now); m != nil {
				if bytes >= r.MaxBytes {
					q.unlock()
					return nil, transport.ErrTooManyKeys
				}
				found = append(found, t.look(m))
				bytes += m.size(r)
			}
		}
		q.unlock()
	}
	return found, nil
}

// find returns the message with a key, or nil if it has left the queue.
func (q *queue) find(key string, now time.Time) *message {
	seq, err := strconv.ParseUint(key, 10, 64)
	if err != nil || strconv.FormatUint(seq, 10) != key {
		return nil
	}
	m := q.stored.get(seq)
	if m == nil || m.expired(now) {
		return nil
	}
	return m
}

// size returns the bytes of a message on a page.
func (m *message) size(r *queues.Request) int {
	if r.WithoutBody {
		return m.headers.Bytes()
	}
	return m.headers.Bytes() + len(m.body)
}

// look returns a message as it is shown. It shares the body. The queue's lock is held.
func (t *Transport) look(m *message) queues.Message {
	shown := queues.Message{Incoming: m.incoming(), Key: m.nativeID, BodyBytes: len(m.body)}
	shown.DeliveryCount = m.failures
	switch m.state {
	case delayed:
		shown.State = queues.Delayed
		shown.DueAt = m.sent.Add(m.delay)
		if m.deadline.After(shown.DueAt) {
			shown.DueAt = m.deadline // it was postponed
		}
	case held:
		shown.State = queues.Locked
		shown.DeliveryCount++
	case leaving:
		shown.State = queues.Locked
	}
	if !t.caps.NativeDeliveryCount {
		shown.DeliveryCount = 0
	}
	return shown
}

// cursor returns the Next of a page that ends with a message.
func cursor(seq uint64, q *queue) string { return strconv.FormatUint(seq, 10) + "/" + q.name }

// parseCursor returns the number of the message with which the earlier page ended.
func (b *Broker) parseCursor(text string, q *queue) (seq uint64, err error) {
	number, _, _ := strings.Cut(text, "/")
	seq, err = strconv.ParseUint(number, 10, 64)
	if err != nil || cursor(seq, q) != text || seq > b.lastSeq.Load() {
		return 0, transport.Permanent(fmt.Errorf("Request.After is %.100q, which is no Next of a page of this queue; to fix: begin with an empty After", text))
	}
	return seq, nil
}

// Take implements [queues.Taker].
func (t *Transport) Take(ctx context.Context, name string, takes []queues.Take) ([]queues.TakeResult, error) {
	err := t.life.Err(ctx)
	if err == nil && !t.caps.Take {
		err = transport.Unsupported("Take")
	}
	var q *queue
	if err == nil {
		q, err = t.broker.queue(name)
	}
	if err != nil {
		return nil, fmt.Errorf("inmemory: take from %q: %w", name, err)
	}
	results := make([]queues.TakeResult, len(takes))
	for i := range takes {
		results[i] = t.take(ctx, q, &takes[i])
	}
	return results, nil
}

// take replaces one message. As in consumeAfter, the sends are first.
func (t *Transport) take(ctx context.Context, q *queue, take *queues.Take) queues.TakeResult {
	destinations, err := t.destinationsOf(ctx, take.Out)
	if err != nil {
		return queues.TakeResult{State: queues.TakeRefused, Err: fmt.Errorf("inmemory: take message %q from %q: %w", take.Key, q.name, err)}
	}
	now := time.Now()
	q.mu.Lock()
	q.advance(now)
	m := q.find(take.Key, now)
	switch {
	case m == nil || take.NativeID != "" && take.NativeID != m.nativeID:
		q.unlock()
		return queues.TakeResult{State: queues.TakeGone}
	case m.state == held || m.state == leaving:
		q.unlock()
		return queues.TakeResult{State: queues.TakeLocked}
	}
	q.withdraw(m)
	q.unlock()
	t.deliverAll(take.Out, destinations)
	q.mu.Lock()
	q.inFlight--
	q.remove(m)
	*m = message{state: gone} // a ring may keep it for a while, but not its headers and body
	q.unlock()
	return queues.TakeResult{State: queues.TakeDone}
}

// Depth implements [queues.DepthReader]. Messages that wait for earlier ones of their group are
// ready.
func (t *Transport) Depth(ctx context.Context, name string) (queues.Depth, error) {
	err := t.life.Err(ctx)
	var q *queue
	if err == nil {
		q, err = t.broker.queue(name)
	}
	if err != nil {
		return queues.Depth{}, fmt.Errorf("inmemory: depth of %q: %w", name, err)
	}
	q.mu.Lock()
	defer q.unlock()
	q.advance(time.Now())
	depth := queues.Depth{
		Ready: q.available() + q.groups.waiting, Locked: q.inFlight, Delayed: q.delayed, Receivers: len(q.receivers),
		Exact: true,
	}
	if q.stored.entries.len() > 0 {
		depth.Oldest = q.stored.entries.at(0).message.sent // the first entry is never free
	}
	return depth, nil
}

// ListQueues implements [queues.Lister].
func (t *Transport) ListQueues(ctx context.Context) ([]string, error) {
	if err := t.life.Err(ctx); err != nil {
		return nil, fmt.Errorf("inmemory: list queues: %w", err)
	}
	names := slices.Sorted(maps.Keys(t.broker.directory.Load().queues))
	return slices.DeleteFunc(names, func(name string) bool { return strings.HasSuffix(name, deadLetterSuffix) }), nil
}
