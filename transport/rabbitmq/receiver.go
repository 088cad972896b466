package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/acks"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/amqperror"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/copylog"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/header"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/message"
)

// receiver receives messages from one queue, on its own connection. The broker pushes them
// as they arrive, up to MaxInFlight; Receive returns the arrived ones.
//
// When its channel is lost, so are the channel's deliveries, and the receiver opens another
// one.
type receiver struct {
	t            *Transport
	queue        string
	log          *transport.DeliveryLog
	copies       *copylog.Log
	brokerCounts bool // the broker counts deliveries
	oneByOne     bool // it consumes one message at a time, so that their order is kept
	conns        *connManager
	outages      transport.Outages

	closing context.Context // ends when the receiver is closed
	stop    context.CancelFunc
	ended   chan struct{}    // closed when run has ended; nil before it begins
	changed transport.Signal // consumers may have to begin or end
	wakeup  transport.Signal // wakes up a Receive

	mu           sync.Mutex       // guards the fields below, and those of channel that say so
	channel      *consumerChannel // nil: there is none
	maxInFlight  int
	shrink       shrinkState
	prefetched   []*delivery // not returned by Receive yet, from prefetchHead on
	prefetchHead int
	unsettled    int // returned by Receive and not settled
	failed       error
	closed       bool
}

func newReceiver(t *Transport, queue string, cfg core.ReceiverConfig) *receiver {
	r := &receiver{
		t: t, queue: queue,
		log:          transport.NewDeliveryLog(cfg.MaxInFlight),
		copies:       t.copyLogs.For(queue),
		brokerCounts: t.caps.NativeDeliveryCount,
		oneByOne:     t.isSingleActive(queue),
		outages:      transport.Outages{ConnectionChanged: cfg.ConnectionChanged},
		changed:      transport.NewSignal(),
		wakeup:       transport.NewSignal(),
		maxInFlight:  cfg.MaxInFlight,
	}
	r.closing, r.stop = context.WithCancel(t.life.Context())
	r.copies.Resize(cfg.MaxInFlight)
	r.conns = newConnManager(t, t.cfg.ConnectionName+": receive "+queue, nil)
	return r
}

// String describes the receiver without the state of its transport.
func (r *receiver) String() string { return fmt.Sprintf("receiver of %q", r.queue) }

// GoString returns the same as String.
func (r *receiver) GoString() string { return r.String() }

// open opens the first channel.
func (r *receiver) open(ctx context.Context) error {
	var c *consumerChannel
	err := r.t.retryOutages(ctx, &r.outages, func() (err error) {
		c, err = r.openChannel(ctx)
		return err
	})
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	r.mu.Lock()
	r.ended = ended
	r.mu.Unlock()
	if !r.t.life.Go(func() { defer close(ended); r.run(c) }) {
		c.end()
		close(ended)
		return core.ErrClosed
	}
	return nil
}

// run keeps a channel open until the receiver is closed or an error is permanent.
func (r *receiver) run(c *consumerChannel) {
	defer func() { r.conns.close(time.Now().Add(grace)) }()
	for {
		err := c.run()
		if r.closing.Err() != nil {
			c.drain()
			c.end()
			return
		}
		c.end()
		if r.t.pause(r.closing, r.outages.Failed(err, time.Now())) != nil {
			return
		}
		err = r.t.retry(r.closing, &r.outages, amqperror.MayPass, func() (err error) {
			c, err = r.openChannel(r.closing)
			return err
		})
		switch {
		case err == nil:
		case r.closing.Err() != nil:
			return
		default:
			r.fail(err)
			return
		}
	}
}

// isInterrupted reports whether the receiver has lost its channel.
func (r *receiver) isInterrupted() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.channel == nil && r.ended != nil
}

func (r *receiver) isClosing() bool { return r.closing.Err() != nil }

// fail ends the receiver with a permanent error.
func (r *receiver) fail(err error) {
	r.mu.Lock()
	r.failed = err
	r.mu.Unlock()
	r.wakeup.Notify()
}

// Receive implements core.Receiver.
func (r *receiver) Receive(ctx context.Context, dst []core.Delivery) (int, error) {
	n, err := r.receive(ctx, dst)
	if err != nil && !errors.Is(err, ctx.Err()) {
		err = fmt.Errorf("rabbitmq: receive from %q: %w", r.queue, amqperror.Explain(err))
	}
	return n, err
}

func (r *receiver) receive(ctx context.Context, dst []core.Delivery) (int, error) {
	if len(dst) == 0 {
		return 0, errors.New("there is no room in dst")
	}
	for {
		if err := ctx.Err(); err != nil {
			r.wakeup.Notify() // this call may have consumed a wake-up for another one
			return 0, err
		}
		n, err := r.take(dst)
		if n > 0 || err != nil {
			for _, d := range dst[:n] {
				d.(*delivery).decode()
			}
			return n, err
		}
		select {
		case <-r.wakeup:
		case <-ctx.Done():
		}
	}
}

// take returns arrived deliveries as far as MaxInFlight allows, without waiting. If it
// leaves deliveries, or if the receiver has ended, it wakes up the next call.
func (r *receiver) take(dst []core.Delivery) (n int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
		err = core.ErrClosed
	case r.failed != nil:
		err = r.failed
	}
	if err != nil {
		r.wakeup.Notify()
		return 0, err
	}
	var now time.Time
	for n < len(dst) && r.prefetchHead < len(r.prefetched) && r.canHandOutLocked() {
		d := r.prefetched[r.prefetchHead]
		r.prefetched[r.prefetchHead] = nil
		r.prefetchHead++
		if !d.incoming.ExpiresAt.IsZero() {
			if now.IsZero() {
				now = time.Now()
			}
			if now.After(d.incoming.ExpiresAt) {
				d.requestLocked(acks.Acknowledge)
				continue
			}
		}
		r.unsettled++
		dst[n] = d
		n++
	}
	if r.prefetchHead == len(r.prefetched) {
		r.prefetched, r.prefetchHead = r.prefetched[:0], 0
	} else if r.canHandOutLocked() {
		r.wakeup.Notify()
	}
	return n, nil
}

// addDelivery enters a delivery that the broker sent to a consumer.
func (r *receiver) addDelivery(c *consumerChannel, consumer *consumer, native *amqp.Delivery) {
	d := &delivery{channel: c, consumer: consumer, native: native, entry: acks.Entry{Tag: native.DeliveryTag, Consumer: &consumer.acks}}
	d.native.Acknowledger = nil // only the receiver settles
	if _, expires := native.Headers[header.ExpiresAt]; expires || native.Expiration != "" {
		d.incoming.ExpiresAt = message.ExpiresAt(native, time.Now())
	}
	r.mu.Lock()
	if r.channel != c { // the channel is lost already
		r.mu.Unlock()
		return
	}
	c.acks.Add(&d.entry)
	consumer.arrived++
	consumer.unsettled++
	if c.waitsUntilFull && consumer.unsettled >= consumer.prefetch {
		c.waitsUntilFull = false
		r.changed.Notify()
	}
	if r.prefetchHead > 0 && len(r.prefetched) == cap(r.prefetched) {
		n := copy(r.prefetched, r.prefetched[r.prefetchHead:])
		clear(r.prefetched[n:])
		r.prefetched, r.prefetchHead = r.prefetched[:n], 0
	}
	r.prefetched = append(r.prefetched, d)
	free := r.canHandOutLocked()
	r.mu.Unlock()
	if free {
		r.wakeup.Notify()
	}
}

// canHandOutLocked reports whether Receive may return one more delivery. A MaxInFlight of 0
// means that none may be prefetched: if the broker would count their return as an attempt,
// Receive returns them.
func (r *receiver) canHandOutLocked() bool {
	return r.unsettled < r.maxInFlight || r.brokerCounts && r.maxInFlight == 0
}

// hasExcessLocked reports whether to return a delivery to the queue because more have
// arrived than MaxInFlight. If the broker counts a return as an attempt, they wait for
// Receive instead.
func (r *receiver) hasExcessLocked() bool {
	return !r.brokerCounts && len(r.prefetched) > r.prefetchHead && len(r.prefetched)-r.prefetchHead+r.unsettled > r.maxInFlight
}

// SetMaxInFlight implements core.Receiver. The broker learns of the change as soon as
// possible. Excess messages that it sends before are requeued or, if it would count that as
// an attempt, returned by Receive when MaxInFlight allows.
func (r *receiver) SetMaxInFlight(n int) {
	r.mu.Lock()
	if n < r.maxInFlight && r.channel != nil {
		r.channel.acks.PostponeRequeues(true)
	}
	if r.brokerCounts {
		r.scheduleShrinkLocked(n)
	}
	r.maxInFlight = n
	r.mu.Unlock()
	r.log.Resize(n)
	r.copies.Resize(n)
	r.changed.Notify()
	r.wakeup.Notify()
}

// shrinkPause is how long MaxInFlight must have been lower before consumers are cancelled.
const shrinkPause = 2 * time.Second

// shrinkState is the state of following a lower MaxInFlight. The MaxInFlight that the
// engine wants rises and falls with the duration of the handlers. Consumers follow it
// downwards only after a while, so that they are seldom cancelled.
type shrinkState struct {
	consumed int         // the most deliveries that consumers may prefetch together, if more than MaxInFlight
	highest  int         // the highest MaxInFlight since timer began
	timer    *time.Timer // runs while consumed is more than MaxInFlight
}

// maxConsumedLocked is how many deliveries the consumers may prefetch together.
func (r *receiver) maxConsumedLocked() int {
	n := max(r.maxInFlight, r.shrink.consumed)
	if r.oneByOne {
		return min(n, 1)
	}
	return n
}

// stop limits the consumers to MaxInFlight immediately.
func (s *shrinkState) stop() {
	if s.timer != nil {
		s.timer.Stop()
	}
	*s = shrinkState{}
}

// scheduleShrinkLocked is called before MaxInFlight becomes n.
func (r *receiver) scheduleShrinkLocked(n int) {
	s := &r.shrink
	before := r.maxConsumedLocked()
	if n == 0 || n >= before {
		s.stop()
		return
	}
	s.consumed = before
	s.highest = max(s.highest, n)
	if s.timer == nil {
		s.highest = n
		s.timer = time.AfterFunc(shrinkPause, r.shrinkConsumers)
	}
}

// shrinkConsumers limits the consumers to the highest MaxInFlight of the last shrinkPause.
func (r *receiver) shrinkConsumers() {
	r.mu.Lock()
	s := &r.shrink
	if s.timer == nil || r.closed {
		r.mu.Unlock()
		return
	}
	s.timer, s.consumed = nil, 0
	if s.highest > r.maxInFlight {
		s.consumed, s.highest = s.highest, r.maxInFlight
		s.timer = time.AfterFunc(shrinkPause, r.shrinkConsumers)
	}
	r.mu.Unlock()
	r.changed.Notify()
}

// Close implements core.Receiver. It has settled messages acknowledged first, and then the
// others requeued. If the broker cannot be told, because it cannot be reached or ctx ends,
// it redelivers both.
func (r *receiver) Close(ctx context.Context) error {
	r.mu.Lock()
	r.closed = true
	r.shrink.stop()
	ended := r.ended
	r.mu.Unlock()
	r.wakeup.Notify()
	r.stop()
	if ended != nil {
		select {
		case <-ended:
		case <-ctx.Done():
			r.conns.close(time.Now())
			<-ended
		}
	}
	r.conns.close(deadline(ctx))
	r.t.life.Remove(r)
	return nil
}
