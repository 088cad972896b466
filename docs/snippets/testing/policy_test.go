package testing_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// snippet: policy
// patient is a policy that waits five seconds for the bank, however often it
// has waited before.
func patient(ctx context.Context, config core.RecoverabilityConfig, failure core.ErrorContext) (core.Action, error) {
	action, err := core.DefaultPolicy(ctx, config, failure)
	if action.Kind == core.ActionDelayedRetry && errors.Is(failure.Err, errBankDown) {
		return core.DelayedRetry(5 * time.Second), nil
	}
	return action, err
}

func TestPatient(t *testing.T) {
	ep, err := core.New("billing", inmemory.Open(), core.Config{Recoverability: core.Recoverability{
		Immediate: core.Immediate{NumberOfRetries: 1},
		Delayed:   core.Delayed{Delays: []time.Duration{10 * time.Second, 20 * time.Second}},
		Policy:    patient,
	}})
	if err != nil {
		t.Fatal(err)
	}
	config := ep.RecoverabilityConfig("orders.placed")

	outage := fmt.Errorf("charge: %w", errBankDown)
	for _, c := range []struct {
		name               string
		err                error
		immediate, delayed int
		want               core.Action
	}{
		{"first failure", outage, 1, 0, core.ImmediateRetry()},
		{"immediate retries used up", outage, 2, 0, core.DelayedRetry(5 * time.Second)},
		{"second round", outage, 2, 1, core.DelayedRetry(5 * time.Second)},
		{"all used up", outage, 2, 2, core.MoveToError("error")},
		{"another error waits longer", errors.New("deadlock"), 2, 1, core.DelayedRetry(20 * time.Second)},
		{"never retried", core.GiveUp(outage), 1, 0, core.MoveToError("error")},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := patient(t.Context(), config, core.ErrorContext{
				Err:                         c.err,
				ImmediateProcessingFailures: c.immediate,
				DelayedDeliveriesPerformed:  c.delayed,
			})
			if got != c.want || err != nil {
				t.Errorf("%v, %v; want %v", got, err, c.want)
			}
		})
	}
}

// end
