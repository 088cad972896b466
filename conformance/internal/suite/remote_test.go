package suite

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/queues"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// remote is a transport that is connected to a server, and connects again when
// the connection is lost: a model of an adapter for a broker.
type remote struct {
	transport.Undescribed
	server *server
	rules  *inmemory.Transport // knows capabilities and addresses; never used otherwise

	quit chan struct{}
	wg   sync.WaitGroup

	mu        sync.Mutex
	closed    bool
	current   *connection   // nil during an outage
	changed   chan struct{} // closed, and replaced, when current or closed change
	receivers map[*remoteReceiver]struct{}
}

func (s *server) open() *remote {
	cfg := s.cfg
	cfg.Broker = nil
	rules, err := inmemory.New(cfg)
	if err != nil {
		panic(err) // a mistake in a test of the suite
	}
	t := &remote{server: s, rules: rules, quit: make(chan struct{}), changed: make(chan struct{}), receivers: map[*remoteReceiver]struct{}{}}
	c, err := s.connect(t.quit)
	t.current = c
	t.wg.Go(func() { t.maintain(c, err) })
	return t
}

// maintain connects again when the connection is lost, until the transport is
// closed.
func (t *remote) maintain(c *connection, err error) {
	for {
		since := time.Now()
		if c != nil {
			select {
			case <-c.lost:
			case <-t.quit:
				c.drop()
				return
			}
			since, err = time.Now(), errConnectionLost
			t.use(nil)
		}
		for attempt := 0; ; attempt++ {
			if limit := t.server.faults.attempts; limit > 0 && attempt == limit {
				<-t.quit
				return
			}
			pause := min(10*time.Millisecond<<min(attempt, 10), time.Second)
			pause += rand.N(pause)
			if f := t.server.faults.backOff; f != nil {
				pause = f(attempt)
			}
			t.tell(core.ConnectionChange{Err: err, Since: since, RetryIn: pause})
			timer := time.NewTimer(pause)
			select {
			case <-timer.C:
			case <-t.quit:
				timer.Stop()
				return
			}
			if c, err = t.server.connect(t.quit); err == nil {
				break
			}
		}
		t.use(c)
		t.tell(core.ConnectionChange{Connected: true, Since: since})
	}
}

func (t *remote) use(c *connection) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.current = c
	t.change()
}

func (t *remote) change() {
	close(t.changed)
	t.changed = make(chan struct{})
}

func (t *remote) tell(change core.ConnectionChange) {
	t.mu.Lock()
	receivers := slices.Collect(maps.Keys(t.receivers))
	t.mu.Unlock()
	for _, r := range receivers {
		if told := r.cfg.ConnectionChanged; told != nil {
			told(change)
		}
	}
}

// connected returns the connection, or why there is none.
func (t *remote) connected() (*connection, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.closed:
		return nil, core.ErrClosed
	case t.current == nil:
		return nil, errRefused
	}
	return t.current, nil
}

// awaitConnection waits for one, until ctx ends or quit is closed.
func (t *remote) awaitConnection(ctx context.Context, quit <-chan struct{}) (*connection, error) {
	for {
		t.mu.Lock()
		c, changed, closed := t.current, t.changed, t.closed
		t.mu.Unlock()
		switch {
		case closed:
			return nil, core.ErrClosed
		case c != nil:
			return c, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-quit:
			return nil, core.ErrClosed
		}
	}
}

// lost returns a channel that is closed when there is no connection.
func (t *remote) lost() <-chan struct{} {
	if c, err := t.connected(); err == nil {
		return c.lost
	}
	closed := make(chan struct{})
	close(closed)
	return closed
}

func (t *remote) Capabilities() core.Capabilities {
	caps := t.rules.Capabilities()
	caps.Durable = true
	return caps
}

func (t *remote) Address(queue string) (string, error) { return t.rules.Address(queue) }

func (t *remote) Send(ctx context.Context, out ...core.Outgoing) error {
	c, err := t.connected()
	state := core.SendRefused
	if err == nil {
		if err = c.call(func() error { return c.transport.Send(ctx, out...) }); err == nil {
			return nil
		}
		if _, told := errors.AsType[*core.SendError](err); told {
			return err
		}
		state = core.SendUnknown
	}
	return fmt.Errorf("remote: send: %w", sendFailed(out, state, err))
}

func sendFailed(out []core.Outgoing, state core.SendState, err error) *core.SendError {
	e := &core.SendError{}
	for _, o := range out {
		e.Results = append(e.Results, core.SendResult{ID: o.ID, To: o.Queue + o.Topic, State: state, Err: err})
	}
	return e
}

func (t *remote) Provision(ctx context.Context, topology core.Topology) error {
	c, err := t.connected()
	if err != nil {
		return fmt.Errorf("remote: provision: %w", err)
	}
	return c.transport.Provision(ctx, topology)
}

func (t *remote) Purge(ctx context.Context, queue string) (int, error) {
	c, err := t.connected()
	if err != nil {
		return 0, fmt.Errorf("remote: purge: %w", err)
	}
	return c.transport.Purge(ctx, queue)
}

func (t *remote) Remove(ctx context.Context, queues, topics []string) error {
	c, err := t.connected()
	if err != nil {
		return fmt.Errorf("remote: remove: %w", err)
	}
	return c.transport.Remove(ctx, queues, topics)
}

func (t *remote) Browse(ctx context.Context, r queues.Request) (page queues.Page, err error) {
	err = t.call("browse", func(c *connection) error {
		page, err = c.transport.Browse(ctx, r)
		return err
	})
	return page, err
}

func (t *remote) Take(ctx context.Context, queue string, takes []queues.Take) (results []queues.TakeResult, err error) {
	err = t.call("take", func(c *connection) error {
		results, err = c.transport.Take(ctx, queue, takes)
		return err
	})
	if err != nil {
		return nil, err // the answer did not arrive
	}
	return results, nil
}

func (t *remote) Depth(ctx context.Context, queue string) (depth queues.Depth, err error) {
	err = t.call("depth", func(c *connection) error {
		depth, err = c.transport.Depth(ctx, queue)
		return err
	})
	return depth, err
}

func (t *remote) ListQueues(ctx context.Context) (names []string, err error) {
	err = t.call("list queues", func(c *connection) error {
		names, err = c.transport.ListQueues(ctx)
		return err
	})
	return names, err
}

// call does something on the server.
func (t *remote) call(operation string, do func(c *connection) error) error {
	c, err := t.connected()
	if err == nil {
		err = c.call(func() error { return do(c) })
	}
	if err != nil {
		return fmt.Errorf("remote: %s: %w", operation, err)
	}
	return nil
}

func (t *remote) CheckTopic(topic string) error { return t.rules.CheckTopic(topic) }

func (t *remote) Check(ctx context.Context, topology core.Topology) error {
	c, err := t.connected()
	if err != nil {
		return fmt.Errorf("remote: check: %w", err)
	}
	return c.transport.Check(ctx, topology)
}

func (t *remote) Subscribe(ctx context.Context, queue string, topics ...string) error {
	c, err := t.connected()
	if err != nil {
		return fmt.Errorf("remote: subscribe: %w", err)
	}
	return c.transport.Subscribe(ctx, queue, topics...)
}

func (t *remote) Unsubscribe(ctx context.Context, queue string, topics ...string) error {
	c, err := t.connected()
	if err != nil {
		return fmt.Errorf("remote: unsubscribe: %w", err)
	}
	return c.transport.Unsubscribe(ctx, queue, topics...)
}

// OpenReceiver waits for the connection.
func (t *remote) OpenReceiver(ctx context.Context, cfg core.ReceiverConfig) (core.Receiver, error) {
	r := &remoteReceiver{transport: t, cfg: cfg, maxInFlight: cfg.MaxInFlight, quit: make(chan struct{})}
	if _, err := r.attached(ctx); err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", err, errRefused)
		}
		return nil, fmt.Errorf("remote: open receiver: %w", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, core.ErrClosed
	}
	t.receivers[r] = struct{}{}
	return r, nil
}

func (t *remote) Close(context.Context) error {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return nil
	}
	t.closed = true
	c := t.current
	t.change()
	t.mu.Unlock()
	if c != nil {
		c.finish()
	}
	close(t.quit)
	t.wg.Wait()
	return nil
}

// die is the end of the client's process: nothing goes back in order.
func (t *remote) die() {
	if c, err := t.connected(); err == nil {
		c.drop()
	}
	_ = t.Close(ctxBackground)
}

// remoteReceiver opens a receiver anew on each connection.
type remoteReceiver struct {
	transport *remote
	cfg       core.ReceiverConfig
	quit      chan struct{} // closed by Close

	mu          sync.Mutex
	closed      bool
	maxInFlight int
	connection  *connection
	inner       core.Receiver // on that connection
}

// attached returns the receiver on the current connection, and waits for one.
func (r *remoteReceiver) attached(ctx context.Context) (core.Receiver, error) {
	for {
		c, err := r.transport.awaitConnection(ctx, r.quit)
		if err != nil {
			return nil, err
		}
		r.mu.Lock()
		if r.closed {
			r.mu.Unlock()
			return nil, core.ErrClosed
		}
		if r.connection != c {
			cfg := r.cfg
			if r.connection != nil { // with 0 it could not be opened
				cfg.MaxInFlight = max(r.maxInFlight, 1)
			}
			inner, err := c.transport.OpenReceiver(ctx, cfg)
			if err == nil {
				r.connection, r.inner = c, inner
				inner.SetMaxInFlight(r.maxInFlight)
			} else if !errors.Is(err, core.ErrClosed) { // it was lost again
				r.mu.Unlock()
				return nil, err
			}
		}
		inner := r.inner
		lost := r.connection != c
		r.mu.Unlock()
		if !lost {
			return inner, nil
		}
		<-c.lost
		r.transport.forget(c)
	}
}

// forget is use(nil), before maintain comes to it.
func (t *remote) forget(c *connection) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.current == c {
		t.current = nil
		t.change()
	}
}

func (r *remoteReceiver) Receive(ctx context.Context, dst []core.Delivery) (int, error) {
	for {
		inner, err := r.attached(ctx)
		if err != nil {
			return 0, err
		}
		n, err := inner.Receive(ctx, dst)
		switch {
		case n > 0 && r.arrived(inner):
			return n, nil
		case n > 0: // they come again
			clear(dst[:n])
		case !errors.Is(err, core.ErrClosed) || r.isClosed():
			return 0, err
		default:
			r.mu.Lock()
			c := r.connection
			r.mu.Unlock()
			<-c.lost
			r.transport.forget(c)
		}
	}
}

// arrived reports whether a delivery came over the network.
func (r *remoteReceiver) arrived(inner core.Receiver) bool {
	r.mu.Lock()
	c := r.connection
	is := r.inner == inner
	r.mu.Unlock()
	return is && c.travel(answers, 0)
}

func (r *remoteReceiver) isClosed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closed
}

func (r *remoteReceiver) SetMaxInFlight(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.maxInFlight = n
	if r.inner != nil {
		r.inner.SetMaxInFlight(n)
	}
}

func (r *remoteReceiver) Close(ctx context.Context) error {
	r.transport.mu.Lock()
	delete(r.transport.receivers, r)
	r.transport.mu.Unlock()
	r.mu.Lock()
	inner := r.inner
	first := !r.closed
	r.closed = true
	r.mu.Unlock()
	if first {
		close(r.quit)
	}
	return inner.Close(ctx)
}
