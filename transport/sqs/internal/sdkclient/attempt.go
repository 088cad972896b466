// Package sdkclient changes the requests of the client of the AWS SDK: the time that an attempt may take, the type of its
// body, and the time at which its answer arrives.
package sdkclient

import (
	"context"
	"time"

	"github.com/aws/smithy-go/middleware"
)

// AttemptTimeout limits each attempt of a request. A context would limit all attempts
// together: the second one would have less time than a poll takes, and the messages of a
// poll that is cut off are locked without a receiver.
func AttemptTimeout(timeout time.Duration) func(*middleware.Stack) error {
	limit := middleware.FinalizeMiddlewareFunc("RepriseAttemptTimeout", func(ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler) (middleware.FinalizeOutput, middleware.Metadata, error) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		return next.HandleFinalize(ctx, in)
	})
	return func(stack *middleware.Stack) error { return stack.Finalize.Insert(limit, "Retry", middleware.After) }
}
