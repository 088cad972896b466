package transport

import (
	"context"
	"errors"
	"fmt"

	"github.com/reprise-go/reprise/core"
)

// unavailableError is an error that matches core.ErrUnavailable.
type unavailableError struct{ err error }

func (e *unavailableError) Error() string        { return e.err.Error() }
func (e *unavailableError) Unwrap() error        { return e.err }
func (e *unavailableError) Is(target error) bool { return target == core.ErrUnavailable }

// Unavailable makes the error of a call match [core.ErrUnavailable] if it is transient, so
// that a caller knows that the same call may succeed later. An adapter calls it with
// the errors of all operations on the broker; ctx is the context of the call. If its deadline
// has passed, the error matches context.DeadlineExceeded too. Of a [*core.SendError] it
// changes the results. The end of ctx by its caller, an error marked by [Permanent], and one
// that is permanent by [core.IsPermanent] are not outages. The text of the error stays the
// same, except that it names a deadline.
func Unavailable(ctx context.Context, err error, transient func(error) bool) error {
	if err == nil {
		return nil
	}
	if sent, ok := errors.AsType[*core.SendError](err); ok {
		for i := range sent.Results {
			if r := &sent.Results[i]; r.State != core.SendAccepted {
				r.Err = Unavailable(ctx, r.Err, transient)
			}
		}
		return err
	}
	if _, ok := errors.AsType[companionError](err); ok || IsPermanent(err) || core.IsPermanent(err) {
		return err
	}
	expired, named := errors.Is(ctx.Err(), context.DeadlineExceeded), errors.Is(err, context.DeadlineExceeded)
	switch {
	case expired && !named && (errors.Is(err, context.Canceled) || transient(err)):
		err = fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
	case expired && named:
	case ctx.Err() != nil || !transient(err):
		return err
	}
	return &unavailableError{err}
}

// interrupted returns the error of a call that waited for the end of an outage until ctx
// ended. The cause is the last error of the broker, or nil if there was none.
func interrupted(ctx context.Context, cause error) error {
	switch err := ctx.Err(); {
	case cause != nil:
		return &unavailableError{fmt.Errorf("%w: %w", err, cause)}
	case errors.Is(err, context.DeadlineExceeded):
		return &unavailableError{err}
	default:
		return err
	}
}
