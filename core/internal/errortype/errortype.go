// Package errortype has the values by which a configuration names types of errors among
// its unrecoverable errors. Package core makes them from a type, package configfile from a
// name.
package errortype

import (
	"errors"
	"reflect"
	"slices"
)

// Type stands for all errors of a type. It is comparable.
type Type struct {
	Name string // as errors are reported: "*fs.PathError"
	// Interface is set for a type of interfaces, which has errors of many types.
	Interface reflect.Type
}

// Of returns the value for a type.
func Of[E error]() Type {
	t := reflect.TypeFor[E]()
	if t.Kind() == reflect.Interface {
		return Type{t.String(), t}
	}
	return Type{Name: t.String()}
}

// Error implements error.
func (t Type) Error() string { return "any error of the type " + t.Name }

// Matches reports whether err is or wraps an error of the type.
func (t Type) Matches(err error) bool {
	for err != nil {
		if own := reflect.TypeOf(err); t.Interface == nil && own.String() == t.Name || t.Interface != nil && own.Implements(t.Interface) {
			return true
		}
		if joined, ok := err.(interface{ Unwrap() []error }); ok {
			return slices.ContainsFunc(joined.Unwrap(), t.Matches)
		}
		err = errors.Unwrap(err)
	}
	return false
}
