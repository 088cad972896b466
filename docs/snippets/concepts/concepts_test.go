// Package concepts_test holds the code of docs/concepts.md.
package concepts_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/coretest"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/core/queues"
	"github.com/reprise-go/reprise/transport/inmemory"
)

type PlaceOrder struct{ ID string }

type OrderPlaced struct{ ID string }

type Accepted struct{ ID string }

var quiet = slog.New(slog.DiscardHandler)

// snippet: messages
var (
	place    = core.NewMessageType[PlaceOrder]("orders.place")
	accepted = core.NewMessageType[Accepted]("orders.accepted")
	placed   = core.NewEvent[OrderPlaced]("orders.placed")
)

// end

// snippet: handlers
func registerOrders(orders *core.Endpoint) {
	// A command: one endpoint is told to do something.
	core.Handle(orders, place, func(_ context.Context, m *core.Message, body PlaceOrder) error {
		return errors.Join(
			m.Publish(placed.Of(OrderPlaced(body))), // an event: it has happened
			m.Reply(accepted.Of(Accepted(body))),    // a reply: to the sender of the command
		)
	})
}

func registerBilling(billing *core.Endpoint, charge func(ctx context.Context, id string) error) {
	// A handler of an event also subscribes to it.
	core.HandleEvent(billing, placed, func(ctx context.Context, _ *core.Message, body OrderPlaced) error {
		return charge(ctx, body.ID)
	})
}

// end

// start runs the endpoint until the test ends.
func start(t *testing.T, name string, transport core.Transport, c core.Config, register func(*core.Endpoint)) *core.Endpoint {
	t.Helper()
	c.Logger = quiet
	ep, err := core.New(name, transport, c)
	if err != nil {
		t.Fatal(err)
	}
	register(ep)
	coretest.Run(t, ep)
	return ep
}

func TestCommandEventReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := inmemory.Open()
		charged, reply := "", core.Headers{}
		start(t, "billing", transport, core.Config{}, func(ep *core.Endpoint) {
			registerBilling(ep, func(_ context.Context, id string) error {
				charged = id
				return nil
			})
		})
		start(t, "orders", transport, core.Config{}, registerOrders)
		web := start(t, "web", transport, core.Config{}, func(ep *core.Endpoint) {
			core.Handle(ep, accepted, func(_ context.Context, m *core.Message, _ Accepted) error {
				reply = m.Headers
				return nil
			})
		})
		// snippet: send
		err := web.Send(t.Context(), "orders", place.Of(PlaceOrder{ID: "42"}).With(core.SendOptions{
			ID:      "place-42",
			Headers: map[string]string{"tenant": "acme"},
		}))
		// end
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if charged != "42" {
			t.Errorf("charged %q", charged)
		}
		for key, want := range map[string]string{
			headers.ConversationID: "place-42",
			headers.CorrelationID:  "place-42",
			headers.RelatedTo:      "place-42",
			"tenant":               "", // headers of the application do not flow by themselves
		} {
			if got := reply.Get(key); got != want {
				t.Errorf("the reply's %s is %q; want %q", key, got, want)
			}
		}
	})
}

func TestEndpoints_InOneProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		transport := inmemory.Open()
		orders, errOrders := core.New("orders", transport, core.Config{Logger: quiet})
		billing, errBilling := core.New("billing", transport, core.Config{Logger: quiet})
		if err := errors.Join(errOrders, errBilling); err != nil {
			t.Fatal(err)
		}
		core.Handle(orders, place, func(_ context.Context, m *core.Message, body PlaceOrder) error {
			return m.Publish(placed.Of(OrderPlaced(body)))
		})
		registerBilling(billing, func(context.Context, string) error {
			stop()
			return nil
		})
		go func() {
			<-orders.Ready()
			if err := orders.Send(ctx, "orders", place.Of(PlaceOrder{ID: "42"})); err != nil {
				t.Error(err)
			}
		}()
		// snippet: run-all
		err := core.RunAll(ctx, orders, billing)
		// end
		if err != nil {
			t.Error(err)
		}
	})
}

func TestSends_SameIDsAtEveryAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := inmemory.Open()
		if err := transport.Provision(t.Context(), core.Topology{Queues: []string{"audit-trail", "shipping"}}); err != nil {
			t.Fatal(err)
		}
		ep := start(t, "orders", transport, core.Config{}, func(ep *core.Endpoint) {
			// snippet: now
			core.Handle(ep, place, func(ctx context.Context, m *core.Message, body PlaceOrder) error {
				// Leaves at once, also if this attempt fails, and at every attempt.
				if err := m.SendNow(ctx, "audit-trail", attempted.Of(body)); err != nil {
					return err
				}
				// Leaves when the handler has succeeded.
				if err := m.Send("shipping", ship.Of(body).With(core.SendOptions{Delay: time.Hour})); err != nil {
					return err
				}
				return charge(ctx, m.Attempt)
			})
			// end
		})
		if err := ep.Send(t.Context(), "orders", place.Of(PlaceOrder{ID: "42"})); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		page, err := transport.Browse(t.Context(), queues.Request{Queue: "audit-trail", Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		shipped, err := transport.Depth(t.Context(), "shipping")
		if err != nil {
			t.Fatal(err)
		}
		if attempted := page.Messages; len(attempted) != 3 || attempted[0].ID != attempted[2].ID || shipped.Ready != 1 {
			t.Errorf("attempted %v, shipped %v", attempted, shipped)
		}
	})
}

// charge succeeds at the third attempt.
func charge(_ context.Context, attempt int) error {
	if attempt < 3 {
		return errors.New("the bank does not answer")
	}
	return nil
}

// snippet: observer
// logged is an observer that is told of every attempt, and of the decision about each that
// failed.
func logged(log *slog.Logger) core.Observer {
	return core.Observer{
		HandleEnd: func(_ context.Context, e core.Handling) {
			log.Info("handled", "type", e.Message.Type, "attempt", e.Message.Attempt, "took", e.Duration, "error", e.Err)
		},
		Recovered: func(_ context.Context, r core.Recovery) {
			log.Info("recovered", "message", r.Failure.Message.ID, "action", r.Action)
		},
	}
}

// end

// snippet: middleware
// traced is a middleware: it wraps the decoding and all handlers of a message.
func traced(next core.HandlerFunc) core.HandlerFunc {
	return func(ctx context.Context, m *core.Message) error {
		return next(context.WithValue(ctx, tenantKey{}, m.Headers.Get("tenant")), m)
	}
}

// end

type tenantKey struct{}

// snippet: again
// repeat is a middleware: it runs the handlers up to three times in one attempt.
func repeat(next core.HandlerFunc) core.HandlerFunc {
	return func(ctx context.Context, m *core.Message) (err error) {
		for range 3 {
			if err = next(ctx, m); err == nil || core.VerdictOf(err) != nil {
				return err // a verdict decides about the message, not about a run
			}
		}
		return err
	}
}

// end

func TestRunsOfOneAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := inmemory.Open()
		if err := transport.Provision(t.Context(), core.Topology{Queues: []string{"shipping"}}); err != nil {
			t.Fatal(err)
		}
		run := 0
		ep := start(t, "orders", transport, core.Config{Middleware: []core.Middleware{core.MiddlewareFunc(repeat)}}, func(ep *core.Endpoint) {
			core.Handle(ep, place, func(ctx context.Context, m *core.Message, body PlaceOrder) error {
				run++
				return errors.Join(m.Send("shipping", ship.Of(body)), charge(ctx, run))
			})
		})
		if err := ep.Send(t.Context(), "orders", place.Of(PlaceOrder{ID: "42"})); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if shipped, err := transport.Depth(t.Context(), "shipping"); shipped.Ready != 1 || err != nil || run != 3 {
			t.Errorf("%d runs, shipped %v, %v", run, shipped, err)
		}
	})
}

func TestLifecycle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tenant := ""
		// snippet: config
		orders, err := core.New("orders", inmemory.Open(), core.Config{
			Concurrency: 4,
			AuditQueue:  "audit",
			Middleware:  []core.Middleware{core.MiddlewareFunc(traced)},
			Observers:   []core.Observer{logged(slog.Default())},
		})
		// end
		if err != nil {
			t.Fatal(err)
		}
		core.Handle(orders, place, func(ctx context.Context, _ *core.Message, _ PlaceOrder) error {
			tenant, _ = ctx.Value(tenantKey{}).(string)
			return nil
		})
		ended := make(chan error, 1)
		go func() { ended <- orders.Run(t.Context()) }()
		<-orders.Ready()

		// snippet: control
		orders.Pause() // finish what was begun, start nothing
		fmt.Println(orders.Health().Paused)
		orders.Resume()
		if err := orders.SetConcurrency(32); err != nil { // while it runs
			return
		}
		// end
		if err := orders.Send(t.Context(), "orders", place.Of(PlaceOrder{}).With(core.SendOptions{Headers: map[string]string{"tenant": "acme"}})); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if h := orders.Health(); !h.Running || h.Paused || h.Concurrency != 32 || tenant != "acme" {
			t.Errorf("health %+v, tenant %q", h, tenant)
		}
		// snippet: shutdown
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		err = orders.Shutdown(ctx)
		// end
		if err != nil {
			t.Error(err)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
