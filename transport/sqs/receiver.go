package sqs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
)

// receiver takes messages from one queue.
//
// Its pollers request as many messages as there are free places. A message has a place
// from its request until it is settled. The engine calls Receive once for each free
// place, so an arriving message is handed out at once; with fewer calls it waits in
// arrived, with its lock running. A request for one message costs the same as one for
// ten, so a request for fewer waits for settlements in progress, which free more places.
// If the queue is empty, one poller waits in a long poll; the others begin when answers
// come back full.
type receiver struct {
	t           *Transport
	address     string
	url         string
	mode        core.TransactionMode
	visibility  time.Duration
	log         *transport.DeliveryLog // failures in this process, which the service's count may not include yet
	unreadable  *transport.DeliveryLog // fetches of bodies that failed although the store had others
	settler     *settler
	joint       *jointOutages
	outages     transport.Outages // of requests for messages
	bodies      bodyOutages
	warn        func(text string) // core.ReceiverConfig.Warn
	closing     context.Context   // ends when the receiver is closed
	close       context.CancelFunc
	cut         context.Context // ends when requests are cut off
	cutOff      context.CancelFunc
	closedDone  chan struct{}  // closed when Close has released all messages
	pollers     sync.WaitGroup // pollers and other goroutines; it grows with mu held, or by one of them
	settlements sync.WaitGroup // in progress
	arrivals    transport.Signal
	room        transport.Signal // there may be places for a request
	maxBytes    int              // of a Receive; 0: no limit
	// batch is the most messages of a request. For a FIFO queue it is 1: a request for
	// more would bring several messages of one group. All but the first would wait with
	// their locks running, and would already be counted if the first one fails.
	batch int

	mu           sync.Mutex // guards the fields below
	closed       bool
	maxInFlight  int
	held         map[*delivery]struct{} // arrived and not settled
	arrived      []*delivery            // messages in held that Receive has not returned
	inSettlement int                    // messages in held whose settlement is in progress
	asked        int                    // places of requests, and of messages whose bodies are being fetched
	few          time.Time              // since when there have been places, but too few for a request; zero: there are none, or enough
	polling      int                    // requests in progress
	wanted       int                    // most concurrent requests: it grows while answers come back full
	storeDown    bool                   // the last fetches of bodies failed in an outage
	started      int                    // running pollers
	resume       time.Time              // no request begins before
	nextSweep    time.Time              // sweepLocked does nothing before
	permanent    error                  // an error that no retry can end
	hasReceived  bool                   // a request was answered
}

func newReceiver(t *Transport, address, url string, cfg core.ReceiverConfig) *receiver {
	r := &receiver{
		t: t, address: address, url: url, mode: cfg.Mode, visibility: t.cfg.VisibilityTimeout,
		log: transport.NewDeliveryLog(cfg.MaxInFlight), unreadable: transport.NewDeliveryLog(cfg.MaxInFlight), arrivals: transport.NewSignal(), maxBytes: cfg.MaxReceiveBytes,
		batch: receiveBatch, maxInFlight: cfg.MaxInFlight, held: map[*delivery]struct{}{}, wanted: 1,
		room: transport.NewSignal(), closedDone: make(chan struct{}), joint: &jointOutages{tell: cfg.ConnectionChanged},
	}
	if isFIFO(address) {
		r.batch = 1
	}
	r.outages.ConnectionChanged = r.joint.part(outageOfQueue)
	r.bodies.ConnectionChanged = r.joint.part(outageOfBodies)
	if r.warn = cfg.Warn; r.warn == nil {
		r.warn = t.warnings.Add
	}
	r.closing, r.close = context.WithCancel(t.life.Context())
	r.cut, r.cutOff = context.WithCancel(t.life.Context())
	r.settler = newSettler(r)
	return r
}

// String describes the receiver without the fields of its transport.
func (r *receiver) String() string { return fmt.Sprintf("receiver of %s (%v)", r.address, r.mode) }

// GoString returns the same as String.
func (r *receiver) GoString() string { return r.String() }

// open starts the requests for messages, and the forwarding from the queue of long
// delays, if there is one.
func (r *receiver) open(delayURL string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.startPollersLocked()
	if delayURL != "" && !r.closed {
		d := newDelays(r, delayURL, r.joint.part(outageOfDelays))
		r.pollers.Go(d.run)
	}
}

// Receive implements core.Receiver.
func (r *receiver) Receive(ctx context.Context, dst []core.Delivery) (int, error) {
	n, err := r.receive(ctx, dst)
	if err != nil && !errors.Is(err, ctx.Err()) {
		err = fmt.Errorf("sqs: receive from %q: %w", r.address, r.t.explained(err))
	}
	return n, err
}

func (r *receiver) receive(ctx context.Context, dst []core.Delivery) (int, error) {
	if len(dst) == 0 {
		return 0, errors.New("there is no room in dst")
	}
	dst = dst[:min(len(dst), receiveBatch)]
	for {
		if err := ctx.Err(); err != nil {
			r.arrivals.Notify() // this call may have taken the wake-up of another one
			return 0, err
		}
		n, more, err := r.take(dst)
		if more {
			r.arrivals.Notify()
		}
		if n > 0 && r.mode == core.TransactionNone {
			if n = r.consume(dst[:n]); n == 0 {
				continue
			}
		}
		if n > 0 || err != nil {
			return n, err
		}
		select {
		case <-r.arrivals:
		case <-ctx.Done():
		case <-r.closing.Done():
		}
	}
}

// consume deletes messages before they are handed out, and leaves in taken those whose
// deletion the service has confirmed. The others are redelivered.
func (r *receiver) consume(taken []core.Delivery) (n int) {
	defer r.settlements.Done()
	deliveries := make([]*delivery, len(taken))
	for i, d := range taken {
		deliveries[i] = d.(*delivery)
	}
	deleted := r.settler.deleteAll(r.cut, deliveries)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range deliveries {
		r.freeLocked(d)
	}
	for i, d := range deleted {
		taken[i] = d
	}
	return len(deleted)
}

// take moves messages that have arrived into dst. more reports whether another call of
// Receive has to look as well: for further messages, or for the same error.
func (r *receiver) take(dst []core.Delivery) (n int, more bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return 0, true, core.ErrClosed
	}
	now, bytes := time.Now(), 0
	var stale []*delivery
	if before := len(r.held); len(r.arrived) > 0 {
		if r.expireLocked(); len(r.held) < before {
			r.wakePollersLocked()
		}
	}
	for n < len(dst) && len(r.arrived) > 0 {
		d := r.arrived[0]
		size := len(d.in.Body) + d.in.Headers.Bytes()
		if n > 0 && r.maxBytes > 0 && bytes+size > r.maxBytes {
			break
		}
		r.arrived = r.arrived[1:]
		if d.in.Expired(r.t.clock.Now()) {
			r.freeLocked(d)
			r.pollers.Go(func() { r.settler.deleteAll(r.cut, []*delivery{d}) })
			continue
		}
		if r.mode != core.TransactionNone && !d.refreshed && d.lockedUntil().Sub(now) < r.visibility/2 {
			stale = append(stale, d)
			continue
		}
		bytes += size
		dst[n] = d
		n++
	}
	if n > 0 && r.mode == core.TransactionNone {
		r.settlements.Add(1) // until consume returns, which Close waits for
	}
	if len(stale) > 0 {
		r.pollers.Go(func() { r.refresh(stale) })
	}
	if n == 0 && r.permanent != nil {
		return 0, true, r.permanent
	}
	return n, len(r.arrived) > 0, nil
}

// refresh renews the locks of messages that have waited long for a Receive, so that a
// handler has time until it settles them or the engine renews them, and makes them
// available again.
func (r *receiver) refresh(stale []*delivery) {
	asked := time.Now()
	locked := r.settler.lock(r.cut, stale, r.visibility)
	for _, d := range locked {
		d.extend(asked.Add(r.visibility))
	}
	r.mu.Lock()
	for _, d := range stale {
		d.refreshed = true // also after a failed request: the rest of the lock must then suffice
	}
	surplus := r.arriveLocked(stale...)
	r.mu.Unlock()
	r.releaseAll(surplus)
}

// SetMaxInFlight implements core.Receiver. If it falls, arrived and requested messages
// without a place are returned to the queue with their previous count.
func (r *receiver) SetMaxInFlight(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.maxInFlight = n
	r.log.Resize(n)
	r.unreadable.Resize(n)
	if surplus := r.surplusLocked(); len(surplus) > 0 {
		r.pollers.Go(func() { r.releaseAll(surplus) })
	}
	r.startPollersLocked()
	r.wakePollersLocked()
}

// Close implements core.Receiver. It waits for requests for messages in progress, and
// then releases all unsettled messages: released earlier, they could be received again by
// these requests.
func (r *receiver) Close(ctx context.Context) error {
	stop := context.AfterFunc(ctx, r.cutOff)
	defer stop()
	r.mu.Lock()
	first := !r.closed
	r.closed = true
	r.mu.Unlock()
	if !first {
		<-r.closedDone
		return nil
	}
	defer close(r.closedDone)
	r.close()
	r.pollers.Wait()
	r.bodies.stop()
	transport.Await(ctx, &r.settlements) // messages that are not consumed are released afterwards
	r.mu.Lock()
	left := slices.Collect(maps.Keys(r.held))
	r.held, r.arrived = map[*delivery]struct{}{}, nil
	r.mu.Unlock()
	for _, d := range left {
		d.noteUnseen()
	}
	r.settler.release(ctx, left)
	r.cutOff()
	r.t.life.Remove(r)
	return nil
}
