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
)

// receiver receives messages from one queue, on its own connection. The broker pushes them
// as they arrive, up to MaxInFlight; Receive returns the arrived ones.
//
// A session is one channel. When the channel is lost, so are its deliveries, and the next
// session begins.
type receiver struct {
	t       *Transport
	queue   string
	log     *transport.DeliveryLog
	copies  *copyLog
	counts  bool // the broker counts deliveries
	link    *link
	outages transport.Outages

	closing context.Context // ends when the receiver is closed
	stop    context.CancelFunc
	ended   chan struct{}    // closed when run has ended; nil before it begins
	changed transport.Signal // consumers may have to begin or end
	bell    transport.Signal // wakes up a Receive

	mu          sync.Mutex // guards the fields below, and the session
	session     *session   // nil: there is none
	maxInFlight int
	shrink      shrink
	arrived     []*delivery // not returned by Receive yet, from first on
	first       int
	held        int // returned by Receive and not settled
	failed      error
	closed      bool
}

func newReceiver(t *Transport, queue string, cfg core.ReceiverConfig) *receiver {
	r := &receiver{
		t: t, queue: queue,
		log:         transport.NewDeliveryLog(cfg.MaxInFlight),
		copies:      t.copiesFrom(queue),
		counts:      t.caps.NativeDeliveryCount,
		outages:     transport.Outages{ConnectionChanged: cfg.ConnectionChanged},
		changed:     transport.NewSignal(),
		bell:        transport.NewSignal(),
		maxInFlight: cfg.MaxInFlight,
	}
	r.closing, r.stop = context.WithCancel(t.life.Context())
	r.copies.resize(cfg.MaxInFlight)
	r.link = newLink(t, t.cfg.ConnectionName+": receive "+queue, nil)
	return r
}

// String describes the receiver without the state of its transport.
func (r *receiver) String() string { return fmt.Sprintf("receiver of %q", r.queue) }

// GoString returns the same as String.
func (r *receiver) GoString() string { return r.String() }

// open begins the first session.
func (r *receiver) open(ctx context.Context) error {
	var s *session
	err := r.t.eventually(ctx, &r.outages, func() (err error) {
		s, err = r.begin(ctx)
		return err
	})
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	r.mu.Lock()
	r.ended = ended
	r.mu.Unlock()
	if !r.t.life.Go(func() { defer close(ended); r.run(s) }) {
		s.end()
		close(ended)
		return core.ErrClosed
	}
	return nil
}

// run keeps a session until the receiver is closed or an error is permanent.
func (r *receiver) run(s *session) {
	defer func() { r.link.close(time.Now().Add(grace)) }()
	for {
		began := time.Now()
		err := s.run()
		if r.closing.Err() != nil {
			s.farewell()
			s.end()
			return
		}
		s.end()
		if r.t.pause(r.closing, r.outages.Failed(err, began)) != nil {
			return
		}
		err = r.outages.Retry(r.closing, func() (err error) {
			s, err = r.begin(r.closing)
			return err
		}, transient, func(d time.Duration) error { return r.t.pause(r.closing, d) })
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

// interrupted reports whether the receiver has lost its session.
func (r *receiver) interrupted() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.session == nil && r.ended != nil
}

func (r *receiver) isClosing() bool { return r.closing.Err() != nil }

// fail ends the receiver with a permanent error.
func (r *receiver) fail(err error) {
	r.mu.Lock()
	r.failed = err
	r.mu.Unlock()
	r.bell.Notify()
}

// Receive implements core.Receiver.
func (r *receiver) Receive(ctx context.Context, dst []core.Delivery) (int, error) {
	n, err := r.receive(ctx, dst)
	if err != nil && !errors.Is(err, ctx.Err()) {
		err = fmt.Errorf("rabbitmq: receive from %q: %w", r.queue, explained(err))
	}
	return n, err
}

func (r *receiver) receive(ctx context.Context, dst []core.Delivery) (int, error) {
	if len(dst) == 0 {
		return 0, errors.New("there is no room in dst")
	}
	for {
		if err := ctx.Err(); err != nil {
			r.bell.Notify() // this call may have consumed a wake-up for another one
			return 0, err
		}
		n, err := r.take(dst)
		if n > 0 || err != nil {
			for _, d := range dst[:n] {
				d.(*delivery).read()
			}
			return n, err
		}
		select {
		case <-r.bell:
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
		r.bell.Notify()
		return 0, err
	}
	var now time.Time
	for n < len(dst) && r.first < len(r.arrived) && r.mayHandOut() {
		d := r.arrived[r.first]
		r.arrived[r.first] = nil
		r.first++
		if !d.expires.IsZero() {
			if now.IsZero() {
				now = time.Now()
			}
			if now.After(d.expires) {
				r.session.settle(d, acknowledge)
				continue
			}
		}
		r.held++
		dst[n] = d
		n++
	}
	if r.first == len(r.arrived) {
		r.arrived, r.first = r.arrived[:0], 0
	} else if r.mayHandOut() {
		r.bell.Notify()
	}
	return n, nil
}

// arrive enters a delivery that the broker sent to a consumer.
func (r *receiver) arrive(s *session, c *consumer, native *amqp.Delivery) {
	d := &delivery{session: s, consumer: c, native: *native, entry: entry{tag: native.DeliveryTag, consumer: c}}
	d.native.Acknowledger = nil // only the receiver settles
	if d.native.Expiration != "" {
		d.expires = expiry(d.native.Expiration)
	}
	r.mu.Lock()
	if r.session != s { // the session is lost already
		r.mu.Unlock()
		return
	}
	s.acks.arrived(&d.entry)
	c.arrived++
	c.unsettled++
	c.unwritten++
	if r.first > 0 && len(r.arrived) == cap(r.arrived) {
		n := copy(r.arrived, r.arrived[r.first:])
		clear(r.arrived[n:])
		r.arrived, r.first = r.arrived[:n], 0
	}
	r.arrived = append(r.arrived, d)
	free := r.mayHandOut()
	r.mu.Unlock()
	if free {
		r.bell.Notify()
	}
}

// mayHandOut reports whether Receive may return one more delivery. A MaxInFlight of 0 means
// that none may be prefetched: if the broker would count their return as an attempt,
// Receive returns them. mu is held.
func (r *receiver) mayHandOut() bool {
	return r.held < r.maxInFlight || r.counts && r.maxInFlight == 0
}

// excess reports whether to return a delivery to the queue because more have arrived than
// MaxInFlight. If the broker counts a return as an attempt, they wait for Receive instead.
// mu is held.
func (r *receiver) excess() bool {
	return !r.counts && len(r.arrived) > r.first && len(r.arrived)-r.first+r.held > r.maxInFlight
}

// SetMaxInFlight implements core.Receiver. The broker learns of the change as soon as
// possible. Excess messages that it sends before are requeued or, if it would count that as
// an attempt, returned by Receive when MaxInFlight allows.
func (r *receiver) SetMaxInFlight(n int) {
	r.mu.Lock()
	if n < r.maxInFlight && r.session != nil {
		r.session.acks.holdGiven(true)
	}
	if r.counts {
		r.shrinkLater(n)
	}
	r.maxInFlight = n
	r.mu.Unlock()
	r.log.Resize(n)
	r.copies.resize(n)
	r.changed.Notify()
	r.bell.Notify()
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
	r.bell.Notify()
	r.stop()
	if ended != nil {
		select {
		case <-ended:
		case <-ctx.Done():
			r.link.close(time.Now())
			<-ended
		}
	}
	r.link.close(deadline(ctx))
	r.t.life.Remove(r)
	return nil
}
