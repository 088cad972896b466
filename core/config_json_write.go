package core

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

// MarshalJSON writes the text that [Config.UnmarshalJSON] reads: the fields that are set,
// without those that hold code. A value that no JSON can hold, such as a negative
// timeout, is an error.
func (c Config) MarshalJSON() ([]byte, error) { return encodeConfig(c) }

// MarshalJSON writes the part of a configuration, as [Config] does.
func (c Recoverability) MarshalJSON() ([]byte, error) { return encodeConfig(c) }

// MarshalJSON writes the part of a configuration, as [Config] does.
func (c Immediate) MarshalJSON() ([]byte, error) { return encodeConfig(c) }

// MarshalJSON writes the part of a configuration, as [Config] does.
func (c Delayed) MarshalJSON() ([]byte, error) { return encodeConfig(c) }

// MarshalJSON writes the part of a configuration, as [Config] does.
func (c TypeRecoverability) MarshalJSON() ([]byte, error) { return encodeConfig(c) }

// MarshalJSON writes the part of a configuration, as [Config] does.
func (c MaxDeliveries) MarshalJSON() ([]byte, error) { return encodeConfig(c) }

// MarshalJSON writes the part of a configuration, as [Config] does.
func (c RateLimit) MarshalJSON() ([]byte, error) { return encodeConfig(c) }

func encodeConfig(c any) ([]byte, error) {
	var b bytes.Buffer
	if err := encodeValue(&b, reflect.ValueOf(c), ""); err != nil {
		return nil, fmt.Errorf("core: configuration: %w", err)
	}
	return b.Bytes(), nil
}

func encodeValue(b *bytes.Buffer, v reflect.Value, path string) error {
	if _, ok := reflect.TypeAssert[encoding.TextMarshaler](v); ok {
		return encodeScalar(b, v.Interface(), path)
	}
	switch { // Off is written as 0, which it is read from
	case v.Type() == durationType:
		d := time.Duration(v.Int())
		if d < 0 && d != Off {
			return fmt.Errorf("%s is %v; it cannot be negative", path, d)
		}
		return encodeScalar(b, offAsZero(d).String(), path)
	case v.CanInt():
		if v.Int() < 0 && v.Int() != Off {
			return fmt.Errorf("%s is %d; it cannot be negative", path, v.Int())
		}
		return encodeScalar(b, offAsZero(int(v.Int())), path)
	case v.CanFloat():
		if f := v.Float(); f < 0 && f != Off || math.IsNaN(f) || math.IsInf(f, 0) {
			return fmt.Errorf("%s is %v; it cannot be negative, infinite or no number", path, f)
		}
		return encodeScalar(b, offAsZero(v.Float()), path)
	case v.Kind() == reflect.Struct:
		return encodeStruct(b, v, path)
	case v.Kind() == reflect.Map:
		return encodeMap(b, v, path)
	case v.Kind() == reflect.Slice:
		return encodeSlice(b, v, path)
	}
	return encodeScalar(b, v.Interface(), path)
}

func encodeStruct(b *bytes.Buffer, v reflect.Value, path string) error {
	b.WriteByte('{')
	separator := ""
	for i, key := range jsonFields(v.Type()) {
		field := v.Field(i)
		if !isInJSON(field) {
			continue
		}
		at := join(path, key)
		if isOff(field) && !acceptsOff(v.Type(), i) {
			return fmt.Errorf("%s is %v; it cannot be negative", at, field)
		}
		fmt.Fprintf(b, "%s%q:", separator, key)
		separator = ","
		if err := encodeValue(b, field, at); err != nil {
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
	for i := range jsonFields(v.Type()) {
		if isInJSON(v.Field(i)) {
			return true
		}
	}
	return false
}

func isOff(v reflect.Value) bool {
	return v.CanInt() && v.Int() == Off || v.CanFloat() && v.Float() == Off
}

// acceptsOff reports whether a field accepts Off.
func acceptsOff(t reflect.Type, field int) bool {
	instead, listed := zeroValueErrors[t.Name()+"."+t.Field(field).Name]
	return listed && instead == ""
}

func encodeMap(b *bytes.Buffer, v reflect.Value, path string) error {
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
		if err := encodeValue(b, v.MapIndex(key), at); err != nil {
			return err
		}
	}
	b.WriteByte('}')
	return nil
}

func encodeSlice(b *bytes.Buffer, v reflect.Value, path string) error {
	b.WriteByte('[')
	for i := range v.Len() {
		if i > 0 {
			b.WriteByte(',')
		}
		if err := encodeValue(b, v.Index(i), fmt.Sprintf("%s[%d]", path, i)); err != nil {
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
