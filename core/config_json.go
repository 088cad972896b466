package core

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/reprise-go/reprise/core/internal/configjson"
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

// configFormat has the rules of configurations in JSON.
var configFormat = configjson.Format{
	Off:        Off,
	ZeroErrors: zeroValueErrors,
	Levels: map[reflect.Type]func(own, base any) any{
		reflect.TypeFor[Immediate]():     putOver[Immediate],
		reflect.TypeFor[Delayed]():       putOver[Delayed],
		reflect.TypeFor[MaxDeliveries](): putOver[MaxDeliveries],
	},
}

func putOver[T layer[T]](own, base any) any { return own.(T).over(base.(T)) }

func decodeConfig(data []byte, target any) error {
	if err := configFormat.Decode(data, target, ""); err != nil {
		return fmt.Errorf("core: configuration: %w", err)
	}
	return nil
}

func encodeConfig(c any) ([]byte, error) {
	text, err := configFormat.Encode(c)
	if err != nil {
		return nil, fmt.Errorf("core: configuration: %w", err)
	}
	return text, nil
}

// zeroValueErrors has the fields whose 0, or "", stands for a default in Go but not in
// JSON. The value "" turns a 0 in the JSON into Off; another text is the end of the
// error: the way to fix it.
var zeroValueErrors = map[string]string{
	"Config.Concurrency":                 `write 1 or more, or leave the key out for the default`,
	"Config.QueueExpiry":                 "",
	"Config.HandlerTimeout":              "",
	"Config.SlowHandler":                 "",
	"Config.MaxPrefetchBytes":            "",
	"Config.DrainTimeout":                "",
	"Config.OutageLimit":                 "",
	"Config.WaitForBroker":               "",
	"Config.Instance":                    `leave the key out for the default`,
	"Config.InputQueue":                  `leave the key out for the queue with the endpoint's name`,
	"Recoverability.ErrorQueue":          `leave the key out for the default`,
	"Recoverability.DeadLetterQueue":     `leave the key out for the broker's own dead-letter queue`,
	"Recoverability.InvalidQueue":        `leave the key out for none`,
	"Recoverability.MaxRetryAge":         "",
	"Recoverability.RequeueDelay":        `deferred messages would be redelivered without a pause: write "1ms" or more, or leave the key out for the default`,
	"Recoverability.RequeueLimit":        "",
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
	err := configjson.DecodeObject(data, "", func(key string, value json.RawMessage) error {
		switch key {
		case "defaults":
			f.defaults = value
			return configFormat.Decode(value, new(Config), key)
		case "endpoints":
			f.endpoints = map[string]json.RawMessage{}
			return configjson.DecodeObject(value, key, func(name string, value json.RawMessage) error {
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
	c.Middleware, c.SendMiddleware, c.Observers = slices.Clip(c.Middleware), slices.Clip(c.SendMiddleware), slices.Clip(c.Observers)
	r := &c.Recoverability
	r.Unrecoverable, r.UnrecoverableTypes, r.CustomErrorQueues = slices.Clip(r.Unrecoverable), slices.Clip(r.UnrecoverableTypes), slices.Clip(r.CustomErrorQueues)
	if f.defaults != nil {
		if err := configFormat.Decode(f.defaults, &c, "defaults"); err != nil {
			return Config{}, err
		}
	}
	err := configFormat.Decode(f.endpoints[endpoint], &c, fmt.Sprintf("endpoints[%q]", endpoint))
	return c, err
}
