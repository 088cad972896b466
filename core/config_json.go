package core

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// UnmarshalJSON reads a configuration. Keys are field names in camel case,
// durations are text such as "10s" or "1h30m". Unknown keys, and values of the
// wrong kind, are errors that name the key. Fields that the JSON does not
// mention keep their values.
func (c *Config) UnmarshalJSON(data []byte) error { return decodeConfig(data, c) }

// UnmarshalJSON reads the part of a configuration, as Config does.
func (c *Recoverability) UnmarshalJSON(data []byte) error { return decodeConfig(data, c) }

// provisioningNames are the names in configuration files.
var provisioningNames = [...]string{ProvisionAuto: "Auto", ProvisionAlways: "Always", ProvisionNever: "Never"}

// String returns the name as configuration files write it.
func (p Provisioning) String() string {
	if p >= 0 && int(p) < len(provisioningNames) {
		return provisioningNames[p]
	}
	return fmt.Sprintf("Provisioning(%d)", int(p))
}

// MarshalText writes the name.
func (p Provisioning) MarshalText() ([]byte, error) {
	if p < 0 || int(p) >= len(provisioningNames) {
		return nil, fmt.Errorf("core: there is no %v", p)
	}
	return []byte(p.String()), nil
}

// UnmarshalText reads the name that String writes.
func (p *Provisioning) UnmarshalText(text []byte) error {
	for i, name := range provisioningNames {
		if name == string(text) {
			*p = Provisioning(i)
			return nil
		}
	}
	return fmt.Errorf("unknown provisioning %q; use Auto, Always or Never", text)
}

// logFormatNames are the names in configuration files.
var logFormatNames = [...]string{LogNServiceBus: "NServiceBus", LogConstant: "Constant"}

// String returns the name as configuration files write it.
func (f LogFormat) String() string {
	if f >= 0 && int(f) < len(logFormatNames) {
		return logFormatNames[f]
	}
	return fmt.Sprintf("LogFormat(%d)", int(f))
}

// MarshalText writes the format's name.
func (f LogFormat) MarshalText() ([]byte, error) {
	if f < 0 || int(f) >= len(logFormatNames) {
		return nil, fmt.Errorf("core: there is no %v", f)
	}
	return []byte(f.String()), nil
}

// UnmarshalText reads the name that String writes.
func (f *LogFormat) UnmarshalText(text []byte) error {
	for i, name := range logFormatNames {
		if name == string(text) {
			*f = LogFormat(i)
			return nil
		}
	}
	return fmt.Errorf("unknown log format %q; use NServiceBus or Constant", text)
}

func decodeConfig(data []byte, target any) error {
	if err := decodeValue(data, reflect.ValueOf(target).Elem(), ""); err != nil {
		return fmt.Errorf("core: configuration: %w", err)
	}
	return nil
}

var durationType = reflect.TypeFor[time.Duration]()

// decodeValue reads one JSON value into v. encoding/json does the scalars; it
// is not used for the whole because it reads durations as numbers and does not
// say where an error is.
func decodeValue(data []byte, v reflect.Value, path string) error {
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
			return fmt.Errorf("%s is %s; write a duration as text, such as \"10s\"", path, abbreviated(data))
		}
		d, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("%s is %q, which is no duration; write one such as \"10s\" or \"1h30m\"", path, text)
		}
		v.SetInt(int64(d))
		return nil
	case v.Kind() == reflect.Struct:
		return decodeStruct(data, v, path)
	case v.Kind() == reflect.Map:
		return decodeMap(data, v, path)
	case v.Kind() == reflect.Slice:
		return decodeSlice(data, v, path)
	}
	kind := map[reflect.Kind]string{reflect.Int: "a whole number", reflect.Float64: "a number", reflect.Bool: "true or false", reflect.String: "text"}
	return decodeScalar(data, v, path, kind[v.Kind()])
}

func decodeStruct(data []byte, v reflect.Value, path string) error {
	fields := map[string]int{}
	var known []string
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if f.IsExported() && f.Tag.Get("json") != "-" {
			name := camelCase(f.Name)
			fields[name] = i
			known = append(known, name)
		}
	}
	return decodeObject(data, path, func(key string, value json.RawMessage) error {
		i, ok := fields[key]
		if !ok {
			return fmt.Errorf("%s is unknown here; known are %s", join(path, key), strings.Join(known, ", "))
		}
		return decodeValue(value, v.Field(i), join(path, key))
	})
}

func decodeMap(data []byte, v reflect.Value, path string) error {
	m := reflect.MakeMap(v.Type())
	err := decodeObject(data, path, func(key string, value json.RawMessage) error {
		element := reflect.New(v.Type().Elem()).Elem()
		if err := decodeValue(value, element, fmt.Sprintf("%s[%q]", path, key)); err != nil {
			return err
		}
		m.SetMapIndex(reflect.ValueOf(key), element)
		return nil
	})
	v.Set(m)
	return err
}

func decodeSlice(data []byte, v reflect.Value, path string) error {
	var elements []json.RawMessage
	if err := json.Unmarshal(data, &elements); err != nil {
		return fmt.Errorf("%s is %s; it must be a list", path, abbreviated(data))
	}
	s := reflect.MakeSlice(v.Type(), len(elements), len(elements))
	for i, element := range elements {
		if err := decodeValue(element, s.Index(i), fmt.Sprintf("%s[%d]", path, i)); err != nil {
			return err
		}
	}
	v.Set(s)
	return nil
}

// decodeObject calls set for each key in the order of the text, and refuses a
// key that comes twice.
func decodeObject(data []byte, path string, set func(key string, value json.RawMessage) error) error {
	d := json.NewDecoder(bytes.NewReader(data))
	if token, err := d.Token(); err != nil || token != json.Delim('{') {
		return fmt.Errorf("%s is %s; it must be an object", join(path, ""), abbreviated(data))
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
			return fmt.Errorf("%s is %s; it must be %s", path, abbreviated(data), kind)
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

// abbreviated quotes JSON in an error without flooding it.
func abbreviated(data []byte) string {
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
