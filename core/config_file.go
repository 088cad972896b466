package core

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// ConfigFile is the configuration of several endpoints in one JSON text, for a process
// that runs them together ([RunAll]):
//
//	{
//		"defaults": {"concurrency": 8, "recoverability": {"errorQueue": "errors"}},
//		"endpoints": {
//			"orders": {"concurrency": 32},
//			"billing": {}
//		}
//	}
//
// json.Unmarshal reads it, alone or as a field of an application's own configuration, and
// checks all of it: the keys and values of each endpoint are those of [Config]. An error
// names the endpoint. It may be read from several goroutines.
type ConfigFile struct {
	defaults  json.RawMessage // nil if there are none
	endpoints map[string]json.RawMessage
}

// UnmarshalJSON reads the text. Unlike that of [Config], it keeps no values of an earlier
// text.
func (f *ConfigFile) UnmarshalJSON(data []byte) error {
	var read ConfigFile
	if err := read.decode(data); err != nil {
		return fmt.Errorf("core: configuration: %w", err)
	}
	*f = read
	return nil
}

func (f *ConfigFile) decode(data []byte) error {
	err := decodeObject(data, "", func(key string, value json.RawMessage) error {
		switch key {
		case "defaults":
			f.defaults = value
			return decodeValue(value, reflect.ValueOf(new(Config)).Elem(), key)
		case "endpoints":
			f.endpoints = map[string]json.RawMessage{}
			return decodeObject(value, key, func(name string, value json.RawMessage) error {
				if name == "" {
					return errors.New("endpoints has an endpoint without a name")
				}
				f.endpoints[name] = value
				return nil
			})
		}
		return fmt.Errorf("%s is unknown here; known are defaults, endpoints", key)
	})
	if err != nil {
		return err
	}
	if len(f.endpoints) == 0 {
		return errors.New(`endpoints is missing or empty; name each endpoint there, such as {"endpoints": {"orders": {}}}`)
	}
	for _, name := range f.Names() {
		if _, err := f.apply(name, Config{}); err != nil {
			return err
		}
	}
	return nil
}

// Names returns the endpoints' names in alphabetical order.
func (f *ConfigFile) Names() []string { return slices.Sorted(maps.Keys(f.endpoints)) }

// Config returns the configuration of an endpoint: base, which has the fields that hold
// code, changed by the file's defaults and then by its entry for the endpoint. An
// endpoint that the file does not name is an error. base is not changed, not even by an
// append to a slice of the result: several endpoints may share one base.
func (f *ConfigFile) Config(endpoint string, base Config) (Config, error) {
	if _, ok := f.endpoints[endpoint]; !ok {
		if len(f.endpoints) == 0 {
			return Config{}, fmt.Errorf("core: configuration: there is no endpoint %q: no configuration was read into the ConfigFile; json.Unmarshal does", endpoint)
		}
		return Config{}, fmt.Errorf("core: configuration: there is no endpoint %q; there are %s", endpoint, strings.Join(f.Names(), ", "))
	}
	c, err := f.apply(endpoint, base)
	if err != nil {
		return Config{}, fmt.Errorf("core: configuration: %w", err)
	}
	return c, nil
}

func (f *ConfigFile) apply(endpoint string, c Config) (Config, error) {
	c.Codecs, c.Middleware, c.SendMiddleware, c.Observers = slices.Clip(c.Codecs), slices.Clip(c.Middleware), slices.Clip(c.SendMiddleware), slices.Clip(c.Observers)
	r := &c.Recoverability
	r.Unrecoverable, r.UnrecoverableTypes, r.CustomErrorQueues = slices.Clip(r.Unrecoverable), slices.Clip(r.UnrecoverableTypes), slices.Clip(r.CustomErrorQueues)
	v := reflect.ValueOf(&c).Elem()
	if f.defaults != nil {
		if err := decodeValue(f.defaults, v, "defaults"); err != nil {
			return Config{}, err
		}
	}
	err := decodeValue(f.endpoints[endpoint], v, fmt.Sprintf("endpoints[%q]", endpoint))
	return c, err
}
