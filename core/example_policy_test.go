package core_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// Errors of the examples, as an application would have them.
var (
	errBusiness      = errors.New("business rule violated")
	errBusinessTimed = errors.New("business operation timed out")
)

type otherBusinessError struct{ reason string }

func (e *otherBusinessError) Error() string { return e.reason }

// effectiveConfig is what three immediate and three delayed retries of two seconds look
// like to a policy.
func effectiveConfig() (c core.RecoverabilityConfig) {
	c.Immediate.MaxNumberOfRetries = 3
	c.Delayed.MaxNumberOfRetries = 3
	c.Delayed.TimeIncrease = 2 * time.Second
	c.Failed.ErrorQueue = "error"
	c.Failed.Unrecoverable = []error{errBusiness}
	return c
}

// failedAfter is a failure after the given attempts of this round and delayed
// retries.
func failedAfter(attempts, delayed int, err error) core.ErrorContext {
	return core.ErrorContext{Err: err, ImmediateProcessingFailures: attempts, DelayedDeliveriesPerformed: delayed}
}

// The smallest change to recoverability: one error that no retry can fix. All
// others are retried as configured.
func ExamplePolicy_unrecoverable() {
	_, err := core.New("billing", inmemory.Open(), core.Config{
		Recoverability: core.Recoverability{
			Immediate:     core.Immediate{NumberOfRetries: 3},
			Delayed:       core.Delayed{NumberOfRetries: 3, TimeIncrease: 2 * time.Second},
			Unrecoverable: []error{errBusiness},
		},
	})
	if err != nil {
		log.Fatal(err)
	}

	// What the default policy makes of it:
	ctx := context.Background()
	fmt.Println(core.DefaultPolicy(ctx, effectiveConfig(), failedAfter(1, 0, fmt.Errorf("save order: %w", errBusiness))))
	fmt.Println(core.DefaultPolicy(ctx, effectiveConfig(), failedAfter(1, 0, errors.New("deadlock"))))
	// Output:
	// MoveToError("error") <nil>
	// ImmediateRetry <nil>
}

// A partly custom policy asks the default one first and changes a part of its
// answers: here, one kind of error is always retried after five seconds.
func ExamplePolicy_partial() {
	policy := func(ctx context.Context, config core.RecoverabilityConfig, failure core.ErrorContext) (core.Action, error) {
		action, err := core.DefaultPolicy(ctx, config, failure)
		if _, other := errors.AsType[*otherBusinessError](failure.Err); other && action.Kind == core.ActionDelayedRetry {
			return core.DelayedRetry(5 * time.Second), nil
		}
		return action, err
	}
	_, err := core.New("billing", inmemory.Open(), core.Config{
		Recoverability: core.Recoverability{
			Immediate:     core.Immediate{NumberOfRetries: 3},
			Delayed:       core.Delayed{NumberOfRetries: 3, TimeIncrease: 2 * time.Second},
			Unrecoverable: []error{errBusiness},
			Policy:        policy,
		},
	})
	if err != nil {
		log.Fatal(err)
	}

	ctx, other := context.Background(), &otherBusinessError{"no stock"}
	fmt.Println(policy(ctx, effectiveConfig(), failedAfter(3, 0, other)))
	fmt.Println(policy(ctx, effectiveConfig(), failedAfter(4, 2, other)))
	fmt.Println(policy(ctx, effectiveConfig(), failedAfter(4, 2, errors.New("deadlock"))))
	fmt.Println(policy(ctx, effectiveConfig(), failedAfter(4, 3, other)))
	// Output:
	// ImmediateRetry <nil>
	// DelayedRetry(5s) <nil>
	// DelayedRetry(6s) <nil>
	// MoveToError("error") <nil>
}

// A wholly custom policy never asks the default one. It still sees what is
// configured and in force.
func ExamplePolicy_full() {
	policy := func(ctx context.Context, config core.RecoverabilityConfig, failure core.ErrorContext) (core.Action, error) {
		_, other := errors.AsType[*otherBusinessError](failure.Err)
		switch {
		case config.IsUnrecoverable(failure.Err):
			return core.MoveToError("customErrorQueue"), nil // must exist
		case errors.Is(failure.Err, errBusinessTimed):
			return core.DiscardMessage(), nil
		case other && failure.DelayedDeliveriesPerformed < config.Delayed.MaxNumberOfRetries:
			return core.DelayedRetry(5 * time.Second), nil
		}
		return core.MoveToError(config.Failed.ErrorQueue), nil // no retries for all others
	}
	_, err := core.New("billing", inmemory.Open(), core.Config{
		Recoverability: core.Recoverability{
			Immediate:     core.Immediate{NumberOfRetries: 3},
			Delayed:       core.Delayed{NumberOfRetries: 3, TimeIncrease: 2 * time.Second},
			Unrecoverable: []error{errBusiness},
			Policy:        policy,
		},
	})
	if err != nil {
		log.Fatal(err)
	}

	ctx, other := context.Background(), &otherBusinessError{"no stock"}
	fmt.Println(policy(ctx, effectiveConfig(), failedAfter(1, 0, errBusiness)))
	fmt.Println(policy(ctx, effectiveConfig(), failedAfter(1, 0, fmt.Errorf("book: %w", errBusinessTimed))))
	fmt.Println(policy(ctx, effectiveConfig(), failedAfter(1, 2, other)))
	fmt.Println(policy(ctx, effectiveConfig(), failedAfter(1, 3, other)))
	fmt.Println(policy(ctx, effectiveConfig(), failedAfter(1, 0, errors.New("deadlock"))))
	// Output:
	// MoveToError("customErrorQueue") <nil>
	// Discard <nil>
	// DelayedRetry(5s) <nil>
	// MoveToError("error") <nil>
	// MoveToError("error") <nil>
}

// With three immediate and three delayed retries a message is attempted 16
// times. These are the decisions after each fourth attempt.
func ExampleDefaultPolicy() {
	for delayed := range 4 {
		fmt.Println(core.DefaultPolicy(context.Background(), effectiveConfig(), failedAfter(4, delayed, errors.New("deadlock"))))
	}
	// Output:
	// DelayedRetry(2s) <nil>
	// DelayedRetry(4s) <nil>
	// DelayedRetry(6s) <nil>
	// MoveToError("error") <nil>
}
