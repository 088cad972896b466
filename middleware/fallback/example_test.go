package fallback_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/middleware/fallback"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// A fallback handles a message whose handler failed, here in the last attempt. Its messages
// are sent instead of the handler's.
func Example() {
	apologyType := core.NewMessageType[string]("letters.apology")
	placed := core.NewMessageType[string]("orders.placed")
	transport := inmemory.Open()
	defer transport.Close(context.Background())
	apology := fallback.Middleware{
		On: fallback.On{Any: true},
		Handle: func(_ context.Context, m *core.Message, cause error) error {
			return m.Send("billing", apologyType.Of(cause.Error()))
		},
	}
	billing, err := core.New("billing", transport, core.Config{
		Middleware:     []core.Middleware{apology},
		Recoverability: core.Recoverability{Delayed: core.Delayed{NumberOfRetries: core.Off}},
		Logger:         slog.New(slog.DiscardHandler),
	})
	if err != nil {
		log.Fatal(err)
	}
	core.Handle(billing, placed, func(context.Context, *core.Message, string) error {
		return errors.New("the bank does not answer")
	})
	ctx, stop := context.WithCancel(context.Background())
	core.Handle(billing, apologyType, func(_ context.Context, _ *core.Message, body string) error {
		fmt.Println("we are sorry:", body)
		stop()
		return nil
	})

	if err := billing.Provision(ctx); err != nil {
		log.Fatal(err)
	}
	if err := billing.Send(ctx, "billing", placed.Of("order 7")); err != nil {
		log.Fatal(err)
	}
	if err := billing.Run(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: we are sorry: the bank does not answer
}
