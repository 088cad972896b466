package inmemory

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
)

// receiver is one consumer of a queue. The queue's lock guards the fields that change.
type receiver struct {
	transport *Transport
	queue     *queue
	name      string
	mode      core.TransactionMode
	lock      time.Duration          // 0: the locks of deliveries do not expire
	longest   time.Duration          // 0: a delivery may be kept for any time
	batch     int                    // the most deliveries of one Receive
	bytes     int                    // size after which a Receive takes no more; 0: no limit
	log       *transport.DeliveryLog // nil: the messages themselves count

	closed      bool
	maxInFlight int
	unsettled   deliveryList
	waiters     waiterList
	woken       int       // woken calls that have not yet looked for messages
	idle        []*waiter // for reuse; as many as calls ever waited at the same time
}

func newReceiver(t *Transport, q *queue, cfg core.ReceiverConfig) *receiver {
	r := &receiver{
		transport:   t,
		queue:       q,
		name:        cfg.Queue,
		mode:        cfg.Mode,
		batch:       math.MaxInt,
		bytes:       cfg.MaxReceiveBytes,
		maxInFlight: cfg.MaxInFlight,
	}
	if t.caps.MaxReceiveBatch > 0 {
		r.batch = t.caps.MaxReceiveBatch
	}
	if cfg.Mode != core.TransactionNone {
		r.lock, r.longest = t.cfg.LockDuration, t.caps.MaxLockTime
	}
	if !t.caps.NativeDeliveryCount {
		r.log = transport.NewDeliveryLog(cfg.MaxInFlight)
	}
	return r
}

// attach adds the receiver to those that the queue wakes.
func (r *receiver) attach() {
	r.queue.mu.Lock()
	r.queue.receivers = append(r.queue.receivers, r)
	r.queue.unlock()
}

// Receive implements core.Receiver.
func (r *receiver) Receive(ctx context.Context, dst []core.Delivery) (int, error) {
	if len(dst) == 0 {
		return 0, fmt.Errorf("inmemory: receive from %q: %w", r.name, errors.New("there is no room in dst"))
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	q := r.queue
	q.mu.Lock()
	for {
		if r.closed {
			q.unlock()
			return 0, fmt.Errorf("inmemory: receive from %q: %w", r.name, core.ErrClosed)
		}
		if n := r.take(dst); n > 0 {
			q.unlock()
			return n, nil
		}
		w := r.wait()
		q.unlock()
		select {
		case <-w.signal:
			q.mu.Lock()
			r.looking()
			r.idle = append(r.idle, w)
		case <-ctx.Done():
			q.mu.Lock()
			if w.waiting {
				r.stopWaiting(w)
				r.idle = append(r.idle, w)
			} else {
				// It was woken at the same time. unlock wakes another call instead, and w
				// is not reused: its signal may still be on the way.
				r.looking()
			}
			q.unlock()
			return 0, ctx.Err()
		}
	}
}

// take fills dst with ready messages as far as MaxInFlight allows, without waiting.
func (r *receiver) take(dst []core.Delivery) int {
	n := min(len(dst), r.room(), r.batch)
	var now time.Time
	bytes := 0
	for i := range n {
		if r.bytes > 0 && bytes >= r.bytes {
			return i
		}
		m := r.queue.next()
		if m == nil {
			return i
		}
		if (r.lock > 0 || r.longest > 0) && now.IsZero() {
			now = time.Now()
		}
		dst[i] = r.deliver(m, now)
		if r.bytes > 0 {
			bytes += len(m.body)
		}
	}
	return max(n, 0)
}

// deliver makes a delivery of a message. now is not needed if locks do not expire.
func (r *receiver) deliver(m *message, now time.Time) core.Delivery {
	d := &delivery{receiver: r, in: m.incoming()}
	if r.longest > 0 {
		d.keptUntil = now.Add(r.longest)
	}
	d.lockedUntil = d.renewed(now)
	m.delivered = true
	if r.log != nil {
		d.in.DeliveryCount, d.in.LastError = r.log.Delivered(m.nativeID)
	}
	if r.mode == core.TransactionNone {
		r.queue.remove(m) // consumed before it is returned
		return d
	}
	d.message = m
	r.unsettled.add(d)
	r.queue.hold(m, d, d.lockedUntil)
	return d
}

// SetMaxInFlight implements core.Receiver. The receiver never prefetches, so with 0 it
// has nothing to release.
func (r *receiver) SetMaxInFlight(n int) {
	r.queue.mu.Lock()
	r.maxInFlight = n
	if r.log != nil {
		r.log.Resize(r.maxInFlight)
	}
	r.queue.unlock()
}

// Close implements core.Receiver. Settling a delivery afterwards returns an
// error matching both core.ErrLockLost and core.ErrClosed.
func (r *receiver) Close(context.Context) error {
	r.close()
	r.transport.life.Remove(r)
	return nil
}

func (r *receiver) close() {
	q := r.queue
	q.mu.Lock()
	if r.closed {
		q.unlock()
		return
	}
	r.closed = true
	for d := r.unsettled.last; d != nil; d = r.unsettled.last { // the last first, so that the order stays
		d.state = receiverClosed
		r.unsettled.remove(d)
		q.takeBack(d.message)
		r.release(d.message)
	}
	waiters := make([]*waiter, 0, 8)
	for w := r.waiters.first; w != nil; w = r.waiters.first {
		r.wake(w)
		waiters = append(waiters, w)
	}
	q.receivers = slices.DeleteFunc(q.receivers, func(other *receiver) bool { return other == r })
	q.unlock()
	for _, w := range waiters {
		w.signal <- struct{}{}
	}
}
