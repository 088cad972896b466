package logformat_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/logformat"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// lines is a handler without the lines about the endpoint's beginning and end, which other goroutines write.
type lines struct{ slog.Handler }

func (l lines) Handle(ctx context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, "endpoint ") {
		return nil
	}
	return l.Handler.Handle(ctx, r)
}

func (l lines) WithAttrs(attrs []slog.Attr) slog.Handler { return lines{l.Handler.WithAttrs(attrs)} }

// about is a handler that shows the lines about messages with some of their attributes.
func about(shown ...string) slog.Handler {
	return lines{slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.MessageKey || slices.Contains(shown, a.Key) {
			return a
		}
		return slog.Attr{}
	}})}
}

// handleOrders runs billing until its handler has succeeded for n orders.
func handleOrders(billing *core.Endpoint, n int, handler func(ctx context.Context, m *core.Message, body []byte) error) error {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var left sync.WaitGroup
	left.Add(n)
	core.Handle(billing, placedType, func(ctx context.Context, m *core.Message, body []byte) error {
		err := handler(ctx, m, body)
		if err == nil {
			left.Done()
		}
		return err
	})
	if err := billing.Provision(ctx); err != nil {
		return err
	}
	for i := range n {
		if err := billing.Send(ctx, "billing", placedType.Of([]byte(nil)).With(core.SendOptions{ID: fmt.Sprint("m-", i+1)})); err != nil {
			return err
		}
	}
	go func() {
		left.Wait()
		stop()
	}()
	return billing.Run(ctx)
}

func failFirst(_ context.Context, m *core.Message, _ []byte) error {
	if m.Attempt == 1 {
		return errors.New("the bank is down")
	}
	return nil
}

// A service that writes at most two lines for each cause within 10 s; 100 is a better number.
func ExampleFoldRepeats() {
	folder := logformat.FoldRepeats(about("message_id", "attempts", "error"), 2)
	billing, err := core.New("billing", inmemory.Open(), core.Config{Concurrency: 1, Logger: slog.New(folder)})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := handleOrders(billing, 5, failFirst); err != nil {
		fmt.Println(err)
	}
	folder.Flush() // the program ends before the 10 s do

	// Output:
	// msg="retrying message immediately" message_id=m-1 error="the bank is down"
	// msg="retrying message immediately" message_id=m-2 error="the bank is down"
	// msg="further attempts failed for the same reason; their log lines were left out" attempts=3 error="the bank is down"
}

// Operators who come from NServiceBus find the texts that they search for.
func ExampleWriteNServiceBusTexts() {
	billing, err := core.New("billing", inmemory.Open(), core.Config{
		Logger: slog.New(logformat.WriteNServiceBusTexts(about("error"))),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := handleOrders(billing, 1, failFirst); err != nil {
		fmt.Println(err)
	}

	// Output:
	// msg="Immediate Retry is going to retry message 'm-1' because of an exception:" error="the bank is down"
}

// A handler's own lines tell of which message they are.
func ExampleAddMessageAttrs() {
	log := slog.New(logformat.AddMessageAttrs(about("message_id", "message_type", "attempt", "amount")))
	billing, err := core.New("billing", inmemory.Open(), core.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = handleOrders(billing, 1, func(ctx context.Context, _ *core.Message, _ []byte) error {
		log.InfoContext(ctx, "charging", "amount", 99)
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}

	// Output:
	// msg=charging amount=99 message_id=m-1 message_type=orders.placed attempt=1
}

func Example() {
	// snippet: service
	lines := slog.NewJSONHandler(os.Stderr, nil)
	folder := logformat.FoldRepeats(lines, 100)
	defer folder.Flush() // lines that were left out in the last 10 s are counted now
	billing, err := core.New("billing", inmemory.Open(), core.Config{Logger: slog.New(folder)})
	// end
	fmt.Println(billing != nil, err)
	// Output: true <nil>
}
