package recoverability_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/reprise-go/reprise/core"
)

// snippet: errors
var (
	ErrBusiness      = errors.New("against the rules of the business")
	ErrOtherBusiness = errors.New("the partner is closed")
	ErrTimedOut      = errors.New("the offer has expired")
)

// end

// snippet: unrecoverable
var unrecoverable = core.Recoverability{
	Unrecoverable: []error{ErrBusiness},
}

// end

// snippet: partial
var partial = core.Recoverability{
	Unrecoverable: []error{ErrBusiness},
	Immediate:     core.Immediate{NumberOfRetries: 3},
	Delayed:       core.Delayed{NumberOfRetries: 3, TimeIncrease: 2 * time.Second},
	Policy: func(ctx context.Context, config core.RecoverabilityConfig, failure core.ErrorContext) (core.Action, error) {
		action, err := core.DefaultPolicy(ctx, config, failure)
		if action.Kind == core.ActionDelayedRetry && errors.Is(failure.Err, ErrOtherBusiness) {
			return core.DelayedRetry(5 * time.Second), nil
		}
		return action, err
	},
}

// end

// snippet: full
var full = core.Recoverability{
	Unrecoverable: []error{ErrBusiness},
	Immediate:     core.Immediate{NumberOfRetries: 3},
	Delayed:       core.Delayed{NumberOfRetries: 3, TimeIncrease: 2 * time.Second},
	Policy: func(_ context.Context, config core.RecoverabilityConfig, failure core.ErrorContext) (core.Action, error) {
		switch {
		case config.IsUnrecoverable(failure.Err):
			return core.MoveToError("custom-errors"), nil // must exist
		case errors.Is(failure.Err, ErrTimedOut):
			return core.DiscardMessage(), nil
		case errors.Is(failure.Err, ErrOtherBusiness) &&
			failure.DelayedDeliveriesPerformed < config.Delayed.MaxNumberOfRetries:
			return core.DelayedRetry(5 * time.Second), nil
		default:
			return core.MoveToError(config.Failed.ErrorQueue), nil
		}
	},
}

// end

// decisions prints what a policy decides from the first attempt to the last.
func decisions(policy core.Policy, err error) {
	var config core.RecoverabilityConfig
	config.Immediate.MaxNumberOfRetries = 3
	config.Delayed.MaxNumberOfRetries = 3
	config.Delayed.TimeIncrease = 2 * time.Second
	config.Failed.ErrorQueue = "error"
	config.Failed.Unrecoverable = []error{ErrBusiness}
	var all []core.Action
	failure := core.ErrorContext{Err: err, ImmediateProcessingFailures: 1}
	for {
		action, _ := policy(context.Background(), config, failure)
		if !slices.Contains(all, action) {
			all = append(all, action)
		}
		switch action.Kind {
		case core.ActionImmediateRetry:
			failure.ImmediateProcessingFailures++
		case core.ActionDelayedRetry:
			failure.ImmediateProcessingFailures = 1
			failure.DelayedDeliveriesPerformed++
		default:
			fmt.Printf("%v: %v\n", err, all)
			return
		}
	}
}

func Example_unrecoverableError() {
	decisions(core.DefaultPolicy, ErrBusiness)
	decisions(core.DefaultPolicy, fmt.Errorf("place order: %w", ErrBusiness))
	decisions(core.DefaultPolicy, ErrOtherBusiness)
	// Output:
	// against the rules of the business: [MoveToError("error")]
	// place order: against the rules of the business: [MoveToError("error")]
	// the partner is closed: [ImmediateRetry DelayedRetry(2s) DelayedRetry(4s) DelayedRetry(6s) MoveToError("error")]
}

func Example_partialPolicy() {
	decisions(partial.Policy, ErrBusiness)
	decisions(partial.Policy, ErrOtherBusiness)
	decisions(partial.Policy, errors.New("deadlock"))
	// Output:
	// against the rules of the business: [MoveToError("error")]
	// the partner is closed: [ImmediateRetry DelayedRetry(5s) MoveToError("error")]
	// deadlock: [ImmediateRetry DelayedRetry(2s) DelayedRetry(4s) DelayedRetry(6s) MoveToError("error")]
}

func Example_fullPolicy() {
	decisions(full.Policy, ErrBusiness)
	decisions(full.Policy, ErrTimedOut)
	decisions(full.Policy, ErrOtherBusiness)
	decisions(full.Policy, errors.New("deadlock"))
	// Output:
	// against the rules of the business: [MoveToError("custom-errors")]
	// the offer has expired: [Discard]
	// the partner is closed: [DelayedRetry(5s) MoveToError("error")]
	// deadlock: [MoveToError("error")]
}
