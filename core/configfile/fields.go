package configfile

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/reprise-go/reprise/core"
)

var (
	durationType    = reflect.TypeFor[time.Duration]()
	endpointsType   = reflect.TypeFor[Endpoints]()
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
	jsonUnmarshaler = reflect.TypeFor[json.Unmarshaler]()
	errorsType      = reflect.TypeFor[[]error]()
	corePackage     = reflect.TypeFor[core.Config]().PkgPath()
)

// field is a field of a struct that a file can set.
type field struct {
	index []int // in the struct, through embedded ones
	key   string
	t     reflect.Type
	owner reflect.Type // the struct that declares it
	name  string       // in Go
}

// isCore reports whether the field is a setting of core, for which stricter rules hold.
func (f field) isCore() bool { return f.owner.PkgPath() == corePackage }

// zero returns the rule for a 0 of the field.
func (f field) zero() (replacement string, listed bool) {
	if f.isCore() {
		replacement, listed = zeroValueErrors[f.owner.Name()+"."+f.name]
	}
	return replacement, listed
}

// refusesEmpty reports whether an empty list is no value of the field.
func (f field) refusesEmpty() bool { return f.isCore() && !emptyLists[f.owner.Name()+"."+f.name] }

// fields returns the fields that a file can set, in their order: the exported ones without
// those that hold code. Those of embedded structs are among them, as in encoding/json.
func fields(t reflect.Type) ([]field, error) {
	var all []field
	owners := map[string]string{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Tag.Get("json") == "-" {
			continue
		}
		if f.Anonymous && name == "" && f.Type.Kind() == reflect.Struct && !isRead(f.Type) {
			if f.Type == endpointsType || levels[f.Type] {
				return nil, fmt.Errorf("%v embeds %v, which has to be a field with a name", t, f.Type)
			}
			embedded, err := fields(f.Type)
			if err != nil {
				return nil, err
			}
			for _, e := range embedded {
				e.index = append([]int{i}, e.index...)
				all = append(all, e)
			}
			continue
		}
		errorTypes := f.Type == errorsType && t.PkgPath() == corePackage // their names are data
		if !f.IsExported() || !isData(f.Type, nil) && !errorTypes {
			continue
		}
		if err := checkType(f.Type); err != nil {
			return nil, fmt.Errorf("%v.%s %w; tag it with `json:\"-\"` if the file does not set it", t, f.Name, err)
		}
		if name == "" {
			name = camelCase(f.Name)
		}
		all = append(all, field{[]int{i}, name, f.Type, t, f.Name})
	}
	for _, f := range all {
		this := fmt.Sprintf("%v.%s", f.owner, f.name)
		if other, taken := owners[f.key]; taken {
			return nil, fmt.Errorf("%v has two fields with the key %s, %s and %s; rename one by a tag such as `json:\"other\"`", t, f.key, other, this)
		}
		owners[f.key] = this
	}
	return all, nil
}

// isRead reports whether the type reads its text itself.
func isRead(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(jsonUnmarshaler) || p.Implements(textUnmarshaler)
}

// isData reports whether values of the type are more than code. within has the structs
// that contain it.
func isData(t reflect.Type, within []reflect.Type) bool {
	if isRead(t) || t == endpointsType {
		return true
	}
	switch t.Kind() {
	case reflect.Func, reflect.Chan, reflect.UnsafePointer:
		return false
	case reflect.Interface:
		return t.NumMethod() == 0
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		return isData(t.Elem(), within)
	case reflect.Struct:
		if slices.Contains(within, t) {
			return false
		}
		within = append(slices.Clip(within), t)
		for f := range t.Fields() {
			if (f.IsExported() || f.Anonymous) && isData(f.Type, within) {
				return true
			}
		}
		return false
	}
	return true
}

// checkType refuses types that no JSON can set.
func checkType(t reflect.Type) error {
	switch {
	case isRead(t):
		return nil
	case t.Kind() == reflect.Complex64 || t.Kind() == reflect.Complex128:
		return fmt.Errorf("is a %v, which JSON does not have", t)
	case t.Kind() == reflect.Map && t.Key().Kind() != reflect.String:
		return fmt.Errorf("is a %v, whose keys are no text", t)
	case t.Kind() == reflect.Pointer, t.Kind() == reflect.Slice, t.Kind() == reflect.Array, t.Kind() == reflect.Map:
		return checkType(t.Elem())
	}
	return nil
}

// camelCase returns a field's name as a file writes it: errorQueue, url, httpPort, userID.
func camelCase(name string) string {
	runes := []rune(name)
	for i, r := range runes {
		if !unicode.IsUpper(r) || i > 0 && i+1 < len(runes) && unicode.IsLower(runes[i+1]) {
			break
		}
		runes[i] = unicode.ToLower(r)
	}
	return string(runes)
}
