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

// Unavailable makes err match [core.ErrUnavailable] if it is transient, so that an
// endpoint that starts waits for the broker (C15). An adapter calls it with the errors of
// Provision, Check, Subscribe and Purge; ctx is the context of that call. An error marked
// by [Permanent], [core.ErrQueueNotFound], [core.ErrClosed] and the end of ctx are not
// outages. The text of the error stays the same.
func Unavailable(ctx context.Context, err error, transient func(error) bool) error {
	if err == nil || ctx.Err() != nil || IsPermanent(err) || errors.Is(err, core.ErrClosed) || errors.Is(err, core.ErrQueueNotFound) || !transient(err) {
		return err
	}
	return &unavailableError{err}
}
