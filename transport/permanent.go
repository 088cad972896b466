package transport

import "errors"

// permanentError is an error that a retry would only repeat.
type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

// Permanent marks an error as permanent, so that an adapter does not retry. It is for the
// adapter's own errors, about a queue or a setting for example; errors of client
// libraries and brokers have codes, which the adapter classifies. The text of the error
// stays the same. Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

// IsPermanent reports whether [Permanent] has marked err, or an error that it wraps.
func IsPermanent(err error) bool {
	_, ok := errors.AsType[*permanentError](err)
	return ok
}
