package transport

import (
	"context"
	"errors"

	"github.com/reprise-go/reprise/core"
)

// unavailableError is an error that matches core.ErrUnavailable.
type unavailableError struct{ err error }

func (e *unavailableError) Error() string        { return e.err.Error() }
func (e *unavailableError) Unwrap() error        { return e.err }
func (e *unavailableError) Is(target error) bool { return target == core.ErrUnavailable }

// Unavailable makes err match core.ErrUnavailable where it is transient, so that an endpoint
// that starts waits for the broker (C15): an adapter calls it with what Provision, Check,
// Subscribe and Purge return. An error marked by Permanent, core.ErrQueueNotFound,
// core.ErrClosed and the end of ctx, which is that of the call, are no outage. The text of
// the error stays as it is.
func Unavailable(ctx context.Context, err error, transient func(error) bool) error {
	if err == nil || ctx.Err() != nil || IsPermanent(err) || errors.Is(err, core.ErrClosed) || errors.Is(err, core.ErrQueueNotFound) || !transient(err) {
		return err
	}
	return &unavailableError{err}
}
