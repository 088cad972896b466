package core_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/core/queues"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// startExample runs endpoints, and returns a function that stops them.
func startExample(endpoints ...*core.Endpoint) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- core.RunAll(ctx, endpoints...) }()
	for _, ep := range endpoints {
		<-ep.Ready()
	}
	return func() {
		cancel()
		if err := <-ended; err != nil {
			log.Fatal(err)
		}
	}
}

// exampleEndpoint makes an endpoint that logs nothing.
func exampleEndpoint(name string, transport core.Transport, config core.Config) *core.Endpoint {
	config.Logger = slog.New(slog.DiscardHandler)
	ep, err := core.New(name, transport, config)
	if err != nil {
		log.Fatal(err)
	}
	return ep
}

// A handler gets the decoded body. Its error decides: this one ends the message.
func ExampleHandle() {
	place := core.NewMessageType[OrderPlaced]("orders.place")
	transport := inmemory.Open()
	defer transport.Close(context.Background())
	billing := exampleEndpoint("billing", transport, core.Config{})
	core.Handle(billing, place, func(_ context.Context, m *core.Message, body OrderPlaced) error {
		if body.Total < 0 {
			return core.GiveUp(errors.New("negative total"))
		}
		fmt.Println("order", body.ID, "costs", body.Total)
		return nil
	})

	// Invoke runs the handler without a queue: for tests.
	fmt.Println(billing.Invoke(context.Background(), place.Of(OrderPlaced{ID: "7", Total: 42})))
	fmt.Println(billing.Invoke(context.Background(), place.Of(OrderPlaced{ID: "8", Total: -1})))
	// Output:
	// order 7 costs 42
	// <nil>
	// negative total
}

// Each endpoint that handles an event gets a copy of it. Run subscribes.
func ExampleHandleEvent() {
	placed := core.NewEvent[OrderPlaced]("orders.placed")
	transport := inmemory.Open()
	defer transport.Close(context.Background())
	handled := make(chan string)
	var subscribers []*core.Endpoint
	for _, name := range []string{"billing", "shipping"} {
		ep := exampleEndpoint(name, transport, core.Config{})
		core.HandleEvent(ep, placed, func(_ context.Context, _ *core.Message, body OrderPlaced) error {
			handled <- name + " knows order " + body.ID
			return nil
		})
		subscribers = append(subscribers, ep)
	}
	stop := startExample(subscribers...)
	defer stop()

	shop := exampleEndpoint("shop", transport, core.Config{})
	if err := shop.Publish(context.Background(), placed.Of(OrderPlaced{ID: "7"})); err != nil {
		log.Fatal(err)
	}
	fmt.Println(<-handled)
	fmt.Println(<-handled)
	// Unordered output:
	// billing knows order 7
	// shipping knows order 7
}

// A message can be sent now and arrive later.
func ExampleEndpoint_Send() {
	remind := core.NewMessageType[OrderPlaced]("orders.remind")
	transport := inmemory.Open()
	defer transport.Close(context.Background())
	billing := exampleEndpoint("billing", transport, core.Config{})
	handled := make(chan bool)
	core.Handle(billing, remind, func(_ context.Context, m *core.Message, _ OrderPlaced) error {
		due, err := headers.ParseTime(m.Headers.Get(headers.DeliverAt))
		if err != nil {
			return core.GiveUp(err)
		}
		handled <- time.Now().Before(due)
		return nil
	})
	stop := startExample(billing)
	defer stop()

	err := billing.Send(context.Background(), "billing", remind.Of(OrderPlaced{ID: "7"}).With(core.SendOptions{Delay: 100 * time.Millisecond}))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("too early:", <-handled)
	// Output: too early: false
}

// Options are a part of the draft.
func ExampleDraft_With() {
	remind := core.NewMessageType[OrderPlaced]("orders.remind")
	transport := inmemory.Open()
	defer transport.Close(context.Background())
	billing := exampleEndpoint("billing", transport, core.Config{})
	if err := billing.Provision(context.Background()); err != nil {
		log.Fatal(err)
	}

	draft := remind.Of(OrderPlaced{ID: "7"})
	for _, tenant := range []string{"acme", "umbrella"} {
		err := billing.Send(context.Background(), "billing", draft.With(core.SendOptions{
			ID:      "remind-7-" + tenant, // a receiver recognises duplicates by it
			Headers: map[string]string{"tenant": tenant},
		}))
		if err != nil {
			log.Fatal(err)
		}
	}
	waiting, err := transport.Browse(context.Background(), queues.Request{Queue: "billing", Limit: 10})
	if err != nil {
		log.Fatal(err)
	}
	for _, m := range waiting.Messages {
		fmt.Println(m.ID, m.Headers.Get("tenant"))
	}
	// Output:
	// remind-7-acme acme
	// remind-7-umbrella umbrella
}

// An event reaches the queues that subscribe to it. The message type in it is for those
// that do not: Handle instead of HandleEvent, and Send instead of Publish.
func ExampleEvent() {
	placed := core.NewEvent[OrderPlaced]("orders.placed")
	transport := inmemory.Open()
	defer transport.Close(context.Background())
	replay := exampleEndpoint("replay", transport, core.Config{})
	handled := make(chan string)
	core.Handle(replay, placed.MessageType, func(_ context.Context, _ *core.Message, body OrderPlaced) error {
		handled <- body.ID
		return nil
	})
	stop := startExample(replay)
	defer stop()

	shop := exampleEndpoint("shop", transport, core.Config{})
	err := shop.Publish(context.Background(), placed.Of(OrderPlaced{ID: "7"}).With(core.SendOptions{RequireSubscriber: true}))
	fmt.Println("no subscriber:", errors.Is(err, core.ErrNoSubscriber))
	if err := shop.Send(context.Background(), "replay", placed.MessageType.Of(OrderPlaced{ID: "7"})); err != nil {
		log.Fatal(err)
	}
	fmt.Println("replayed:", <-handled)
	// Output:
	// no subscriber: true
	// replayed: 7
}

// A handler answers the endpoint that asked.
func ExampleMessage_Reply() {
	answer := core.NewMessageType[OrderPlaced]("orders.total.answer")
	total := core.NewMessageType[OrderPlaced]("orders.total")
	transport := inmemory.Open()
	defer transport.Close(context.Background())
	billing, shop := exampleEndpoint("billing", transport, core.Config{}), exampleEndpoint("shop", transport, core.Config{})
	core.Handle(billing, total, func(_ context.Context, m *core.Message, body OrderPlaced) error {
		return m.Reply(answer.Of(OrderPlaced{ID: body.ID, Total: 42}))
	})
	answers := make(chan OrderPlaced)
	core.Handle(shop, answer, func(_ context.Context, _ *core.Message, body OrderPlaced) error {
		answers <- body
		return nil
	})
	stop := startExample(billing, shop)
	defer stop()

	if err := shop.Send(context.Background(), "billing", total.Of(OrderPlaced{ID: "7"})); err != nil {
		log.Fatal(err)
	}
	fmt.Println(<-answers)
	// Output: {7 42}
}

// Middleware surrounds the handling of every message.
func ExampleMiddleware() {
	placed := core.NewEvent[OrderPlaced]("orders.placed")
	lines := make(chan string, 10)
	trace := func(next core.HandlerFunc) core.HandlerFunc {
		return func(ctx context.Context, m *core.Message) error {
			err := next(ctx, m)
			lines <- fmt.Sprintf("%s, attempt %d: %v", m.Type, m.Attempt, err)
			return err
		}
	}
	transport := inmemory.Open()
	defer transport.Close(context.Background())
	billing := exampleEndpoint("billing", transport, core.Config{Middleware: []core.Middleware{core.MiddlewareFunc(trace)}})
	core.Handle(billing, placed.MessageType, func(_ context.Context, m *core.Message, _ OrderPlaced) error {
		if m.Attempt == 1 {
			return errors.New("the bank does not answer")
		}
		return nil
	})
	stop := startExample(billing)
	defer stop()

	if err := billing.Send(context.Background(), "billing", placed.MessageType.Of(OrderPlaced{ID: "7"})); err != nil {
		log.Fatal(err)
	}
	fmt.Println(<-lines)
	fmt.Println(<-lines)
	// Output:
	// orders.placed, attempt 1: the bank does not answer
	// orders.placed, attempt 2: <nil>
}

// While everything fails, one attempt at a time finds out whether that has ended, instead
// of moving all messages to the error queue.
func ExampleRateLimit() {
	placed := core.NewEvent[OrderPlaced]("orders.placed")
	transport := inmemory.Open()
	defer transport.Close(context.Background())
	changes := make(chan string, 10)
	billing := exampleEndpoint("billing", transport, core.Config{
		Recoverability: core.Recoverability{
			Immediate: core.Immediate{NumberOfRetries: 100},
			RateLimit: core.RateLimit{
				ConsecutiveFailures: 5,
				TimeToWait:          time.Millisecond,
			},
		},
		Observers: []core.Observer{{RateLimitChanged: func(_ context.Context, _ *core.Endpoint, limited bool) {
			if limited {
				changes <- "the bank is away"
			} else {
				changes <- "the bank is back"
			}
		}}},
	})
	core.Handle(billing, placed.MessageType, func(_ context.Context, m *core.Message, _ OrderPlaced) error {
		if m.Attempt < 10 {
			return errors.New("the bank does not answer")
		}
		return nil
	})
	stop := startExample(billing)
	defer stop()

	if err := billing.Send(context.Background(), "billing", placed.MessageType.Of(OrderPlaced{ID: "7"})); err != nil {
		log.Fatal(err)
	}
	fmt.Println(<-changes)
	fmt.Println(<-changes)
	// Output:
	// the bank is away
	// the bank is back
}

// An observer sees every decision about a message that failed.
func ExampleObserver() {
	placed := core.NewEvent[OrderPlaced]("orders.placed")
	transport := inmemory.Open()
	defer transport.Close(context.Background())
	decisions := make(chan core.Recovery, 10)
	billing := exampleEndpoint("billing", transport, core.Config{
		Observers: []core.Observer{{
			Recovered: func(_ context.Context, e core.Recovery) { decisions <- e },
		}},
		Recoverability: core.Recoverability{
			Immediate: core.Immediate{NumberOfRetries: 1},
			Delayed:   core.Delayed{NumberOfRetries: 1, TimeIncrease: 10 * time.Millisecond},
		},
	})
	core.Handle(billing, placed.MessageType, func(context.Context, *core.Message, OrderPlaced) error {
		return errors.New("the bank does not answer")
	})
	stop := startExample(billing)
	defer stop()

	if err := billing.Send(context.Background(), "billing", placed.MessageType.Of(OrderPlaced{ID: "7"})); err != nil {
		log.Fatal(err)
	}
	for range 4 {
		fmt.Println((<-decisions).Action)
	}
	// Output:
	// ImmediateRetry
	// DelayedRetry(10ms)
	// ImmediateRetry
	// MoveToError("error")
}

// HandleFailed is the last resort: it runs before a message would go to the error queue,
// and may take it over.
func ExampleHandleFailed() {
	placed := core.NewEvent[OrderPlaced]("orders.placed")
	transport := inmemory.Open()
	defer transport.Close(context.Background())
	billing := exampleEndpoint("billing", transport, core.Config{})
	core.Handle(billing, placed.MessageType, func(context.Context, *core.Message, OrderPlaced) error {
		return core.GiveUp(errors.New("negative total"))
	})
	cancelled := make(chan string)
	core.HandleFailed(billing, placed.MessageType, func(_ context.Context, _ *core.Message, body OrderPlaced, failed *core.Failed) error {
		cancelled <- fmt.Sprintf("order %s is cancelled: %v", body.ID, failed.Err)
		failed.TakeOver() // it does not go to the error queue
		return nil
	})
	stop := startExample(billing)
	defer stop()

	if err := billing.Send(context.Background(), "billing", placed.MessageType.Of(OrderPlaced{ID: "7", Total: -1})); err != nil {
		log.Fatal(err)
	}
	fmt.Println(<-cancelled)
	// Output: order 7 is cancelled: negative total
}
