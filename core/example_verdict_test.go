package core_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// firstDecision lets an endpoint with default recoverability handle one order and
// returns the first decision about it.
func firstDecision(handler func(ctx context.Context, m *core.Message, body OrderPlaced) error) core.Action {
	transport := inmemory.Open()
	defer transport.Close(context.Background())
	decided := make(chan core.Recovery, 100)
	ep, err := core.New("billing", transport, core.Config{
		Observers: []core.Observer{{Recovered: func(_ context.Context, e core.Recovery) { decided <- e }}},
		Logger:    slog.New(slog.DiscardHandler),
	})
	if err != nil {
		log.Fatal(err)
	}
	core.Handle(ep, placedOrderPlacedType.MessageType, handler)
	if err := transport.Provision(context.Background(), core.Topology{Queues: []string{"billing", "error", "disputes"}}); err != nil {
		log.Fatal(err)
	}
	if err := ep.Send(context.Background(), "billing", placedOrderPlacedType.MessageType.Of(OrderPlaced{ID: "7"})); err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- ep.Run(ctx) }()
	e := <-decided
	stop()
	if err := <-ended; err != nil {
		log.Fatal(err)
	}
	return e.Action
}

// An order that can never be billed goes to the error queue without a retry.
func ExampleGiveUp() {
	fmt.Println(firstDecision(func(_ context.Context, _ *core.Message, body OrderPlaced) error {
		if body.Total <= 0 {
			return core.GiveUp(fmt.Errorf("total of order %s is %d", body.ID, body.Total))
		}
		return nil
	}))
	// Output: MoveToError("error")
}

// A message that came too early is redelivered later. That is no failure.
func ExampleDefer() {
	fmt.Println(firstDecision(func(_ context.Context, m *core.Message, _ OrderPlaced) error {
		if m.Deferrals == 0 { // the customer is not known yet
			return core.Defer(errors.New("no such customer yet"), 30*time.Second)
		}
		return nil
	}))
	// Output: Defer(30s)
}

// A message that has become pointless is dropped, and the reason is logged.
func ExampleDiscard() {
	fmt.Println(firstDecision(func(_ context.Context, _ *core.Message, _ OrderPlaced) error {
		return core.Discard(errors.New("the order was cancelled"))
	}))
	// Output: Discard
}

// A message may go to a separate error queue, which must exist.
func ExampleGiveUpTo() {
	fmt.Println(firstDecision(func(_ context.Context, _ *core.Message, _ OrderPlaced) error {
		return core.GiveUpTo(errors.New("the customer disputes the total"), "disputes")
	}))
	// Output: MoveToError("disputes")
}

// A service that says when it will be back is asked again then.
func ExampleRetryAfter() {
	fmt.Println(firstDecision(func(_ context.Context, _ *core.Message, _ OrderPlaced) error {
		return core.RetryAfter(errors.New("the bank answers 503"), 2*time.Minute)
	}))
	// Output: DelayedRetry(2m0s)
}

// Headers is a value: a copy does not see later changes of the original.
func ExampleHeaders() {
	var h core.Headers
	h.Set("tenant", "north")
	h.Set("priority", "high")

	copied := h
	h.Set("tenant", "south")
	h.Del("priority")

	for key, value := range copied.All() {
		fmt.Println(key, "=", value)
	}
	fmt.Println(h.Get("tenant"), h.Len())
	// Output:
	// tenant = north
	// priority = high
	// south 1
}
