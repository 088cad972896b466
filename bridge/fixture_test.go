package bridge_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/bridge"
	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/queues"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/inmemory"
)

var errUnreachable = errors.New("connection refused")

// side is a transport whose sends can be made to fail.
type side struct {
	transport.Wrapper
	*testing.T
	suffix string // of addresses

	mu       sync.Mutex
	fault    func(out core.Outgoing) error // or nil
	hangs    func(out core.Outgoing) bool  // which sends of the bridge do not return before their context ends, or nil
	loses    bool                          // settlements are lost, as with a process that dies
	tries    int                           // sends of the bridge
	accepted []core.Outgoing               // of the bridge
}

func newSide(t *testing.T, c inmemory.Config) *side {
	t.Helper()
	tr, err := inmemory.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tr.Close(context.Background()) })
	return &side{Wrapper: transport.Wrapper{Transport: tr}, T: t}
}

// able is the configuration of a transport with everything, changed.
func able(change func(*core.Capabilities)) inmemory.Config {
	caps := inmemory.Everything()
	change(&caps)
	return inmemory.Config{Capabilities: &caps}
}

// Send fails as the test wants it. Only the bridge sends forwarded copies.
func (s *side) Send(ctx context.Context, out ...core.Outgoing) error {
	for i := range out {
		out[i].Queue = s.name(out[i].Queue)
	}
	if len(out) != 1 || out[0].Reason != core.ReasonForward {
		return s.Wrapper.Send(ctx, out...)
	}
	s.mu.Lock()
	s.tries++
	fault, hangs := s.fault, s.hangs
	s.mu.Unlock()
	if hangs != nil && hangs(out[0]) {
		<-ctx.Done()
		return transport.AllSent(out, core.SendUnknown, ctx.Err())
	}
	if fault != nil {
		if err := fault(out[0]); err != nil {
			return transport.NoneSent(out, 0, err)
		}
	}
	err := s.Wrapper.Send(ctx, out...)
	if err == nil {
		s.mu.Lock()
		s.accepted = append(s.accepted, out[0])
		s.mu.Unlock()
	}
	return err
}

// name returns the queue with a name or an address.
func (s *side) name(queue string) string { return strings.TrimSuffix(queue, s.suffix) }

// Address implements core.Transport.
func (s *side) Address(queue string) (string, error) {
	address, err := s.Wrapper.Address(s.name(queue))
	return address + s.suffix, err
}

// fail lets the bridge's sends fail where fault returns an error; nil ends that.
func (s *side) fail(fault func(core.Outgoing) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
}

func (s *side) disconnect() { s.fail(func(core.Outgoing) error { return errUnreachable }) }
func (s *side) reachable()  { s.fail(nil) }

// hang lets the bridge's sends hang for which hangs returns true; nil ends that.
func (s *side) hang(hangs func(core.Outgoing) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hangs = hangs
}

func all(core.Outgoing) bool { return true }

// loseSettlements lets each delivery be given back instead of completed.
func (s *side) loseSettlements(loses bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loses = loses
}

// OpenReceiver implements core.Transport.
func (s *side) OpenReceiver(ctx context.Context, cfg core.ReceiverConfig) (core.Receiver, error) {
	cfg.Queue, cfg.ErrorQueue = s.name(cfg.Queue), s.name(cfg.ErrorQueue)
	r, err := s.Wrapper.OpenReceiver(ctx, cfg)
	if err != nil {
		return r, err
	}
	return losing{r, s}, nil
}

// losing is a receiver whose deliveries do not end while the side loses settlements.
type losing struct {
	core.Receiver
	side *side
}

func (l losing) Receive(ctx context.Context, dst []core.Delivery) (int, error) {
	n, err := l.Receiver.Receive(ctx, dst)
	for i := range dst[:n] {
		dst[i] = losingDelivery{dst[i], l.side}
	}
	return n, err
}

type losingDelivery struct {
	core.Delivery
	side *side
}

func (d losingDelivery) Complete(ctx context.Context) error {
	d.side.mu.Lock()
	loses := d.side.loses
	d.side.mu.Unlock()
	if loses {
		return errUnreachable
	}
	return d.Delivery.Complete(ctx)
}

// carried returns the messages that the bridge sent here.
func (s *side) carried() []core.Outgoing {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.accepted)
}

func (s *side) sendTries() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tries
}

func (s *side) memory() *inmemory.Transport { return s.Transport.(*inmemory.Transport) }

// Subscribe implements core.Subscriber.
func (s *side) Subscribe(ctx context.Context, queue string, topics ...string) error {
	return s.Wrapper.Subscribe(ctx, s.name(queue), topics...)
}

// must sends a message as any program would.
func (s *side) must(out ...core.Outgoing) {
	s.Helper()
	if err := s.Wrapper.Send(context.Background(), out...); err != nil {
		s.Fatal(err)
	}
}

// queues creates queues.
func (s *side) queues(names ...string) {
	s.Helper()
	if err := s.Provision(context.Background(), core.Topology{Queues: names}); err != nil {
		s.Fatal(err)
	}
}

// bed is two sides in a synctest bubble, and their log.
type bed struct {
	*testing.T
	near, far *side
	log       *lines
}

func bubble(t *testing.T, near, far inmemory.Config, body func(b *bed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bed{T: t, near: newSide(t, near), far: newSide(t, far), log: &lines{}}
		b.far.suffix = "@far"
		body(b)
	})
}

// config connects the sides, with these lists.
func (b *bed) config(near, far bridge.Side) bridge.Config {
	near.Transport, far.Transport = b.near, b.far
	return bridge.Config{Near: near, Far: far, Endpoint: core.Config{Logger: b.log.logger()}}
}

func (b *bed) bridge(name string, c bridge.Config) *bridge.Bridge {
	b.Helper()
	carrier, err := bridge.New(name, c)
	if err != nil {
		b.Fatal(err)
	}
	return carrier
}

// run runs endpoints until the end of the test or the call of stop, and returns when all that
// can happen has happened.
func (b *bed) run(endpoints ...*core.Endpoint) (stop func()) {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- core.RunAll(ctx, endpoints...) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			b.Errorf("RunAll: %v", err)
		}
	})
	b.Cleanup(stop)
	synctest.Wait()
	return stop
}

// endpoint makes an endpoint on a side.
func (b *bed) endpoint(name string, s *side, c core.Config) *core.Endpoint {
	b.Helper()
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if !c.SendOnly {
		c.Transactions = core.TransactionReceiveOnly // others settle beside side.Send
	}
	ep, err := core.New(name, s, c)
	if err != nil {
		b.Fatal(err)
	}
	return ep
}

func (b *bed) noError(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// pass lets time pass, and all that happens in it.
func (b *bed) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// received is a handler that keeps the messages.
type received struct {
	mu  sync.Mutex
	all []*core.Message
}

func (r *received) handle(ctx context.Context, m *core.Message, _ []byte) error { return r.add(ctx, m) }

func (r *received) add(_ context.Context, m *core.Message) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, m)
	return nil
}

func (r *received) messages() []*core.Message {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.all)
}

// ids returns those of the messages, in order.
func (r *received) ids() (ids []string) {
	for _, m := range r.messages() {
		ids = append(ids, m.ID)
	}
	slices.Sort(ids)
	return ids
}

// count returns the number of messages with an id.
func (r *received) count(id string) (n int) {
	for _, m := range r.messages() {
		if m.ID == id {
			n++
		}
	}
	return n
}

// lines has the log lines at Info and above.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// with returns the lines that contain a text.
func (l *lines) with(text string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.buf.String()) {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}

// outcomes are the decisions about messages that the bridge did not carry.
type outcomes struct {
	mu  sync.Mutex
	all []core.Recovery
}

func (o *outcomes) observer() core.Observer {
	return core.Observer{Recovered: func(_ context.Context, r core.Recovery) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.all = append(o.all, r)
	}}
}

// failed returns those that cost an attempt.
func (o *outcomes) failed() (all []core.Recovery) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, r := range o.all {
		waits := r.Action.Kind == core.ActionPutBack || r.Action.Kind == core.ActionRefuse || r.Action.Kind == core.ActionDefer
		if !waits || r.Failure.ImmediateProcessingFailures != 1 || r.Failure.DelayedDeliveriesPerformed+r.Failure.Message.Deferrals > 0 {
			all = append(all, r)
		}
	}
	return all
}

// onlyMessage returns the one message of a queue.
func (s *side) onlyMessage(queue string) core.Incoming {
	s.Helper()
	all := s.peek(queue)
	if len(all) != 1 {
		s.Fatalf("%d messages in %q, want 1", len(all), queue)
	}
	return all[0]
}

// peek returns the messages that are ready in a queue.
func (s *side) peek(queue string) (ready []core.Incoming) {
	s.Helper()
	page, err := s.memory().Browse(s.Context(), queues.Request{Queue: queue, Limit: 1000})
	if err != nil {
		s.Fatal(err)
	}
	for _, m := range page.Messages {
		if m.State == queues.Ready {
			ready = append(ready, m.Incoming)
		}
	}
	return ready
}

// names returns the names of all queues.
func (s *side) names() []string {
	s.Helper()
	names, err := s.memory().ListQueues(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	return names
}
