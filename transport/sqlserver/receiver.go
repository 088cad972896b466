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
	"github.com/reprise-go/reprise/transport/sqlserver/internal/dialect"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/notify"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/operation"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/postgres"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/queues"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/rowlog"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/watermark"
)

// receiver takes messages from one queue. Its strategy decides whether it leases messages,
// locks them in transactions, or consumes them.
//
// While the queue has messages, every Receive fetches for itself. After a fetch that
// found none, a single call waits for a message and the others wait for that call: an
// idle queue has one watcher, however many goroutines call Receive.
type receiver struct {
	t          *Transport
	q          *queues.Queue
	mode       core.TransactionMode
	strategy   strategy
	count      *transport.DeliveryLog // nil: the table counts
	uncounted  *rowlog.Uncounted      // messages whose failures the table could not count
	wakeup     *notify.Wakeup
	turn       chan struct{}   // held by the call that waits for messages
	maxBytes   int64           // limit of one fetch, which one message may exceed; 0: no limit
	closing    context.Context // ends when the receiver is closed
	close      context.CancelFunc
	outages    transport.Outages
	warn       func(text string) // or nil
	aside      aside
	operations operation.Tracker
	fetching   sync.WaitGroup

	mu          sync.Mutex // guards the fields below
	closed      bool
	maxInFlight int
	room        chan struct{} // closed and replaced when places become free
	unsettled   map[core.Delivery]struct{}
	inWork      atomic.Int64 // length of unsettled, read without mu
	reserved    int          // places of fetches in progress
	idle        bool         // the last fetch found no message
	pause       time.Duration
	wakeups     int       // since the last message
	lastWakeup  time.Time // with its pause
	watermark   watermark.Watermark
}

func newReceiver(t *Transport, q *queues.Queue, cfg core.ReceiverConfig) *receiver {
	r := &receiver{
		t: t, q: q, mode: cfg.Mode,
		turn:        make(chan struct{}, 1),
		maxInFlight: cfg.MaxInFlight,
		maxBytes:    int64(cfg.MaxReceiveBytes),
		room:        make(chan struct{}),
		unsettled:   map[core.Delivery]struct{}{},
		uncounted:   rowlog.NewUncounted(),
	}
	r.outages.ConnectionChanged, r.warn = cfg.ConnectionChanged, cfg.Warn
	r.closing, r.close = context.WithCancel(t.life.Context())
	r.operations.Life, r.operations.Closing = t.life.Context(), r.closing
	if t.nserviceBusTables {
		r.count = transport.NewDeliveryLog(cfg.MaxInFlight)
	}
	return r
}

// String describes the receiver without the fields of its transport.
func (r *receiver) String() string {
	return fmt.Sprintf("receiver of %s (%v)", r.q.Table.Address, r.mode)
}

// GoString returns the same text as String.
func (r *receiver) GoString() string { return r.String() }

// open begins to listen for messages.
func (r *receiver) open() { r.wakeup = r.t.addWakeup(r.q) }

// Receive implements core.Receiver.
func (r *receiver) Receive(ctx context.Context, dst []core.Delivery) (int, error) {
	n, err := r.receive(ctx, dst)
	if err != nil && !errors.Is(err, ctx.Err()) {
		err = fmt.Errorf("sqlserver: receive from %s: %w", r.q.Table.Address, r.t.server.Explained(err))
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
	if r.strategy.holds() {
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

// sweep removes deliveries that have ended although the engine has not settled them. mu is
// held.
func (r *receiver) sweep() {
	now := time.Now()
	for h := range r.unsettled {
		if r.strategy.ended(h, now) {
			delete(r.unsettled, h)
		}
	}
	r.inWork.Store(int64(len(r.unsettled)))
}

// try fetches once. In an outage, down is the time to wait.
func (r *receiver) try(ctx context.Context, dst []core.Delivery) (n int, more bool, down time.Duration, err error) {
	defer r.fetching.Done()
	if !r.strategy.prepare(ctx) {
		r.fetched(len(dst), nil, true)
		return 0, true, 0, nil
	}
	started := time.Now()
	op := r.operations.Begin(ctx)
	places := len(dst)
	dst = dst[:r.aside.limit(places)]
	n, more, err = r.strategy.fetch(op, dst)
	cut := op.WasCut()
	op.End()
	closed := r.fetched(places, dst[:n], more)
	switch {
	case closed:
		r.giveUp(ctx, dst[:n])
		return 0, false, 0, core.ErrClosed
	case err != nil && cut: // the next round finds out by which context
		return 0, true, 0, nil
	case err != nil && r.t.server.Fault(err) == dialect.FaultRow:
		if r.setAside(ctx, len(dst), err) {
			return 0, true, 0, nil
		}
		return 0, false, r.outages.Failed(err, started), nil
	case err != nil && !r.t.server.Transient(err):
		if err = r.explained(ctx, err); err != nil {
			return 0, false, 0, err
		}
		return 0, false, dialect.ConflictPause, nil
	case err != nil && r.t.server.Fault(err) == dialect.FaultConflict:
		return 0, false, dialect.ConflictPause, nil
	case err != nil:
		r.t.server.GaveUp(err)
		return 0, false, r.outages.Failed(err, started), nil
	}
	r.outages.End()
	return n, more, 0, nil
}

// explained adds to the error of a fetch the columns of the table that were altered. It returns
// nil if none is wrong, and the statement was prepared for the table before.
func (r *receiver) explained(ctx context.Context, cause error) error {
	if wrong := r.t.server.Verify(ctx, r.q); isAboutTable(wrong) {
		return fmt.Errorf("%w: %w", wrong, cause)
	}
	if postgres.IsOutdatedPlan(cause) {
		return nil
	}
	return cause
}

// giveUp releases messages that a fetch brought after the receiver was closed.
func (r *receiver) giveUp(ctx context.Context, got []core.Delivery) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), operation.Grace)
	defer cancel()
	r.strategy.releaseFetched(ctx, got)
}

// fetched frees the places that a fetch did not need, and records the fetched deliveries.
// It reports whether the receiver was closed during the fetch.
func (r *receiver) fetched(places int, got []core.Delivery, more bool) (closed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reserved -= places
	r.idle = len(got) == 0 && !more
	if !r.idle {
		r.pause, r.wakeups = 0, 0
	}
	if r.closed {
		return true
	}
	if r.strategy.holds() {
		for _, d := range got {
			r.unsettled[d] = struct{}{}
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
func (r *receiver) settled(these ...core.Delivery) {
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
	var left []core.Delivery
	for h := range r.unsettled {
		left = append(left, h)
	}
	clear(r.unsettled)
	r.mu.Unlock()
	r.close()
	r.t.removeWakeup(r.wakeup)
	r.strategy.close(ctx, left)
	r.fetching.Wait()
	r.operations.Close()
	r.t.life.Remove(r)
	return nil
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

// from returns the watermark of the next fetch.
func (r *receiver) from() watermark.Watermark {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.watermark.From(r.idle)
}

// advanceWatermark follows a fetch, see watermark.advance.
func (r *receiver) advanceWatermark(from watermark.Watermark, found, asked int, first time.Time, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watermark.Advance(from, found, asked, first, took)
}

// lowerWatermark makes the next fetch find a message that was given back here.
func (r *receiver) lowerWatermark(due time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watermark.Lower(due)
}

// incoming converts a row for the engine.
func (r *receiver) incoming(m *dialect.Row) core.Incoming {
	in := incoming(m)
	if r.count != nil {
		in.DeliveryCount, in.LastError = r.count.Delivered(m.ID)
	} else {
		in.EnqueuedAt = m.Due
	}
	in.Redelivered = in.DeliveryCount > 1 || postgres.Leases(m.Claims) > 1
	return in
}

// incoming converts a row as far as that does not depend on its receiver.
func incoming(m *dialect.Row) core.Incoming {
	h, malformed := dialect.ParseHeaders(m.Headers)
	in := core.Incoming{
		NativeID:      m.ID,
		Headers:       h,
		Body:          m.Body,
		DeliveryCount: m.Deliveries,
		LastError:     m.LastError,
		ExpiresAt:     m.Deadline.Time,
	}
	transport.UnpackHeaders(&in)
	if malformed != nil {
		in.Malformed = fmt.Errorf("the headers of row %s are no JSON object: %w", m.ID, malformed)
	}
	if in.ID == "" {
		in.ID = m.ID
	}
	return in
}
