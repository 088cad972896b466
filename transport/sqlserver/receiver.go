package sqlserver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
)

// receiver takes messages from one queue. Its mode decides whether it leases messages,
// locks them in transactions, or consumes them.
//
// While the queue has messages, every Receive fetches for itself. After a fetch that
// found none, a single call waits for a message and the others wait for that call: an
// idle queue has one watcher, however many goroutines call Receive.
type receiver struct {
	t          *Transport
	q          *queue
	mode       core.TransactionMode
	fetch      fetch
	count      *transport.DeliveryLog // nil: the table counts
	uncounted  *uncountedFailures     // messages whose failures the table could not count
	settler    *settler               // nil without leases
	renewals   *settler               // as settler
	presence   *presence              // its number is part of the numbers of leases; nil: there is none
	works      bool                   // handlers of leased messages may have a transaction
	wakeup     *wakeup
	turn       chan struct{}   // held by the call that waits for messages
	mostBytes  int64           // limit of one fetch, which one message may exceed; 0: no limit
	closing    context.Context // ends when the receiver is closed
	close      context.CancelFunc
	outages    transport.Outages
	operations operationTracker
	fetching   sync.WaitGroup

	mu          sync.Mutex // guards the fields below
	closed      bool
	maxInFlight int
	room        chan struct{} // closed and replaced when places become free
	unsettled   map[holding]struct{}
	inWork      atomic.Int64 // length of unsettled, read without mu
	reserved    int          // places of fetches in progress
	idle        bool         // the last fetch found no message
	pause       time.Duration
	watermark   watermark
	mostClaimed int // limit of one claim, after large messages; 0: no limit
}

// fetch fills dst with one statement. more says that the queue may have more messages
// even if n is 0: the fetched messages had expired, or were for other queues.
type fetch func(ctx *operation, dst []core.Delivery) (n int, more bool, err error)

// holding is an unsettled delivery.
type holding interface{ core.Delivery }

// inTransaction is an unsettled delivery with a transaction.
type inTransaction interface {
	holding
	// giveUp makes the message available to other receivers. The receiver is closed.
	giveUp(ctx context.Context)
}

func newReceiver(t *Transport, q *queue, cfg core.ReceiverConfig) *receiver {
	r := &receiver{
		t: t, q: q, mode: cfg.Mode,
		turn:        make(chan struct{}, 1),
		maxInFlight: cfg.MaxInFlight,
		mostBytes:   int64(cfg.MaxReceiveBytes),
		room:        make(chan struct{}),
		unsettled:   map[holding]struct{}{},
		uncounted:   newUncountedFailures(),
	}
	r.outages.ConnectionChanged = cfg.ConnectionChanged
	r.closing, r.close = context.WithCancel(t.life.Context())
	r.operations.life, r.operations.closing = t.life.Context(), r.closing
	if t.nserviceBusTables {
		r.count = transport.NewDeliveryLog(cfg.MaxInFlight)
	}
	switch {
	case cfg.Mode == core.TransactionNone:
		r.fetch = r.consume
	case t.isInTransaction(cfg.Mode):
		r.fetch = r.receiveInTransaction
	default:
		r.settler, r.renewals = newSettler(r), newSettler(r)
		r.works = cfg.Mode == core.TransactionSendsAtomicWithReceive
		r.fetch = r.claim
	}
	return r
}

// String describes the receiver without the fields of its transport.
func (r *receiver) String() string {
	return fmt.Sprintf("receiver of %s (%v)", r.q.table.address, r.mode)
}

// GoString returns the same text as String.
func (r *receiver) GoString() string { return r.String() }

// open begins to listen for messages.
func (r *receiver) open() { r.wakeup = r.t.addWakeup(r.q) }

// Receive implements core.Receiver.
func (r *receiver) Receive(ctx context.Context, dst []core.Delivery) (int, error) {
	n, err := r.receive(ctx, dst)
	if err != nil && !errors.Is(err, ctx.Err()) {
		err = fmt.Errorf("sqlserver: receive from %s: %w", r.q.table.address, r.t.explained(err))
	}
	return n, err
}

func (r *receiver) receive(ctx context.Context, dst []core.Delivery) (int, error) {
	if len(dst) == 0 {
		return 0, errors.New("there is no room in dst")
	}
	waiting := false // this call has the turn to wait
	defer func() {
		if waiting {
			<-r.turn
		}
	}()
	for {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		places, idle, room, err := r.reserve(len(dst), waiting)
		switch {
		case err != nil:
			return 0, err
		case idle && !waiting: // let another call wait
			select {
			case r.turn <- struct{}{}:
				if waiting = r.isIdle(); !waiting {
					<-r.turn // a message arrived before we had the turn
				}
			case <-ctx.Done():
			case <-r.closing.Done():
			}
			continue
		case places == 0:
			r.waitForRoom(ctx, room)
			continue
		}
		n, more, down, err := r.try(ctx, dst[:places])
		switch {
		case err != nil || n > 0:
			return n, err
		case more || !waiting: // the next round handles this
		case down > 0:
			_ = transport.Sleep(ctx, r.closing, down, nil)
		default:
			if pause := r.nextPause(); pause > 0 {
				r.wait(ctx, pause)
			}
		}
	}
}

// waitForRoom returns when there may be room: places were freed, or leases may have
// ended.
func (r *receiver) waitForRoom(ctx context.Context, more <-chan struct{}) {
	timer := time.NewTimer(r.t.lease / 4)
	defer timer.Stop()
	select {
	case <-more:
	case <-timer.C:
	case <-ctx.Done():
	case <-r.closing.Done():
	}
}

// reserve takes places for up to n deliveries. If it takes none, more is closed when
// places become free. idle says that the last fetch found no message: then only the
// waiting call fetches.
func (r *receiver) reserve(n int, waiting bool) (places int, idle bool, more <-chan struct{}, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return 0, false, nil, core.ErrClosed
	}
	if r.idle && !waiting {
		return 0, true, nil, nil
	}
	if r.mode != core.TransactionNone {
		if r.maxInFlight-len(r.unsettled)-r.reserved < n {
			r.sweep()
		}
		n = min(n, r.maxInFlight-len(r.unsettled)-r.reserved)
	} else if r.maxInFlight == 0 {
		n = 0
	}
	if n <= 0 {
		return 0, false, r.room, nil
	}
	r.reserved += n
	r.fetching.Add(1)
	return n, false, nil, nil
}

// sweep removes deliveries whose leases have ended and that the engine will not settle
// any more. mu is held.
func (r *receiver) sweep() {
	if r.settler == nil {
		return
	}
	now := time.Now()
	for h := range r.unsettled {
		if now.After(h.(*leaseDelivery).LockedUntil()) {
			delete(r.unsettled, h)
		}
	}
	r.inWork.Store(int64(len(r.unsettled)))
}

// conflictPause is the pause before a fetch that conflicted with another transaction is
// tried again. A conflict is no outage.
const conflictPause = time.Millisecond

// try fetches once. In an outage, down is the time to wait.
func (r *receiver) try(ctx context.Context, dst []core.Delivery) (n int, more bool, down time.Duration, err error) {
	defer r.fetching.Done()
	if r.t.isInTransaction(r.mode) && !r.t.reserveConnection(ctx, r.closing) {
		r.fetched(len(dst), nil, true)
		return 0, true, 0, nil
	}
	started := time.Now()
	under := r.operations.begin(ctx)
	n, more, err = r.fetch(under, dst)
	cut := under.Err() != nil && time.Now().Before(under.deadline)
	under.end()
	if r.t.isInTransaction(r.mode) && n == 0 {
		r.t.returnConnection()
	}
	closed := r.fetched(len(dst), dst[:n], more)
	switch {
	case closed:
		r.giveUp(ctx, dst[:n])
		return 0, false, 0, core.ErrClosed
	case err != nil && cut: // the next round finds out by which context
		return 0, true, 0, nil
	case err != nil && !r.t.transient(err):
		return 0, false, 0, err
	case err != nil && r.t.fault(err) == faultConflict:
		return 0, false, conflictPause, nil
	case err != nil:
		r.t.gaveUp(err)
		return 0, false, r.outages.Failed(err, started), nil
	}
	r.outages.End()
	return n, more, 0, nil
}

// giveUp releases messages that a fetch brought after the receiver was closed.
func (r *receiver) giveUp(ctx context.Context, got []core.Delivery) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	late := make([]holding, len(got))
	for i, d := range got {
		late[i] = d
	}
	switch {
	case r.settler != nil:
		r.settler.releaseAll(ctx, late)
	case r.t.isInTransaction(r.mode):
		rollBack(ctx, late)
	}
}

// fetched frees the places that a fetch did not need, and records the fetched deliveries.
// It reports whether the receiver was closed during the fetch.
func (r *receiver) fetched(places int, got []core.Delivery, more bool) (closed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reserved -= places
	r.idle = len(got) == 0 && !more
	if !r.idle {
		r.pause = 0
	}
	if r.closed {
		return true
	}
	if r.mode != core.TransactionNone {
		for _, d := range got {
			r.unsettled[d.(holding)] = struct{}{}
		}
		r.inWork.Store(int64(len(r.unsettled)))
	}
	if len(got) < places {
		r.moreRoom()
	}
	return false
}

// moreRoom wakes calls that wait for a place. mu is held.
func (r *receiver) moreRoom() {
	close(r.room)
	r.room = make(chan struct{})
}

// settled removes deliveries that have ended.
func (r *receiver) settled(these ...holding) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := len(r.unsettled)
	for _, h := range these {
		delete(r.unsettled, h)
	}
	r.inWork.Store(int64(len(r.unsettled)))
	if len(r.unsettled) < before && before+r.reserved >= r.maxInFlight {
		r.moreRoom()
	}
}

// SetMaxInFlight implements core.Receiver. The receiver prefetches nothing, so 0 releases
// nothing.
func (r *receiver) SetMaxInFlight(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.maxInFlight = n
	r.moreRoom()
	if r.count != nil {
		r.count.Resize(n)
	}
}

// Close implements core.Receiver. It also releases messages of a fetch in progress. A
// message that cannot be released, because the server cannot be reached or ctx ends, is
// redelivered when its lease ends, or when the server notices that the connection is
// gone.
func (r *receiver) Close(ctx context.Context) error {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return nil
	}
	r.closed = true
	var left []holding
	for h := range r.unsettled {
		left = append(left, h)
	}
	clear(r.unsettled)
	r.mu.Unlock()
	r.close()
	r.t.removeWakeup(r.wakeup)
	r.giveBack(ctx, left)
	r.fetching.Wait()
	r.operations.close()
	r.t.life.Remove(r)
	return nil
}

func (r *receiver) giveBack(ctx context.Context, left []holding) {
	if r.settler != nil {
		var both sync.WaitGroup
		defer both.Wait()
		if r.works {
			both.Go(func() { rollBack(ctx, left) })
		}
		r.settler.close(ctx)
		r.renewals.close(ctx)
		r.settler.releaseAll(ctx, left)
		return
	}
	rollBack(ctx, left)
}

// rollBack rolls back the transactions of messages. Each has its own connection, and all
// share one time limit: if the network drops packets, many rollbacks take no longer than
// one.
func rollBack(ctx context.Context, left []holding) {
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	var all sync.WaitGroup
	for _, h := range left {
		all.Go(func() { h.(inTransaction).giveUp(ctx) })
	}
	all.Wait()
}

func (r *receiver) isIdle() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.idle
}

// isClosed reports whether it is too late to settle.
func (r *receiver) isClosed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closed
}

// incoming converts a row for the engine.
func (r *receiver) incoming(m *queueRow) core.Incoming {
	headers, malformed := transport.ParseHeadersJSON(m.headers)
	in := core.Incoming{
		ID:            headers.Get(core.HeaderMessageID),
		NativeID:      m.id,
		Headers:       headers,
		Body:          m.body,
		DeliveryCount: m.deliveries,
		LastError:     m.lastError,
	}
	transport.UnpackHeaders(&in)
	if malformed != nil {
		in.Malformed = fmt.Errorf("the headers of row %s are no JSON object of strings: %w", m.id, malformed)
	}
	if in.ID == "" {
		in.ID = m.id
	}
	if r.count != nil {
		in.DeliveryCount, in.LastError = r.count.Delivered(m.id)
	} else {
		in.EnqueuedAt = m.due
	}
	in.Redelivered = in.DeliveryCount > 1 || m.claims&(1<<claimBits-1) > 1
	return in
}
