package configjson

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
)

// Encode writes the fields of a configuration that are set, without those that hold code.
func (f *Format) Encode(configuration any) ([]byte, error) {
	var b bytes.Buffer
	if err := f.encodeValue(&b, reflect.ValueOf(configuration), ""); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func (f *Format) encodeValue(b *bytes.Buffer, v reflect.Value, path string) error {
	if _, ok := reflect.TypeAssert[encoding.TextMarshaler](v); ok {
		return encodeScalar(b, v.Interface(), path)
	}
	switch { // Off is written as 0, which it is read from
	case v.Type() == durationType:
		d := time.Duration(v.Int())
		if d < 0 && d != time.Duration(f.Off) {
			return fmt.Errorf("%s is %v; it cannot be negative", path, d)
		}
		return encodeScalar(b, offAsZero(d, f.Off).String(), path)
	case v.CanInt():
		if v.Int() < 0 && v.Int() != int64(f.Off) {
			return fmt.Errorf("%s is %d; it cannot be negative", path, v.Int())
		}
		return encodeScalar(b, offAsZero(int(v.Int()), f.Off), path)
	case v.CanFloat():
		if number := v.Float(); number < 0 && number != float64(f.Off) || math.IsNaN(number) || math.IsInf(number, 0) {
			return fmt.Errorf("%s is %v; it cannot be negative, infinite or no number", path, number)
		}
		return encodeScalar(b, offAsZero(v.Float(), f.Off), path)
	case v.Kind() == reflect.Struct:
		return f.encodeStruct(b, v, path)
	case v.Kind() == reflect.Map:
		return f.encodeMap(b, v, path)
	case v.Kind() == reflect.Slice:
		return f.encodeSlice(b, v, path)
	}
	return encodeScalar(b, v.Interface(), path)
}

func (f *Format) encodeStruct(b *bytes.Buffer, v reflect.Value, path string) error {
	b.WriteByte('{')
	separator := ""
	for i, key := range Fields(v.Type()) {
		field := v.Field(i)
		if !isInJSON(field) {
			continue
		}
		at := join(path, key)
		if f.isOff(field) && !f.acceptsOff(v.Type(), i) {
			return fmt.Errorf("%s is %v; it cannot be negative", at, field)
		}
		fmt.Fprintf(b, "%s%q:", separator, key)
		separator = ","
		if err := f.encodeValue(b, field, at); err != nil {
			return err
		}
	}
	b.WriteByte('}')
	return nil
}

// isInJSON reports whether the JSON has the field: it is set, and holds more than code.
func isInJSON(v reflect.Value) bool {
	if v.Kind() != reflect.Struct {
		return !v.IsZero()
	}
	for i := range Fields(v.Type()) {
		if isInJSON(v.Field(i)) {
			return true
		}
	}
	return false
}

func (f *Format) isOff(v reflect.Value) bool {
	return v.CanInt() && v.Int() == int64(f.Off) || v.CanFloat() && v.Float() == float64(f.Off)
}

// acceptsOff reports whether a field accepts Off.
func (f *Format) acceptsOff(t reflect.Type, field int) bool {
	instead, listed := f.ZeroErrors[t.Name()+"."+t.Field(field).Name]
	return listed && instead == ""
}

func (f *Format) encodeMap(b *bytes.Buffer, v reflect.Value, path string) error {
	keys := v.MapKeys()
	slices.SortFunc(keys, func(x, y reflect.Value) int { return strings.Compare(x.String(), y.String()) })
	b.WriteByte('{')
	for i, key := range keys {
		if i > 0 {
			b.WriteByte(',')
		}
		at := fmt.Sprintf("%s[%q]", path, key)
		if err := encodeScalar(b, key.String(), at); err != nil {
			return err
		}
		b.WriteByte(':')
		if err := f.encodeValue(b, v.MapIndex(key), at); err != nil {
			return err
		}
	}
	b.WriteByte('}')
	return nil
}

func (f *Format) encodeSlice(b *bytes.Buffer, v reflect.Value, path string) error {
	b.WriteByte('[')
	for i := range v.Len() {
		if i > 0 {
			b.WriteByte(',')
		}
		if err := f.encodeValue(b, v.Index(i), fmt.Sprintf("%s[%d]", path, i)); err != nil {
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

func offAsZero[T int | float64 | time.Duration](value T, off int) T {
	if value == T(off) {
		return 0
	}
	return value
}
