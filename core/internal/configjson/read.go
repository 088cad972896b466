// Package configjson reads and writes configurations as JSON.
package configjson

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Format has the rules of a configuration beyond its Go types.
type Format struct {
	// Off is the value of a number or duration that is switched off. It is written as 0.
	Off int
	// ZeroErrors has the fields, such as "Config.Concurrency", whose 0, or "", stands for a
	// default in Go but not in JSON. The value "" turns a 0 in the JSON into Off; another
	// text is the end of the error: the way to fix it.
	ZeroErrors map[string]string
	// Levels has the structs with a field Off whose settings are put over earlier ones,
	// with the function that does it.
	Levels map[reflect.Type]func(own, base any) any
}

// Decode reads a configuration into the value that target points to. path is the place
// of the JSON in the whole text, for errors.
func (f *Format) Decode(data []byte, target any, path string) error {
	return f.decodeValue(data, reflect.ValueOf(target).Elem(), path)
}

var durationType = reflect.TypeFor[time.Duration]()

// decodeValue reads one JSON value into v. encoding/json reads the scalars; it is not
// used for the whole text because it reads durations as numbers and does not say where an
// error is.
func (f *Format) decodeValue(data []byte, v reflect.Value, path string) error {
	object := v.Kind() == reflect.Struct || v.Kind() == reflect.Map
	if !object && bytes.Equal(bytes.TrimSpace(data), []byte("null")) {
		return fmt.Errorf("%s is null; leave the key out for the default", path)
	}
	if _, ok := reflect.TypeAssert[encoding.TextUnmarshaler](v.Addr()); ok {
		return decodeScalar(data, v, path, "text")
	}
	switch {
	case v.Type() == durationType:
		var text string
		if err := json.Unmarshal(data, &text); err != nil {
			return fmt.Errorf("%s is %s; write a duration as text, such as \"10s\"", path, abbreviate(data))
		}
		d, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("%s is %q, which is no duration; write one such as \"10s\" or \"1h30m\"", path, text)
		}
		if d < 0 {
			return fmt.Errorf("%s is %q; it cannot be negative", path, text)
		}
		v.SetInt(int64(d))
		return nil
	case v.Kind() == reflect.Struct:
		return f.decodeStruct(data, v, path)
	case v.Kind() == reflect.Map:
		return f.decodeMap(data, v, path)
	case v.Kind() == reflect.Slice:
		return f.decodeSlice(data, v, path)
	}
	kind := map[reflect.Kind]string{reflect.Int: "a whole number", reflect.Float64: "a number", reflect.Bool: "true or false", reflect.String: "text"}
	if err := decodeScalar(data, v, path, kind[v.Kind()]); err != nil {
		return err
	}
	if v.CanInt() && v.Int() < 0 || v.CanFloat() && v.Float() < 0 {
		return fmt.Errorf("%s is %s; it cannot be negative", path, data)
	}
	return nil
}

// decodeStruct changes the fields that the JSON mentions.
func (f *Format) decodeStruct(data []byte, v reflect.Value, path string) error {
	if over := f.Levels[v.Type()]; over != nil {
		return f.decodeLevel(data, v, path, over)
	}
	_, err := f.decodeFields(data, v, path)
	return err
}

// decodeLevel reads settings that can be Off, and puts them over the earlier ones: a
// level that the JSON switches off keeps nothing, for example.
func (f *Format) decodeLevel(data []byte, v reflect.Value, path string, over func(own, base any) any) error {
	own := reflect.New(v.Type()).Elem()
	keys, err := f.decodeFields(data, own, path)
	if err != nil {
		return err
	}
	if slices.Contains(keys, "off") { // false, or over sets it
		v.FieldByName("Off").SetBool(false)
	}
	v.Set(reflect.ValueOf(over(own.Interface(), v.Interface())))
	return nil
}

// decodeFields returns the keys that the JSON mentions.
func (f *Format) decodeFields(data []byte, v reflect.Value, path string) (keys []string, err error) {
	fields := map[string]int{}
	var known []string
	for i, name := range Fields(v.Type()) {
		fields[name] = i
		known = append(known, name)
	}
	err = DecodeObject(data, path, func(key string, value json.RawMessage) error {
		keys = append(keys, key)
		i, ok := fields[key]
		if !ok {
			hint := ""
			if path == "" {
				hint = fmt.Sprintf(" (a struct that embeds %v reads no other keys: give that field a name)", v.Type())
			}
			return fmt.Errorf("%s is unknown here; known are %s%s", join(path, key), strings.Join(known, ", "), hint)
		}
		field, at := v.Field(i), join(path, key)
		if err := f.decodeValue(value, field, at); err != nil {
			return err
		}
		if !field.IsZero() {
			return nil
		}
		switch instead, listed := f.ZeroErrors[v.Type().Name()+"."+v.Type().Field(i).Name]; {
		case !listed: // 0 is taken literally
		case instead != "":
			return fmt.Errorf("%s is %s; %s", at, value, instead)
		case field.CanInt():
			field.SetInt(int64(f.Off))
		case field.CanFloat():
			field.SetFloat(float64(f.Off))
		}
		return nil
	})
	return keys, err
}

// Fields returns the indexes and keys of the fields that JSON can set.
func Fields(t reflect.Type) iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		for i := range t.NumField() {
			f := t.Field(i)
			if f.IsExported() && f.Tag.Get("json") != "-" && !yield(i, camelCase(f.Name)) {
				return
			}
		}
	}
}

// decodeMap changes the entries that the JSON mentions, in a copy of the map.
func (f *Format) decodeMap(data []byte, v reflect.Value, path string) error {
	m := reflect.MakeMap(v.Type())
	for entries := v.MapRange(); entries.Next(); {
		m.SetMapIndex(entries.Key(), entries.Value())
	}
	err := DecodeObject(data, path, func(key string, value json.RawMessage) error {
		element := reflect.New(v.Type().Elem()).Elem()
		if existing := m.MapIndex(reflect.ValueOf(key)); existing.IsValid() {
			element.Set(existing)
		}
		if err := f.decodeValue(value, element, fmt.Sprintf("%s[%q]", path, key)); err != nil {
			return err
		}
		m.SetMapIndex(reflect.ValueOf(key), element)
		return nil
	})
	v.Set(m)
	return err
}

func (f *Format) decodeSlice(data []byte, v reflect.Value, path string) error {
	var elements []json.RawMessage
	if err := json.Unmarshal(data, &elements); err != nil {
		return fmt.Errorf("%s is %s; it must be a list", path, abbreviate(data))
	}
	if len(elements) == 0 {
		return fmt.Errorf("%s is an empty list; leave the key out, or switch the level off with \"off\": true", path)
	}
	s := reflect.MakeSlice(v.Type(), len(elements), len(elements))
	for i, element := range elements {
		if err := f.decodeValue(element, s.Index(i), fmt.Sprintf("%s[%d]", path, i)); err != nil {
			return err
		}
	}
	v.Set(s)
	return nil
}

// DecodeObject calls set for each key in the order of the text, and refuses a duplicate
// key.
func DecodeObject(data []byte, path string, set func(key string, value json.RawMessage) error) error {
	d := json.NewDecoder(bytes.NewReader(data))
	if token, err := d.Token(); err != nil || token != json.Delim('{') {
		return fmt.Errorf("%s is %s; it must be an object", join(path, ""), abbreviate(data))
	}
	seen := map[string]bool{}
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return fmt.Errorf("%s: %w", join(path, ""), err)
		}
		key, _ := token.(string)
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return fmt.Errorf("%s: %w", join(path, key), err)
		}
		if seen[key] {
			return fmt.Errorf("%s is given twice", join(path, key))
		}
		seen[key] = true
		if err := set(key, value); err != nil {
			return err
		}
	}
	if _, err := d.Token(); err != nil { // the closing brace
		return fmt.Errorf("%s: %w", join(path, ""), err)
	}
	if _, err := d.Token(); err != io.EOF {
		return fmt.Errorf("%s is followed by something else", join(path, ""))
	}
	return nil
}

func decodeScalar(data []byte, v reflect.Value, path, kind string) error {
	if err := json.Unmarshal(data, v.Addr().Interface()); err != nil {
		if _, wrongKind := err.(*json.UnmarshalTypeError); wrongKind {
			return fmt.Errorf("%s is %s; it must be %s", path, abbreviate(data), kind)
		}
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func join(path, key string) string {
	switch {
	case path == "" && key == "":
		return "the configuration"
	case path == "":
		return key
	case key == "":
		return path
	}
	return path + "." + key
}

// abbreviate shortens JSON for an error.
func abbreviate(data []byte) string {
	const limit = 40
	if len(data) > limit {
		return strings.ToValidUTF8(string(data[:limit]), "") + "..."
	}
	return string(data)
}

// camelCase returns a field's name as JSON writes it.
func camelCase(name string) string {
	first, size := utf8.DecodeRuneInString(name)
	return string(unicode.ToLower(first)) + name[size:]
}
