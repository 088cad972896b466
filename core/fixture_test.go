package core_test

import (
	"context"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// Tests that run endpoints do so in a synctest bubble: time passes only while
// everybody waits, a goroutine left behind or a deadlock fails the test, and
// synctest.Wait means that all that can happen now has happened.

var (
	everyMode = []core.TransactionMode{core.TransactionNone, core.TransactionReceiveOnly, core.TransactionSendsAtomicWithReceive}
	retrying  = everyMode[1:] // modes in which a message can be given back
)

// noRetries lets the first failure be the last.
var noRetries = core.Recoverability{Immediate: core.Immediate{Off: true}, Delayed: core.Delayed{Off: true}}

// immediate allows n immediate retries and no others.
func immediate(n int) core.Recoverability {
	return core.Recoverability{Immediate: core.Immediate{Retries: n, Off: n == 0}, Delayed: core.Delayed{Off: true}}
}

// bed is what endpoints are tested in: an in-memory transport whose calls can
// be made to fail, and a logger that keeps what is logged.
type bed struct {
	*testing.T
	mode   core.TransactionMode // of endpoints that name none
	broker *faulty
	logs   *logBook
}

// bubble runs body in a bubble with a transport that can do everything, in the
// highest transaction mode.
func bubble(t *testing.T, body func(b *bed)) {
	t.Helper()
	bubbleOn(t, inmemory.Config{}, body)
}

// bubbleOn does so with a transport of a given ability.
func bubbleOn(t *testing.T, cfg inmemory.Config, body func(b *bed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { body(newBed(t, cfg, core.TransactionDefault)) })
}

// inModes runs body in a bubble for each of the modes.
func inModes(t *testing.T, modes []core.TransactionMode, body func(b *bed)) {
	t.Helper()
	inModesOn(t, inmemory.Config{}, modes, body)
}

func inModesOn(t *testing.T, cfg inmemory.Config, modes []core.TransactionMode, body func(b *bed)) {
	t.Helper()
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { body(newBed(t, cfg, mode)) })
		})
	}
}

// able is a transport's configuration with everything, changed.
func able(change func(*core.Capabilities)) inmemory.Config {
	caps := inmemory.Everything()
	change(&caps)
	return inmemory.Config{Capabilities: &caps}
}

func newBed(t *testing.T, cfg inmemory.Config, mode core.TransactionMode) *bed {
	t.Helper()
	transport, err := inmemory.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { transport.Close(context.Background()) })
	if err := transport.Provision(t.Context(), core.Topology{Queues: []string{"orders", "shipping", "error"}}); err != nil {
		t.Fatal(err)
	}
	logs := &logBook{}
	t.Cleanup(func() {
		for _, twice := range logs.twice.all() {
			t.Errorf("logged an attribute twice: %s", twice)
		}
	})
	return &bed{T: t, mode: mode, broker: &faulty{Transport: transport, caps: transport.Capabilities()}, logs: logs}
}

// endpoint makes an endpoint in the bed's mode, with its logger.
func (b *bed) endpoint(name string, c core.Config) *core.Endpoint {
	b.Helper()
	if !c.SendOnly && c.Transactions == core.TransactionDefault {
		c.Transactions = b.mode
	}
	if c.Logger == nil {
		c.Logger = slog.New(logHandler{book: b.logs})
	}
	ep, err := core.New(name, b.broker, c)
	if err != nil {
		b.Fatal(err)
	}
	return ep
}

// orders makes and runs the endpoint "orders" with one handler, of "order".
func (b *bed) orders(c core.Config, h core.HandlerFunc) (*core.Endpoint, *running) {
	b.Helper()
	ep := b.endpoint("orders", c)
	b.handle(ep, "order", h)
	return ep, b.run(ep)
}

// handle registers a handler that takes the body as it is.
func (b *bed) handle(ep *core.Endpoint, messageType string, h core.HandlerFunc) {
	b.Helper()
	core.Handle(ep, messageType, func(ctx context.Context, m *core.TypedMessage[[]byte]) error { return h(ctx, m.Message) })
}

// running is a Run under way.
type running struct {
	bed    *bed
	cancel context.CancelFunc
	done   chan struct{}
	err    error
	seen   bool // the test has looked at err
}

// launch calls Run in a goroutine. At the test's end it must have returned nil
// on request, unless the test looked at its error.
func (b *bed) launch(ep *core.Endpoint) *running {
	return b.launchUnder(context.Background(), ep)
}

func (b *bed) launchUnder(ctx context.Context, ep *core.Endpoint) *running {
	b.Helper()
	ctx, cancel := context.WithCancel(ctx)
	r := &running{bed: b, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.err = ep.Run(ctx)
	}()
	b.Cleanup(func() {
		b.Helper()
		cancel()
		<-r.done
		if r.err != nil && !r.seen {
			b.Errorf("Run returned %v", r.err)
		}
	})
	synctest.Wait()
	return r
}

// run launches an endpoint and checks that it is ready.
func (b *bed) run(ep *core.Endpoint) *running {
	b.Helper()
	r := b.launch(ep)
	select {
	case <-ep.Ready():
	default:
		b.Fatalf("endpoint %q is not ready; Run has returned: %t", ep.Name(), r.hasEnded())
	}
	return r
}

// stop ends Run's context and returns what Run did.
func (r *running) stop() error {
	r.cancel()
	return r.wait()
}

// wait returns what Run did, once it did.
func (r *running) wait() error {
	<-r.done
	r.seen = true
	return r.err
}

func (r *running) hasEnded() bool {
	synctest.Wait()
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// order is a message of type "order" to the queue "orders", with headers of its
// sender's own.
func order(id string) core.Outgoing {
	return core.Outgoing{
		ID: id, Queue: "orders", Body: []byte("body of " + id),
		Headers: core.HeadersFromMap(map[string]string{
			core.HeaderMessageID:    id,
			core.HeaderMessageTypes: "order",
			"Sender":                "unit \u00e9",
		}),
	}
}

// put sends orders past the endpoints and waits for what they do with them.
func (b *bed) put(ids ...string) {
	b.Helper()
	for _, id := range ids {
		b.send(order(id))
	}
	synctest.Wait()
}

// pass lets time pass, and waits for all that happens in it.
func (b *bed) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (b *bed) send(msgs ...core.Outgoing) {
	b.Helper()
	if err := b.broker.Transport.Send(b.Context(), msgs...); err != nil {
		b.Fatal(err)
	}
}

// queue returns the messages that are ready in a queue.
func (b *bed) queue(name string) []core.Incoming {
	b.Helper()
	synctest.Wait()
	messages, err := b.broker.Peek(name)
	if err != nil {
		b.Fatal(err)
	}
	return messages
}

// only returns the one message that is ready in a queue.
func (b *bed) only(name string) core.Incoming {
	b.Helper()
	messages := b.queue(name)
	if len(messages) != 1 {
		b.Fatalf("queue %q has %d messages, want one", name, len(messages))
	}
	return messages[0]
}

// holds checks how many messages a queue has, whatever their state.
func (b *bed) holds(name string, want int) {
	b.Helper()
	if got := b.depth(name); got.Total() != want {
		b.Errorf("queue %q holds %+v, want %d", name, got, want)
	}
}

// holdsNow is holds for handlers, in which one cannot wait for quiescence.
func (b *bed) holdsNow(name string, want int) {
	b.Helper()
	depth, err := b.broker.Depth(name)
	if err != nil || depth.Total() != want {
		b.Errorf("queue %q holds %+v, %v; want %d", name, depth, err, want)
	}
}

func (b *bed) depth(name string) inmemory.Depth {
	b.Helper()
	synctest.Wait()
	depth, err := b.broker.Depth(name)
	if err != nil {
		b.Fatal(err)
	}
	return depth
}

// record collects values from several goroutines.
type record[T any] struct {
	mu    sync.Mutex
	items []T
}

func (r *record[T]) add(item T) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.items = append(r.items, item)
	return len(r.items)
}

func (r *record[T]) all() []T {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]T(nil), r.items...)
}

func (r *record[T]) len() int { return len(r.all()) }

// logBook keeps log lines, and those that have an attribute twice.
type logBook struct {
	record[logLine]

	twice record[string]
}

type logLine struct {
	level   slog.Level
	message string
	attrs   map[string]any
}

// about returns the lines whose message contains text.
func (l *logBook) about(text string) []logLine {
	var lines []logLine
	for _, line := range l.all() {
		if strings.Contains(line.message, text) {
			lines = append(lines, line)
		}
	}
	return lines
}

type logHandler struct {
	book  *logBook
	attrs []slog.Attr
}

func (h logHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h logHandler) WithGroup(string) slog.Handler { return h }

func (h logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	h.attrs = append(append([]slog.Attr(nil), h.attrs...), attrs...)
	return h
}

func (h logHandler) Handle(_ context.Context, r slog.Record) error {
	line := logLine{r.Level, r.Message, map[string]any{}}
	add := func(a slog.Attr) bool {
		if _, ok := line.attrs[a.Key]; ok {
			h.book.twice.add(a.Key + " in " + r.Message)
		}
		line.attrs[a.Key] = a.Value.Any()
		return true
	}
	for _, a := range h.attrs {
		add(a)
	}
	r.Attrs(add)
	h.book.add(line)
	return nil
}

// equal compares what a test got with what it wants.
func equal[T comparable](b *bed, what string, got, want T) {
	b.Helper()
	if got != want {
		b.Errorf("%s is %v, want %v", what, got, want)
	}
}

// sameHeaders compares headers but for the keys that are left out.
func sameHeaders(b *bed, what string, got core.Headers, want map[string]string, without ...string) {
	b.Helper()
	left := got.Map()
	for _, key := range without {
		delete(left, key)
	}
	if !maps.Equal(left, want) {
		b.Errorf("%s are %v, want %v", what, left, want)
	}
}

func containsAll(text string, parts ...string) bool {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			return false
		}
	}
	return true
}

// recoveries keeps what a recovery observer is told.
type recoveries struct{ record[core.Recovery] }

func (r *recoveries) Recovered(_ context.Context, e core.Recovery) { r.add(e) }

func (r *recoveries) observer() core.Observer {
	return core.Observer{Recovered: r.Recovered}
}

func (r *recoveries) kinds() string {
	var kinds []string
	for _, e := range r.all() {
		kinds = append(kinds, e.Action.Kind.String())
	}
	return strings.Join(kinds, " ")
}
