package configfile_test

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/configfile"
)

const configFile = `{
	"defaults": {
		"concurrency": 8,
		"recoverability": {"errorQueue": "failed", "delayed": {"numberOfRetries": 4}, "messageTypes": {"order": {"maxRetryAge": "1h"}}}
	},
	"endpoints": {
		"orders": {"concurrency": 32, "recoverability": {"delayed": {"numberOfRetries": 0}, "messageTypes": {"order": {"requeueLimit": 9}}}},
		"billing": {}
	}
}`

func TestEndpoints_DefaultsThenEndpoint(t *testing.T) {
	var f configfile.Endpoints
	if err := configfile.Decode([]byte(configFile), &f); err != nil {
		t.Fatal(err)
	}
	if got := f.Names(); !slices.Equal(got, []string{"billing", "orders"}) {
		t.Errorf("the endpoints are %q", got)
	}
	base := core.Config{OutageLimit: time.Hour, Concurrency: 2, Recoverability: core.Recoverability{
		Unrecoverable: []error{errors.ErrUnsupported},
		MessageTypes:  map[string]core.TypeRecoverability{"order": {ErrorQueue: "unshipped"}},
	}}
	order := core.TypeRecoverability{ErrorQueue: "unshipped", MaxRetryAge: time.Hour}
	for name, want := range map[string]core.Config{
		"billing": {OutageLimit: time.Hour, Concurrency: 8, Recoverability: core.Recoverability{
			Unrecoverable: base.Recoverability.Unrecoverable, ErrorQueue: "failed", Delayed: core.Delayed{NumberOfRetries: 4},
			MessageTypes: map[string]core.TypeRecoverability{"order": order},
		}},
		"orders": {OutageLimit: time.Hour, Concurrency: 32, Recoverability: core.Recoverability{
			Unrecoverable: base.Recoverability.Unrecoverable, ErrorQueue: "failed", Delayed: core.Delayed{NumberOfRetries: core.Off},
			MessageTypes: map[string]core.TypeRecoverability{"order": {ErrorQueue: "unshipped", MaxRetryAge: time.Hour, RequeueLimit: 9}},
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
func TestEndpoints_EndpointsShareNoSlice(t *testing.T) {
	var f configfile.Endpoints
	if err := configfile.Decode([]byte(`{"endpoints": {"a": {}, "b": {}}}`), &f); err != nil {
		t.Fatal(err)
	}
	var base core.Config
	base.Observers, base.Recoverability.Unrecoverable = make([]core.Observer, 0, 4), make([]error, 0, 4)
	base.Recoverability.CustomErrorQueues = make([]string, 0, 4)
	configs := map[string]core.Config{}
	called := ""
	for _, name := range []string{"a", "b"} {
		c, err := f.Config(name, base)
		if err != nil {
			t.Fatal(err)
		}
		r := &c.Recoverability
		told := core.Observer{ConnectionChanged: func(core.ConnectionChange) { called = name }}
		c.Observers, r.Unrecoverable = append(c.Observers, told), append(r.Unrecoverable, errors.New(name))
		r.CustomErrorQueues = append(r.CustomErrorQueues, name)
		configs[name] = c
	}
	r := configs["a"].Recoverability
	configs["a"].Observers[0].ConnectionChanged(core.ConnectionChange{})
	if got := []any{called, r.Unrecoverable[0].Error(), r.CustomErrorQueues[0]}; !reflect.DeepEqual(got, []any{"a", "a", "a"}) {
		t.Errorf("a has %v, want its own", got)
	}
}

func TestEndpoints_WithoutAnyConfiguration(t *testing.T) {
	var f configfile.Endpoints
	if _, err := f.Config("orders", core.Config{}); err == nil || !containsEach(err.Error(), "no text with endpoints was read", "Decode") {
		t.Errorf("%v, want that nothing was read", err)
	}
}

func TestEndpoints_AsPartOfAnApplicationsFile(t *testing.T) {
	var file struct {
		Database  string
		Messaging configfile.Endpoints
	}
	if err := configfile.Decode([]byte(`{"database": "x", "messaging": `+configFile+`}`), &file); err != nil {
		t.Fatal(err)
	}
	if c, err := file.Messaging.Config("orders", core.Config{}); err != nil || c.Concurrency != 32 {
		t.Errorf("%+v, %v", c, err)
	}
}

// A further text changes defaults and endpoints of the first, and adds endpoints.
func TestEndpoints_SecondText(t *testing.T) {
	e := endpointsOf(t, configFile)
	first := e
	if err := configfile.Decode([]byte(`{
		"defaults": {"concurrency": 9, "recoverability": {"requeueLimit": 5}},
		"endpoints": {"orders": {"recoverability": {"delayed": {"numberOfRetries": 2}}}, "mail": {"concurrency": 1}}
	}`), &e); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][4]int{"orders": {32, 2, 5, 9}, "billing": {9, 4, 5, 0}, "mail": {1, 4, 5, 0}} {
		c, err := e.Config(name, core.Config{})
		r := c.Recoverability
		if got := [4]int{c.Concurrency, r.Delayed.NumberOfRetries, r.RequeueLimit, r.MessageTypes["order"].RequeueLimit}; err != nil || got != want {
			t.Errorf("%s: %v, %v, want %v", name, err, got, want)
		}
	}
	if c, err := first.Config("orders", core.Config{}); err != nil || c.Recoverability.Delayed.NumberOfRetries != core.Off || len(first.Names()) != 2 {
		t.Errorf("the copy of the first text was changed: %v, %+v", err, c)
	}
	before := e
	if err := configfile.Decode([]byte(`{"endpoints": {"orders": {"concurrency": 1}, "mail": {"x": 1}}}`), &e); err == nil || !reflect.DeepEqual(e, before) {
		t.Errorf("%v, want an error and no change", err)
	}
}

func TestEndpoints_ErrorsNameThePlace(t *testing.T) {
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
		`{"endpoints": {"orders": {"recoverability": {"delayed": {"timeIncrease": 10}}}}}`:     {`endpoints["orders"].recoverability.delayed.timeIncrease is 10`, `"10s"`},
		`{"endpoints": {"orders": {}}, "defaults": {"recoverability": {"immediate": 5}}}`:      {"defaults.recoverability.immediate is 5"},
		`{"endpoints": {"orders": {}, "billing": {"recoverability": {"requeueDelay": "0s"}}}}`: {`endpoints["billing"].recoverability.requeueDelay is "0s"`},
	} {
		var f configfile.Endpoints
		if err := configfile.Decode([]byte(text), &f); err == nil || !containsEach(err.Error(), want...) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func containsEach(text string, parts ...string) bool {
	return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(text, part) })
}
