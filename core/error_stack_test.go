package core

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"runtime"
	"strings"
	"testing"
)

// The errors of libraries have these methods. The libraries themselves are tested in
// internal/foreignsuites.
type (
	textStack    struct{ error }
	linesStack   struct{ error }
	countedStack struct {
		error
		counters []uintptr
	}
	frame         string
	frames        []frame
	framedStack   struct{ wrapped error }
	emptyStack    struct{ error }
	bytesStack    struct{ error }
	brokenStack   struct{ error }
	otherStack    struct{ error }
	printedError  struct{ wrapped error }
	detailedError struct{ error }
	wrappedErrors struct{ errs []error }
	listedErrors  struct{ errs []error }
)

func (textStack) StackTrace() string       { return "main.text\n\tmain.go:1" }
func (linesStack) StackTrace() []string    { return []string{"main.lines", "main.go:2"} }
func (e countedStack) StackTrace() any     { return e.counters }
func (framedStack) StackTrace() frames     { return frames{"main.framed\n\tmain.go:3"} }
func (e framedStack) Error() string        { return "framed: " + e.wrapped.Error() }
func (e framedStack) Unwrap() error        { return e.wrapped }
func (emptyStack) StackTrace() frames      { return nil }
func (bytesStack) Stack() []byte           { return []byte("main.bytes\n\tmain.go:4") }
func (brokenStack) StackTrace() string     { panic("broken") }
func (otherStack) StackTrace(skip int) int { return skip }
func (e printedError) Error() string       { return "printed: " + e.wrapped.Error() }
func (e printedError) Unwrap() error       { return e.wrapped }
func (e wrappedErrors) Error() string      { return errors.Join(e.errs...).Error() }
func (e wrappedErrors) Unwrap() error      { return errors.New("a view of the errors") }
func (e listedErrors) Error() string       { return errors.Join(e.errs...).Error() }
func (e listedErrors) Errors() []error     { return e.errs }

func (e wrappedErrors) WrappedErrors() []error { return e.errs }

func (f frame) Format(s fmt.State, _ rune) { fmt.Fprint(s, "\n", string(f)) }

func (e printedError) Format(s fmt.State, verb rune) {
	fmt.Fprint(s, e.Error())
	if verb == 'v' && s.Flag('+') {
		fmt.Fprint(s, "\nmain.printed\n\tmain.go:5")
	}
}

func (e detailedError) Format(s fmt.State, _ rune) { fmt.Fprint(s, "password=secret") }

func newCountedStack() countedStack {
	counters := make([]uintptr, 10)
	return countedStack{errFailed, counters[:runtime.Callers(2, counters)]}
}

var errAtInit = newCountedStack()

// Rule R23.
func TestFailureHeaders_StackOfAnError(t *testing.T) {
	for _, test := range []struct {
		name, stack string
		err         error
	}{
		{"as text", "main.text\n\tmain.go:1", textStack{errFailed}},
		{"as lines", "main.lines\nmain.go:2", linesStack{errFailed}},
		{"as counters", "core.TestFailureHeaders_StackOfAnError\n\t", newCountedStack()},
		{"as frames that print themselves", "main.framed\n\tmain.go:3", framedStack{errFailed}},
		{"as bytes", "main.bytes\n\tmain.go:4", bytesStack{errFailed}},
		{"printed", "printed: handler failed\nmain.printed\n\tmain.go:5", printedError{errFailed}},
		{"wrapped", "main.text\n\tmain.go:1", fmt.Errorf("a: %w", textStack{errFailed})},
		{"of the innermost error", "main.text\n\tmain.go:1", framedStack{fmt.Errorf("a: %w", textStack{errFailed})}},
		{"of an outer error, if the innermost has none", "main.framed\n\tmain.go:3", framedStack{emptyStack{errFailed}}},
		{"of another branch", "main.text\n\tmain.go:1", fmt.Errorf("%w: %w", &fs.PathError{Err: errFailed}, textStack{errFailed})},
		{"in a verdict", "main.text\n\tmain.go:1", GiveUp(textStack{errFailed})},
		{"a panic's before others", "of the panic", &PanicError{Value: textStack{errFailed}, Stack: []byte("of the panic")}},
		{"none", "", errFailed},
		{"no frames", "", emptyStack{errFailed}},
		{"a method that panics", "", brokenStack{errFailed}},
		{"another method of this name", "", otherStack{errFailed}},
		{"details that are no stack", "", detailedError{errFailed}},
		{"of a package's variable", "", errAtInit},
		{"an error that lists itself", "", listsItself{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if stack := stackIn(test.err); !strings.Contains(stack, test.stack) || test.stack == "" && stack != "" {
				t.Errorf("the stack is %q, want %q in it", stack, test.stack)
			}
			trace := describe(test.err).stackTrace
			if !strings.Contains(trace, test.stack) || len(trace) > maxErrorText || strings.Contains(trace, "secret") {
				t.Errorf("the trace is %q, want %q in it", trace, test.stack)
			}
			attrs := withStack(nil, "stack", test.err)
			if test.stack == "" && attrs != nil || test.stack != "" && (len(attrs) != 1 || !attrs[0].Equal(slog.String("stack", stackIn(test.err)))) {
				t.Errorf("the log has %v", attrs)
			}
		})
	}
	if trace := describe(linesOf(1 << 16)).stackTrace; len(trace) > maxErrorText || !strings.HasSuffix(trace, " [truncated]") {
		t.Errorf("the trace has %d bytes", len(trace))
	}
}

type linesOf int

func (linesOf) Error() string          { return "many lines" }
func (n linesOf) StackTrace() []string { return make([]string, n) }

type listsItself struct{}

func (listsItself) Error() string     { return "itself" }
func (e listsItself) Errors() []error { return []error{e, errFailed, e} }

func TestErrorType_OfSeveralErrors(t *testing.T) {
	path := &fs.PathError{Op: "open", Path: "x", Err: errFailed}
	nested := error(path)
	for range 10_000 {
		nested = errors.Join(nested) // as a loop that collects errors
	}
	for _, test := range []struct {
		name, want string
		err        error
	}{
		{"the last of several texts", "*fs.PathError", fmt.Errorf("%w: %w: %w", errFailed, errFailed, path)},
		{"behind a join of texts", "*fs.PathError", errors.Join(errors.Join(errFailed, errFailed), errors.Join(errFailed, path))},
		{"the first of two causes", "core.codeError", errors.Join(errFailed, codeError{1}, path)},
		{"WrappedErrors", "*fs.PathError", wrappedErrors{[]error{errFailed, path}}},
		{"Errors", "*fs.PathError", listedErrors{[]error{errFailed, path}}},
		{"the list, if its errors are texts", "core.listedErrors", listedErrors{[]error{errFailed}}},
		{"an empty list", "core.listedErrors", listedErrors{}},
		{"no error in a list", "core.listedErrors", listedErrors{[]error{nil}}},
		{"a deep join", "*fs.PathError", nested},
		{"an error that lists itself", "core.listsItself", listsItself{}},
	} {
		if got := ErrorTypeOf(test.err); got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}
