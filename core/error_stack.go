package core

import (
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
)

// stackIn returns the stack of the panic in err, or else the stack that err or an error
// that it wraps has, or "". It is not bounded.
func stackIn(err error) string {
	if p := panicIn(err); p != nil {
		return string(p.Stack)
	}
	chain := errorChain(err)
	for _, each := range slices.Backward(chain) { // the innermost stack is that of the cause
		if stack := stackMethod(each); stack != "" {
			return stack
		}
	}
	budget := maxStackSearch
	if stack := joinedStack(err, &budget); stack != "" {
		return stack
	}
	for _, each := range chain[:min(len(chain), maxStackSearch)] { // an outer error prints the inner ones too
		if stack := printedStack(each); stack != "" {
			return stack
		}
	}
	return ""
}

// maxStackSearch is the number of errors that are asked for a stack, of those that are not
// in the branch of the cause, and of those that have to be printed for it.
const maxStackSearch = 100

// joinedStack returns the first stack in all branches of joined errors.
func joinedStack(err error, budget *int) string {
	if err == nil || *budget == 0 {
		return ""
	}
	*budget--
	inner := joinedBy(err)
	if inner == nil {
		inner = []error{errors.Unwrap(err)}
	}
	for _, each := range inner {
		if stack := joinedStack(each, budget); stack != "" {
			return stack
		}
	}
	return stackMethod(err)
}

// stackMethod returns the result of an error's method StackTrace, whose type each library
// has itself, or of Stack, as text.
func stackMethod(err error) (stack string) {
	defer func() {
		if recover() != nil { // by the method, as of a nil pointer
			stack = ""
		}
	}()
	if e, ok := err.(interface{ Stack() []byte }); ok {
		return string(e.Stack())
	}
	method := reflect.ValueOf(err).MethodByName("StackTrace")
	if !method.IsValid() || method.Type().NumIn() != 0 || method.Type().NumOut() != 1 {
		return ""
	}
	switch trace := method.Call(nil)[0].Interface().(type) {
	case nil:
		return ""
	case []byte:
		return string(trace)
	case []string:
		return strings.Join(trace, "\n")
	case []uintptr:
		stack = framesText(trace)
	default:
		if v := reflect.ValueOf(trace); v.Kind() == reflect.Slice && v.Len() == 0 {
			return ""
		}
		stack = strings.TrimSpace(fmt.Sprintf("%+v", trace))
	}
	if isOfInit(stack) {
		return ""
	}
	return stack
}

// isOfInit reports whether a stack is that of an error in a package's variable, which shows
// no failure.
func isOfInit(stack string) bool { return strings.Contains(stack, "runtime.doInit") }

func framesText(counters []uintptr) string {
	if len(counters) == 0 {
		return ""
	}
	var b strings.Builder
	for frames, more := runtime.CallersFrames(counters), true; more; {
		var frame runtime.Frame
		frame, more = frames.Next()
		fmt.Fprintf(&b, "%s\n\t%s:%d\n", frame.Function, frame.File, frame.Line)
	}
	return b.String()
}

// printedStack returns the text that an error prints for %+v, if that names places in Go
// files and its message does not.
func printedStack(err error) string {
	if _, ok := err.(fmt.Formatter); !ok {
		return ""
	}
	text := fmt.Sprintf("%+v", err)
	if !strings.Contains(text, ".go:") || isOfInit(text) || strings.Contains(err.Error(), ".go:") {
		return ""
	}
	return text
}
