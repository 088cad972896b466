package core

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core/internal/locks"
	"github.com/reprise-go/reprise/core/internal/pump"
	"github.com/reprise-go/reprise/core/internal/timers"
)

// combinedReceiver combines the receivers of an endpoint's shared queue and of its
// instance queue into one Receiver: one pump with one limit receives from both.
//
// Each queue has goroutines that stay until Close. One of them calls Receive of its queue
// when the pump calls Receive here, and continues when that call has returned with
// messages of the other queue: its messages wait in arrived for the next call, with their
// locks renewed. So no message is lost when a context ends or both queues have messages,
// and neither queue has to wait for the other to be empty.
//
// The receivers share MaxInFlight. Together they may have one more delivery than the
// limit, so that both queues are received from while one place is free.
type combinedReceiver struct {
	queues           [2]*queueReceiver // the shared one first
	receiveAndDelete bool              // TransactionNone: no message is unsettled, or can be released
	countsReleases   bool              // a release counts as a delivery: arrived keeps its messages

	// Set by the runner before the first Receive.
	watch   func(Delivery) *locks.Context
	release func(fetchedDelivery)
	onLost  func(Delivery) // called for messages of TransactionNone that came too late to be handled

	wakeUp  chan struct{} // wakes a call of Receive
	callers sync.WaitGroup
	ctx     context.Context // ends with stop
	cancel  context.CancelFunc

	mu          sync.Mutex
	maxInFlight int // requested MaxInFlight
	waiting     int // calls of Receive that wait
	next        int // the queue whose messages are handed out first
	failed      error
	stopped     bool
	ended       bool        // no more messages are handed out
	idleTimer   *time.Timer // set while messages of the shared queue may arrive without a waiting Receive
	lastReturn  time.Time   // when a call of Receive last did
}

// queueReceiver receives from one of the queues.
type queueReceiver struct {
	combined *combinedReceiver
	queue    string // its name
	address  string
	receiver Receiver

	// Guarded by the mu of combinedReceiver.
	maxInFlight int // its receiver's MaxInFlight
	arrived     []*queueDelivery
	unsettled   queueDelivery // the head of a ring
	count       int           // its length
	callCtx     context.Context
	cancelCalls context.CancelFunc
	calls       int // calls of its receiver's Receive, including dueCalls
	dueCalls    int // such calls that a goroutine is about to make
	batch       int // for the deliveries of each call
	idleCallers int // goroutines that wait for a due call
	callDue     *sync.Cond
}

func newCombinedReceiver(shared, own *queueReceiver, mode TransactionMode, caps Capabilities) *combinedReceiver {
	c := &combinedReceiver{
		queues:           [2]*queueReceiver{shared, own},
		receiveAndDelete: mode == TransactionNone,
		countsReleases:   caps.CountsReleases,
		wakeUp:           make(chan struct{}, 1),
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	for _, q := range c.queues {
		q.combined = c
		q.unsettled.prev, q.unsettled.next = &q.unsettled, &q.unsettled
		q.callDue = sync.NewCond(&c.mu)
		q.callCtx, q.cancelCalls = context.WithCancel(c.ctx)
	}
	return c
}

// Receive implements Receiver.
func (c *combinedReceiver) Receive(ctx context.Context, dst []Delivery) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		if err := ctx.Err(); err != nil {
			if n := c.finishCallsLocked(dst); n > 0 {
				return n, nil
			}
			c.wake() // the wake-up may have been for this call, and is for another now
			return 0, err
		}
		c.balanceLocked()
		for _, q := range c.queues {
			if len(q.arrived) == 0 {
				q.startCallsLocked(len(dst))
			}
		}
		if n := c.takeLocked(dst); n > 0 {
			c.startIdleTimerLocked()
			return n, nil
		}
		switch {
		case c.stopped:
			c.wake()
			return 0, ErrClosed
		case c.failed != nil:
			c.wake()
			return 0, c.failed
		}
		c.waiting++
		c.mu.Unlock()
		select {
		case <-c.wakeUp:
		case <-ctx.Done():
		}
		c.mu.Lock()
		c.waiting--
	}
}

// finishCallsLocked runs after the end of a call's context if received messages cannot be
// released: the last call hands out the messages that are being received.
func (c *combinedReceiver) finishCallsLocked(dst []Delivery) int {
	if !c.receiveAndDelete || c.waiting > 0 {
		return 0
	}
	for _, q := range c.queues {
		q.cancelCallsLocked()
	}
	for c.queues[0].calls+c.queues[1].calls > 0 && !c.stopped {
		c.mu.Unlock()
		<-c.wakeUp
		c.mu.Lock()
	}
	return c.takeLocked(dst)
}

// wake wakes one call of Receive.
func (c *combinedReceiver) wake() {
	select {
	case c.wakeUp <- struct{}{}:
	default:
	}
}

// takeLocked hands out arrived messages, in turns if both queues have messages.
func (c *combinedReceiver) takeLocked(dst []Delivery) (n int) {
	for n < len(dst) {
		q := c.queues[c.next]
		if len(q.arrived) == 0 {
			if q = c.queues[1-c.next]; len(q.arrived) == 0 {
				break
			}
		} else {
			c.next = 1 - c.next
		}
		dst[n] = q.arrived[0]
		q.arrived[0] = nil
		if q.arrived = q.arrived[1:]; len(q.arrived) == 0 {
			q.arrived = nil
		}
		n++
	}
	if len(c.queues[0].arrived)+len(c.queues[1].arrived) > 0 {
		c.wake()
	}
	return n
}

// startCallsLocked makes one goroutine receive from the queue for each call of Receive:
// the waiting calls, and the current one.
func (q *queueReceiver) startCallsLocked(places int) {
	c := q.combined
	for q.calls <= c.waiting && !c.stopped && c.failed == nil {
		q.calls++
		q.dueCalls++
		q.batch = places
		if q.idleCallers >= q.dueCalls {
			q.callDue.Signal()
		} else {
			c.callers.Go(q.run)
		}
	}
}

// run receives from the queue whenever a call is due.
func (q *queueReceiver) run() {
	c := q.combined
	var dst []Delivery
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		for q.dueCalls == 0 && !c.stopped {
			q.idleCallers++
			q.callDue.Wait()
			q.idleCallers--
		}
		if c.stopped {
			return
		}
		q.dueCalls--
		ctx, places := q.callCtx, q.batch
		c.mu.Unlock()
		if len(dst) < places {
			dst = make([]Delivery, places)
		}
		arrived, err := q.receive(ctx, dst[:places])
		c.mu.Lock()
		q.calls--
		q.addArrivedLocked(arrived, err)
	}
}

// receive calls Receive once.
func (q *queueReceiver) receive(ctx context.Context, dst []Delivery) (arrived []*queueDelivery, err error) {
	n, err := q.receiver.Receive(ctx, dst)
	switch {
	case n < 0 || n > len(dst):
		return nil, fmt.Errorf("the adapter's Receive returned %d deliveries for %d places (C3)", n, len(dst))
	case n == 0 && err == nil:
		return nil, errors.New("the adapter's Receive returned neither a delivery nor an error (C3)")
	case err != nil && ctx.Err() != nil:
		err = nil
	}
	arrived = make([]*queueDelivery, 0, n)
	for i, d := range dst[:n] {
		if d == nil {
			err = fmt.Errorf("the adapter's Receive returned %d deliveries, of which number %d is nil (C3)", n, i+1)
			continue
		}
		one := &queueDelivery{Delivery: d, from: q}
		one.lock = q.combined.watch(one)
		arrived = append(arrived, one)
		dst[i] = nil
	}
	return arrived, err
}

// addArrivedLocked keeps the messages of a call of the receiver.
func (q *queueReceiver) addArrivedLocked(arrived []*queueDelivery, err error) {
	c := q.combined
	if err != nil && c.failed == nil && !c.stopped {
		c.failed = fmt.Errorf("queue %q: %w", q.queue, err)
	}
	switch {
	case c.ended && c.receiveAndDelete:
		for _, d := range arrived {
			c.onLost(d)
		}
		return
	case c.ended: // Close releases it
		return
	}
	for _, d := range arrived {
		if !c.receiveAndDelete {
			q.addUnsettledLocked(d)
		}
	}
	q.arrived = append(q.arrived, arrived...)
	if c.maxInFlight == 0 && c.waiting == 0 {
		c.releaseLocked(c.takeReleasableLocked(q))
	}
	c.wake() // also if it was ended, and is due again
}

// takeReleasableLocked removes the messages of a queue that may be released before they
// were handed out.
func (c *combinedReceiver) takeReleasableLocked(q *queueReceiver) []*queueDelivery {
	if c.receiveAndDelete || c.countsReleases {
		return nil
	}
	arrived := q.arrived
	q.arrived = nil
	return arrived
}

// releaseLocked releases messages. It does not wait for that.
func (c *combinedReceiver) releaseLocked(unstarted []*queueDelivery) {
	if len(unstarted) == 0 {
		return
	}
	go func() {
		for _, d := range unstarted {
			c.release(fetchedDelivery{Delivery: d, Lock: d.lock})
		}
	}()
}

// startIdleTimerLocked leaves the shared queue to other instances pump.StallTimeout after the
// last call of Receive: all slots hang, and arriving messages would have to wait for one
// here. The instance queue has no other receiver.
func (c *combinedReceiver) startIdleTimerLocked() {
	c.lastReturn = time.Now()
	if c.idleTimer == nil && !c.stopped {
		c.idleTimer = time.AfterFunc(pump.StallTimeout, c.idleTimeout)
	}
}

func (c *combinedReceiver) idleTimeout() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.idleTimer == nil { // stopped
		return
	}
	if left := pump.StallTimeout - time.Since(c.lastReturn); left > 0 {
		c.idleTimer = time.AfterFunc(left, c.idleTimeout)
		return
	}
	c.idleTimer = nil
	if c.waiting > 0 {
		return
	}
	c.queues[0].cancelCallsLocked()
	if c.receiveAndDelete {
		c.queues[1].cancelCallsLocked()
	}
	c.releaseLocked(c.takeReleasableLocked(c.queues[0]))
}

// cancelCallsLocked ends the calls of the queue's receiver. Deliveries that one of them
// still returns wait for the next call of Receive.
func (q *queueReceiver) cancelCallsLocked() {
	q.cancelCalls()
	q.callCtx, q.cancelCalls = context.WithCancel(q.combined.ctx)
	q.calls -= q.dueCalls
	q.dueCalls = 0
}

// SetMaxInFlight implements Receiver.
func (c *combinedReceiver) SetMaxInFlight(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	shared, own := c.queues[0], c.queues[1]
	before := shared.maxInFlight + own.maxInFlight
	c.maxInFlight = n
	switch {
	case n == 0:
		shared.setMaxInFlightLocked(0)
		own.setMaxInFlightLocked(0)
		for _, q := range c.queues {
			if c.receiveAndDelete {
				q.cancelCallsLocked()
			}
			c.releaseLocked(c.takeReleasableLocked(q))
		}
	case c.receiveAndDelete:
		shared.setMaxInFlightLocked(n)
		own.setMaxInFlightLocked(n)
	default:
		instanceShare := 1
		if before > 0 {
			instanceShare = min(max(own.maxInFlight*(n+1)/before, 1), n)
		}
		c.splitMaxInFlightLocked(instanceShare)
	}
}

// balanceLocked gives a queue that has used all its places some of the places that the
// other queue does not need. One place is always left, so that neither queue waits for
// the other.
func (c *combinedReceiver) balanceLocked() {
	if c.receiveAndDelete || c.maxInFlight == 0 {
		return
	}
	for i, q := range c.queues {
		other := c.queues[1-i]
		if q.count < q.maxInFlight {
			continue
		}
		q.dropExpiredLocked()
		if free := other.maxInFlight - other.count; q.count >= q.maxInFlight && free > 1 {
			instanceShare := c.queues[1].maxInFlight + free/2
			if i == 0 {
				instanceShare = c.queues[1].maxInFlight - free/2
			}
			c.splitMaxInFlightLocked(instanceShare)
			return
		}
	}
}

// splitMaxInFlightLocked gives instanceShare places to the instance queue, and the others
// to the shared queue.
func (c *combinedReceiver) splitMaxInFlightLocked(instanceShare int) {
	shared, own := c.queues[0], c.queues[1]
	sharedShare := c.maxInFlight + 1 - instanceShare
	if sharedShare < shared.maxInFlight { // never more together in between
		shared.setMaxInFlightLocked(sharedShare)
		own.setMaxInFlightLocked(instanceShare)
	} else {
		own.setMaxInFlightLocked(instanceShare)
		shared.setMaxInFlightLocked(sharedShare)
	}
}

func (q *queueReceiver) setMaxInFlightLocked(n int) {
	if n != q.maxInFlight {
		q.maxInFlight = n
		q.receiver.SetMaxInFlight(n)
	}
}

// stop ends all calls of the receivers, and returns the received deliveries that were not
// handed out.
func (c *combinedReceiver) stop(timeout time.Duration) []*queueDelivery {
	c.stopReceiving()
	c.cancel()
	c.wait(time.After(timeout))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	var unhandled []*queueDelivery
	for _, q := range c.queues {
		unhandled = append(unhandled, q.arrived...)
		q.arrived = nil
	}
	return unhandled
}

// stopReceiving ends Receive.
func (c *combinedReceiver) stopReceiving() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = true
	timers.Stop(&c.idleTimer)
	for _, q := range c.queues {
		q.callDue.Broadcast()
	}
	c.wake()
}

// wait returns when no call of a receiver is in progress, or at timeout.
func (c *combinedReceiver) wait(timeout <-chan time.Time) {
	done := make(chan struct{})
	go func() {
		c.callers.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-timeout:
	}
}

// Close implements Receiver. Both receivers have the whole time.
func (c *combinedReceiver) Close(ctx context.Context) error {
	c.stopReceiving()
	c.mu.Lock()
	c.ended = true
	c.mu.Unlock()
	var errs [2]error
	var all sync.WaitGroup
	for i, q := range c.queues {
		all.Go(func() {
			if err := q.receiver.Close(ctx); err != nil {
				errs[i] = fmt.Errorf("queue %q: %w", q.queue, err)
			}
		})
	}
	all.Wait()
	c.cancel()
	c.wait(time.After(closeGrace))
	return errors.Join(errs[:]...)
}

// queueDelivery is a delivery that knows its queue.
type queueDelivery struct {
	Delivery
	from       *queueReceiver
	lock       *locks.Context
	prev, next *queueDelivery // in the ring of its queue; nil when the delivery has ended
}

// addUnsettledLocked records that a delivery is unsettled.
func (q *queueReceiver) addUnsettledLocked(d *queueDelivery) {
	d.prev, d.next = q.unsettled.prev, &q.unsettled
	d.prev.next, d.next.prev = d, d
	q.count++
}

// removeUnsettledLocked records that a delivery has ended.
func (q *queueReceiver) removeUnsettledLocked(d *queueDelivery) {
	if d.next == nil {
		return
	}
	d.prev.next, d.next.prev = d.next, d.prev
	d.prev, d.next = nil, nil
	q.count--
}

// dropExpiredLocked removes deliveries whose locks have expired, which may never be
// settled.
func (q *queueReceiver) dropExpiredLocked() {
	now := time.Now()
	for d := q.unsettled.next; d != &q.unsettled; {
		next := d.next
		if until := d.LockedUntil(); !until.IsZero() && now.After(until) {
			q.removeUnsettledLocked(d)
		}
		d = next
	}
}

// settledWith records the end of a delivery, if err is that of a settlement which ended
// it.
func (d *queueDelivery) settledWith(err error) error {
	if err == nil || endsDelivery(err) {
		c := d.from.combined
		c.mu.Lock()
		d.from.removeUnsettledLocked(d)
		c.mu.Unlock()
	}
	return err
}

func (d *queueDelivery) Complete(ctx context.Context) error {
	return d.settledWith(d.Delivery.Complete(ctx))
}

func (d *queueDelivery) Abandon(ctx context.Context, cause error) error {
	return d.settledWith(d.Delivery.Abandon(ctx, cause))
}

func (d *queueDelivery) Release(ctx context.Context) error {
	return d.settledWith(d.Delivery.Release(ctx))
}

func (d *queueDelivery) CompleteWith(ctx context.Context, out []Outgoing) error {
	return d.settledWith(d.Delivery.CompleteWith(ctx, out))
}

func (d *queueDelivery) ReplaceWith(ctx context.Context, out []Outgoing) error {
	return d.settledWith(d.Delivery.ReplaceWith(ctx, out))
}

func (d *queueDelivery) DeadLetter(ctx context.Context, letter DeadLetter) error {
	return d.settledWith(d.Delivery.DeadLetter(ctx, letter))
}

func (d *queueDelivery) Renew(ctx context.Context) error {
	err := d.Delivery.Renew(ctx)
	if err != nil {
		_ = d.settledWith(err)
	}
	return err
}

func (d *queueDelivery) Postpone(ctx context.Context, delay time.Duration, cause error) error {
	return d.settledWith(d.Delivery.Postpone(ctx, delay, cause))
}

// receivedFrom returns the address of the queue that a delivery came from.
func (ep *Endpoint) receivedFrom(d Delivery) string {
	for {
		switch at := d.(type) {
		case *queueDelivery:
			return at.from.address
		case *adjustedDelivery:
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
