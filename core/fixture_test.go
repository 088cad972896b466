package core_test

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/core/queues"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// Tests that run endpoints do so in a synctest bubble: time passes only while
// everybody waits, a goroutine left behind or a deadlock fails the test, and
// synctest.Wait means that all that can happen now has happened.

var (
	allModes   = []core.TransactionMode{core.TransactionNone, core.TransactionReceiveOnly, core.TransactionSendsAtomicWithReceive}
	retryModes = allModes[1:] // modes in which a message can be given back
)

// noRetries lets the first failure be the last.
var noRetries = core.Recoverability{Immediate: core.Immediate{NumberOfRetries: core.Off}, Delayed: core.Delayed{NumberOfRetries: core.Off}}

// immediateRetries allows n immediate retries and no others.
func immediateRetries(n int) core.Recoverability {
	return core.Recoverability{Immediate: core.Immediate{NumberOfRetries: cmp.Or(n, core.Off)}, Delayed: core.Delayed{NumberOfRetries: core.Off}}
}

// fixture is the environment of a test: an in-memory transport whose calls can be made to
// fail, and a logger that records its lines.
type fixture struct {
	*testing.T
	mode   core.TransactionMode // of endpoints that name none
	broker *faultyTransport
	logs   *logRecorder
}

// bubble runs body in a bubble with a transport that can do everything, in the
// highest transaction mode.
func bubble(t *testing.T, body func(fx *fixture)) {
	t.Helper()
	bubbleWith(t, inmemory.Config{}, body)
}

// bubbleWith does so with a given transport.
func bubbleWith(t *testing.T, cfg inmemory.Config, body func(fx *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { body(newFixture(t, cfg, core.TransactionDefault)) })
}

// inModes runs body in a bubble for each of the modes.
func inModes(t *testing.T, modes []core.TransactionMode, body func(fx *fixture)) {
	t.Helper()
	inModesWith(t, inmemory.Config{}, modes, body)
}

func inModesWith(t *testing.T, cfg inmemory.Config, modes []core.TransactionMode, body func(fx *fixture)) {
	t.Helper()
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { body(newFixture(t, cfg, mode)) })
		})
	}
}

// withCapabilities returns the configuration of a transport with changed capabilities.
func withCapabilities(change func(*core.Capabilities)) inmemory.Config {
	caps := inmemory.Everything()
	change(&caps)
	return inmemory.Config{Capabilities: &caps}
}

func newFixture(t *testing.T, cfg inmemory.Config, mode core.TransactionMode) *fixture {
	t.Helper()
	transport, err := inmemory.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { transport.Close(context.Background()) })
	if err := transport.Provision(t.Context(), core.Topology{Queues: []string{"orders", "shipping", "error"}}); err != nil {
		t.Fatal(err)
	}
	logs := &logRecorder{}
	t.Cleanup(func() {
		for _, duplicate := range logs.duplicates.all() {
			t.Errorf("logged an attribute twice: %s", duplicate)
		}
	})
	return &fixture{T: t, mode: mode, broker: &faultyTransport{Transport: transport, caps: transport.Capabilities()}, logs: logs}
}

// newEndpoint makes an endpoint in the fixture's mode, with its logger.
func (fx *fixture) newEndpoint(name string, c core.Config) *core.Endpoint {
	fx.Helper()
	if !c.SendOnly && c.Transactions == core.TransactionDefault {
		c.Transactions = fx.mode
	}
	if c.Logger == nil {
		c.Logger = slog.New(logHandler{recorder: fx.logs})
	}
	ep, err := core.New(name, fx.broker, c)
	if err != nil {
		fx.Fatal(err)
	}
	return ep
}

// runOrders makes and runs the endpoint "orders" with one handler, of "order".
func (fx *fixture) runOrders(c core.Config, h core.HandlerFunc) (*core.Endpoint, *runningEndpoint) {
	fx.Helper()
	ep := fx.newEndpoint("orders", c)
	fx.handle(ep, "order", h)
	return ep, fx.run(ep)
}

// handle registers a handler that takes the body as it is.
func (fx *fixture) handle(ep *core.Endpoint, messageType string, h core.HandlerFunc) {
	fx.Helper()
	core.Handle(ep, core.NewMessageType[[]byte](messageType), func(ctx context.Context, m *core.Message, _ []byte) error { return h(ctx, m) })
}

// runningEndpoint is a Run in progress.
type runningEndpoint struct {
	fixture *fixture
	cancel  context.CancelFunc
	done    chan struct{}
	err     error
	checked bool // the test has looked at err
}

// start calls Run in a goroutine. At the test's end it must have returned nil
// on request, unless the test looked at its error.
func (fx *fixture) start(ep *core.Endpoint) *runningEndpoint {
	return fx.startWithContext(context.Background(), ep)
}

func (fx *fixture) startWithContext(ctx context.Context, ep *core.Endpoint) *runningEndpoint {
	fx.Helper()
	ctx, cancel := context.WithCancel(ctx)
	r := &runningEndpoint{fixture: fx, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.err = ep.Run(ctx)
	}()
	fx.Cleanup(func() {
		fx.Helper()
		cancel()
		<-r.done
		if r.err != nil && !r.checked {
			fx.Errorf("Run returned %v", r.err)
		}
	})
	synctest.Wait()
	return r
}

// run starts an endpoint and checks that it is ready.
func (fx *fixture) run(ep *core.Endpoint) *runningEndpoint {
	fx.Helper()
	r := fx.start(ep)
	select {
	case <-ep.Ready():
	default:
		fx.Fatalf("endpoint %q is not ready; Run has returned: %t", ep.Name(), r.hasEnded())
	}
	return r
}

// stop ends Run's context and returns Run's error.
func (r *runningEndpoint) stop() error {
	r.cancel()
	return r.wait()
}

// wait returns Run's error when it has returned.
func (r *runningEndpoint) wait() error {
	<-r.done
	r.checked = true
	return r.err
}

func (r *runningEndpoint) hasEnded() bool {
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
			headers.MessageID:    id,
			headers.MessageTypes: "order",
			"Sender":             "unit \u00e9",
		}),
	}
}

// enqueue sends orders past the endpoints and waits until they have handled them.
func (fx *fixture) enqueue(ids ...string) {
	fx.Helper()
	for _, id := range ids {
		fx.send(order(id))
	}
	synctest.Wait()
}

// advance lets time pass, and waits for everything that happens in it.
func (fx *fixture) advance(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (fx *fixture) send(msgs ...core.Outgoing) {
	fx.Helper()
	if err := fx.broker.Transport.Send(fx.Context(), msgs...); err != nil {
		fx.Fatal(err)
	}
}

// messages returns the messages that are ready in a queue, with the count of the next delivery.
func (fx *fixture) messages(name string) []core.Incoming {
	fx.Helper()
	synctest.Wait()
	page, err := fx.broker.Browse(fx.Context(), queues.Request{Queue: name, Limit: math.MaxInt, MaxBytes: math.MaxInt})
	if err != nil {
		fx.Fatal(err)
	}
	var ready []core.Incoming
	for _, m := range page.Messages {
		if m.State == queues.Ready {
			m.DeliveryCount++
			ready = append(ready, m.Incoming)
		}
	}
	return ready
}

// queues returns the names of all queues.
func (fx *fixture) queues() []string {
	fx.Helper()
	names, err := fx.broker.ListQueues(fx.Context())
	if err != nil {
		fx.Fatal(err)
	}
	return names
}

// onlyMessage returns the one message that is ready in a queue.
func (fx *fixture) onlyMessage(name string) core.Incoming {
	fx.Helper()
	messages := fx.messages(name)
	if len(messages) != 1 {
		fx.Fatalf("queue %q has %d messages, want one", name, len(messages))
	}
	return messages[0]
}

// wantDepth checks the number of messages of a queue, in any state.
func (fx *fixture) wantDepth(name string, want int) {
	fx.Helper()
	if got := fx.depth(name); total(got) != want {
		fx.Errorf("queue %q holds %+v, want %d", name, got, want)
	}
}

// wantDepthNow is wantDepth for handlers, in which a test cannot wait for quiescence.
func (fx *fixture) wantDepthNow(name string, want int) {
	fx.Helper()
	depth, err := fx.broker.Depth(fx.Context(), name)
	if err != nil || total(depth) != want {
		fx.Errorf("queue %q holds %+v, %v; want %d", name, depth, err, want)
	}
}

// depth returns the numbers of messages in a queue, and nothing else.
func (fx *fixture) depth(name string) queues.Depth {
	fx.Helper()
	synctest.Wait()
	depth, err := fx.broker.Depth(fx.Context(), name)
	if err != nil {
		fx.Fatal(err)
	}
	return queues.Depth{Ready: depth.Ready, Locked: depth.Locked, Delayed: depth.Delayed}
}

func total(d queues.Depth) int { return d.Ready + d.Locked + d.Delayed }

// recorder collects values from several goroutines.
type recorder[T any] struct {
	mu    sync.Mutex
	items []T
}

func (r *recorder[T]) add(item T) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.items = append(r.items, item)
	return len(r.items)
}

func (r *recorder[T]) all() []T {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]T(nil), r.items...)
}

func (r *recorder[T]) len() int { return len(r.all()) }

// logRecorder records log lines, and those that have an attribute twice.
type logRecorder struct {
	recorder[logLine]

	duplicates recorder[string]
}

type logLine struct {
	level   slog.Level
	message string
	attrs   map[string]any
}

// find returns the lines whose message contains text, and that have these attributes (keys and
// values).
func (l *logRecorder) find(text string, attrs ...string) []logLine {
	var lines []logLine
	for _, line := range l.all() {
		matches := strings.Contains(line.message, text)
		for pair := range slices.Chunk(attrs, 2) {
			matches = matches && fmt.Sprint(line.attrs[pair[0]]) == pair[1]
		}
		if matches {
			lines = append(lines, line)
		}
	}
	return lines
}

// findReason returns the lines whose attribute reason contains text.
func (l *logRecorder) findReason(text string) []logLine {
	return slices.DeleteFunc(l.all(), func(line logLine) bool { return !strings.Contains(fmt.Sprint(line.attrs["reason"]), text) })
}

type logHandler struct {
	recorder *logRecorder
	attrs    []slog.Attr
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
			h.recorder.duplicates.add(a.Key + " in " + r.Message)
		}
		line.attrs[a.Key] = a.Value.Any()
		return true
	}
	for _, a := range h.attrs {
		add(a)
	}
	r.Attrs(add)
	h.recorder.add(line)
	return nil
}

// equal compares the result of a test with the expected one.
func equal[T comparable](fx *fixture, subject string, got, want T) {
	fx.Helper()
	if got != want {
		fx.Errorf("%s is %v, want %v", subject, got, want)
	}
}

// equalHeaders compares headers but for the keys that are left out.
func equalHeaders(fx *fixture, subject string, got core.Headers, want map[string]string, without ...string) {
	fx.Helper()
	left := got.Map()
	for _, key := range without {
		delete(left, key)
	}
	if !maps.Equal(left, want) {
		fx.Errorf("%s are %v, want %v", subject, left, want)
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

// recoveryRecorder records the events of a recovery observer.
type recoveryRecorder struct{ recorder[core.Recovery] }

func (r *recoveryRecorder) Recovered(_ context.Context, e core.Recovery) { r.add(e) }

func (r *recoveryRecorder) observer() core.Observer {
	return core.Observer{Recovered: r.Recovered}
}

func (r *recoveryRecorder) actions() string {
	var kinds []string
	for _, e := range r.all() {
		kinds = append(kinds, e.Action.Kind.String())
	}
	return strings.Join(kinds, " ")
}
