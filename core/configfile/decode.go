package configfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/internal/errortype"
	"github.com/reprise-go/reprise/core/internal/layers"
)

// Decode reads JSON into the struct that target points to: a [core.Config], a part of one,
// or an application's own settings, which may have fields of these types and of
// [Endpoints]. Keys that the text does not mention keep their values, so that a second
// text may change some settings of a first. After an error the struct is unchanged. The
// rules of the text are in the package's comment.
func Decode(data []byte, target any) error {
	v, err := structOf(target)
	if err == nil {
		err = checkSyntax(data)
	}
	if err == nil {
		err = decodeCopy(data, v)
	}
	if err != nil {
		return fmt.Errorf("configfile: %w", err)
	}
	return nil
}

// structOf returns the struct that target points to.
func structOf(target any) (reflect.Value, error) {
	p := reflect.ValueOf(target)
	if p.Kind() != reflect.Pointer || p.IsNil() || p.Elem().Kind() != reflect.Struct {
		return reflect.Value{}, fmt.Errorf("the target is a %T; pass a pointer to a struct", target)
	}
	return p.Elem(), nil
}

// checkSyntax tells the line of a mistake in the text.
func checkSyntax(data []byte) error {
	if !utf8.Valid(data) {
		return errors.New("the text is not UTF-8")
	}
	var text json.RawMessage
	err := json.Unmarshal(data, &text)
	syntax, ok := errors.AsType[*json.SyntaxError](err)
	if !ok {
		return err
	}
	before := data[:min(int(syntax.Offset), len(data))]
	line := bytes.Count(before, []byte("\n")) + 1
	return fmt.Errorf("line %d: %w", line, err)
}

// decodeCopy changes v if the whole text is right.
func decodeCopy(data []byte, v reflect.Value) error {
	changed := reflect.New(v.Type()).Elem()
	changed.Set(v)
	if err := decodeValue(data, changed, "", false); err != nil {
		return err
	}
	v.Set(changed)
	return nil
}

// decodeValue reads one JSON value into v, of which it replaces pointers, maps and slices.
// encoding/json reads the scalars; it is not used for the whole text because it reads
// durations as numbers and does not say where an error is. isCore is whether v is a setting
// of core: no number is negative, and no list is empty.
func decodeValue(data []byte, v reflect.Value, path string, isCore bool) error {
	if e, ok := reflect.TypeAssert[*Endpoints](v.Addr()); ok {
		return e.decode(data, path)
	}
	if v.Kind() == reflect.Struct && !isRead(v.Type()) {
		return decodeStruct(data, v, path)
	}
	if v.Kind() == reflect.Map && !isRead(v.Type()) {
		return decodeMap(data, v, path, isCore)
	}
	if _, readsJSON := reflect.TypeAssert[json.Unmarshaler](v.Addr()); !readsJSON && isNull(data) {
		if v.Kind() != reflect.Pointer && v.Kind() != reflect.Interface {
			return fmt.Errorf("%s is null; leave the key out for the default", path)
		}
		v.SetZero()
		return nil
	}
	switch {
	case isRead(v.Type()):
		return decodeScalar(data, v, path, "text")
	case v.Type() == errorsType:
		return decodeErrorTypes(data, v, path)
	case enumerations[v.Type()] != nil:
		return decodeConstant(data, v, path)
	case v.Type() == durationType:
		return decodeDuration(data, v, path, isCore)
	case v.Kind() == reflect.Pointer:
		changed := reflect.New(v.Type().Elem())
		if !v.IsNil() {
			changed.Elem().Set(v.Elem())
		}
		if err := decodeValue(data, changed.Elem(), path, isCore); err != nil {
			return err
		}
		v.Set(changed)
		return nil
	case v.Kind() == reflect.Array, v.Kind() == reflect.Slice && v.Type().Elem().Kind() != reflect.Uint8:
		return decodeList(data, v, path, isCore)
	}
	if err := decodeScalar(data, v, path, kind(v.Type())); err != nil {
		return err
	}
	if isCore && (v.CanInt() && v.Int() < 0 || v.CanFloat() && v.Float() < 0) {
		return fmt.Errorf("%s is %s; it cannot be negative", path, data)
	}
	return nil
}

func isNull(data []byte) bool { return bytes.Equal(bytes.TrimSpace(data), []byte("null")) }

// kind says which JSON a scalar is read from.
func kind(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Int:
		return "a whole number"
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return fmt.Sprintf("a whole number in the range of %v", t.Kind())
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		return "bytes as text in base64"
	}
	return "text"
}

func decodeConstant(data []byte, v reflect.Value, path string) error {
	var name string
	if err := json.Unmarshal(data, &name); err != nil {
		return fmt.Errorf("%s is %s; it must be text: %s", path, abbreviate(data), names(v.Type()))
	}
	c, ok := constant(v.Type(), name)
	if !ok {
		return fmt.Errorf("%s is %q; use %s", path, name, names(v.Type()))
	}
	v.Set(c)
	return nil
}

// decodeErrorTypes reads names of types of errors. They replace earlier names, and leave
// errors of code.
func decodeErrorTypes(data []byte, v reflect.Value, path string) error {
	var names []string
	if err := decodeList(data, reflect.ValueOf(&names).Elem(), path, true); err != nil {
		return err
	}
	list := slices.DeleteFunc(slices.Clone(v.Interface().([]error)), isErrorType)
	for _, name := range names {
		list = append(list, errortype.Type{Name: name})
	}
	v.Set(reflect.ValueOf(list))
	return nil
}

// isErrorType reports whether an error stands for a type that a name tells.
func isErrorType(err error) bool {
	t, ok := err.(errortype.Type)
	return ok && t.Interface == nil
}

func decodeDuration(data []byte, v reflect.Value, path string, isCore bool) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return fmt.Errorf("%s is %s; write a duration as text, such as \"10s\"", path, abbreviate(data))
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("%s is %q, which is no duration; write one such as \"10s\" or \"1h30m\"", path, text)
	}
	if isCore && d < 0 {
		return fmt.Errorf("%s is %q; it cannot be negative", path, text)
	}
	v.SetInt(int64(d))
	return nil
}

// decodeStruct changes the fields that the JSON mentions.
func decodeStruct(data []byte, v reflect.Value, path string) error {
	if levels[v.Type()] {
		return decodeLevel(data, v, path)
	}
	return decodeFields(data, v, path)
}

// decodeLevel reads a level of retries and puts it over the earlier one: a level that the
// JSON switches off keeps nothing, for example.
func decodeLevel(data []byte, v reflect.Value, path string) error {
	own := reflect.New(v.Type()).Elem()
	if err := decodeFields(data, own, path); err != nil {
		return err
	}
	v.Set(reflect.ValueOf(layers.Over(own.Interface(), v.Interface())))
	return nil
}

// decodeFields changes the fields that the JSON mentions.
func decodeFields(data []byte, v reflect.Value, path string) error {
	all, err := fields(v.Type())
	if err != nil {
		return err
	}
	byKey := map[string]field{}
	var known []string
	for _, f := range all {
		byKey[f.key] = f
		known = append(known, f.key)
	}
	return decodeObject(data, path, func(key string, value json.RawMessage) error {
		at := join(path, key)
		f, ok := byKey[key]
		if !ok {
			return fmt.Errorf("%s is unknown here; known are %s", at, strings.Join(known, ", "))
		}
		own := v.FieldByIndex(f.index)
		if err := decodeValue(value, own, at, f.refusesEmpty()); err != nil || !own.IsZero() {
			return err
		}
		switch replacement, listed := f.zero(); {
		case !listed: // 0 is taken literally
		case replacement != "":
			return fmt.Errorf("%s is %s; %s", at, value, replacement)
		case own.CanInt():
			own.SetInt(core.Off)
		case own.CanFloat():
			own.SetFloat(core.Off)
		}
		return nil
	})
}

// decodeMap changes the entries that the JSON mentions, in a copy of the map.
func decodeMap(data []byte, v reflect.Value, path string, isCore bool) error {
	m := reflect.MakeMap(v.Type())
	for entries := v.MapRange(); entries.Next(); {
		m.SetMapIndex(entries.Key(), entries.Value())
	}
	err := decodeObject(data, path, func(key string, value json.RawMessage) error {
		k := reflect.ValueOf(key).Convert(v.Type().Key())
		element := reflect.New(v.Type().Elem()).Elem()
		if existing := m.MapIndex(k); existing.IsValid() {
			element.Set(existing)
		}
		if err := decodeValue(value, element, fmt.Sprintf("%s[%q]", path, key), isCore); err != nil {
			return err
		}
		m.SetMapIndex(k, element)
		return nil
	})
	if err != nil {
		return err
	}
	v.Set(m)
	return nil
}

func decodeList(data []byte, v reflect.Value, path string, isCore bool) error {
	var elements []json.RawMessage
	if err := json.Unmarshal(data, &elements); err != nil {
		return fmt.Errorf("%s is %s; it must be a list", path, abbreviate(data))
	}
	if isCore && len(elements) == 0 {
		return fmt.Errorf("%s is an empty list; leave the key out, or write \"numberOfRetries\": 0 for no retries", path)
	}
	list := reflect.New(v.Type()).Elem()
	if v.Kind() == reflect.Slice {
		list.Set(reflect.MakeSlice(v.Type(), len(elements), len(elements)))
	} else if len(elements) != v.Len() {
		return fmt.Errorf("%s has %d elements; it must have %d", path, len(elements), v.Len())
	}
	for i, element := range elements {
		if err := decodeValue(element, list.Index(i), fmt.Sprintf("%s[%d]", path, i), isCore); err != nil {
			return err
		}
	}
	v.Set(list)
	return nil
}

// decodeObject calls set for each key in the order of the text, which is valid JSON, and
// refuses a duplicate key.
func decodeObject(data []byte, path string, set func(key string, value json.RawMessage) error) error {
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
	return nil
}

func decodeScalar(data []byte, v reflect.Value, path, kind string) error {
	if err := json.Unmarshal(data, v.Addr().Interface()); err != nil {
		if _, wrongKind := errors.AsType[*json.UnmarshalTypeError](err); wrongKind {
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
