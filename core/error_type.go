package core

import (
	"reflect"
	"slices"
)

// tellingType returns the type of the innermost error that is not of package errors or
// fmt, or else that of the innermost error.
func tellingType(chain []error) reflect.Type {
	for _, each := range slices.Backward(chain) {
		if source := declaredIn(reflect.TypeOf(each)); source != "errors" && source != "fmt" {
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
	if recalled, ok := err.(*recalledError); ok {
		return recalled.description.exceptionType
	}
	return boundedText(tellingType(errorChain(err)).String(), maxTypeName)
}

// declaredIn returns the package of a type, or of the type that it points to.
func declaredIn(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.PkgPath()
}
