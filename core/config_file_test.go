package core

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

const configFile = `{
	"defaults": {
		"concurrency": 8,
		"recoverability": {"errorQueue": "failed", "delayed": {"retries": 4}, "messageTypes": {"order": {"maxRetryAge": "1h"}}}
	},
	"endpoints": {
		"orders": {"concurrency": 32, "recoverability": {"delayed": {"off": true}, "messageTypes": {"order": {"requeueLimit": 9}}}},
		"billing": {}
	}
}`

func TestConfigFile_DefaultsThenEndpoint(t *testing.T) {
	var f ConfigFile
	if err := json.Unmarshal([]byte(configFile), &f); err != nil {
		t.Fatal(err)
	}
	if got := f.Names(); !slices.Equal(got, []string{"billing", "orders"}) {
		t.Errorf("the endpoints are %q", got)
	}
	base := Config{SlowHandler: time.Hour, Concurrency: 2, Recoverability: Recoverability{
		Unrecoverable: []error{errors.ErrUnsupported},
		MessageTypes:  map[string]TypeRecoverability{"order": {ErrorQueue: "unshipped"}},
	}}
	order := TypeRecoverability{ErrorQueue: "unshipped", MaxRetryAge: time.Hour}
	for name, want := range map[string]Config{
		"billing": {SlowHandler: time.Hour, Concurrency: 8, Recoverability: Recoverability{
			Unrecoverable: base.Recoverability.Unrecoverable, ErrorQueue: "failed", Delayed: Delayed{Retries: 4},
			MessageTypes: map[string]TypeRecoverability{"order": order},
		}},
		"orders": {SlowHandler: time.Hour, Concurrency: 32, Recoverability: Recoverability{
			Unrecoverable: base.Recoverability.Unrecoverable, ErrorQueue: "failed", Delayed: Delayed{Off: true},
			MessageTypes: map[string]TypeRecoverability{"order": {ErrorQueue: "unshipped", MaxRetryAge: time.Hour, RequeueLimit: 9}},
		}},
	} {
		got, err := f.Config(name, base)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\ngot  %+v\nwant %+v", name, got, want)
		}
	}
	if m := base.Recoverability.MessageTypes["order"]; m.MaxRetryAge != 0 || base.Concurrency != 2 {
		t.Errorf("the base was changed to %+v", base)
	}
	if _, err := f.Config("shipping", base); err == nil || !containsEach(err.Error(), `no endpoint "shipping"`, "billing, orders") {
		t.Errorf("an endpoint that the file does not name: %v", err)
	}
}

// Endpoints of one base append middleware, observers and errors without getting those of others.
func TestConfigFile_EndpointsShareNoSlice(t *testing.T) {
	var f ConfigFile
	if err := json.Unmarshal([]byte(`{"endpoints": {"a": {}, "b": {}}}`), &f); err != nil {
		t.Fatal(err)
	}
	var base Config
	base.Observers, base.Recoverability.Unrecoverable = make([]Observer, 0, 4), make([]error, 0, 4)
	base.Recoverability.UnrecoverableTypes, base.Recoverability.CustomErrorQueues = make([]string, 0, 4), make([]string, 0, 4)
	configs := map[string]Config{}
	called := ""
	for _, name := range []string{"a", "b"} {
		c, err := f.Config(name, base)
		if err != nil {
			t.Fatal(err)
		}
		r := &c.Recoverability
		told := Observer{ConnectionChanged: func(ConnectionChange) { called = name }}
		c.Observers, r.Unrecoverable = append(c.Observers, told), append(r.Unrecoverable, errors.New(name))
		r.UnrecoverableTypes, r.CustomErrorQueues = append(r.UnrecoverableTypes, name), append(r.CustomErrorQueues, name)
		configs[name] = c
	}
	r := configs["a"].Recoverability
	configs["a"].Observers[0].ConnectionChanged(ConnectionChange{})
	if got := []any{called, r.Unrecoverable[0].Error(), r.UnrecoverableTypes[0], r.CustomErrorQueues[0]}; !reflect.DeepEqual(got, []any{"a", "a", "a", "a"}) {
		t.Errorf("a has %v, want its own", got)
	}
}

func TestConfigFile_WithoutAnyConfiguration(t *testing.T) {
	var f ConfigFile
	if _, err := f.Config("orders", Config{}); err == nil || !containsEach(err.Error(), `no endpoint "orders"`, "json.Unmarshal") {
		t.Errorf("%v, want that nothing was read", err)
	}
}

func TestConfigFile_AsPartOfAnApplicationsFile(t *testing.T) {
	var file struct {
		Database  string
		Messaging ConfigFile
	}
	if err := json.Unmarshal([]byte(`{"database": "x", "messaging": `+configFile+`}`), &file); err != nil {
		t.Fatal(err)
	}
	if c, err := file.Messaging.Config("orders", Config{}); err != nil || c.Concurrency != 32 {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestConfigFile_ErrorsNameThePlace(t *testing.T) {
	for text, want := range map[string][]string{
		`[]`:                              {"the configuration is []", "must be an object"},
		`{}`:                              {"endpoints is missing or empty"},
		`{"endpoints": {}}`:               {"endpoints is missing or empty"},
		`{"endpoints": []}`:               {"endpoints is []", "must be an object"},
		`{"endpoints": {"": {}}}`:         {"an endpoint without a name"},
		`{"endpoint": {"orders": {}}}`:    {"endpoint is unknown here", "defaults, endpoints"},
		`{"endpoints": {"orders": null}}`: {`endpoints["orders"] is null`},
		`{"endpoints": {"orders": {}, "orders": {}}}`:                                          {"endpoints.orders is given twice"},
		`{"endpoints": {"orders": {"concurency": 3}}}`:                                         {`endpoints["orders"].concurency is unknown here`},
		`{"endpoints": {"orders": {"recoverability": {"delayed": {"increase": 10}}}}}`:         {`endpoints["orders"].recoverability.delayed.increase is 10`, `"10s"`},
		`{"endpoints": {"orders": {}}, "defaults": {"recoverability": {"immediate": 5}}}`:      {"defaults.recoverability.immediate is 5"},
		`{"endpoints": {"orders": {}, "billing": {"recoverability": {"requeueDelay": "0s"}}}}`: {`endpoints["billing"].recoverability.requeueDelay is "0s"`},
	} {
		var f ConfigFile
		if err := json.Unmarshal([]byte(text), &f); err == nil || !containsEach(err.Error(), want...) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func containsEach(text string, parts ...string) bool {
	return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(text, part) })
}
