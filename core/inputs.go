package core

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// inputs combines the receivers of an endpoint's shared queue and of its instance queue
// into one Receiver: one pump with one limit receives from both.
//
// Each queue has goroutines that stay until Close. One of them calls Receive of its queue
// when the pump calls Receive here, and continues when that call has returned with
// messages of the other queue: its messages wait in arrived for the next call, with their
// locks renewed. So no message is lost when a context ends or both queues have messages,
// and neither queue has to wait for the other to be empty.
//
// The receivers share MaxInFlight. Together they may have one more delivery than the
// limit, so that both queues are received from while one place is free.
type inputs struct {
	queues   [2]*input // the shared one first
	consumed bool      // TransactionNone: no message is unsettled, or can be given back
	counts   bool      // giving back counts as a delivery: arrived keeps its messages

	// Set by the runner before the first Receive.
	watch    func(Delivery) *hold
	giveBack func(held)
	lost     func(Delivery) // called for consumed messages that came too late to be handled

	bell   chan struct{} // wakes a call of Receive
	asks   sync.WaitGroup
	life   context.Context // ends with stop
	cancel context.CancelFunc

	mu        sync.Mutex
	most      int // requested MaxInFlight
	waiting   int // calls of Receive that wait
	next      int // the queue whose messages are handed out first
	failed    error
	stopped   bool
	ended     bool        // no more messages are handed out
	restTimer *time.Timer // set while messages of the shared queue may arrive without a waiting Receive
	returned  time.Time   // when a call of Receive last did
}

// input is one of the queues.
type input struct {
	of       *inputs
	queue    string // its name
	address  string
	receiver Receiver

	// Guarded by the mu of inputs.
	mayHold   int // its receiver's MaxInFlight
	arrived   []*inputDelivery
	unsettled inputDelivery // the head of a ring
	count     int           // its length
	ask       context.Context
	endAsk    context.CancelFunc
	asking    int // calls of its receiver's Receive, including due
	due       int // such calls that a goroutine is about to make
	places    int // for the deliveries of each call
	idle      int // goroutines that wait for a due call
	wake      *sync.Cond
}

// inputDelivery is a delivery that knows its queue.
type inputDelivery struct {
	Delivery
	input         *input
	hold          *hold
	before, after *inputDelivery // in the ring of its queue; nil when the delivery has ended
}

func newInputs(shared, own *input, mode TransactionMode, caps Capabilities) *inputs {
	in := &inputs{
		queues:   [2]*input{shared, own},
		consumed: mode == TransactionNone,
		counts:   caps.CountsReleases,
		bell:     make(chan struct{}, 1),
	}
	in.life, in.cancel = context.WithCancel(context.Background())
	for _, q := range in.queues {
		q.of = in
		q.unsettled.before, q.unsettled.after = &q.unsettled, &q.unsettled
		q.wake = sync.NewCond(&in.mu)
		q.ask, q.endAsk = context.WithCancel(in.life)
	}
	return in
}

// Receive implements Receiver.
func (in *inputs) Receive(ctx context.Context, dst []Delivery) (int, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for {
		if err := ctx.Err(); err != nil {
			if n := in.finishLocked(dst); n > 0 {
				return n, nil
			}
			in.ring() // the wake-up may have been for this call, and is for another now
			return 0, err
		}
		in.shareLocked()
		for _, q := range in.queues {
			if len(q.arrived) == 0 {
				q.askLocked(len(dst))
			}
		}
		if n := in.takeLocked(dst); n > 0 {
			in.rest()
			return n, nil
		}
		switch {
		case in.stopped:
			in.ring()
			return 0, ErrClosed
		case in.failed != nil:
			in.ring()
			return 0, in.failed
		}
		in.waiting++
		in.mu.Unlock()
		select {
		case <-in.bell:
		case <-ctx.Done():
		}
		in.mu.Lock()
		in.waiting--
	}
}

// finishLocked runs after the end of a call's context if received messages cannot be
// given back: the last call hands out the messages that are being received.
func (in *inputs) finishLocked(dst []Delivery) int {
	if !in.consumed || in.waiting > 0 {
		return 0
	}
	for _, q := range in.queues {
		q.endAsksLocked()
	}
	for in.queues[0].asking+in.queues[1].asking > 0 && !in.stopped {
		in.mu.Unlock()
		<-in.bell
		in.mu.Lock()
	}
	return in.takeLocked(dst)
}

// ring wakes one call of Receive.
func (in *inputs) ring() {
	select {
	case in.bell <- struct{}{}:
	default:
	}
}

// takeLocked hands out arrived messages, in turns if both queues have messages.
func (in *inputs) takeLocked(dst []Delivery) (n int) {
	for n < len(dst) {
		q := in.queues[in.next]
		if len(q.arrived) == 0 {
			if q = in.queues[1-in.next]; len(q.arrived) == 0 {
				break
			}
		} else {
			in.next = 1 - in.next
		}
		dst[n] = q.arrived[0]
		q.arrived[0] = nil
		if q.arrived = q.arrived[1:]; len(q.arrived) == 0 {
			q.arrived = nil
		}
		n++
	}
	if len(in.queues[0].arrived)+len(in.queues[1].arrived) > 0 {
		in.ring()
	}
	return n
}

// askLocked makes one goroutine receive from the queue for each call of Receive: the
// waiting calls, and the current one.
func (q *input) askLocked(places int) {
	in := q.of
	for q.asking <= in.waiting && !in.stopped && in.failed == nil {
		q.asking++
		q.due++
		q.places = places
		if q.idle >= q.due {
			q.wake.Signal()
		} else {
			in.asks.Go(q.run)
		}
	}
}

// run receives from the queue whenever a call is due.
func (q *input) run() {
	in := q.of
	var arrivals []Delivery
	in.mu.Lock()
	defer in.mu.Unlock()
	for {
		for q.due == 0 && !in.stopped {
			q.idle++
			q.wake.Wait()
			q.idle--
		}
		if in.stopped {
			return
		}
		q.due--
		ctx, places := q.ask, q.places
		in.mu.Unlock()
		if len(arrivals) < places {
			arrivals = make([]Delivery, places)
		}
		arrived, err := q.receive(ctx, arrivals[:places])
		in.mu.Lock()
		q.asking--
		q.arriveLocked(arrived, err)
	}
}

// receive calls Receive once.
func (q *input) receive(ctx context.Context, dst []Delivery) (arrived []*inputDelivery, err error) {
	n, err := q.receiver.Receive(ctx, dst)
	switch {
	case n < 0 || n > len(dst):
		return nil, fmt.Errorf("the adapter's Receive returned %d deliveries for %d places (C3)", n, len(dst))
	case n == 0 && err == nil:
		return nil, errors.New("the adapter's Receive returned neither a delivery nor an error (C3)")
	case err != nil && ctx.Err() != nil:
		err = nil
	}
	arrived = make([]*inputDelivery, 0, n)
	for i, d := range dst[:n] {
		if d == nil {
			err = fmt.Errorf("the adapter's Receive returned %d deliveries, of which number %d is nil (C3)", n, i+1)
			continue
		}
		one := &inputDelivery{Delivery: d, input: q}
		one.hold = q.of.watch(one)
		arrived = append(arrived, one)
		dst[i] = nil
	}
	return arrived, err
}

// arriveLocked keeps the messages of a call of the receiver.
func (q *input) arriveLocked(arrived []*inputDelivery, err error) {
	in := q.of
	if err != nil && in.failed == nil && !in.stopped {
		in.failed = fmt.Errorf("queue %q: %w", q.queue, err)
	}
	switch {
	case in.ended && in.consumed:
		for _, d := range arrived {
			in.lost(d)
		}
		return
	case in.ended: // Close gives it back
		return
	}
	for _, d := range arrived {
		if !in.consumed {
			q.add(d)
		}
	}
	q.arrived = append(q.arrived, arrived...)
	if in.most == 0 && in.waiting == 0 {
		in.returnLocked(in.arrivedLocked(q))
	}
	in.ring() // also if it was ended, and is due again
}

// add records that a delivery is unsettled. The mu of inputs is held.
func (q *input) add(d *inputDelivery) {
	d.before, d.after = q.unsettled.before, &q.unsettled
	d.before.after, d.after.before = d, d
	q.count++
}

// remove records that a delivery has ended. The mu of inputs is held.
func (q *input) remove(d *inputDelivery) {
	if d.after == nil {
		return
	}
	d.before.after, d.after.before = d.after, d.before
	d.before, d.after = nil, nil
	q.count--
}

// arrivedLocked removes the messages of a queue that may be given back before they were
// handed out.
func (in *inputs) arrivedLocked(q *input) []*inputDelivery {
	if in.consumed || in.counts {
		return nil
	}
	arrived := q.arrived
	q.arrived = nil
	return arrived
}

// returnLocked gives messages back. It does not wait for that.
func (in *inputs) returnLocked(unstarted []*inputDelivery) {
	if len(unstarted) == 0 {
		return
	}
	go func() {
		for _, d := range unstarted {
			in.giveBack(held{d, d.hold})
		}
	}()
}

// rest leaves the shared queue to other instances some time after the last call of
// Receive: all slots hang, and arriving messages would have to wait for one here. The
// instance queue has no other receiver.
func (in *inputs) rest() {
	in.returned = time.Now()
	if in.restTimer == nil && !in.stopped {
		in.restTimer = time.AfterFunc(stallWindow, in.rested)
	}
}

func (in *inputs) rested() {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.restTimer == nil { // stopped
		return
	}
	if left := stallWindow - time.Since(in.returned); left > 0 {
		in.restTimer = time.AfterFunc(left, in.rested)
		return
	}
	in.restTimer = nil
	if in.waiting > 0 {
		return
	}
	in.queues[0].endAsksLocked()
	if in.consumed {
		in.queues[1].endAsksLocked()
	}
	in.returnLocked(in.arrivedLocked(in.queues[0]))
}

// endAsksLocked ends the calls of the queue's receiver. Deliveries that one of them still
// returns wait for the next call of Receive.
func (q *input) endAsksLocked() {
	q.endAsk()
	q.ask, q.endAsk = context.WithCancel(q.of.life)
	q.asking -= q.due
	q.due = 0
}

// SetMaxInFlight implements Receiver.
func (in *inputs) SetMaxInFlight(n int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	shared, own := in.queues[0], in.queues[1]
	before := shared.mayHold + own.mayHold
	in.most = n
	switch {
	case n == 0:
		shared.setLocked(0)
		own.setLocked(0)
		for _, q := range in.queues {
			if in.consumed {
				q.endAsksLocked()
			}
			in.returnLocked(in.arrivedLocked(q))
		}
	case in.consumed:
		shared.setLocked(n)
		own.setLocked(n)
	default:
		part := 1
		if before > 0 {
			part = min(max(own.mayHold*(n+1)/before, 1), n)
		}
		in.divideLocked(part)
	}
}

// shareLocked gives a queue that has used all its places some of the places that the
// other queue does not need. One place is always left, so that neither queue waits for
// the other.
func (in *inputs) shareLocked() {
	if in.consumed || in.most == 0 {
		return
	}
	for i, q := range in.queues {
		other := in.queues[1-i]
		if q.count < q.mayHold {
			continue
		}
		q.sweepLocked()
		if free := other.mayHold - other.count; q.count >= q.mayHold && free > 1 {
			part := in.queues[1].mayHold + free/2
			if i == 0 {
				part = in.queues[1].mayHold - free/2
			}
			in.divideLocked(part)
			return
		}
	}
}

// divideLocked gives part places to the instance queue, and the others to the shared
// queue.
func (in *inputs) divideLocked(part int) {
	shared, own := in.queues[0], in.queues[1]
	rest := in.most + 1 - part
	if rest < shared.mayHold { // never more together in between
		shared.setLocked(rest)
		own.setLocked(part)
	} else {
		own.setLocked(part)
		shared.setLocked(rest)
	}
}

func (q *input) setLocked(n int) {
	if n != q.mayHold {
		q.mayHold = n
		q.receiver.SetMaxInFlight(n)
	}
}

// sweepLocked removes deliveries whose locks have expired, which may never be settled.
func (q *input) sweepLocked() {
	now := time.Now()
	for d := q.unsettled.after; d != &q.unsettled; {
		next := d.after
		if until := d.LockedUntil(); !until.IsZero() && now.After(until) {
			q.remove(d)
		}
		d = next
	}
}

// stop ends all calls of the receivers, and returns the received deliveries that were not
// handed out.
func (in *inputs) stop(timeout time.Duration) []*inputDelivery {
	in.end()
	in.cancel()
	in.wait(time.After(timeout))
	in.mu.Lock()
	defer in.mu.Unlock()
	in.ended = true
	var left []*inputDelivery
	for _, q := range in.queues {
		left = append(left, q.arrived...)
		q.arrived = nil
	}
	return left
}

// end ends Receive.
func (in *inputs) end() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.stopped = true
	stopTimer(&in.restTimer)
	for _, q := range in.queues {
		q.wake.Broadcast()
	}
	in.ring()
}

// wait returns when no call of a receiver is in progress, or at tooLong.
func (in *inputs) wait(tooLong <-chan time.Time) {
	done := make(chan struct{})
	go func() {
		in.asks.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-tooLong:
	}
}

// Close implements Receiver. Both receivers have the whole time.
func (in *inputs) Close(ctx context.Context) error {
	in.end()
	in.mu.Lock()
	in.ended = true
	in.mu.Unlock()
	var errs [2]error
	var all sync.WaitGroup
	for i, q := range in.queues {
		all.Go(func() {
			if err := q.receiver.Close(ctx); err != nil {
				errs[i] = fmt.Errorf("queue %q: %w", q.queue, err)
			}
		})
	}
	all.Wait()
	in.cancel()
	in.wait(time.After(closeGrace))
	return errors.Join(errs[:]...)
}

// ended records the end of a delivery, if err is that of a settlement which ended it.
func (d *inputDelivery) ended(err error) error {
	if err == nil || hasEnded(err) {
		in := d.input.of
		in.mu.Lock()
		d.input.remove(d)
		in.mu.Unlock()
	}
	return err
}

func (d *inputDelivery) Complete(ctx context.Context) error {
	return d.ended(d.Delivery.Complete(ctx))
}

func (d *inputDelivery) Abandon(ctx context.Context, cause error) error {
	return d.ended(d.Delivery.Abandon(ctx, cause))
}

func (d *inputDelivery) Release(ctx context.Context) error {
	return d.ended(d.Delivery.Release(ctx))
}

func (d *inputDelivery) CompleteWith(ctx context.Context, out []Outgoing) error {
	return d.ended(d.Delivery.CompleteWith(ctx, out))
}

func (d *inputDelivery) ReplaceWith(ctx context.Context, out []Outgoing) error {
	return d.ended(d.Delivery.ReplaceWith(ctx, out))
}

func (d *inputDelivery) DeadLetter(ctx context.Context, letter DeadLetter) error {
	return d.ended(d.Delivery.DeadLetter(ctx, letter))
}

func (d *inputDelivery) Renew(ctx context.Context) error {
	err := d.Delivery.Renew(ctx)
	if err != nil {
		_ = d.ended(err)
	}
	return err
}

func (d *inputDelivery) Postpone(ctx context.Context, delay time.Duration, cause error) error {
	return d.ended(d.Delivery.Postpone(ctx, delay, cause))
}

// receivedFrom returns the address of the queue that a delivery came from.
func (ep *Endpoint) receivedFrom(d Delivery) string {
	for {
		switch at := d.(type) {
		case *inputDelivery:
			return at.input.address
		case *adjusted:
			d = at.Delivery
		default:
			return ep.address
		}
	}
}

// observedAt returns the ObservedEndpoint of an attempt.
func (ep *Endpoint) observedAt(d Delivery) ObservedEndpoint {
	at := ep.observed
	at.Queue = ep.receivedFrom(d)
	at.InstanceQueue = ep.instanceAddress != "" && at.Queue == ep.instanceAddress
	return at
}

// openReceiver opens the receiver of the input queue or, if the endpoint has an instance
// queue, those of both.
func (ep *Endpoint) openReceiver(ctx context.Context, maxInFlight int, watch connectionWatch) (Receiver, error) {
	cfg := ReceiverConfig{
		Queue: ep.inputQueue(), Mode: ep.mode, MaxInFlight: maxInFlight, MaxDeliveries: ep.deliveriesFrom(ep.address),
		ConnectionChanged: watch.connectionChanged, MessageUndeliverable: watch.messageUndeliverable,
		MaxReceiveBytes: ep.maxReceiveBytes(),
		ErrorQueue:      ep.rules.config.Failed.ErrorQueue,
	}
	if ep.instanceAddress == "" {
		return ep.transport.OpenReceiver(ctx, cfg)
	}
	shared := &input{queue: cfg.Queue, address: ep.address, mayHold: maxInFlight}
	own := &input{queue: ep.resolved.instanceQueue, address: ep.instanceAddress, mayHold: 1}
	connections := &connections{tell: watch.connectionChanged}
	for i, q := range []*input{shared, own} {
		cfg.Queue, cfg.MaxInFlight = q.queue, q.mayHold
		cfg.ConnectionChanged = func(e ConnectionChange) { connections.changed(i, e) }
		cfg.MaxDeliveries = ep.deliveriesFrom(q.address)
		var err error
		if q.receiver, err = ep.transport.OpenReceiver(ctx, cfg); err != nil {
			return nil, errors.Join(err, shared.abandonOpening(ctx))
		}
	}
	in := newInputs(shared, own, ep.mode, ep.caps)
	in.most = maxInFlight
	return in, nil
}

// abandonOpening closes the receiver if it is open, after that of the other queue could
// not be opened.
func (q *input) abandonOpening(ctx context.Context) error {
	if q.receiver == nil {
		return nil
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeGrace)
	defer cancel()
	return q.receiver.Close(closing)
}

// connectInputs sets the fields of inputs that belong to this Run.
func (r *runner) connectInputs() {
	in, ok := r.receiver.(*inputs)
	if !ok {
		return
	}
	in.watch, in.giveBack = r.renewer.watch, r.giveBack
	in.lost = func(d Delivery) {
		r.critical(fmt.Errorf("message %s is lost: it arrived after the endpoint had stopped, and in transaction mode None it cannot be given back", d.Incoming().ID))
	}
	r.pump.watch = func(d Delivery) *hold { return d.(*inputDelivery).hold }
}

// handleConsumed handles the messages that a receiver of two queues has consumed and not
// handed out when the endpoint stops, because they cannot be given back.
func (r *runner) handleConsumed() {
	in, ok := r.receiver.(*inputs)
	if !ok || !in.consumed {
		return
	}
	left := in.stop(closeGrace)
	p := r.pump
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, d := range left {
		p.push(held{p.adjust(d), d.hold})
	}
	p.hire()
	p.wakeUp.Broadcast()
}

// connections combines the connections of two receivers into one: it is lost while one of
// them is.
type connections struct {
	tell func(ConnectionChange)

	mu   sync.Mutex
	lost [2]time.Time
}

// changed records a change of one of the two, and reports the change of the combined
// connection.
func (c *connections) changed(i int, e ConnectionChange) {
	c.mu.Lock()
	defer c.mu.Unlock()
	other := c.lost[1-i]
	if e.Connected {
		c.lost[i] = time.Time{}
		if !other.IsZero() {
			return
		}
	} else {
		c.lost[i] = e.Since
		if !other.IsZero() && other.Before(e.Since) {
			e.Since = other
		}
	}
	c.tell(e)
}
