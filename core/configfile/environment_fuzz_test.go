package configfile_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/configfile"
)

// FuzzDecodeEnv sets any variables over any file. A struct that is refused is unchanged,
// and one that is accepted is written and read as the same.
func FuzzDecodeEnv(f *testing.F) {
	f.Add(`{}`, "SHOP_CONCURRENCY=8", "SHOP_AUDIT_QUEUE=audit")
	f.Add(`{"recoverability":{"messageTypes":{"orders.placed":{},"orders_placed":{}}}}`, "SHOP_RECOVERABILITY_MESSAGE_TYPES_ORDERS_PLACED_ERROR_QUEUE=e", "SHOP_=")
	f.Add(`{"baseTypes":{"\u00e9":["a"]}}`, "SHOP_BASE_TYPES__=a,b", "SHOP_RECOVERABILITY_DELAYED_DELAYS=1s,,2s")
	f.Add(`{}`, "SHOP_CONCURRENCY={}", "SHOP_CONCURRENCY=1\n}")
	f.Add(`{}`, "SHOP_AUDIT_QUEUE=\xff", "OTHER=1")
	f.Add(`{"concurrency":4}`, "SHOP_CONCURRENCY=null", "SHOP_SEND_ONLY=true")
	f.Fuzz(func(t *testing.T, text, variable, other string) {
		var c core.Config
		if configfile.Decode([]byte(text), &c) != nil {
			return // FuzzDecode reads any text
		}
		before := c
		if err := configfile.DecodeEnv([]string{variable, other}, "SHOP", &c); err != nil {
			if !strings.HasPrefix(err.Error(), "configfile: ") || !reflect.DeepEqual(c, before) {
				t.Errorf("%v, %+v", err, c)
			}
			return
		}
		for _, v := range []string{variable, other} {
			if !strings.HasPrefix(v, "SHOP_") {
				continue
			}
			if name, _, _ := strings.Cut(v, "="); name == "SHOP_" {
				t.Errorf("the variable %q was accepted", v)
			}
		}
		roundTrip(t, c)
	})
}

// FuzzEndpoints reads any text as the configurations of several endpoints.
func FuzzEndpoints(f *testing.F) {
	for _, text := range []string{
		`{"defaults":{"concurrency":8,"recoverability":{"errorQueue":"errors"}},"endpoints":{"orders":{"concurrency":32},"billing":{}}}`,
		`{"endpoints":{"":{}}}`, `{"endpoints":{}}`, `{"endpoints":{"a":null}}`, `{"defaults":null,"endpoints":{"a":{},"a":{"concurrency":1}}}`, `{"endpoints":[]}`, `{}`, `null`, ``, `{"endpoints":{"\ud800":{}}}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var all struct{ Messaging configfile.Endpoints }
		err := configfile.Decode(append(append([]byte(`{"messaging":`), text...), '}'), &all)
		names := all.Messaging.Names()
		if err != nil {
			if !strings.HasPrefix(err.Error(), "configfile: ") || len(names) > 0 {
				t.Errorf("%v, %q", err, names)
			}
			return
		}
		if len(names) == 0 && string(text) != "null" && strings.HasPrefix(strings.TrimSpace(string(text)), "{") {
			t.Errorf("%q has no endpoint", text)
		}
		for _, name := range names {
			c, err := all.Messaging.Config(name, core.Config{AuditQueue: "audit"})
			if name == "" || err != nil {
				t.Errorf("the endpoint %q was checked when it was read: %v", name, err)
			}
			roundTrip(t, c)
		}
	})
}
