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
	inModes(t, retryModes, func(fx *fixture) {
		var causes recorder[error]
		ep, run := fx.runOrders(core.Config{DrainTimeout: time.Hour}, func(ctx context.Context, _ *core.Message) error {
			<-ctx.Done()
			causes.add(context.Cause(ctx))
			return context.Cause(ctx)
		})
		fx.enqueue("m1", "m2")
		equal(fx, "handlers at work", ep.Health().InFlight, 2)
		start := time.Now()
		ended, cancel := context.WithCancel(fx.Context())
		cancel()
		if err := ep.Shutdown(ended); !errors.Is(err, context.Canceled) {
			fx.Errorf("Shutdown returned %v, want the error of its context", err)
		}
		if err := run.wait(); err != nil {
			fx.Errorf("Run returned %v", err)
		}
		equal(fx, "time to shut down", time.Since(start), 0)
		equal(fx, "handlers that were cut off", causes.len(), 2)
		for _, cause := range causes.all() {
			if !errors.Is(cause, core.ErrShutdown) {
				fx.Errorf("the context of a handler ended because of %v, want ErrShutdown", cause)
			}
		}
		fx.wantDepth("error", 0)
		fx.wantDepth("orders", 2)
		for _, in := range fx.messages("orders") {
			equal(fx, "delivery count of "+in.ID, in.DeliveryCount, 1)
		}
	})
}

// TestShutdown_ReceiverThatCannotBeClosedIsLogged and fails neither Run nor Shutdown:
// its messages come again when the broker notices that it is gone.
func TestShutdown_ReceiverThatCannotBeClosedIsLogged(t *testing.T) {
	for name, stop := range map[string]func(fx *fixture, ep *core.Endpoint, run *runningEndpoint) error{
		"the end of Run's context": func(_ *fixture, _ *core.Endpoint, run *runningEndpoint) error { return run.stop() },
		"Shutdown": func(fx *fixture, ep *core.Endpoint, run *runningEndpoint) error {
			ctx, cancel := context.WithTimeout(fx.Context(), time.Hour)
			defer cancel()
			return errors.Join(ep.Shutdown(ctx), run.wait())
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(fx *fixture) {
				ep, err := core.New("orders", unclosableTransport{fx.broker}, core.Config{Logger: slog.New(logHandler{recorder: fx.logs})})
				if err != nil {
					fx.Fatal(err)
				}
				fx.handle(ep, "order", func(context.Context, *core.Message) error { return nil })
				run := fx.run(ep)
				if err := stop(fx, ep, run); err != nil {
					fx.Errorf("the endpoint ended with %v", err)
				}
				lines := fx.logs.find("receiver could not be closed")
				if len(lines) != 1 {
					fx.Fatalf("%d lines say that a receiver could not be closed, want 1: %v", len(lines), lines)
				}
				equal(fx, "level", lines[0].level, slog.LevelWarn)
				if err, _ := lines[0].attrs["error"].(error); !errors.Is(err, errBoom) {
					fx.Errorf("the line has the error %v, want that of Close", lines[0].attrs["error"])
				}
			})
		})
	}
}

// unclosableTransport is a transport whose receivers are closed with an error.
type unclosableTransport struct{ core.Transport }

func (u unclosableTransport) OpenReceiver(ctx context.Context, cfg core.ReceiverConfig) (core.Receiver, error) {
	r, err := u.Transport.OpenReceiver(ctx, cfg)
	return unclosableReceiver{r}, err
}

type unclosableReceiver struct{ core.Receiver }

func (r unclosableReceiver) Close(ctx context.Context) error {
	return errors.Join(r.Receiver.Close(ctx), errBoom)
}
