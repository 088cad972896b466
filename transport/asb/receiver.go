package asb

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/asb/internal/sdkclient"
)

// receiver takes messages from one queue, on a separate connection.
//
// Its pollers request as many messages as there are free places. A message has a place
// from its request until it is settled. The SDK has no prefetching: messages that arrive
// while no call of its ReceiveMessages is in progress are released, so a poller calls it
// again at once. In mode None, in which the service forgets a message when it sends it, a
// poller requests only as many messages as calls of Receive wait for.
type receiver struct {
	t            *Transport
	address      string
	mode         core.TransactionMode
	sessions     bool          // the queue requires them
	lock         time.Duration // of a message in this queue; 0: not known
	timeToLive   time.Duration // the longest of a message in this queue; 0: not known
	maxPostponed int           // of sessions
	keepExpired  bool          // the queue dead-letters messages that are past their time to live, as far as is known
	control      *control
	outages      transport.Outages
	warn         func(text string) // core.ReceiverConfig.Warn
	closing      context.Context   // ends when the receiver is closed
	close        context.CancelFunc
	graceful     context.Context // ends when Close may no longer wait for the service
	abandon      context.CancelFunc
	closedDone   chan struct{}  // closed when Close has released all messages
	runPoller    func()         // requests messages until the receiver is closed
	pollers      sync.WaitGroup // pollers and other goroutines; it grows with mu held, or by one of them
	settlements  sync.WaitGroup // in progress
	arrivals     transport.Signal
	room         transport.Signal // there may be places for a request

	mu          sync.Mutex        // guards the fields below
	client      *sdkclient.Client // another one after a call was given up
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
	crowded     bool      // sessions are handed back, since too many are postponed
	accepting   int       // requests for a session, each of which has a place
	lent        int       // places of such requests that due messages have taken
}

const (
	// maxLinks is the most concurrent requests for messages, each on a link.
	maxLinks = 4
	// maxRequested is how many messages one request may bring.
	maxRequested = 256
)

func newReceiver(t *Transport, c *sdkclient.Client, address string, cfg core.ReceiverConfig) *receiver {
	r := &receiver{
		t: t, client: c, address: address, mode: cfg.Mode, sessions: t.cfg.names().KeepsGroups(address),
		arrivals: transport.NewSignal(), room: transport.NewSignal(), closedDone: make(chan struct{}),
		maxInFlight: cfg.MaxInFlight, maxPostponed: defaultMaxPostponed, unsettled: map[*delivery]struct{}{}, wanted: 1,
	}
	r.outages.ConnectionChanged = cfg.ConnectionChanged
	if r.warn = cfg.Warn; r.warn == nil {
		r.warn = t.warnings.Add
	}
	r.closing, r.close = context.WithCancel(t.life.Context())
	r.graceful, r.abandon = context.WithCancel(context.Background())
	r.waiting, r.interrupt = context.WithCancel(r.closing)
	r.control = newControl(r)
	r.runPoller = r.poll
	if r.sessions {
		r.runPoller = r.pollSessions
	}
	c.Replace = r.replaceClient
	return r
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
	for {
		if err := ctx.Err(); err != nil {
			r.require(-len(dst))
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

// SetMaxInFlight implements core.Receiver. If it falls, arrived and requested messages
// without a place are returned to the queue with their previous count.
func (r *receiver) SetMaxInFlight(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.maxInFlight = n
	if surplus := r.surplusLocked(); len(surplus) > 0 {
		r.pollers.Go(func() { r.releaseUnseen(surplus) })
	}
	if n == 0 {
		// From now on the SDK releases the requested messages, uncounted.
		r.interrupt()
		r.waiting, r.interrupt = context.WithCancel(r.closing)
	}
	r.startPollersLocked()
	r.room.Notify()
}

// poll runs a poller, which has a link.
func (r *receiver) poll() {
	l := newLink(r)
	for {
		places, wait, waiting, open := r.reserve(maxRequested)
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
		r.releaseUnseen(r.answered(places, messages))
	}
}
