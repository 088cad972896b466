package configfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/reprise-go/reprise/core"
)

// Endpoints has the configurations of several endpoints of one process, which share
// defaults ([core.RunAll] runs them). It is a field of an application's settings, which
// [Decode] reads from an object such as:
//
//	{
//		"defaults": {"concurrency": 8, "recoverability": {"errorQueue": "errors"}},
//		"endpoints": {
//			"orders": {"concurrency": 32},
//			"billing": {}
//		}
//	}
//
// Decode checks the settings of each endpoint, and names the endpoint in an error. Further
// texts change the defaults and endpoints of earlier ones, and add endpoints. Methods may
// be called from several goroutines.
type Endpoints struct {
	defaults  []json.RawMessage            // in the order in which they were read
	endpoints map[string][]json.RawMessage // of each endpoint
}

// decode puts a further text over those that were read.
func (e *Endpoints) decode(data []byte, path string) error {
	read := Endpoints{slices.Clone(e.defaults), maps.Clone(e.endpoints)}
	if read.endpoints == nil {
		read.endpoints = map[string][]json.RawMessage{}
	}
	err := decodeObject(data, path, func(key string, value json.RawMessage) error {
		at := join(path, key)
		switch key {
		case "defaults":
			read.defaults = append(read.defaults, value)
			return decodeConfig(value, new(core.Config), at)
		case "endpoints":
			return decodeObject(value, at, func(name string, value json.RawMessage) error {
				if name == "" {
					return fmt.Errorf("%s has an endpoint without a name", at)
				}
				read.endpoints[name] = append(slices.Clip(read.endpoints[name]), value)
				return decodeConfig(value, new(core.Config), fmt.Sprintf("%s[%q]", at, name))
			})
		}
		return fmt.Errorf("%s is unknown here; known are defaults, endpoints", at)
	})
	if err != nil {
		return err
	}
	if len(read.endpoints) == 0 {
		return fmt.Errorf(`%s is missing or empty; name each endpoint there, such as {"endpoints": {"orders": {}}}`, join(path, "endpoints"))
	}
	*e = read
	return nil
}

// Names returns the endpoints' names in alphabetical order.
func (e *Endpoints) Names() []string { return slices.Sorted(maps.Keys(e.endpoints)) }

// Config returns the configuration of an endpoint: base, which has the fields that hold
// code, changed by the defaults and then by the endpoint's own settings. An endpoint that
// the text does not name is an error. base is not changed, not even by an append to a
// slice of the result: several endpoints may share one base.
func (e *Endpoints) Config(endpoint string, base core.Config) (core.Config, error) {
	own, ok := e.endpoints[endpoint]
	switch {
	case len(e.endpoints) == 0:
		return core.Config{}, errors.New("configfile: no text with endpoints was read; Decode does")
	case !ok:
		return core.Config{}, fmt.Errorf("configfile: there is no endpoint %q; there are %s", endpoint, strings.Join(e.Names(), ", "))
	}
	clip(reflect.ValueOf(&base).Elem())
	for _, text := range slices.Concat(e.defaults, own) {
		if err := decodeConfig(text, &base, ""); err != nil { // it was checked when it was read
			return core.Config{}, fmt.Errorf("configfile: %w", err)
		}
	}
	return base, nil
}

func decodeConfig(text []byte, c *core.Config, path string) error {
	return decodeValue(text, reflect.ValueOf(c).Elem(), path, false)
}

// clip lets an append to a slice of a configuration change no other configuration.
func clip(v reflect.Value) {
	for i := range v.NumField() {
		switch f := v.Field(i); {
		case f.Kind() == reflect.Struct:
			clip(f)
		case f.Kind() == reflect.Slice && !f.IsNil():
			f.Set(f.Slice3(0, f.Len(), f.Len()))
		}
	}
}
