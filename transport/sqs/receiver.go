package sqs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
)

// receiver takes messages from one queue.
//
// Its pollers ask for as many messages as there are free slots, and no request ever brings more than can be handed
// out: what has arrived waits for a call of Receive, of which the engine has one for each free slot. A poller that found
// the queue empty waits alone, in one long poll, and the others begin again when a request came back full.
type receiver struct {
	t           *Transport
	address     string
	url         string
	mode        core.TransactionMode
	visibility  time.Duration
	log         *transport.DeliveryLog // failures of this process, which the service's count may not know yet
	settler     *settler
	outages     transport.Outages
	closing     context.Context // ends when the receiver is closed
	close       context.CancelFunc
	cut         context.Context // ends requests for messages
	cutOff      context.CancelFunc
	pollers     sync.WaitGroup
	settlements sync.WaitGroup // under way
	arrivals    chan struct{}  // one value: something may have arrived
	mostBytes   int
	// batch is how many messages a request may bring. From a FIFO queue it is 1: a request for
	// more would bring several of one group, of which all but the first would wait with their locks running,
	// and have been counted, when the first one fails.
	batch int

	mu        sync.Mutex // guards what follows
	closed    bool
	most      int // MaxInFlight
	held      map[*delivery]struct{}
	arrived   []*delivery // not handed out yet; they are in held
	asked     int         // places of requests under way
	polling   int         // requests under way
	wanted    int         // pollers that may ask at a time: more than 1 while requests come back full
	started   int         // pollers
	room      chan struct{}
	permanent error // what no waiting mends
}

func newReceiver(t *Transport, address, url string, cfg core.ReceiverConfig) *receiver {
	r := &receiver{
		t: t, address: address, url: url, mode: cfg.Mode, visibility: t.cfg.VisibilityTimeout,
		log: transport.NewDeliveryLog(cfg.MaxInFlight), arrivals: make(chan struct{}, 1), mostBytes: cfg.MaxReceiveBytes,
		batch: receiveBatch, most: cfg.MaxInFlight, held: map[*delivery]struct{}{}, wanted: 1, room: make(chan struct{}),
	}
	if isFIFO(address) {
		r.batch = 1
	}
	r.outages.Observer = cfg.Observer
	r.closing, r.close = context.WithCancel(t.life.Context())
	r.cut, r.cutOff = context.WithCancel(t.life.Context())
	r.settler = newSettler(r)
	return r
}

// String describes it without what its transport knows.
func (r *receiver) String() string { return fmt.Sprintf("receiver of %s (%v)", r.address, r.mode) }

// GoString returns what String does.
func (r *receiver) GoString() string { return r.String() }

// open begins to ask for messages, and to forward those of the queue of long delays, if there is one.
func (r *receiver) open(delayURL string) {
	r.mu.Lock()
	r.startPollers()
	r.mu.Unlock()
	if delayURL != "" {
		d := newDelays(r, delayURL)
		r.pollers.Go(d.run)
	}
}

// startPollers has as many as MaxInFlight can need. mu is held.
func (r *receiver) startPollers() {
	for !r.closed && r.started < (r.most+r.batch-1)/r.batch {
		r.started++
		r.pollers.Go(r.poll)
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
			r.ring() // it may have woken in place of another
			return 0, err
		}
		n, more, err := r.take(dst)
		if more {
			r.ring()
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

// consume deletes messages before they are handed out, and leaves in taken those of which the service says that it
// did; the others come again.
func (r *receiver) consume(taken []core.Delivery) (n int) {
	all := make([]*delivery, len(taken))
	for i, d := range taken {
		all[i] = d.(*delivery)
	}
	deleted := r.settler.deleteAll(r.cut, all)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range all {
		r.letGo(d)
	}
	for i, d := range deleted {
		taken[i] = d
	}
	return len(deleted)
}

// ring wakes a Receive.
func (r *receiver) ring() {
	select {
	case r.arrivals <- struct{}{}:
	default:
	}
}

// take fills dst with what has arrived. more says that there is more, or that all others have to know why there is
// nothing.
func (r *receiver) take(dst []core.Delivery) (n int, more bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return 0, true, core.ErrClosed
	}
	now, bytes := time.Now(), 0
	for n < len(dst) && len(r.arrived) > 0 {
		d := r.arrived[0]
		size := len(d.in.Body) + d.in.Headers.Bytes()
		if n > 0 && r.mostBytes > 0 && bytes+size > r.mostBytes {
			break
		}
		r.arrived = r.arrived[1:]
		if now.After(d.lockedUntil()) {
			r.letGo(d) // it comes again
			continue
		}
		if d.in.expired(r.t.clock.now()) {
			r.letGo(d)
			r.pollers.Go(func() { r.settler.deleteAll(r.cut, []*delivery{d}) })
			continue
		}
		bytes += size
		dst[n] = d
		n++
	}
	if n == 0 && r.permanent != nil {
		return 0, true, r.permanent
	}
	return n, len(r.arrived) > 0, nil
}

// SetMaxInFlight implements core.Receiver. What has arrived, or is on its way, goes back with the count that it had
// when n is 0; otherwise it is handed out.
func (r *receiver) SetMaxInFlight(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.most = n
	r.log.Resize(n)
	if late := r.arrived; n == 0 && len(late) > 0 && !r.closed {
		r.arrived = nil
		for _, d := range late {
			delete(r.held, d)
		}
		r.pollers.Go(func() { r.putBack(late) })
	}
	r.startPollers()
	r.moreRoom()
}

// moreRoom wakes pollers. mu is held.
func (r *receiver) moreRoom() {
	close(r.room)
	r.room = make(chan struct{})
}

// letGo gives the place of a delivery to another one. mu is held.
func (r *receiver) letGo(d *delivery) {
	if _, ok := r.held[d]; ok {
		delete(r.held, d)
		r.moreRoom()
	}
}

// sweep lets go of deliveries whose lock has ended, of which nobody says anything any more. mu is held.
func (r *receiver) sweep() {
	now := time.Now()
	for d := range r.held {
		if now.After(d.lockedUntil()) {
			delete(r.held, d)
		}
	}
}

// reserve takes places for a request, at most ten. Without any, changed is closed when there may be some.
func (r *receiver) reserve() (places int, changed <-chan struct{}, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return 0, nil, core.ErrClosed
	}
	if r.most-len(r.held)-r.asked < r.batch {
		r.sweep()
	}
	free := r.most - len(r.held) - r.asked
	if free <= 0 || r.polling >= r.wanted || r.permanent != nil {
		return 0, r.room, nil
	}
	places = min(free, r.batch)
	r.asked += places
	r.polling++
	return places, nil, nil
}

// poll is one poller.
func (r *receiver) poll() {
	for {
		places, changed, err := r.reserve()
		if err != nil {
			return
		}
		if places == 0 {
			timer := time.NewTimer(r.visibility / 4) // locks may have ended
			select {
			case <-changed:
			case <-timer.C:
			case <-r.closing.Done():
			}
			timer.Stop()
			continue
		}
		began := time.Now()
		arrived, err := r.request(r.cut, r.url, places)
		if err == nil {
			r.outages.End()
			arrived = r.prepare(arrived)
		}
		r.putBack(r.answered(places, arrived, err))
		if err == nil || r.closing.Err() != nil {
			continue
		}
		if !transient(err) {
			continue // answered has told Receive
		}
		_ = transport.Sleep(r.closing, r.t.life.Context(), r.outages.Failed(err, began), nil)
	}
}

// answered notes what a request for messages brought, and returns what is to be given back because the endpoint was
// paused meanwhile.
func (r *receiver) answered(places int, arrived []*delivery, err error) (late []*delivery) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked -= places
	r.polling--
	if r.most == 0 {
		late, arrived = arrived, nil
	}
	for _, d := range arrived {
		r.held[d] = struct{}{}
	}
	r.arrived = append(r.arrived, arrived...)
	switch {
	case err != nil && !transient(err) && !r.closed:
		r.permanent = err
	case len(arrived) == places:
		r.wanted = min(r.wanted+1, max(1, r.started))
	case len(arrived) == 0:
		r.wanted = 1
	}
	r.moreRoom()
	if len(arrived) > 0 || r.permanent != nil {
		r.ring()
	}
	return late
}

// systemAttributes are what is asked of each message.
var systemAttributes = []types.MessageSystemAttributeName{
	types.MessageSystemAttributeNameApproximateReceiveCount,
	types.MessageSystemAttributeNameApproximateFirstReceiveTimestamp,
	types.MessageSystemAttributeNameSentTimestamp,
	types.MessageSystemAttributeNameMessageGroupId,
}

// request asks for messages, for as long as WaitTime. It is not cancelled when the receiver closes: the
// service would go on to give it messages, and they would be locked for nobody.
func (r *receiver) request(ctx context.Context, url string, places int) ([]*delivery, error) {
	ctx, cancel := context.WithTimeout(ctx, r.t.cfg.WaitTime+requestTimeout)
	defer cancel()
	traced, first := firstByte(ctx)
	out, err := r.t.sqs.ReceiveMessage(traced, &sqs.ReceiveMessageInput{
		QueueUrl: &url, MaxNumberOfMessages: int32(places),
		WaitTimeSeconds: int32(r.t.cfg.WaitTime / time.Second), VisibilityTimeout: int32(r.visibility / time.Second),
		MessageSystemAttributeNames: systemAttributes, MessageAttributeNames: allAttributes,
	})
	if err != nil {
		return nil, err
	}
	at := first()
	deliveries := make([]*delivery, len(out.Messages))
	for i := range out.Messages {
		m := &out.Messages[i]
		in := r.t.read(r.address, m)
		if in.DeliveryCount == 1 && !in.first.IsZero() {
			r.t.clock.observe(in.first, at)
		}
		deliveries[i] = newDelivery(r, in, m, at)
	}
	return deliveries, nil
}

var allAttributes = []string{"All"}

// awaitSettlements waits for those under way. What they do not consume is to be given back.
func (r *receiver) awaitSettlements(ctx context.Context) {
	done := make(chan struct{})
	go func() {
		r.settlements.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// Close implements core.Receiver. It waits for requests for messages that are under way, and gives back all that is
// not settled.
func (r *receiver) Close(ctx context.Context) error {
	r.mu.Lock()
	first := !r.closed
	r.closed = true
	r.mu.Unlock()
	if !first {
		r.pollers.Wait()
		return nil
	}
	r.close()
	stop := context.AfterFunc(ctx, r.cutOff)
	r.pollers.Wait()
	r.awaitSettlements(ctx)
	stop()
	r.mu.Lock()
	late := r.arrived
	for _, d := range late {
		delete(r.held, d)
	}
	left := make([]*delivery, 0, len(r.held))
	for d := range r.held {
		left = append(left, d)
	}
	r.held, r.arrived = map[*delivery]struct{}{}, nil
	r.mu.Unlock()
	r.settler.giveBack(ctx, left)
	r.settler.giveBack(ctx, late)
	r.cutOff()
	r.t.life.Remove(r)
	return nil
}
