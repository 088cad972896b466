package asb

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
)

// receiver takes messages from one queue, on a separate connection.
//
// Its pollers request as many messages as there are free places. A message has a place
// from its request until it is settled. The SDK has no prefetching: messages that arrive
// while no call of its ReceiveMessages is in progress are released, so a poller calls it
// again at once. In mode None, in which the service forgets a message when it sends it, a
// poller requests only as many messages as calls of Receive wait for.
type receiver struct {
	t           *Transport
	address     string
	mode        core.TransactionMode
	sessions    bool          // the queue requires them
	lock        time.Duration // of a message in this queue; 0: not known
	keepExpired bool          // the queue dead-letters messages that are past their time to live, as far as is known
	control     *control
	outages     transport.Outages
	closing     context.Context // ends when the receiver is closed
	close       context.CancelFunc
	graceful    context.Context // ends when Close may no longer wait for the service
	abandon     context.CancelFunc
	closedDone  chan struct{}  // closed when Close has released all messages
	pollers     sync.WaitGroup // pollers and other goroutines; it grows with mu held, or by one of them
	settlements sync.WaitGroup // in progress
	arrivals    transport.Signal
	room        transport.Signal // there may be places for a request

	mu          sync.Mutex // guards the fields below
	client      *client    // another one after a call was given up
	closed      bool
	ended       bool // Close has closed client
	maxInFlight int
	unsettled   map[*delivery]struct{} // arrived and not settled
	arrived     []*delivery            // messages in unsettled that Receive has not returned
	asked       int                    // places of requests in progress
	demand      int                    // messages that calls of Receive wait for
	wanted      int                    // most pollers: it grows while answers come back full
	started     int                    // running pollers
	waiting     context.Context        // context of requests; it ends at a pause
	interrupt   context.CancelFunc
	resume      time.Time // no request begins before
	nextSweep   time.Time // sweepLocked does nothing before
	permanent   error     // an error that no retry can end
	refusals    int       // of rights, since the last success
	postponed   int       // sessions whose message is not due yet, or has no place
	accepting   int       // requests for a session, each of which has a place
	lent        int       // places of such requests that due messages have taken
}

const (
	// mostLinks is the most concurrent requests for messages, each on a link.
	mostLinks = 4
	// mostAsked is how many messages one request may bring.
	mostAsked = 256
	// afterFirst is how long a request waits for further messages after the first one.
	// Messages that arrive between two requests go back to the queue, so a request should
	// not end while many are arriving.
	afterFirst = 2 * time.Millisecond
)

func newReceiver(t *Transport, c *client, address string, cfg core.ReceiverConfig) *receiver {
	r := &receiver{
		t: t, client: c, address: address, mode: cfg.Mode, sessions: t.cfg.keepsGroups(address),
		arrivals: transport.NewSignal(), room: transport.NewSignal(), closedDone: make(chan struct{}),
		maxInFlight: cfg.MaxInFlight, unsettled: map[*delivery]struct{}{}, wanted: 1,
	}
	r.outages.ConnectionChanged = cfg.ConnectionChanged
	r.closing, r.close = context.WithCancel(t.life.Context())
	r.graceful, r.abandon = context.WithCancel(context.Background())
	r.waiting, r.interrupt = context.WithCancel(r.closing)
	r.control = newControl(r)
	c.replace = r.replaceClient
	return r
}

// currentClient returns the client by which to open links.
func (r *receiver) currentClient() *client {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.client
}

// replaceClient replaces a client of which a call was given up, like one whose connection is lost.
func (r *receiver) replaceClient(stuck *client) {
	r.mu.Lock()
	if r.client == stuck && !r.ended {
		if c, err := r.t.connect(); err == nil { // does not contact the service
			c.replace = r.replaceClient
			r.client = c
		}
	}
	r.mu.Unlock()
	stuck.abort()
}

// String describes the receiver without the fields of its transport.
func (r *receiver) String() string { return fmt.Sprintf("receiver of %s (%v)", r.address, r.mode) }

// GoString returns the same as String.
func (r *receiver) GoString() string { return r.String() }

// open starts the requests for messages.
func (r *receiver) open() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.startPollersLocked()
}

// startPollersLocked starts the missing pollers.
func (r *receiver) startPollersLocked() {
	for !r.closed && r.started < r.wanted {
		r.started++
		if r.sessions {
			r.pollers.Go(r.pollSessions)
		} else {
			r.pollers.Go(r.poll)
		}
	}
}

// Receive implements core.Receiver.
func (r *receiver) Receive(ctx context.Context, dst []core.Delivery) (int, error) {
	n, err := r.receive(ctx, dst)
	if err != nil && !errors.Is(err, ctx.Err()) {
		err = fmt.Errorf("asb: receive from %q: %w", r.address, r.t.explained(err))
	}
	return n, err
}

func (r *receiver) receive(ctx context.Context, dst []core.Delivery) (int, error) {
	if len(dst) == 0 {
		return 0, errors.New("there is no room in dst")
	}
	r.require(len(dst))
	defer r.require(-len(dst))
	for {
		if err := ctx.Err(); err != nil {
			r.arrivals.Notify() // this call may have taken the wake-up of another one
			return 0, err
		}
		n, more, err := r.take(dst)
		if more {
			r.arrivals.Notify()
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

// require records how many messages calls of Receive wait for.
func (r *receiver) require(n int) {
	if r.mode != core.TransactionNone {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.demand += n
	if n > 0 {
		r.room.Notify()
	}
}

// take moves messages that have arrived into dst. more reports whether another call of
// Receive has to look as well: for further messages, or for the same error.
func (r *receiver) take(dst []core.Delivery) (n int, more bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return 0, true, core.ErrClosed
	}
	var stale []*delivery
	for n < len(dst) && len(r.arrived) > 0 {
		d := r.arrived[0]
		r.arrived = r.arrived[1:]
		d.waiting = false
		if r.mode == core.TransactionNone {
			r.dropLocked(d)
		}
		switch left := time.Until(d.LockedUntil()); {
		case d.in.expired(r.t.clock.Now()):
			if r.mode != core.TransactionNone {
				r.freeLocked(d)
				r.pollers.Go(func() { r.discard(d) })
			}
			continue
		case r.mode == core.TransactionNone:
		case left <= 0:
			r.dropLocked(d) // it is redelivered, and no handler has seen it
			continue
		case left < d.locked/2 && !d.refreshed:
			stale = append(stale, d)
			continue
		}
		dst[n] = d
		n++
	}
	if len(stale) > 0 {
		r.pollers.Go(func() { r.refresh(stale) })
	}
	if n == 0 && r.permanent != nil {
		return 0, true, r.permanent
	}
	return n, len(r.arrived) > 0, nil
}

// discard consumes a message that is past its time to live, whose place is free already, as the service does.
func (r *receiver) discard(d *delivery) {
	ctx, cancel := context.WithTimeout(r.closing, requestTimeout)
	defer cancel()
	defer d.ended()
	consume := complete
	if r.keepExpired {
		consume = deadLetterExpired
	}
	_ = d.request(ctx, consume) // otherwise the service does so when its lock ends
}

// refresh renews the locks of messages that have waited long for a Receive, so that a
// handler has time until it settles them or the engine renews them, and makes them
// available again.
func (r *receiver) refresh(stale []*delivery) {
	var renewals sync.WaitGroup
	for _, d := range stale {
		renewals.Go(func() {
			ctx, cancel := context.WithDeadline(r.closing, d.LockedUntil())
			defer cancel()
			_ = d.Renew(ctx) // otherwise the rest of the lock must suffice
		})
	}
	renewals.Wait()
	r.mu.Lock()
	for _, d := range stale {
		d.refreshed = true
	}
	surplus := r.arriveLocked(stale...)
	r.mu.Unlock()
	r.putBack(surplus)
}

// SetMaxInFlight implements core.Receiver. If it falls, arrived and requested messages
// without a place are returned to the queue with their previous count.
func (r *receiver) SetMaxInFlight(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.maxInFlight = n
	if surplus := r.surplusLocked(); len(surplus) > 0 {
		r.pollers.Go(func() { r.putBack(surplus) })
	}
	if n == 0 {
		// From now on the SDK releases the requested messages, uncounted.
		r.interrupt()
		r.waiting, r.interrupt = context.WithCancel(r.closing)
	}
	r.startPollersLocked()
	r.room.Notify()
}

// freePlacesLocked returns the number of free places.
func (r *receiver) freePlacesLocked() int {
	if r.mode == core.TransactionNone {
		return min(r.demand, r.maxInFlight) - len(r.arrived) - r.asked
	}
	return r.maxInFlight - len(r.unsettled) - r.asked
}

// surplusLocked removes and returns the arrived messages beyond MaxInFlight, the newest
// ones. A closed receiver keeps them, for Close; a receiver in mode None keeps them too,
// because they cannot be returned.
func (r *receiver) surplusLocked() (surplus []*delivery) {
	n := min(len(r.unsettled)-r.maxInFlight, len(r.arrived))
	if n <= 0 || r.closed || r.mode == core.TransactionNone {
		return nil
	}
	kept := len(r.arrived) - n
	surplus = slices.Clone(r.arrived[kept:])
	clear(r.arrived[kept:])
	r.arrived = r.arrived[:kept]
	for _, d := range surplus {
		d.waiting = false
		r.freeLocked(d)
	}
	return surplus
}

// putBack releases messages that no handler has seen.
func (r *receiver) putBack(surplus []*delivery) {
	if len(surplus) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(r.graceful, requestTimeout)
	defer cancel()
	r.releaseAll(ctx, surplus)
}

// releasesAtOnce is how many messages are released at the same time.
const releasesAtOnce = 64

// releaseAll releases messages, if the service can be reached. Otherwise they are
// redelivered when their locks end.
func (r *receiver) releaseAll(ctx context.Context, deliveries []*delivery) {
	slots := make(chan struct{}, releasesAtOnce)
	var running sync.WaitGroup
	for _, d := range deliveries {
		slots <- struct{}{}
		running.Go(func() {
			_ = d.giveBack(ctx)
			<-slots
		})
	}
	running.Wait()
}

// freeLocked frees the place of a delivery.
func (r *receiver) freeLocked(d *delivery) {
	delete(r.unsettled, d)
	r.room.Notify()
}

// dropLocked frees the place of a delivery that will not be settled.
func (r *receiver) dropLocked(d *delivery) {
	r.freeLocked(d)
	d.ended()
}

// arriveLocked makes messages available to Receive, and returns those for which there is
// no longer a place.
func (r *receiver) arriveLocked(ready ...*delivery) (surplus []*delivery) {
	for _, d := range ready {
		r.unsettled[d] = struct{}{}
		d.waiting = true
	}
	r.arrived = append(r.arrived, ready...)
	surplus = r.surplusLocked()
	if len(r.arrived) > 0 {
		r.arrivals.Notify()
	}
	return surplus
}

// sweepLocked frees the places of deliveries whose lock has ended, and which may never be settled.
func (r *receiver) sweepLocked() {
	if r.mode == core.TransactionNone {
		return
	}
	now := time.Now()
	if now.Before(r.nextSweep) {
		return
	}
	r.nextSweep = now.Add(leastLock / 16)
	for d := range r.unsettled {
		if !d.waiting && now.After(d.LockedUntil()) {
			r.dropLocked(d)
		}
	}
}

// reserve takes places for a request, at most most. If there are none, the poller looks
// again after room's signal, or after wait. open is false when the receiver is closed.
func (r *receiver) reserve(most int) (places int, wait time.Duration, waiting context.Context, open bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return 0, 0, nil, false
	}
	if wait := time.Until(r.resume); wait > 0 {
		return 0, wait, nil, true
	}
	free := r.freePlacesLocked()
	if free <= 0 {
		r.sweepLocked()
		free = r.freePlacesLocked()
	}
	if free <= 0 || r.permanent != nil {
		return 0, leastLock, nil, true
	}
	places = min(free, most)
	r.asked += places
	if free > places {
		r.room.Notify()
	}
	return places, 0, r.waiting, true
}

// poll runs a poller, which has a link.
func (r *receiver) poll() {
	l := newLink(r)
	for {
		places, wait, waiting, open := r.reserve(l.requestSize())
		switch {
		case !open:
			r.keep(l.close())
			return
		case places > 0:
			r.ask(waiting, l, places)
		default:
			_ = transport.Sleep(r.closing, r.closing, wait, r.room) // reserve detects that the receiver is closed
		}
	}
}

// ask makes one request for messages, and hands them on.
func (r *receiver) ask(ctx context.Context, l *link, places int) {
	began := time.Now()
	messages, err := l.receive(ctx, places)
	if err != nil {
		r.notAnswered(ctx, places, err, began)
		places = 0
	}
	if err == nil || len(messages) > 0 {
		r.putBack(r.answered(places, messages))
	}
}

// keep hands on the messages that arrived while a link was closed. If the receiver is
// closed, Close releases them.
func (r *receiver) keep(last []*delivery) {
	r.mu.Lock()
	surplus := r.arriveLocked(last...)
	r.mu.Unlock()
	r.putBack(surplus)
}

// answered records the messages of a request. It returns those for which there is no
// longer a place.
func (r *receiver) answered(places int, messages []*delivery) (surplus []*delivery) {
	if len(messages) > 0 {
		r.works()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked -= places
	// In None a link without a request may have messages that the service has forgotten:
	// so there is only one link.
	if !r.sessions && r.mode != core.TransactionNone && len(messages) == places && r.freePlacesLocked() > 0 {
		r.wanted = min(r.wanted+1, mostLinks)
		r.startPollersLocked()
	}
	surplus = r.arriveLocked(messages...)
	r.room.Notify()
	return surplus
}

// notAnswered records a failed request: the next one begins after a pause, or never if no
// retry can help. ctx is the request's context, whose end is not a failure. If err is
// that of another ended context, the request took too long.
func (r *receiver) notAnswered(ctx context.Context, places int, err error, began time.Time) {
	ended := ctx.Err() != nil
	retry := ended || transient(err) || faultOf(err) == faultNoToken || r.mayBeRefusedByChance(err)
	var pause time.Duration
	if retry && !ended {
		pause = r.outages.Failed(err, began)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked -= places
	if !retry && !r.closed {
		r.permanent = err
		r.arrivals.Notify()
	}
	if resume := time.Now().Add(pause); pause > 0 && resume.After(r.resume) {
		r.resume = resume
	}
	r.room.Notify()
}

// mostRefusals is how often in a row access may be denied before that counts as
// permanent.
const mostRefusals = 5

// mayBeRefusedByChance reports whether the service may have denied access that the
// receiver has: if a connection is lost while the SDK opens a link, the SDK may have sent
// the token on that connection, and opens the link on the next one.
func (r *receiver) mayBeRefusedByChance(err error) bool {
	if faultOf(err) != faultRefused {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refusals++
	return r.refusals < mostRefusals
}

// works records that the service has answered.
func (r *receiver) works() {
	r.outages.End()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refusals = 0
}
