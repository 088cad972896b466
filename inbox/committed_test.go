package inbox_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/core/queues"
	"github.com/reprise-go/reprise/inbox"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// pair is an endpoint "billing" with two handlers of one type, each with an inbox: the
// first commits and sends, the second ends as the test says.
type pair struct {
	*testing.T
	broker *broker
	memory *inbox.Memory
	ep     *core.Endpoint
	runs   int   // of the first handler
	result error // of the second

	takesOver bool // HandleFailed does
}

var first = inbox.Key{Scope: "billing/a", ID: "m1"}

// pairs runs the endpoint in a bubble.
func pairs(t *testing.T, mode core.TransactionMode, change func(p *pair, c *core.Config), test func(p *pair)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &pair{T: t, broker: &broker{Transport: inmemory.Open()}, memory: &inbox.Memory{}}
		if err := p.broker.Provision(t.Context(), core.Topology{Queues: []string{"events", "error", "parking"}}); err != nil {
			t.Fatal(err)
		}
		box, err := inbox.New(inbox.Config{Store: p.memory, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		c := core.Config{
			Transactions: mode, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
			Recoverability: core.Recoverability{Immediate: core.Immediate{NumberOfRetries: 1}, Delayed: core.Delayed{NumberOfRetries: core.Off}},
		}
		change(p, &c)
		if p.ep, err = core.New("billing", p.broker, c); err != nil {
			t.Fatal(err)
		}
		handlers := map[string]func(ctx context.Context, m *core.Message, body []byte) error{
			"a": func(_ context.Context, m *core.Message, _ []byte) error {
				p.runs++
				return m.Send("events", billedType.Of([]byte("bill")))
			},
			"b": func(_ context.Context, m *core.Message, _ []byte) error {
				return errors.Join(m.Send("events", notedType.Of([]byte("note"))), p.result)
			},
		}
		for _, name := range []string{"a", "b"} {
			core.Handle(p.ep, orderType, handlers[name], core.HandleOptions{Middleware: []core.Middleware{box.Handler(name)}})
		}
		if p.takesOver {
			core.HandleFailed(p.ep, orderType, func(_ context.Context, _ *core.Message, _ []byte, f *core.Failed) error {
				f.TakeOver()
				return nil
			})
		}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- p.ep.Run(ctx) }()
		synctest.Wait()
		defer func() {
			cancel()
			if err := errors.Join(<-ended, box.Close(context.Background())); err != nil {
				t.Error(err)
			}
		}()
		test(p)
	})
}

func (p *pair) put() {
	p.Helper()
	if err := p.broker.Transport.Send(p.Context(), core.Outgoing{ID: "m1", Queue: "billing", Headers: core.HeadersFromMap(map[string]string{
		headers.MessageID: "m1", headers.MessageTypes: "order",
	})}); err != nil {
		p.Fatal(err)
	}
	time.Sleep(time.Minute)
	synctest.Wait()
}

func (p *pair) has(queue string, bodies ...string) {
	p.Helper()
	page, err := p.broker.Browse(p.Context(), queues.Request{Queue: queue, Limit: 1000})
	messages := page.Messages
	if err != nil || len(messages) != len(bodies) {
		p.Fatalf("%s has %v, %v, want %q", queue, messages, err, bodies)
	}
	for i, want := range bodies {
		if got := string(messages[i].Body); got != want {
			p.Errorf("%s has %q, want %q", queue, got, want)
		}
	}
}

var errSecond = errors.New("the second handler fails")

// A handler's messages leave once they are committed, also if the next handler fails
// .
func TestHandler_CommittedMessagesLeave(t *testing.T) {
	fallback := core.MiddlewareFunc(func(next core.HandlerFunc) core.HandlerFunc {
		return func(ctx context.Context, m *core.Message) error {
			if err := next(ctx, m); !errors.Is(err, errSecond) {
				return err
			}
			return nil
		}
	})
	for name, c := range map[string]struct {
		result error
		change func(p *pair, c *core.Config)
		failed string // the queue where the message is afterwards
	}{
		"Discard":  {result: core.Discard(errors.New("not wanted"))},
		"MoveTo":   {result: core.GiveUpTo(errSecond, "parking"), failed: "parking"},
		"Reject":   {result: core.GiveUp(errSecond), failed: "error"},
		"error":    {result: errSecond, failed: "error"},
		"fallback": {result: errSecond, change: func(_ *pair, c *core.Config) { c.Middleware = []core.Middleware{fallback} }},
		"TakeOver": {result: errSecond, change: func(p *pair, _ *core.Config) { p.takesOver = true }},
	} {
		for _, mode := range []core.TransactionMode{core.TransactionReceiveOnly, core.TransactionSendsAtomicWithReceive} {
			t.Run(name+" in "+mode.String(), func(t *testing.T) {
				pairs(t, mode, func(p *pair, config *core.Config) {
					p.result = c.result
					if c.change != nil {
						c.change(p, config)
					}
				}, func(p *pair) {
					p.put()
					p.has("events", "bill")
					if p.runs != 1 {
						p.Errorf("the first handler ran %d times", p.runs)
					}
					if e, ok := p.memory.Entry(first); !ok || e.Outgoing != nil {
						p.Errorf("the entry is there: %v, with %d bytes to send", ok, len(e.Outgoing))
					}
					if c.failed != "" {
						p.has(c.failed, "")
					}
				})
			})
		}
	}
}

// Independent handlers with an inbox each: only those that have failed run again.
func TestHandler_FailedIndependentHandlerIsRetriedAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := inmemory.Open()
		if err := transport.Provision(t.Context(), core.Topology{Queues: []string{"events", "error"}}); err != nil {
			t.Fatal(err)
		}
		box, err := inbox.New(inbox.Config{Store: &inbox.Memory{}, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		ep, err := core.New("billing", transport, core.Config{
			Transactions: core.TransactionReceiveOnly, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
			Recoverability: core.Recoverability{Immediate: core.Immediate{NumberOfRetries: 1}, Delayed: core.Delayed{NumberOfRetries: 1, Delays: []time.Duration{time.Hour}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		var runs []string
		failures := 2 // the second one is followed by the delayed retry
		for _, name := range []string{"1", "2", "3"} {
			core.Handle(ep, orderType, func(_ context.Context, m *core.Message, _ []byte) error {
				runs = append(runs, name)
				if name == "2" && failures > 0 {
					failures--
					return errSecond
				}
				return m.Send("events", doneType.Of([]byte(name)))
			}, core.HandleOptions{Independent: true, Middleware: []core.Middleware{box.Handler(name)}})
		}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- ep.Run(ctx) }()
		defer func() {
			cancel()
			if err := errors.Join(<-ended, box.Close(context.Background())); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		p := &pair{T: t, broker: &broker{Transport: transport}}
		p.put()
		p.has("events", "1", "3") // before the delayed retry
		time.Sleep(time.Hour)
		synctest.Wait()
		p.has("events", "1", "3", "2")
		if got := strings.Join(runs, " "); got != "1 2 3 2 2" {
			t.Errorf("the handlers ran %s", got)
		}
	})
}
