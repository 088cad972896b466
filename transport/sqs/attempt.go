package sqs

import (
	"context"
	"time"

	"github.com/aws/smithy-go/middleware"
)

// attemptTimeout limits each attempt of a request. A context would limit all attempts
// together: the second one would have less time than a poll takes, and the messages of a
// poll that is cut off are locked without a receiver.
func attemptTimeout(timeout time.Duration) func(*middleware.Stack) error {
	limit := middleware.FinalizeMiddlewareFunc("RepriseAttemptTimeout", func(ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler) (middleware.FinalizeOutput, middleware.Metadata, error) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		return next.HandleFinalize(ctx, in)
	})
	return func(stack *middleware.Stack) error { return stack.Finalize.Insert(limit, "Retry", middleware.After) }
}
