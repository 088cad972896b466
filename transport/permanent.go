package transport

import "errors"

// permanentError is an error that is the same at the next attempt.
type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

// Permanent marks an error as permanent: a retry does not help, such as what an adapter
// finds wrong with a queue or a setting. The text of the error stays as it is, and
// Permanent(nil) is nil. What client libraries and brokers return is judged by the adapter
// itself, which knows their codes.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

// IsPermanent reports whether Permanent has marked err, or an error that it wraps.
func IsPermanent(err error) bool {
	_, ok := errors.AsType[*permanentError](err)
	return ok
}
