package core

import (
	"reflect"
	"slices"
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
