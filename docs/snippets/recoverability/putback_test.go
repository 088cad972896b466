package recoverability_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/coretest"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// snippet: put-back
var errNotReady = errors.New("the price list is not loaded yet")

func prepared(ready *atomic.Bool) core.MiddlewareFunc {
	return func(next core.HandlerFunc) core.HandlerFunc {
		return func(ctx context.Context, m *core.Message) error {
			if !ready.Load() {
				return core.PutBack(errNotReady, 0) // other instances are ready
			}
			return next(ctx, m)
		}
	}
}

// end

// snippet: refuse-errors
func leaveInQueue(next core.HandlerFunc) core.HandlerFunc {
	return func(ctx context.Context, m *core.Message) error {
		err := next(ctx, m)
		if core.VerdictOf(err) != nil {
			return err
		}
		return core.Refuse(err, 30*time.Second) // nil if err is nil
	}
}

// end

// Both leave the message in the queue until it can be handled, for the first time.
func TestPutBack_OfTheGuide(t *testing.T) {
	for name, middleware := range map[string]func(ready *atomic.Bool) core.MiddlewareFunc{
		"an instance that is not ready": prepared,
		"any error":                     func(*atomic.Bool) core.MiddlewareFunc { return leaveInQueue },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				transport, err := inmemory.New(inmemory.Config{})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { transport.Close(context.Background()) })
				var ready atomic.Bool
				ep, err := core.New("billing", transport, core.Config{Transactions: core.TransactionReceiveOnly, Middleware: []core.Middleware{middleware(&ready)}})
				if err != nil {
					t.Fatal(err)
				}
				attempt := 0
				core.Handle(ep, placed, func(_ context.Context, m *core.Message, _ Order) error {
					if !ready.Load() {
						return errors.New("no price")
					}
					attempt = m.Attempt
					return nil
				})
				coretest.Run(t, ep)
				if err := ep.Send(t.Context(), "billing", placed.Of(Order{ID: "1"})); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Hour)
				ready.Store(true)
				time.Sleep(time.Minute)
				synctest.Wait()
				if attempt != 1 {
					t.Errorf("handled in attempt %d, want 1", attempt)
				}
			})
		})
	}
}
