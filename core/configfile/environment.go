package configfile

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/reprise-go/reprise/core"
)

// DecodeEnv changes the struct that target points to by environment variables such as
// those of os.Environ. Call it after [Decode]: a variable replaces the value that the text
// has at the same place. Variables that do not begin with prefix and "_" are ignored. One
// that does and names no setting is an error, so that a typing error has no silent effect:
// choose a prefix that no other program uses. After an error, which names each wrong
// variable, the struct is unchanged.
//
// The name of a variable is the prefix and the keys of the setting in capitals, with "_"
// between words and between keys. With the prefix SHOP these are names of settings in a
// [core.Config], in a field messaging that is a Config, and in one that is an [Endpoints]:
//
//	SHOP_CONCURRENCY
//	SHOP_MESSAGING_RECOVERABILITY_DELAYED_MAX_DELAY
//	SHOP_MESSAGING_DEFAULTS_HANDLER_TIMEOUT
//	SHOP_MESSAGING_ENDPOINTS_ORDERS_CONCURRENCY
//
// In the name of an endpoint, a message type or another key of a map every character but
// ASCII letters and digits is "_": SHOP_RECOVERABILITY_MESSAGE_TYPES_ORDERS_PLACED_ERROR_QUEUE
// sets the error queue of the message type "orders.placed". Variables change the entries
// of a map that target has, and add none; {"orders.placed": {}} in the text is enough. A
// variable whose name fits two settings is an error.
//
// The value is text as it stands, a number, a duration such as 1m30s, true or false. The
// elements of a list are separated by commas: 10s,1m. Lists of structs and of lists have
// no variable.
//
// In Kubernetes the prefix must not be the name of a service in the namespace: the service
// "shop" gives each pod variables such as SHOP_PORT, unless the pod sets
// enableServiceLinks to false.
func DecodeEnv(environ []string, prefix string, target any) error {
	v, err := structOf(target)
	if err == nil {
		err = decodeEnv(environ, prefix, v)
	}
	if err != nil {
		return fmt.Errorf("configfile: %w", err)
	}
	return nil
}

func decodeEnv(environ []string, prefix string, v reflect.Value) error {
	if !isPrefix(prefix) {
		return fmt.Errorf("the prefix of the variables is %q; use capitals, digits and \"_\" between them, such as SHOP", prefix)
	}
	known := variables{}
	if err := known.add(v, prefix, nil, nil); err != nil {
		return err
	}
	values := map[string]string{}
	for _, entry := range environ {
		if name, value, _ := strings.Cut(entry, "="); strings.HasPrefix(name, prefix+"_") {
			values[name] = value
		}
	}
	all := map[string]any{}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(values)) {
		s, err := known.find(name)
		if err == nil {
			err = s.check(v, values[name])
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
			continue
		}
		s.put(all, values[name])
	}
	if len(errs) > 0 || len(all) == 0 {
		return errors.Join(errs...)
	}
	return decodeTree(all, v)
}

func isPrefix(text string) bool {
	for i, r := range text {
		if edge := i == 0 || i == len(text)-1; !('A' <= r && r <= 'Z' || '0' <= r && r <= '9' && i > 0 || r == '_' && !edge) {
			return false
		}
	}
	return text != ""
}

// decodeTree changes v by the settings of a tree of JSON objects.
func decodeTree(tree map[string]any, v reflect.Value) error {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false) // an error shows the text
	if err := e.Encode(tree); err != nil {
		return err
	}
	return decodeCopy(text.Bytes(), v)
}

// setting is a place that a variable can set.
type setting struct {
	keys []string
	t    reflect.Type
}

// String returns the place as other errors name it.
func (s setting) String() (path string) {
	for _, key := range s.keys {
		if camelCase(key) == key && !strings.ContainsFunc(key, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '_' }) {
			path = join(path, key)
		} else {
			path += fmt.Sprintf("[%q]", key)
		}
	}
	return path
}

// check reports whether the value can be set.
func (s setting) check(v reflect.Value, value string) error {
	if !utf8.ValidString(value) {
		return fmt.Errorf("%q is not UTF-8", value)
	}
	scratch := reflect.New(v.Type()).Elem()
	scratch.Set(v)
	tree := map[string]any{}
	s.put(tree, value)
	return decodeTree(tree, scratch)
}

// put adds the setting to a tree of JSON objects.
func (s setting) put(tree map[string]any, value string) {
	last := len(s.keys) - 1
	for _, key := range s.keys[:last] {
		below, ok := tree[key].(map[string]any)
		if !ok {
			below = map[string]any{}
			tree[key] = below
		}
		tree = below
	}
	tree[s.keys[last]] = jsonOf(s.t, value)
}

// jsonOf returns the value of a variable as JSON. A value of the wrong kind is text, which
// decodeValue refuses.
func jsonOf(t reflect.Type, value string) any {
	for t.Kind() == reflect.Pointer && !isRead(t.Elem()) {
		t = t.Elem()
	}
	switch readsJSON := reflect.PointerTo(t).Implements(jsonUnmarshaler); {
	case isList(t):
		elements := []any{}
		for element := range strings.SplitSeq(value, ",") {
			elements = append(elements, jsonOf(t.Elem(), strings.TrimSpace(element)))
		}
		return elements
	case isRead(t) && !readsJSON, t.Kind() == reflect.String, t == errorsType.Elem(), t == durationType, enumerations[t] != nil, !json.Valid([]byte(value)):
		return value
	}
	return json.RawMessage(value)
}

// variables has the settings that each variable can set, of which there should be one.
type variables map[string][]setting

// add adds the settings of a value that stands below keys. within has the nil
// pointers that it is behind.
func (all variables) add(v reflect.Value, name string, keys []string, within []reflect.Type) error {
	below := func(v reflect.Value, key string) error {
		return all.add(v, name+"_"+variableName(key), append(slices.Clip(keys), key), within)
	}
	t := v.Type()
	switch {
	case t == endpointsType:
		return v.Interface().(Endpoints).addVariables(all, name, keys)
	case isRead(t), isList(t) && isScalar(t.Elem()), isScalar(t):
		all[name] = append(all[name], setting{keys, t})
	case t.Kind() == reflect.Pointer && !v.IsNil():
		return all.add(v.Elem(), name, keys, within)
	case t.Kind() == reflect.Pointer && !slices.Contains(within, t): // or a list would have no end
		return all.add(reflect.Zero(t.Elem()), name, keys, append(slices.Clip(within), t))
	case t.Kind() == reflect.Struct:
		fs, err := fields(t)
		if err != nil {
			return err
		}
		for _, f := range fs {
			if err := below(v.FieldByIndex(f.index), f.key); err != nil {
				return err
			}
		}
	case t.Kind() == reflect.Map:
		for _, key := range sortedKeys(v) {
			if err := below(v.MapIndex(key), key.String()); err != nil {
				return err
			}
		}
	}
	return nil
}

// addVariables adds the settings of the defaults and of each endpoint.
func (e Endpoints) addVariables(all variables, name string, keys []string) error {
	add := func(texts []json.RawMessage, below string, path ...string) error {
		var c core.Config
		for _, text := range texts {
			if err := decodeConfig(text, &c, ""); err != nil {
				return err
			}
		}
		return all.add(reflect.ValueOf(c), name+"_"+below, slices.Concat(keys, path), nil)
	}
	if err := add(e.defaults, "DEFAULTS", "defaults"); err != nil {
		return err
	}
	for _, name := range e.Names() {
		if err := add(slices.Concat(e.defaults, e.endpoints[name]), "ENDPOINTS_"+variableName(name), "endpoints", name); err != nil {
			return err
		}
	}
	return nil
}

// find returns the setting of a variable.
func (all variables) find(name string) (setting, error) {
	switch found := all[name]; len(found) {
	case 1:
		return found[0], nil
	case 0:
		return setting{}, fmt.Errorf("no setting has this variable; the nearest are %s (the file must have an endpoint, message type or other entry of a map before a variable changes it; a variable with another purpose needs another prefix)", all.near(name))
	default:
		return setting{}, fmt.Errorf("it could set %s or %s; set them in the file", found[0], found[1])
	}
}

// near lists the variables with which a name has the longest beginning in common.
func (all variables) near(name string) string {
	common := func(known string) (n int) {
		for n < min(len(name), len(known)) && name[n] == known[n] {
			n++
		}
		return n
	}
	nearest := slices.SortedFunc(maps.Keys(all), func(x, y string) int { return cmp.Or(common(y)-common(x), cmp.Compare(x, y)) })
	return strings.Join(nearest[:min(4, len(nearest))], ", ")
}

func isList(t reflect.Type) bool {
	return (t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8 || t.Kind() == reflect.Array) && !isRead(t)
}

// isScalar reports whether the value of one variable can be a value of the type.
func isScalar(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Struct, reflect.Map, reflect.Pointer, reflect.Slice, reflect.Array:
		return isRead(t) || t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8
	}
	return true
}

// variableName returns the part of a variable's name for a key: ERROR_QUEUE for errorQueue,
// ORDERS_PLACED for orders.placed.
func variableName(key string) string {
	runes := []rune(key)
	var b strings.Builder
	for i, r := range runes {
		word := i > 0 && unicode.IsUpper(r) && (unicode.IsLower(runes[i-1]) || unicode.IsDigit(runes[i-1]) ||
			unicode.IsUpper(runes[i-1]) && i+1 < len(runes) && unicode.IsLower(runes[i+1]))
		if word {
			b.WriteByte('_')
		}
		if r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			r = '_'
		}
		b.WriteRune(unicode.ToUpper(r))
	}
	return b.String()
}
