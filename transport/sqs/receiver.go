package sqs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

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
	settler     *settler
	joint       *jointOutages
	outages     transport.Outages // of requests for messages
	bodies      bodyOutages
	closing     context.Context // ends when the receiver is closed
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
	storeDown    bool                   // the last fetch of a body failed
	started      int                    // running pollers
	resume       time.Time              // no request begins before
	nextSweep    time.Time              // sweepLocked does nothing before
	permanent    error                  // an error that no retry can end
}

func newReceiver(t *Transport, address, url string, cfg core.ReceiverConfig) *receiver {
	r := &receiver{
		t: t, address: address, url: url, mode: cfg.Mode, visibility: t.cfg.VisibilityTimeout,
		log: transport.NewDeliveryLog(cfg.MaxInFlight), arrivals: transport.NewSignal(), maxBytes: cfg.MaxReceiveBytes,
		batch: receiveBatch, maxInFlight: cfg.MaxInFlight, held: map[*delivery]struct{}{}, wanted: 1,
		room: transport.NewSignal(), closedDone: make(chan struct{}), joint: &jointOutages{tell: cfg.ConnectionChanged},
	}
	if isFIFO(address) {
		r.batch = 1
	}
	r.outages.ConnectionChanged = r.joint.part(outageOfQueue)
	r.bodies.ConnectionChanged = r.joint.part(outageOfBodies)
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

// startPollersLocked starts the missing pollers.
func (r *receiver) startPollersLocked() {
	for !r.closed && r.started < r.neededLocked() {
		r.started++
		r.pollers.Go(r.poll)
	}
}

// neededLocked returns how many pollers are needed. Each freed place would wake the
// others in vain.
func (r *receiver) neededLocked() int { return max(1, min(r.wanted, r.mostPollersLocked())) }

// mostPollersLocked returns how many requests fit into MaxInFlight.
func (r *receiver) mostPollersLocked() int { return (r.maxInFlight + r.batch - 1) / r.batch }

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
	r.putBack(surplus)
}

// SetMaxInFlight implements core.Receiver. If it falls, arrived and requested messages
// without a place are returned to the queue with their previous count.
func (r *receiver) SetMaxInFlight(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.maxInFlight = n
	r.log.Resize(n)
	if surplus := r.surplusLocked(); len(surplus) > 0 {
		r.pollers.Go(func() { r.putBack(surplus) })
	}
	r.startPollersLocked()
	r.wakePollersLocked()
}

// surplusLocked removes and returns the arrived messages beyond MaxInFlight, the newest
// ones. A closed receiver keeps them, for Close.
func (r *receiver) surplusLocked() (surplus []*delivery) {
	n := min(len(r.held)-r.maxInFlight, len(r.arrived))
	if n <= 0 || r.closed {
		return nil
	}
	kept := len(r.arrived) - n
	surplus = slices.Clone(r.arrived[kept:])
	clear(r.arrived[kept:])
	r.arrived = r.arrived[:kept]
	for _, d := range surplus {
		delete(r.held, d)
	}
	return surplus
}

// wakePollersLocked wakes a poller if there are places for a request, if one has to look
// again at another time than before, or if one is no longer needed. A poller that takes
// places, or ends, wakes the next one.
func (r *receiver) wakePollersLocked() {
	few, resume := r.few, time.Until(r.resume) > 0
	if places, _ := r.placesLocked(); places > 0 || resume || !r.few.Equal(few) || r.started > r.neededLocked() {
		r.room.Notify()
	}
}

// freeLocked frees the place of a delivery.
func (r *receiver) freeLocked(d *delivery) {
	delete(r.held, d)
	r.wakePollersLocked()
}

// settling records a settlement in progress. It runs while the batcher adds the entry, so
// that among several simultaneous settlements the first one finds the others among the
// unsettled deliveries.
func (r *receiver) settling(*entry[*settlement]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inSettlement++
}

// settled frees the places of deliveries, all those of a request at the same time, so
// that the next request for messages uses all of them. With ErrClosed no request has
// left, and Close releases the message.
func (r *receiver) settled(entries []*entry[*settlement]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range entries {
		r.inSettlement--
		if e.err == nil || faultOf(e.err) == faultLockLost {
			delete(r.held, e.item.of)
		}
	}
	r.wakePollersLocked()
}

// unsettled returns the number of deliveries that were handed out and have no settlement
// yet.
func (r *receiver) unsettled() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.held) - len(r.arrived) - r.inSettlement
}

// expireLocked drops arrived messages whose lock has ended: they are redelivered, and no
// handler has seen them.
func (r *receiver) expireLocked() {
	now := time.Now()
	r.arrived = slices.DeleteFunc(r.arrived, func(d *delivery) bool {
		ended := now.After(d.lockedUntil())
		if ended {
			d.noteUnseen()
			delete(r.held, d)
		}
		return ended
	})
}

// sweepLocked frees the places of deliveries whose lock has ended, and which may never be
// settled. It looks at all deliveries, so it runs only at intervals.
func (r *receiver) sweepLocked() {
	now := time.Now()
	if now.Before(r.nextSweep) {
		return
	}
	r.nextSweep = now.Add(r.visibility / 16)
	for d := range r.held {
		if now.After(d.lockedUntil()) {
			delete(r.held, d)
		}
	}
}

// askLinger is how long a request for fewer messages than possible waits for settlements
// in progress: a few times the duration of a settlement, so that one that hangs does not
// keep the other places empty.
const askLinger = 100 * time.Millisecond

// placesLocked returns the number of places for a request that could begin now. If it is
// 0, the poller looks again after wait.
func (r *receiver) placesLocked() (places int, wait time.Duration) {
	wait = r.visibility / 4 // by then locks may have ended
	free := r.maxInFlight - len(r.held) - r.asked
	switch {
	case free <= 0 || r.polling >= r.wanted || r.permanent != nil:
		return 0, wait
	case free < min(r.batch, r.maxInFlight) && r.inSettlement > 0:
		now := time.Now()
		if r.few.IsZero() {
			r.few = now
		}
		if left := r.few.Add(askLinger).Sub(now); left > 0 {
			return 0, min(left, wait)
		}
	}
	return min(free, r.batch), 0
}

// reserve takes places for a request, at most batch. If there are none, the poller looks
// again after room's signal, or after wait. If the poller is no longer needed, retire is
// true and the poller ends.
func (r *receiver) reserve() (places int, wait time.Duration, retire bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || r.started > r.neededLocked() {
		r.started--
		r.room.Notify() // this poller may have taken the signal for another one
		return 0, 0, true
	}
	if wait := time.Until(r.resume); wait > 0 {
		return 0, wait, false
	}
	if r.polling < r.wanted && r.permanent == nil {
		r.expireLocked()
		if r.maxInFlight-len(r.held)-r.asked < r.batch {
			r.sweepLocked()
		}
	}
	if places, wait = r.placesLocked(); places == 0 {
		return 0, wait, false
	}
	r.few = time.Time{}
	r.asked += places
	r.polling++
	r.wakePollersLocked()
	return places, 0, false
}

// poll runs a poller.
func (r *receiver) poll() {
	for {
		places, wait, retire := r.reserve()
		switch {
		case retire:
			return
		case places > 0:
			r.ask(places)
		default:
			_ = transport.Sleep(r.closing, r.closing, wait, r.room) // reserve detects that the receiver is closed
		}
	}
}

// ask makes one request for messages, and hands them on.
func (r *receiver) ask(places int) {
	began := time.Now()
	messages, err := r.request(r.cut, r.url, places)
	if err != nil {
		r.notAnswered(places, err, began)
		return
	}
	r.outages.End()
	p := r.prepare(messages)
	r.putBack(r.answered(places, len(messages), p))
	if len(p.expired) > 0 {
		r.settler.deleteAll(r.cut, p.expired)
	}
	if len(p.early) > 0 {
		if err := r.delayAll(p.early); err != nil && r.closing.Err() == nil {
			r.pause(r.outages.Failed(err, began))
		}
	}
}

// answered records the answer to a request for messages: brought is their number, and p
// has them by the next step. It returns those for which there is no longer a place.
func (r *receiver) answered(places, brought int, p prepared) (surplus []*delivery) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked -= places - len(p.stored)
	// While the store is down, the next request waits for the outcome of this one.
	probes := r.storeDown && len(p.stored) == brought && brought > 0
	if !probes {
		r.polling--
	}
	switch brought {
	case places:
		r.wanted = min(r.wanted+1, max(1, r.mostPollersLocked()))
		r.startPollersLocked()
	case 0:
		r.wanted = 1
	}
	if len(p.stored) > 0 {
		r.pollers.Go(func() { r.fetchBodies(p.stored, brought, probes) })
	}
	surplus = r.arriveLocked(p.ready...)
	r.wakePollersLocked()
	return surplus
}

// arriveLocked makes messages available to Receive, and returns those for which there is
// no longer a place.
func (r *receiver) arriveLocked(ready ...*delivery) (surplus []*delivery) {
	for _, d := range ready {
		r.held[d] = struct{}{}
	}
	r.arrived = append(r.arrived, ready...)
	surplus = r.surplusLocked()
	if len(r.arrived) > 0 {
		r.arrivals.Notify()
	}
	return surplus
}

// notAnswered records a failed request: the next one begins after a pause, or never if no
// retry can help.
func (r *receiver) notAnswered(places int, err error, began time.Time) {
	retry := transient(err)
	var pause time.Duration
	if retry && r.closing.Err() == nil {
		pause = r.outages.Failed(err, began)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.polling--
	r.asked -= places
	if !retry && !r.closed {
		r.permanent = err
		r.arrivals.Notify()
	}
	r.pauseLocked(pause)
}

// pause stops the requests of all pollers for a time. After that one poller begins.
func (r *receiver) pause(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pauseLocked(d)
}

func (r *receiver) pauseLocked(d time.Duration) {
	if resume := time.Now().Add(d); resume.After(r.resume) {
		r.resume = resume
	}
	r.wanted = 1
	r.wakePollersLocked()
}

// systemAttributes are the attributes that requests for messages ask for.
var systemAttributes = []types.MessageSystemAttributeName{
	types.MessageSystemAttributeNameApproximateReceiveCount,
	types.MessageSystemAttributeNameApproximateFirstReceiveTimestamp,
	types.MessageSystemAttributeNameSentTimestamp,
	types.MessageSystemAttributeNameMessageGroupId,
}

// request requests messages, and waits WaitTime for the first one. It is not canceled
// when the receiver closes: the service would still put messages into the answer, and
// they would be locked without a receiver.
func (r *receiver) request(ctx context.Context, url string, places int) ([]*delivery, error) {
	traced, first := firstByte(ctx)
	out, err := r.t.poll.ReceiveMessage(traced, &sqs.ReceiveMessageInput{
		QueueUrl: &url, MaxNumberOfMessages: int32(places),
		WaitTimeSeconds: int32(r.t.cfg.WaitTime / time.Second), VisibilityTimeout: int32(r.visibility / time.Second),
		MessageSystemAttributeNames: systemAttributes, MessageAttributeNames: allAttributes,
	})
	if err != nil {
		return nil, err
	}
	at := first()
	if now, ok := awsmiddleware.GetServerTime(out.ResultMetadata); ok {
		r.t.clock.Observe(now, at) // in whole seconds, rounded down
	}
	deliveries := make([]*delivery, len(out.Messages))
	for i := range out.Messages {
		m := &out.Messages[i]
		in := r.t.codec.Read(r.address, m)
		if in.DeliveryCount == 1 && !in.First.IsZero() {
			r.t.clock.Observe(in.First, at)
		}
		deliveries[i] = newDelivery(r, in, m, at)
	}
	return deliveries, nil
}

var allAttributes = []string{"All"}

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
