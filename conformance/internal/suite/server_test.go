package suite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// server is a broker as a separate process, which can be killed, and a network
// before it, which can be cut: an in-memory broker behind connections. What the
// broker holds is its disk, and survives. It uses channels and timers alone, so
// that it works in a bubble.
type server struct {
	fixture *suiteFixture
	cfg     inmemory.Config

	// What a mutant does to it. Unlike changes, it is not about what a transport
	// does with a call.
	faults serverFaults

	mu          sync.Mutex
	down        bool
	cut         chan struct{} // during a partition, which ends with its closing
	connections map[*connection]struct{}
}

// serverFaults are the mistakes of a mutant's server and its client.
type serverFaults struct {
	// killed is called when the server is, with its connections gone.
	killed func(s *server)
	// released: messages in flight on a lost connection are redelivered without being counted.
	released bool
	// forgets: messages in flight when the server is killed are redelivered without being
	// counted.
	forgets bool
	// backOff is how long the client waits before it tries to connect again.
	backOff func(attempt int) time.Duration
	// noHeartbeat: neither side notices that the other is silent.
	noHeartbeat bool
	// keepsLocks, if not 0, is how long the server keeps the locks of a connection that
	// has fallen silent after the client has given it up.
	keepsLocks time.Duration
	// attempts is after how many the client gives up; 0: never.
	attempts int
}

const (
	// latency is how long anything takes from the client to the server, or back.
	latency = 50 * time.Microsecond
	// heartbeat is how long it takes both to notice that the other is gone.
	heartbeat = 200 * time.Millisecond
)

var (
	errRefused        = fmt.Errorf("connection refused: %w", core.ErrUnavailable)
	errTimeout        = fmt.Errorf("the server does not answer: %w", core.ErrUnavailable)
	errConnectionLost = fmt.Errorf("the connection to the server was lost: %w", core.ErrUnavailable)
)

func newServer(cfg inmemory.Config) *server {
	s := &server{fixture: &suiteFixture{broker: inmemory.NewBroker()}, cfg: cfg, connections: map[*connection]struct{}{}}
	s.cfg.Broker = s.fixture.broker
	return s
}

// Kill implements Broker.
func (s *server) Kill(testing.TB) {
	s.mu.Lock()
	s.down = true
	connections := s.all()
	s.mu.Unlock()
	for _, c := range connections {
		c.drop()
	}
	if s.faults.killed != nil {
		s.faults.killed(s)
	}
}

// Start implements Broker.
func (s *server) Start(testing.TB) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = false
}

// Partition implements Broker. Data in transit waits; after a heartbeat both
// sides give the connections up.
func (s *server) Partition(testing.TB) (heal func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cut = make(chan struct{})
	connections := s.all()
	beat := time.AfterFunc(heartbeat, func() {
		for _, c := range connections {
			c.drop()
		}
	})
	return sync.OnceFunc(func() {
		beat.Stop()
		s.mu.Lock()
		defer s.mu.Unlock()
		close(s.cut)
		s.cut = nil
	})
}

func (s *server) all() (connections []*connection) {
	for c := range s.connections {
		connections = append(connections, c)
	}
	return connections
}

func (s *server) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.connections)
}

func (s *server) network() (cut <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cut
}

// connect is a client's attempt to connect, which ends with quit.
func (s *server) connect(quit <-chan struct{}) (*connection, error) {
	if cut := s.network(); cut != nil {
		timer := time.NewTimer(heartbeat)
		defer timer.Stop()
		select {
		case <-cut:
		case <-timer.C:
			return nil, errTimeout
		case <-quit:
			return nil, core.ErrClosed
		}
	}
	transport, err := inmemory.New(s.cfg)
	if err != nil {
		return nil, err
	}
	c := &connection{server: s, lost: make(chan struct{}), held: map[core.Delivery]int{}}
	c.transport = &brokenTransport{
		base: transport, fixture: s.fixture, memory: map[string]int{}, leave: func() {}, login: func() string { return "" },
		changes: &changes{deliver: c.deliver, settle: c.settle, provision: c.provision, check: c.check, purge: c.purge, remove: c.remove, subscribe: c.subscribe, unsubscribe: c.subscribe},
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return nil, errRefused
	}
	s.connections[c] = struct{}{}
	return c, nil
}

// connection is a client's view of the server: a sound transport on the
// broker, with a network in between.
type connection struct {
	server    *server
	transport *brokenTransport
	lost      chan struct{} // closed when it is gone

	calls sync.WaitGroup

	mu      sync.Mutex
	closing bool // no call begins any more
	gone    bool
	silent  [2]bool               // no more requests, answers arrive
	held    map[core.Delivery]int // sound ones, not settled, in their order
	total   int                   // how many there were
}

// drop ends the connection. Its messages in flight go back, and count as delivered.
func (c *connection) drop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone {
		return
	}
	c.gone = true
	close(c.lost)
	c.server.mu.Lock()
	delete(c.server.connections, c)
	if keeps := c.server.faults.keepsLocks; keeps > 0 && c.silent[answers] {
		c.server.mu.Unlock()
		time.AfterFunc(keeps, func() { _ = c.transport.base.Close(ctxBackground) })
		return
	}
	uncounted := c.server.faults.released || c.server.faults.forgets && c.server.down
	c.server.mu.Unlock()
	for _, d := range slices.SortedFunc(maps.Keys(c.held), func(a, b core.Delivery) int { return cmp.Compare(c.held[a], c.held[b]) }) {
		if !uncounted {
			_ = d.Abandon(ctxBackground, nil) // settled, perhaps
		}
	}
	_ = c.transport.base.Close(ctxBackground)
}

// The directions of a connection.
const (
	requests = iota
	answers
)

// silence lets nothing of that kind arrive any more.
func (c *connection) silence(kinds ...int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, kind := range kinds {
		c.silent[kind] = true
	}
	if !c.server.faults.noHeartbeat {
		time.AfterFunc(heartbeat, c.drop)
	}
}

func (c *connection) isSilent(kind int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.silent[kind]
}

// travel takes one way over the network, and reports whether it arrived.
func (c *connection) travel(kind int, takes time.Duration) bool {
	if c.isSilent(kind) {
		<-c.lost
		return false
	}
	if takes > 0 {
		timer := time.NewTimer(takes)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-c.lost:
			return false
		}
	}
	if cut := c.server.network(); cut != nil {
		select {
		case <-cut:
		case <-c.lost:
			return false
		}
	}
	select {
	case <-c.lost:
		return false
	default:
		return true
	}
}

// finish waits for the calls in progress, and releases the unsettled messages in order.
func (c *connection) finish() {
	c.mu.Lock()
	c.closing = true
	c.mu.Unlock()
	if c.isSilent(answers) {
		c.drop()
	}
	c.calls.Wait()
	_ = c.transport.base.Close(ctxBackground)
}

// call does something on the server. Without an answer, it may or may not have
// been done.
func (c *connection) call(do func() error) error {
	c.mu.Lock()
	if c.closing {
		c.mu.Unlock()
		return errConnectionLost
	}
	c.calls.Add(1)
	c.mu.Unlock()
	defer c.calls.Done()
	if !c.travel(requests, latency) {
		return errConnectionLost
	}
	err := do()
	if !c.travel(answers, latency) {
		return errNoAnswer
	}
	return err
}

var errNoAnswer = fmt.Errorf("the connection to the server was lost before its answer: %w", core.ErrUnavailable)

// The changes to the sound transport.

func (c *connection) purge(_ *brokenTransport, queue string, next func(string) (int, error)) (removed int, err error) {
	err = c.call(func() error {
		removed, err = next(queue)
		return err
	})
	return removed, err
}

func (c *connection) remove(_ *brokenTransport, queues, topics []string, next func(queues, topics []string) error) error {
	return c.call(func() error { return next(queues, topics) })
}

func (c *connection) provision(_ *brokenTransport, _ core.Topology, next func() error) error {
	return c.call(next)
}

func (c *connection) check(_ *brokenTransport, _ core.Topology, next func() error) error {
	return c.call(next)
}

func (c *connection) subscribe(_ *brokenTransport, _ string, _ []string, next func() error) error {
	return c.call(next)
}

func (c *connection) deliver(r *brokenReceiver, d core.Delivery) core.Delivery {
	if r.cfg.Mode != core.TransactionNone {
		c.mu.Lock()
		c.total++
		c.held[d] = c.total
		c.mu.Unlock()
	}
	return d
}

func (c *connection) settle(d *brokenDelivery, operation string, next func() error) error {
	if d.receiver.cfg.Mode == core.TransactionNone {
		return next()
	}
	err := c.call(next)
	switch {
	case errors.Is(err, errConnectionLost):
		return errors.Join(err, core.ErrLockLost)
	case errors.Is(err, errNoAnswer) && d.ctx != nil:
		return transport.Unavailable(d.ctx, err, func(error) bool { return true })
	case err == nil && operation != "Renew" && operation != "Reset":
		c.mu.Lock()
		delete(c.held, d.Delivery)
		c.mu.Unlock()
	}
	return err
}

var ctxBackground = context.Background()

// contextUntil returns a context that ends when one of the channels is closed.
func contextUntil(channels ...<-chan struct{}) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctxBackground)
	for _, c := range channels {
		go func() {
			select {
			case <-c:
				cancel()
			case <-ctx.Done():
			}
		}()
	}
	return ctx, cancel
}

func errorText(err error) string {
	if err == nil {
		return "without an error"
	}
	return err.Error()
}
