package core

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

// UnmarshalJSON reads a configuration. Keys are field names in camel case, with
// exactly this case; durations are text such as "10s" or "1h30m". Unknown keys,
// negative values and values of the wrong kind are errors that name the key.
// Fields that the JSON does not mention keep their values, so that a second text
// may change some settings of a first. A level of retries is switched off by
// "off": true, and on again by retries or delays.
//
// A 0 is obeyed if it means none (a limit, a timeout, jitter). It is refused, with the
// way to fix it, if Config has another default for it, as for retries.
func (c *Config) UnmarshalJSON(data []byte) error { return decodeConfig(data, c) }

// UnmarshalJSON reads the part of a configuration, as [Config] does.
func (c *Recoverability) UnmarshalJSON(data []byte) error { return decodeConfig(data, c) }

// UnmarshalJSON reads the part of a configuration, as [Config] does.
func (c *Immediate) UnmarshalJSON(data []byte) error { return decodeConfig(data, c) }

// UnmarshalJSON reads the part of a configuration, as [Config] does.
func (c *Delayed) UnmarshalJSON(data []byte) error { return decodeConfig(data, c) }

// UnmarshalJSON reads the part of a configuration, as [Config] does.
func (c *TypeRecoverability) UnmarshalJSON(data []byte) error { return decodeConfig(data, c) }

// UnmarshalJSON reads the part of a configuration, as [Config] does.
func (c *MaxDeliveries) UnmarshalJSON(data []byte) error { return decodeConfig(data, c) }

// UnmarshalJSON reads the part of a configuration, as [Config] does.
func (c *RateLimit) UnmarshalJSON(data []byte) error { return decodeConfig(data, c) }

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

// UnmarshalText reads the name that [Provisioning.String] writes.
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

// UnmarshalText reads the name that [LogFormat.String] writes.
func (f *LogFormat) UnmarshalText(text []byte) error {
	for i, name := range logFormatNames {
		if name == string(text) {
			*f = LogFormat(i)
			return nil
		}
	}
	return fmt.Errorf("unknown log format %q; use NServiceBus or Constant", text)
}

// zeroValueErrors has the fields whose 0, or "", stands for a default in Go but not in
// JSON. The value "" turns a 0 in the JSON into Off; another text is the end of the
// error: the way to fix it.
var zeroValueErrors = map[string]string{
	"Config.Concurrency":                 `write 1 or more, or leave the key out for the default`,
	"Config.HandlerTimeout":              "",
	"Config.SlowHandler":                 "",
	"Config.MaxPrefetchBytes":            "",
	"Config.DrainTimeout":                "",
	"Config.OutageLimit":                 "",
	"Config.WaitForBroker":               "",
	"Config.LogRepeats":                  "",
	"Config.Instance":                    `leave the key out for the default`,
	"Config.InputQueue":                  `leave the key out for the queue with the endpoint's name`,
	"Recoverability.ErrorQueue":          `leave the key out for the default`,
	"Recoverability.DeadLetterQueue":     `leave the key out for the broker's own dead-letter queue`,
	"Recoverability.InvalidQueue":        `leave the key out for none`,
	"Recoverability.MaxRetryAge":         "",
	"Recoverability.RequeueDelay":        `deferred messages would be redelivered without a pause: write "1ms" or more, or leave the key out for the default`,
	"Recoverability.RequeueLimit":        "",
	"Recoverability.IsolateAfter":        "",
	"Immediate.Retries":                  `write "off": true for none, or leave the key out for the default`,
	"Immediate.Pause":                    "",
	"Immediate.MaxPause":                 `write "pause": "0s" for no pauses, or leave the key out for the default`,
	"Delayed.Retries":                    `write "off": true for none, or leave the key out for the default`,
	"Delayed.Increase":                   `list such delays: "delays": ["0s", "0s"], or leave the key out for the default`,
	"Delayed.Factor":                     "",
	"Delayed.MaxDelay":                   "",
	"Delayed.Jitter":                     "",
	"TypeRecoverability.ErrorQueue":      `leave the key out for the endpoint's`,
	"TypeRecoverability.DeadLetterQueue": `leave the key out for the endpoint's`,
	"TypeRecoverability.InvalidQueue":    `leave the key out for the endpoint's`,
	"TypeRecoverability.HandlerTimeout":  "",
	"TypeRecoverability.MaxRetryAge":     "",
	"TypeRecoverability.RequeueDelay":    `deferred messages would be redelivered without a pause: write "1ms" or more, or leave the key out for the endpoint's`,
	"TypeRecoverability.RequeueLimit":    "",
	"MaxDeliveries.Count":                `write "off": true for no limit, or leave the key out for the default`,
	"RateLimit.TimeToWait":               `messages would fail without a pause: write "1ms" or more, or leave the key out for the default`,
}

func decodeConfig(data []byte, target any) error {
	if err := decodeValue(data, reflect.ValueOf(target).Elem(), ""); err != nil {
		return fmt.Errorf("core: configuration: %w", err)
	}
	return nil
}

var durationType = reflect.TypeFor[time.Duration]()

// decodeValue reads one JSON value into v. encoding/json reads the scalars; it is not
// used for the whole text because it reads durations as numbers and does not say where an
// error is.
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
		return decodeStruct(data, v, path)
	case v.Kind() == reflect.Map:
		return decodeMap(data, v, path)
	case v.Kind() == reflect.Slice:
		return decodeSlice(data, v, path)
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
func decodeStruct(data []byte, v reflect.Value, path string) error {
	switch level := v.Addr().Interface().(type) {
	case *Immediate:
		return decodeLevel(data, level, path)
	case *Delayed:
		return decodeLevel(data, level, path)
	case *MaxDeliveries:
		return decodeLevel(data, level, path)
	}
	_, err := decodeFields(data, v, path)
	return err
}

// decodeLevel reads settings that can be Off, and puts them over the earlier ones: a
// level that the JSON switches off keeps nothing, for example.
func decodeLevel[T layer[T]](data []byte, level *T, path string) error {
	var own T
	keys, err := decodeFields(data, reflect.ValueOf(&own).Elem(), path)
	if err != nil {
		return err
	}
	if slices.Contains(keys, "off") { // false, or over sets it
		reflect.ValueOf(level).Elem().FieldByName("Off").SetBool(false)
	}
	*level = own.over(*level)
	return nil
}

// decodeFields returns the keys that the JSON mentions.
func decodeFields(data []byte, v reflect.Value, path string) (keys []string, err error) {
	fields := map[string]int{}
	var known []string
	for i, name := range jsonFields(v.Type()) {
		fields[name] = i
		known = append(known, name)
	}
	err = decodeObject(data, path, func(key string, value json.RawMessage) error {
		keys = append(keys, key)
		i, ok := fields[key]
		if !ok {
			hint := ""
			if path == "" {
				hint = fmt.Sprintf(" (a struct that embeds core.%s reads no other keys: give that field a name)", v.Type().Name())
			}
			return fmt.Errorf("%s is unknown here; known are %s%s", join(path, key), strings.Join(known, ", "), hint)
		}
		field, at := v.Field(i), join(path, key)
		if err := decodeValue(value, field, at); err != nil {
			return err
		}
		if !field.IsZero() {
			return nil
		}
		switch instead, listed := zeroValueErrors[v.Type().Name()+"."+v.Type().Field(i).Name]; {
		case !listed: // 0 is taken literally
		case instead != "":
			return fmt.Errorf("%s is %s; %s", at, value, instead)
		case field.CanInt():
			field.SetInt(Off)
		case field.CanFloat():
			field.SetFloat(Off)
		}
		return nil
	})
	return keys, err
}

// jsonFields returns the indexes and keys of the fields that JSON can set.
func jsonFields(t reflect.Type) iter.Seq2[int, string] {
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
func decodeMap(data []byte, v reflect.Value, path string) error {
	m := reflect.MakeMap(v.Type())
	for entries := v.MapRange(); entries.Next(); {
		m.SetMapIndex(entries.Key(), entries.Value())
	}
	err := decodeObject(data, path, func(key string, value json.RawMessage) error {
		element := reflect.New(v.Type().Elem()).Elem()
		if existing := m.MapIndex(reflect.ValueOf(key)); existing.IsValid() {
			element.Set(existing)
		}
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
		return fmt.Errorf("%s is %s; it must be a list", path, abbreviate(data))
	}
	if len(elements) == 0 {
		return fmt.Errorf("%s is an empty list; leave the key out, or switch the level off with \"off\": true", path)
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

// decodeObject calls set for each key in the order of the text, and refuses a duplicate
// key.
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
