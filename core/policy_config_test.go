package core_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// What DefaultPolicy answers with the configuration of an endpoint is what the
// endpoint does.
func TestDefaultPolicy_WithoutAMessage(t *testing.T) {
	errFinal := errors.New("final")
	ep, err := core.New("orders", inmemory.Open(), core.Config{Recoverability: core.Recoverability{
		Immediate:     core.Immediate{NumberOfRetries: 1},
		Delayed:       core.Delayed{Delays: []time.Duration{time.Minute, time.Hour}},
		Unrecoverable: []error{errFinal, core.ErrorOfType[*orderError]()},
		ErrorQueue:    "failed",
		MaxRetryAge:   2 * time.Hour,
		MessageTypes: map[string]core.TypeRecoverability{
			"price": {Immediate: core.Immediate{NumberOfRetries: core.Off}, Delayed: core.Delayed{NumberOfRetries: 2, TimeIncrease: time.Second, Factor: 10, MaxDelay: 5 * time.Second}},
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name               string
		messageType        string
		err                error
		immediate, delayed int
		first              time.Duration // since the first failure
		want               core.Action
	}{
		{"the first failure", "order", errBoom, 1, 0, 0, core.ImmediateRetry()},
		{"listed delays", "order", errBoom, 2, 0, 0, core.DelayedRetry(time.Minute)},
		{"the second of them", "order", errBoom, 2, 1, 0, core.DelayedRetry(time.Hour)},
		{"all used up", "order", errBoom, 2, 2, 0, core.MoveToError("failed")},
		{"too old", "order", errBoom, 2, 1, 3 * time.Hour, core.MoveToError("failed")},
		{"a listed error", "order", fmt.Errorf("x: %w", errFinal), 1, 0, 0, core.MoveToError("failed")},
		{"one of a listed type", "order", &orderError{"7"}, 1, 0, 0, core.MoveToError("failed")},
		{"a type with a separate configuration", "price", errBoom, 1, 0, 0, core.DelayedRetry(time.Second)},
		{"its ceiling", "price", errBoom, 1, 1, 0, core.DelayedRetry(5 * time.Second)},
		{"its end", "price", errBoom, 1, 2, 0, core.MoveToError("failed")},
		{"its unrecoverable errors are the endpoint's", "price", errFinal, 1, 0, 0, core.MoveToError("failed")},
	} {
		t.Run(test.name, func(t *testing.T) {
			failure := core.ErrorContext{
				Err: test.err, ImmediateProcessingFailures: test.immediate, DelayedDeliveriesPerformed: test.delayed, FailedAt: time.Now(),
			}
			if test.first > 0 {
				failure.FirstFailure = failure.FailedAt.Add(-test.first)
			}
			if got, _ := core.DefaultPolicy(t.Context(), ep.RecoverabilityConfig(test.messageType), failure); got != test.want {
				t.Errorf("%v, want %v", got, test.want)
			}
		})
	}
	t.Run("is a value", func(t *testing.T) {
		c := ep.RecoverabilityConfig("price")
		c.Failed.Unrecoverable[0] = errBoom
		c.Delayed.MaxNumberOfRetries = 99
		second := ep.RecoverabilityConfig("price")
		if !errors.Is(second.Failed.Unrecoverable[0], errFinal) || second.Delayed.MaxNumberOfRetries != 2 {
			t.Errorf("%+v", second)
		}
	})
	t.Run("has the capabilities of the transport", func(t *testing.T) {
		transport, err := inmemory.New(withCapabilities(func(c *core.Capabilities) { c.DelayedDelivery = false }))
		if err != nil {
			t.Fatal(err)
		}
		ep, err := core.New("orders", transport, core.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if c := ep.RecoverabilityConfig("any"); c.Immediate.MaxNumberOfRetries != 5 || c.Delayed.MaxNumberOfRetries != 0 || c.Failed.ErrorQueue != "error" {
			t.Errorf("%+v", c)
		}
	})
}

func TestErrorOfType_NamesTheTypeInTheErrorQueue(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		fx.runOrders(core.Config{Recoverability: core.Recoverability{Unrecoverable: []error{core.ErrorOfType[*orderError]()}}}, func(context.Context, *core.Message) error {
			return fmt.Errorf("wrapped: %w", &orderError{"7"})
		})
		fx.enqueue("m1")
		failed := fx.onlyMessage("error")
		name := failed.Headers.Get(headers.ExceptionType)
		equal(fx, "type", core.ErrorOfType[*orderError]().Error(), "any error of the type "+name)
		equal(fx, "attempts", headers.ParseAttempts(failed.Headers.Get(headers.Attempts))[0].Attempts, 1)
	})
}
