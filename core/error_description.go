package core

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// specificType returns the type of the innermost error that is not of package errors or
// fmt, or else that of the innermost error.
func specificType(chain []error) reflect.Type {
	for _, each := range slices.Backward(chain) {
		if source := packageOf(reflect.TypeOf(each)); source != "errors" && source != "fmt" {
			return reflect.TypeOf(each)
		}
	}
	return reflect.TypeOf(chain[len(chain)-1])
}

// ErrorTypeOf returns the name of an error's type as in the header
// NServiceBus.ExceptionInfo.ExceptionType: the type of the innermost error that is not of
// package errors or fmt, such as "*fs.PathError", at most 128 bytes. For nil it returns
// "".
func ErrorTypeOf(err error) string {
	if err == nil {
		return ""
	}
	if snapshot, ok := err.(*errorSnapshot); ok {
		return snapshot.description.exceptionType
	}
	return boundedText(specificType(errorChain(err)).String(), maxTypeName)
}

// packageOf returns the package of a type, or of the type that it points to.
func packageOf(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.PkgPath()
}

// errorDescription has the parts of an error that headers contain.
type errorDescription struct {
	// exceptionType is the Go type of the innermost error that is not one of package errors
	// or fmt: their types, and those of most wrappers, say nothing about the error.
	exceptionType string
	innerType     string // of the innermost error, if another one wraps it
	message       string
	source        string // the package that declares the type
	stackTrace    string // the chain of wrapping, and the stack of a panic
}

func describe(err error) errorDescription {
	if snapshot, ok := err.(*errorSnapshot); ok {
		return snapshot.description
	}
	chain := errorChain(err)
	named := reflect.TypeOf(chain[len(chain)-1])
	e := errorDescription{message: boundedText(err.Error(), maxErrorText)}
	if len(chain) > 1 {
		e.innerType = boundedText(named.String(), maxTypeName)
	}
	named = specificType(chain)
	e.exceptionType = boundedText(named.String(), maxTypeName)
	e.source = packageOf(named)
	var b strings.Builder
	for i, each := range chain {
		fmt.Fprintf(&b, "%s%v: %s\n", strings.Repeat("  ", i), reflect.TypeOf(each), boundedText(each.Error(), maxErrorText/8))
		if b.Len() > maxErrorText {
			break
		}
	}
	if p := panicIn(err); p != nil {
		b.WriteString("\n")
		b.Write(p.Stack)
	}
	e.stackTrace = boundedText(b.String(), maxErrorText)
	return e
}

func (e *errorDescription) write(h *Headers) {
	h.Set(HeaderExceptionType, e.exceptionType)
	if e.innerType != "" {
		h.Set(HeaderExceptionInnerType, e.innerType)
	}
	h.Set(HeaderExceptionMessage, e.message)
	if e.source != "" {
		h.Set(HeaderExceptionSource, e.source)
	}
	h.Set(HeaderExceptionStackTrace, e.stackTrace)
}

// errorSnapshot stands for an error of which only the text was kept, and the properties
// that the engine itself checks.
type errorSnapshot struct {
	description errorDescription
	matches     []error
}

func snapshotError(err error) *errorSnapshot {
	e := &errorSnapshot{description: describe(err)}
	for _, target := range []error{ErrMalformed, ErrUndecodable, ErrDeliveryCountExceeded} {
		if errors.Is(err, target) {
			e.matches = append(e.matches, target)
		}
	}
	return e
}

// Is reports whether the original error matched target.
func (e *errorSnapshot) Is(target error) bool { return slices.Contains(e.matches, target) }

// Error implements error.
func (e *errorSnapshot) Error() string { return e.description.message }

// errorChain follows the first branch of joined errors and leaves out verdicts, which are
// the engine's, unless there is nothing else.
func errorChain(err error) []error {
	var chain []error
	for e := err; e != nil; {
		if _, ours := e.(*Verdict); !ours {
			chain = append(chain, e)
		}
		if joined, ok := e.(interface{ Unwrap() []error }); ok {
			branches := joined.Unwrap()
			if len(branches) == 0 {
				break
			}
			e = branches[0]
			continue
		}
		e = errors.Unwrap(e)
	}
	if len(chain) == 0 {
		chain = append(chain, err)
	}
	return chain
}

// boundedText makes arbitrary text fit for a header: UTF-8, without NUL (which
// PostgreSQL's text cannot hold), at most limit bytes.
func boundedText(text string, limit int) string {
	const cut = " [truncated]"
	whole := len(text) <= limit
	text = strings.ToValidUTF8(text[:min(len(text), limit)], "\uFFFD")
	text = strings.ReplaceAll(text, "\x00", "\uFFFD")
	if whole && len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:min(len(text), limit-len(cut))], "") + cut
}
