package core_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
)

func TestShutdown_ContextThatHasEndedCutsOffAtOnce(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		var causes record[error]
		ep, run := b.orders(core.Config{DrainTimeout: time.Hour}, func(ctx context.Context, _ *core.Message) error {
			<-ctx.Done()
			causes.add(context.Cause(ctx))
			return context.Cause(ctx)
		})
		b.put("m1", "m2")
		equal(b, "handlers at work", ep.Health().InFlight, 2)
		start := time.Now()
		ended, cancel := context.WithCancel(b.Context())
		cancel()
		if err := ep.Shutdown(ended); !errors.Is(err, context.Canceled) {
			b.Errorf("Shutdown returned %v, want the error of its context", err)
		}
		if err := run.wait(); err != nil {
			b.Errorf("Run returned %v", err)
		}
		equal(b, "time to shut down", time.Since(start), 0)
		equal(b, "handlers that were cut off", causes.len(), 2)
		for _, cause := range causes.all() {
			if !errors.Is(cause, core.ErrShutdown) {
				b.Errorf("the context of a handler ended because of %v, want ErrShutdown", cause)
			}
		}
		b.holds("error", 0)
		b.holds("orders", 2)
		for _, in := range b.queue("orders") {
			equal(b, "delivery count of "+in.ID, in.DeliveryCount, 1)
		}
	})
}

// TestShutdown_ReceiverThatCannotBeClosedIsLogged and fails neither Run nor Shutdown:
// its messages come again when the broker notices that it is gone.
func TestShutdown_ReceiverThatCannotBeClosedIsLogged(t *testing.T) {
	for name, stop := range map[string]func(b *bed, ep *core.Endpoint, run *running) error{
		"the end of Run's context": func(_ *bed, _ *core.Endpoint, run *running) error { return run.stop() },
		"Shutdown": func(b *bed, ep *core.Endpoint, run *running) error {
			ctx, cancel := context.WithTimeout(b.Context(), time.Hour)
			defer cancel()
			return errors.Join(ep.Shutdown(ctx), run.wait())
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bed) {
				ep, err := core.New("orders", unclosable{b.broker}, core.Config{Logger: slog.New(logHandler{book: b.logs})})
				if err != nil {
					b.Fatal(err)
				}
				b.handle(ep, "order", func(context.Context, *core.Message) error { return nil })
				run := b.run(ep)
				if err := stop(b, ep, run); err != nil {
					b.Errorf("the endpoint ended with %v", err)
				}
				lines := b.logs.about("receiver could not be closed")
				if len(lines) != 1 {
					b.Fatalf("%d lines say that a receiver could not be closed, want 1: %v", len(lines), lines)
				}
				equal(b, "level", lines[0].level, slog.LevelWarn)
				if err, _ := lines[0].attrs["error"].(error); !errors.Is(err, errBoom) {
					b.Errorf("the line has the error %v, want that of Close", lines[0].attrs["error"])
				}
			})
		})
	}
}

// unclosable is a transport whose receivers are closed with an error.
type unclosable struct{ core.Transport }

func (u unclosable) OpenReceiver(ctx context.Context, cfg core.ReceiverConfig) (core.Receiver, error) {
	r, err := u.Transport.OpenReceiver(ctx, cfg)
	return unclosableReceiver{r}, err
}

type unclosableReceiver struct{ core.Receiver }

func (r unclosableReceiver) Close(ctx context.Context) error {
	return errors.Join(r.Receiver.Close(ctx), errBoom)
}
