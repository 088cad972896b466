package resilience_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/core/queues"
	"github.com/reprise-go/reprise/middleware/resilience"
	"github.com/reprise-go/reprise/transport/inmemory"
)

var errUnreachable = errors.New("503")

// none is recoverability in which the first failure is the last.
var none = core.Recoverability{Immediate: core.Immediate{NumberOfRetries: core.Off}, Delayed: core.Delayed{NumberOfRetries: core.Off}}

// bed is an in-memory transport for endpoints in a bubble of virtual time, and their log.
type bed struct {
	*testing.T
	transport *inmemory.Transport
	logs      *logs
}

func bubble(t *testing.T, body func(b *bed)) {
	t.Helper()
	bubbleOn(t, inmemory.Config{}, body)
}

func bubbleOn(t *testing.T, c inmemory.Config, body func(b *bed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		transport, err := inmemory.New(c)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { transport.Close(context.Background()) })
		if err := transport.Provision(t.Context(), core.Topology{Queues: []string{"orders", "error", "shipping"}}); err != nil {
			t.Fatal(err)
		}
		body(&bed{t, transport, &logs{}})
	})
}

// policy makes a policy that must be right.
func (b *bed) policy(c resilience.Config) *resilience.Policy {
	b.Helper()
	if c.Name == "" {
		c.Name = "bank"
	}
	if c.Logger == nil {
		c.Logger = slog.New(b.logs)
	}
	p, err := resilience.New(c)
	if err != nil {
		b.Fatal(err)
	}
	return p
}

// endpoint makes an endpoint in ReceiveOnly with a handler for each message type.
func (b *bed) endpoint(name string, c core.Config, h core.HandlerFunc, types ...string) *core.Endpoint {
	b.Helper()
	if c.Transactions == core.TransactionDefault {
		c.Transactions = core.TransactionReceiveOnly
	}
	c.Logger = slog.New(b.logs)
	ep, err := core.New(name, b.transport, c)
	if err != nil {
		b.Fatal(err)
	}
	for _, messageType := range types {
		core.Handle(ep, core.NewMessageType[[]byte](messageType), func(ctx context.Context, m *core.Message, _ []byte) error { return h(ctx, m) })
	}
	return ep
}

// run runs an endpoint until the test's end, and returns a function that stops it before.
func (b *bed) run(ep *core.Endpoint) (stop func()) {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- ep.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			b.Errorf("Run returned %v", err)
		}
	})
	b.Cleanup(stop)
	synctest.Wait()
	return stop
}

// orders makes and runs the endpoint "orders" with a handler for "order".
func (b *bed) orders(c core.Config, h core.HandlerFunc) *core.Endpoint {
	b.Helper()
	ep := b.endpoint("orders", c, h, "order")
	b.run(ep)
	return ep
}

// put sends messages of a type to a queue, and waits for their immediate outcome.
func (b *bed) put(queue, messageType string, ids ...string) {
	b.Helper()
	for _, id := range ids {
		headers := core.HeadersFromMap(map[string]string{headers.MessageID: id, headers.MessageTypes: messageType})
		if err := b.transport.Send(b.Context(), core.Outgoing{ID: id, Queue: queue, Headers: headers, Body: []byte(id)}); err != nil {
			b.Fatal(err)
		}
	}
	synctest.Wait()
}

func (b *bed) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// holds checks how many messages a queue has, delayed ones included.
func (b *bed) holds(queue string, want int) {
	b.Helper()
	depth, err := b.transport.Depth(b.Context(), queue)
	if err != nil || depth.Ready+depth.Locked+depth.Delayed != want {
		b.Errorf("queue %q holds %+v, %v; want %d", queue, depth, err, want)
	}
}

// onlyMessage returns the one message of a queue.
func (b *bed) onlyMessage(queue string) queues.Message {
	b.Helper()
	page, err := b.transport.Browse(b.Context(), queues.Request{Queue: queue, Limit: 2})
	if err != nil || len(page.Messages) != 1 {
		b.Fatalf("queue %q has %d messages, %v; want one", queue, len(page.Messages), err)
	}
	return page.Messages[0]
}

// record is a list that several goroutines write.
type record[T any] struct {
	mu   sync.Mutex
	list []T
}

func (r *record[T]) add(value T) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, value)
	return len(r.list)
}

func (r *record[T]) all() []T {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.list)
}

func (r *record[T]) len() int { return len(r.all()) }

// logs is a log handler that keeps the lines.
type logs struct{ record[logLine] }

type logLine struct {
	level slog.Level
	text  string
	attrs map[string]slog.Value
}

func (l *logs) Enabled(context.Context, slog.Level) bool { return true }
func (l *logs) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *logs) WithGroup(string) slog.Handler            { return l }

func (l *logs) Handle(_ context.Context, r slog.Record) error {
	line := logLine{r.Level, r.Message, map[string]slog.Value{}}
	r.Attrs(func(a slog.Attr) bool { line.attrs[a.Key] = a.Value; return true })
	l.add(line)
	return nil
}

// about returns the lines with this text.
func (l *logs) about(text string) (lines []logLine) {
	for _, line := range l.all() {
		if line.text == text {
			lines = append(lines, line)
		}
	}
	return lines
}

func equal[T comparable](b *bed, subject string, got, want T) {
	b.Helper()
	if got != want {
		b.Errorf("%s is %v, want %v", subject, got, want)
	}
}

// middleware lists the middleware of a configuration.
func middleware(m ...core.Middleware) core.Config {
	return core.Config{Middleware: m, Recoverability: none}
}
