package configfile

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/internal/errortype"
)

// Encode writes the text that [Decode] reads: the fields of a struct that are set, without
// those that hold code. Encode(endpoint.Config()) shows the configuration in force. A
// value that no text can hold, such as a negative timeout, is an error. So are [Endpoints]:
// the Config of each is written separately. A type that writes itself as JSON or text
// does, such as the Config of an adapter, without its secrets.
func Encode(settings any) ([]byte, error) {
	v := reflect.ValueOf(settings)
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct {
		return nil, fmt.Errorf("configfile: the settings are a %T; pass a struct", settings)
	}
	var b bytes.Buffer
	if err := encodeValue(&b, v, "", field{}); err != nil {
		return nil, fmt.Errorf("configfile: %w", err)
	}
	return b.Bytes(), nil
}

// encodeValue writes a value that is a field, or in a field: a list, a map.
func encodeValue(b *bytes.Buffer, v reflect.Value, path string, f field) error {
	switch {
	case v.Type() == endpointsType:
		return fmt.Errorf("%s has the settings of several endpoints; write the Config of each separately", join(path, ""))
	case enumerations[v.Type()] != nil:
		if !isConstant(v) {
			return fmt.Errorf("%s is %v; use %s", path, v, names(v.Type()))
		}
		return encodeScalar(b, v.Interface().(fmt.Stringer).String(), path)
	case v.Type() == errorsType:
		var names []string
		for _, err := range v.Interface().([]error) {
			if isErrorType(err) {
				names = append(names, err.(errortype.Type).Name)
			}
		}
		return encodeList(b, reflect.ValueOf(names), path, f)
	case writesItself(v):
		return encodeScalar(b, v.Interface(), path)
	case v.CanInt(), v.CanFloat():
		return encodeNumber(b, v, path, f)
	}
	switch v.Kind() {
	case reflect.Struct:
		return encodeStruct(b, v, path)
	case reflect.Map:
		return encodeMap(b, v, path, f)
	case reflect.Slice, reflect.Array:
		if v.Kind() == reflect.Array || v.Type().Elem().Kind() != reflect.Uint8 {
			return encodeList(b, v, path, f)
		}
	case reflect.Pointer:
		return encodeValue(b, v.Elem(), path, f)
	}
	return encodeScalar(b, v.Interface(), path)
}

func writesItself(v reflect.Value) bool {
	_, asJSON := reflect.TypeAssert[json.Marshaler](v)
	_, asText := reflect.TypeAssert[encoding.TextMarshaler](v)
	return asJSON || asText
}

// encodeNumber writes a number or duration. Off is written as 0, which it is read from.
func encodeNumber(b *bytes.Buffer, v reflect.Value, path string, f field) error {
	if v.CanFloat() && (math.IsNaN(v.Float()) || math.IsInf(v.Float(), 0)) {
		return fmt.Errorf("%s is %v; it must be a finite number", path, v)
	}
	if negative := v.CanInt() && v.Int() < 0 || v.CanFloat() && v.Float() < 0; negative && f.isCore() {
		if replacement, listed := f.zero(); !listed || replacement != "" || !isOff(v) {
			return fmt.Errorf("%s is %v; it cannot be negative", path, v)
		}
		v = reflect.Zero(v.Type())
	}
	if v.Type() == durationType {
		return encodeScalar(b, time.Duration(v.Int()).String(), path)
	}
	return encodeScalar(b, v.Interface(), path)
}

func isOff(v reflect.Value) bool {
	return v.CanInt() && v.Int() == core.Off || v.CanFloat() && v.Float() == core.Off
}

func encodeStruct(b *bytes.Buffer, v reflect.Value, path string) error {
	all, err := fields(v.Type())
	if err != nil {
		return err
	}
	b.WriteByte('{')
	separator := ""
	for _, f := range all {
		own := v.FieldByIndex(f.index)
		if !isSet(own) {
			continue
		}
		fmt.Fprintf(b, "%s%q:", separator, f.key)
		separator = ","
		if err := encodeValue(b, own, join(path, f.key), f); err != nil {
			return err
		}
	}
	b.WriteByte('}')
	return nil
}

// isSet reports whether a field is written: it is set, and holds more than code.
func isSet(v reflect.Value) bool {
	if v.Type() == errorsType {
		return slices.ContainsFunc(v.Interface().([]error), isErrorType)
	}
	if v.Kind() != reflect.Struct || isRead(v.Type()) || v.Type() == endpointsType {
		return !v.IsZero()
	}
	all, err := fields(v.Type())
	return err != nil || slices.ContainsFunc(all, func(f field) bool { return isSet(v.FieldByIndex(f.index)) })
}

func encodeMap(b *bytes.Buffer, v reflect.Value, path string, f field) error {
	b.WriteByte('{')
	for i, key := range sortedKeys(v) {
		if i > 0 {
			b.WriteByte(',')
		}
		at := fmt.Sprintf("%s[%q]", path, key)
		if err := encodeScalar(b, key.String(), at); err != nil {
			return err
		}
		b.WriteByte(':')
		if err := encodeValue(b, v.MapIndex(key), at, f); err != nil {
			return err
		}
	}
	b.WriteByte('}')
	return nil
}

func sortedKeys(m reflect.Value) []reflect.Value {
	keys := m.MapKeys()
	slices.SortFunc(keys, func(x, y reflect.Value) int { return strings.Compare(x.String(), y.String()) })
	return keys
}

func encodeList(b *bytes.Buffer, v reflect.Value, path string, f field) error {
	b.WriteByte('[')
	for i := range v.Len() {
		if i > 0 {
			b.WriteByte(',')
		}
		if err := encodeValue(b, v.Index(i), fmt.Sprintf("%s[%d]", path, i), f); err != nil {
			return err
		}
	}
	b.WriteByte(']')
	return nil
}

func encodeScalar(b *bytes.Buffer, value any, path string) error {
	if text, ok := value.(string); ok && !utf8.ValidString(text) {
		return fmt.Errorf("%s is %q, which is not UTF-8", path, text)
	}
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	b.Write(text)
	return nil
}
