package core

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"

	"github.com/reprise-go/reprise/core/internal/calls"
	"github.com/reprise-go/reprise/core/internal/panicstack"
)

// This file calls users' code, which may panic, end its goroutine, or return an error
// whose methods panic.

// newPanicError returns the error for a recovered value. It is called by the deferred
// function that recovered it.
func newPanicError(value any) *PanicError {
	return &PanicError{Value: value, Stack: panicstack.Cut(debug.Stack(), packagePath)}
}

var packagePath = reflect.TypeFor[PanicError]().PkgPath()

// callRecovered calls the function, and turns a panic into an error, a [*PanicError].
func (f HandlerFunc) callRecovered(ctx context.Context, m *Message) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = newPanicError(value)
		}
		if err != nil {
			err = safeError(err)
		}
	}()
	return f(ctx, m)
}

// recoveredGoexit is recovered for a call after which the message has to go on even if f
// ends its goroutine (runtime.Goexit): nothing else bounds the deliveries.
func recoveredGoexit(f func() error) error {
	err, done := calls.ErrGoexit, make(chan struct{})
	go func() {
		defer close(done)
		err = recovered(f)
	}()
	<-done
	return err
}

// recovered turns a panic of f into an error.
func recovered(f func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = newPanicError(value)
		}
	}()
	return f()
}

// safeError replaces an error that cannot be read: a method of it, or of an error
// that it wraps, panics, as that of a nil pointer does.
func safeError(err error) (result error) {
	text := ""
	defer func() {
		value := recover()
		if value == nil {
			return
		}
		if p, ok := err.(*PanicError); ok {
			result = &PanicError{Value: fmt.Sprint(p.Value), Stack: p.Stack}
		} else {
			result = fmt.Errorf("handler returned an error of type %T that panics when it is read (%v): %s", err, value, text)
		}
	}()
	text = err.Error()
	_ = errors.Is(err, calls.ErrGoexit) // with any target it calls the methods of each error in the tree
	for _, e := range errorChain(err) {
		_ = e.Error()
	}
	return err
}
