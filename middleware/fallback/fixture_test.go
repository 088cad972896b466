package fallback_test

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/core/queues"
	"github.com/reprise-go/reprise/transport/inmemory"
)

var (
	errBoom               = errors.New("boom")
	errServiceUnavailable = errors.New("the service is away")
)

var (
	allModes   = []core.TransactionMode{core.TransactionNone, core.TransactionReceiveOnly, core.TransactionSendsAtomicWithReceive}
	retryModes = allModes[1:] // modes in which a message can be given back
)

// immediateRetries allows n immediate retries and no others.
func immediateRetries(n int) core.Recoverability {
	return core.Recoverability{Immediate: core.Immediate{NumberOfRetries: cmp.Or(n, core.Off)}, Delayed: core.Delayed{NumberOfRetries: core.Off}}
}

// fixture is an in-memory transport for endpoints in a bubble of virtual time.
type fixture struct {
	*testing.T
	mode   core.TransactionMode // of endpoints
	broker *database
	logs   *logs
}

// bubble runs body in the highest transaction mode.
func bubble(t *testing.T, body func(fx *fixture)) {
	t.Helper()
	inModes(t, allModes[2:], body)
}

func inModes(t *testing.T, modes []core.TransactionMode, body func(fx *fixture)) {
	t.Helper()
	inModesWith(t, inmemory.Everything(), modes, body)
}

func inModesWith(t *testing.T, caps core.Capabilities, modes []core.TransactionMode, body func(fx *fixture)) {
	t.Helper()
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				transport, err := inmemory.New(inmemory.Config{Capabilities: &caps})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { transport.Close(context.Background()) })
				if err := transport.Provision(t.Context(), core.Topology{Queues: []string{"orders", "error", "shipping"}}); err != nil {
					t.Fatal(err)
				}
				body(&fixture{t, mode, &database{Transport: transport}, &logs{}})
			})
		})
	}
}

// newEndpoint makes the endpoint "orders".
func (fx *fixture) newEndpoint(c core.Config) *core.Endpoint {
	fx.Helper()
	c.Transactions, c.Logger = fx.mode, slog.New(fx.logs)
	if fx.mode == core.TransactionNone {
		c.Recoverability = immediateRetries(0)
	}
	ep, err := core.New("orders", fx.broker, c)
	fx.noError(err)
	return ep
}

// handle registers a handler for "order".
func (fx *fixture) handle(ep *core.Endpoint, h core.HandlerFunc, o ...core.HandleOptions) {
	core.Handle(ep, orderType, func(ctx context.Context, m *core.Message, _ []byte) error { return h(ctx, m) }, o...)
}

// run runs an endpoint until the test's end, and returns a function that stops it before.
func (fx *fixture) run(ep *core.Endpoint) (stop func()) {
	fx.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- ep.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		fx.noError(<-done)
	})
	fx.Cleanup(stop)
	synctest.Wait()
	return stop
}

// enqueue sends an order and waits for all that happens at once.
func (fx *fixture) enqueue(id string) {
	fx.Helper()
	headers := core.HeadersFromMap(map[string]string{headers.MessageID: id, headers.MessageTypes: "order"})
	fx.noError(fx.broker.Send(fx.Context(), core.Outgoing{ID: id, Queue: "orders", Headers: headers, Body: []byte(id)}))
	synctest.Wait()
}

func (fx *fixture) advance(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// shippedTypes returns the types of the messages in the queue "shipping", in order.
func (fx *fixture) shippedTypes() string {
	fx.Helper()
	all, err := fx.broker.Browse(fx.Context(), queues.Request{Queue: "shipping", Limit: 1000})
	fx.noError(err)
	var types []string
	for _, m := range all.Messages {
		types = append(types, m.Headers.Get(headers.MessageTypes))
	}
	return strings.Join(types, " ")
}

// wantDepth checks how many messages a queue has, delayed ones included.
func (fx *fixture) wantDepth(queue string, want int) {
	fx.Helper()
	depth, err := fx.broker.Depth(fx.Context(), queue)
	if err != nil || depth.Ready+depth.Locked+depth.Delayed != want {
		fx.Errorf("queue %q holds %+v, %v; want %d", queue, depth, err, want)
	}
}

func (fx *fixture) noError(err error) {
	fx.Helper()
	if err != nil {
		fx.Error(err)
	}
}

func equal[T comparable](fx *fixture, subject string, got, want T) {
	fx.Helper()
	if got != want {
		fx.Errorf("%s is %v, want %v", subject, got, want)
	}
}

// neighbour is middleware that only has facts.
type neighbour core.MiddlewareFacts

func (n neighbour) Describe(core.MiddlewareScope) ([]core.MiddlewareFacts, error) {
	return []core.MiddlewareFacts{core.MiddlewareFacts(n)}, nil
}

func (neighbour) Wrap(_ core.MiddlewareScope, next core.HandlerFunc) core.HandlerFunc { return next }

// refusing is middleware that refuses the first message that on selects, as an open circuit
// does.
func refusing(on func(m *core.Message) bool) core.MiddlewareFunc {
	var refused atomic.Bool
	return func(next core.HandlerFunc) core.HandlerFunc {
		return func(ctx context.Context, m *core.Message) error {
			if on(m) && !refused.Swap(true) {
				return core.Refuse(core.ErrCircuitOpen, time.Minute)
			}
			return next(ctx, m)
		}
	}
}

// recorder is a list that several goroutines write.
type recorder[T any] struct {
	mu   sync.Mutex
	list []T
}

func (r *recorder[T]) add(value T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, value)
}

func (r *recorder[T]) all() []T {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.list)
}

// recoveries records the decisions about failed attempts.
type recoveries struct{ recorder[core.Recovery] }

func (r *recoveries) observer() core.Observer {
	return core.Observer{Recovered: func(_ context.Context, e core.Recovery) { r.add(e) }}
}

// actions returns the names of the actions.
func (r *recoveries) actions() string {
	var all []string
	for _, e := range r.all() {
		all = append(all, e.Action.Kind.String())
	}
	return strings.Join(all, " ")
}

// logs is a log handler that keeps the texts of lines.
type logs struct{ recorder[string] }

func (l *logs) Enabled(context.Context, slog.Level) bool { return true }
func (l *logs) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *logs) WithGroup(string) slog.Handler            { return l }

func (l *logs) Handle(_ context.Context, r slog.Record) error {
	l.add(r.Message)
	return nil
}

// count returns the number of lines with this text.
func (l *logs) count(text string) (n int) {
	for _, line := range l.all() {
		if line == text {
			n++
		}
	}
	return n
}

// database is the in-memory transport with rows that handlers write in the transaction of
// their message.
type database struct {
	*inmemory.Transport
	rollbackErr error // fails rollbacks

	committed recorder[string]
}

// transaction is that of one delivery.
type transaction struct {
	core.Delivery
	database *database
	rows     []string
}

type transactionKey struct{}

// doWork writes a row, if ctx carries a transaction.
func doWork(ctx context.Context, row string) {
	if tx, ok := ctx.Value(transactionKey{}).(*transaction); ok {
		tx.rows = append(tx.rows, row)
	}
}

func (d *database) OpenReceiver(ctx context.Context, c core.ReceiverConfig) (core.Receiver, error) {
	r, err := d.Transport.OpenReceiver(ctx, c)
	return &databaseReceiver{r, d}, err
}

type databaseReceiver struct {
	core.Receiver
	database *database
}

func (r *databaseReceiver) Receive(ctx context.Context, dst []core.Delivery) (int, error) {
	n, err := r.Receiver.Receive(ctx, dst)
	for i := range n {
		dst[i] = &transaction{Delivery: dst[i], database: r.database}
	}
	return n, err
}

func (tx *transaction) BindContext(ctx context.Context) context.Context {
	return context.WithValue(tx.Delivery.BindContext(ctx), transactionKey{}, tx)
}

func (tx *transaction) Savepoint(ctx context.Context) (func(context.Context) error, error) {
	rollback, err := tx.Delivery.Savepoint(ctx)
	n := len(tx.rows)
	return func(ctx context.Context) error {
		if err := tx.database.rollbackErr; err != nil {
			return err
		}
		tx.rows = tx.rows[:n]
		return rollback(ctx)
	}, err
}

func (tx *transaction) Reset(ctx context.Context) error {
	tx.rows = nil
	return tx.Delivery.Reset(ctx)
}

func (tx *transaction) ReplaceWith(ctx context.Context, out []core.Outgoing) error {
	tx.rows = nil
	return tx.Delivery.ReplaceWith(ctx, out)
}

func (tx *transaction) CompleteWith(ctx context.Context, out []core.Outgoing) error {
	err := tx.Delivery.CompleteWith(ctx, out)
	if err == nil {
		for _, row := range tx.rows {
			tx.database.committed.add(row)
		}
	}
	return err
}
