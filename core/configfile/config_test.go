package configfile_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/configfile"
	"github.com/reprise-go/reprise/transport/inmemory"
)

const wholeConfig = `{
	"concurrency": 8,
	"transactions": "ReceiveOnly",
	"inputQueue": "orders",
	"queueExpiry": "168h",
	"auditQueue": "audit",
	"retryAckQueues": ["acks"],
	"provision": "Never",
	"sendOnly": false,
	"baseTypes": {"orders.placed": ["orders.changed", "orders.event"]},
	"drainTimeout": "1m30s",
	"handlerTimeout": "10s",
	"outageLimit": "1m",
	"instance": "one",
	"recoverability": {
		"immediate": {"numberOfRetries": 2, "pause": "100ms", "maxPause": "5s"},
		"delayed": {"numberOfRetries": 4, "timeIncrease": "2s", "factor": 1.5, "maxDelay": "1h", "jitter": 0.25},
		"errorQueue": "failed",
		"messageTypes": {
			"orders.placed": {"immediate": {"numberOfRetries": 0}, "delayed": {"delays": ["1s", "1m", "0s"]}},
			"orders.shipped": {
				"immediate": {"numberOfRetries": 1, "pause": "20ms", "maxPause": "1s"},
				"delayed": {"numberOfRetries": 9, "timeIncrease": "1s", "factor": 2, "maxDelay": "1m", "jitter": 0.5},
				"errorQueue": "unshipped",
				"deadLetterQueue": "dead-shipped",
				"invalidQueue": "invalid-shipped",
				"unrecoverable": ["*url.Error"],
				"handlerTimeout": "1m",
				"maxRetryAge": "6h",
				"retryAfterLimit": "30m",
				"requeueDelay": "3s",
				"requeueLimit": 20
			}
		},
		"maxRetryAge": "12h",
		"retryAfterLimit": "2h",
		"maxDeliveries": 99,
		"requeueDelay": "250ms",
		"requeueLimit": 10,
		"unacceptableMessageLimit": {"count": 5, "window": "10m"},
		"deadLetter": true,
		"deadLetterQueue": "dead",
		"invalidQueue": "invalid",
		"customErrorQueues": ["fraud", "spam"],
		"unrecoverable": ["*fs.PathError"],
		"rateLimit": {"consecutiveFailures": 20, "timeToWait": "5s"}
	}
}`

// Rule R13.
func TestSettings_WholeConfigurationFromJSON(t *testing.T) {
	want := core.Config{
		Concurrency: 8, Transactions: core.TransactionReceiveOnly, InputQueue: "orders", QueueExpiry: 7 * 24 * time.Hour, AuditQueue: "audit", RetryAckQueues: []string{"acks"}, Provision: core.ProvisionNever,
		DrainTimeout: 90 * time.Second, Instance: "one",
		BaseTypes:      map[string][]string{"orders.placed": {"orders.changed", "orders.event"}},
		HandlerTimeout: 10 * time.Second, OutageLimit: time.Minute,
		Recoverability: core.Recoverability{
			Immediate:  core.Immediate{NumberOfRetries: 2, Pause: 100 * time.Millisecond, MaxPause: 5 * time.Second},
			Delayed:    core.Delayed{NumberOfRetries: 4, TimeIncrease: 2 * time.Second, Factor: 1.5, MaxDelay: time.Hour, Jitter: 0.25},
			ErrorQueue: "failed",
			MessageTypes: map[string]core.TypeRecoverability{
				"orders.placed": {Immediate: core.Immediate{NumberOfRetries: core.Off}, Delayed: core.Delayed{Delays: []time.Duration{time.Second, time.Minute, 0}}},
				"orders.shipped": {
					Immediate:  core.Immediate{NumberOfRetries: 1, Pause: 20 * time.Millisecond, MaxPause: time.Second},
					Delayed:    core.Delayed{NumberOfRetries: 9, TimeIncrease: time.Second, Factor: 2, MaxDelay: time.Minute, Jitter: 0.5},
					ErrorQueue: "unshipped", DeadLetterQueue: "dead-shipped", InvalidQueue: "invalid-shipped", Unrecoverable: []error{core.ErrorOfType[*url.Error]()}, HandlerTimeout: time.Minute, MaxRetryAge: 6 * time.Hour, RetryAfterLimit: 30 * time.Minute, RequeueDelay: 3 * time.Second, RequeueLimit: 20,
				},
			},
			MaxRetryAge: 12 * time.Hour, RetryAfterLimit: 2 * time.Hour, MaxDeliveries: 99,
			RequeueDelay: 250 * time.Millisecond, RequeueLimit: 10,
			UnacceptableMessageLimit: core.UnacceptableMessageLimit{Count: 5, Window: 10 * time.Minute},
			DeadLetter:               true, DeadLetterQueue: "dead",
			InvalidQueue: "invalid", CustomErrorQueues: []string{"fraud", "spam"},
			Unrecoverable: []error{core.ErrorOfType[*fs.PathError]()},
			RateLimit:     core.RateLimit{ConsecutiveFailures: 20, TimeToWait: 5 * time.Second},
		},
	}
	var got core.Config
	if err := configfile.Decode([]byte(wholeConfig), &got); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if _, err := core.New("billing", inmemory.Open(), got); err != nil {
		t.Error(err)
	}
	t.Run("the text above has every field that is not code", func(t *testing.T) {
		checkEveryField(t, reflect.ValueOf(got), "")
		checkEveryField(t, reflect.ValueOf(got.Recoverability.MessageTypes["orders.shipped"]), "MessageTypes.")
	})
	t.Run("recoverability alone", func(t *testing.T) {
		var r core.Recoverability
		if err := configfile.Decode([]byte(`{"delayed": {"timeIncrease": "2s"}, "errorQueue": "failed"}`), &r); err != nil {
			t.Fatal(err)
		}
		if r.Delayed.TimeIncrease != 2*time.Second || r.ErrorQueue != "failed" {
			t.Errorf("%+v", r)
		}
	})
	t.Run("as a part of an application's own file", func(t *testing.T) {
		var file struct {
			Name    string
			Billing core.Config
		}
		if err := configfile.Decode([]byte(`{"name": "x", "billing": {"drainTimeout": "5s"}}`), &file); err != nil || file.Billing.DrainTimeout != 5*time.Second {
			t.Errorf("%+v, %v", file, err)
		}
	})
	t.Run("settings that the text omits keep their values", func(t *testing.T) {
		c := core.Config{Concurrency: 3, Recoverability: core.Recoverability{ErrorQueue: "failed", Delayed: core.Delayed{NumberOfRetries: 9}, Unrecoverable: []error{errFailed}}}
		if err := configfile.Decode([]byte(`{"recoverability": {"delayed": {"timeIncrease": "1s"}}}`), &c); err != nil {
			t.Fatal(err)
		}
		if c.Concurrency != 3 || c.Recoverability.ErrorQueue != "failed" || c.Recoverability.Delayed.NumberOfRetries != 9 || len(c.Recoverability.Unrecoverable) != 1 {
			t.Errorf("%+v", c)
		}
	})
	t.Run("an empty object changes nothing", func(t *testing.T) {
		var c core.Config
		if err := configfile.Decode([]byte(" { } "), &c); err != nil || !reflect.DeepEqual(c, core.Config{}) {
			t.Errorf("%+v, %v", c, err)
		}
	})
}

// checkEveryField fails for fields that a configuration file can set and
// wholeConfig does not; core.Off and SendOnly would contradict others in it.
func checkEveryField(t *testing.T, v reflect.Value, path string) {
	t.Helper()
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name := path + f.Name
		switch {
		case isCode(f.Type), f.Name == "Off", f.Name == "SendOnly", f.Name == "Delays":
		case f.Type.Kind() == reflect.Struct:
			checkEveryField(t, v.Field(i), name+".")
		case v.Field(i).IsZero():
			t.Errorf("%s is missing", name)
		}
	}
}

// isCode reports whether a field of core's settings holds code.
func isCode(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Func, reflect.Interface, reflect.Pointer:
		return true
	case reflect.Slice:
		return isCode(t.Elem())
	case reflect.Struct:
		return t == reflect.TypeFor[core.Observer]()
	}
	return false
}

func TestConfig_ErrorsNameThePlace(t *testing.T) {
	for _, test := range []struct {
		name, text, says string
	}{
		{"an unknown key", `{"concurency": 3}`, "concurency is unknown here; known are concurrency, transactions, recoverability"},
		{"an unknown key below", `{"recoverability": {"delayed": {"retrys": 3}}}`, "recoverability.delayed.retrys is unknown here; known are numberOfRetries, timeIncrease"},
		{"a key in Go's case", `{"Concurrency": 3}`, "Concurrency is unknown here"},
		{"a field that holds code", `{"recoverability": {"policy": "x"}}`, "recoverability.policy is unknown here"},
		{"a field that holds code, of the endpoint", `{"codec": "x"}`, "codec is unknown here"},
		{"a key given twice", `{"concurrency": 3, "concurrency": 4}`, "concurrency is given twice"},
		{"a key given twice below", `{"recoverability": {"errorQueue": "a", "errorQueue": "a"}}`, "recoverability.errorQueue is given twice"},
		{"a message type given twice", `{"recoverability": {"messageTypes": {"a": {}, "a": {}}}}`, "recoverability.messageTypes.a is given twice"},
		{"a number as duration", `{"drainTimeout": 30}`, `drainTimeout is 30; write a duration as text, such as "10s"`},
		{"a duration without a unit", `{"drainTimeout": "30"}`, `drainTimeout is "30", which is no duration`},
		{"an empty duration", `{"drainTimeout": ""}`, `drainTimeout is "", which is no duration`},
		{"a duration that is too long", `{"drainTimeout": "9999999h"}`, `drainTimeout is "9999999h", which is no duration`},
		{"a duration in a list", `{"recoverability": {"delayed": {"delays": ["1s", 2]}}}`, "recoverability.delayed.delays[1] is 2; write a duration as text"},
		{"text for a number", `{"concurrency": "3"}`, `concurrency is "3"; it must be a whole number`},
		{"a fraction for a count", `{"concurrency": 1.5}`, "concurrency is 1.5; it must be a whole number"},
		{"a number for text", `{"auditQueue": 3}`, "auditQueue is 3; it must be text"},
		{"a number for a switch", `{"sendOnly": 1}`, "sendOnly is 1; it must be true or false"},
		{"a number that is too large", `{"concurrency": 1e30}`, "concurrency is 1e30"},
		{"a number for a mode", `{"transactions": 2}`, "transactions is 2; it must be text"},
		{"an unknown mode", `{"transactions": "Atomic"}`, `transactions is "Atomic"; use None, ReceiveOnly, SendsAtomicWithReceive or Default`},
		{"an unknown provisioning", `{"provision": "auto"}`, `provision is "auto"; use Auto, Always or Never`},
		{"text for an object", `{"recoverability": "x"}`, `recoverability is "x"; it must be an object`},
		{"a list for an object", `{"recoverability": {"delayed": [1]}}`, "recoverability.delayed is [1]; it must be an object"},
		{"a list for a map", `{"recoverability": {"messageTypes": []}}`, "recoverability.messageTypes is []; it must be an object"},
		{"an object for a list", `{"recoverability": {"delayed": {"delays": {}}}}`, "recoverability.delayed.delays is {}; it must be a list"},
		{"a wrong value in a map", `{"recoverability": {"messageTypes": {"a b": {"immediate": {"numberOfRetries": true}}}}}`, `recoverability.messageTypes["a b"].immediate.numberOfRetries is true; it must be a whole number`},
		{"a value that is cut", `{"recoverability": "` + strings.Repeat("x", 200) + `"}`, strings.Repeat("x", 30) + "...; it must be an object"},
		{"null for all", `null`, "the configuration is null; it must be an object"},
		{"null for a number", `{"concurrency": null}`, "concurrency is null; leave the key out for the default"},
		{"null for text", `{"auditQueue": null}`, "auditQueue is null; leave the key out"},
		{"null for a mode", `{"transactions": null}`, "transactions is null; leave the key out"},
		{"null for a duration", `{"drainTimeout": null}`, "drainTimeout is null; leave the key out"},
		{"null for an object", `{"recoverability": null}`, "recoverability is null; it must be an object"},
		{"null for a list", `{"recoverability": {"delayed": {"delays": null}}}`, "recoverability.delayed.delays is null; leave the key out"},
		{"null in a list", `{"recoverability": {"delayed": {"delays": [null]}}}`, "recoverability.delayed.delays[0] is null"},
		{"null in a map", `{"recoverability": {"messageTypes": {"a": null}}}`, `recoverability.messageTypes["a"] is null; it must be an object`},
		{"a list for all", `[]`, "the configuration is []; it must be an object"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var c core.Config
			err := configfile.Decode([]byte(test.text), &c)
			if err == nil || !strings.Contains(err.Error(), test.says) || !strings.HasPrefix(err.Error(), "configfile: ") {
				t.Errorf("%v\nwant it to say %s", err, test.says)
			}
		})
	}
}

func TestDecode_TellsTheLineOfASyntaxError(t *testing.T) {
	for text, says := range map[string]string{
		"":                              "line 1: unexpected end",
		"{\n\"concurrency\": 1":         "line 2: unexpected end",
		"{\n\n\"concurrency\": 1,}":     "line 3: invalid character '}'",
		"{\n\"concurrency\" 1}":         "line 2: invalid character '1'",
		"{\"concurrency\": }":           "line 1: invalid character '}'",
		"{\"concurrency\": 1}\nx":       "line 2: invalid character 'x'",
		"{\"concurrency\": 1}{}":        "line 1: invalid character '{'",
		"{\"concurrency\": 1}]":         "line 1: invalid character ']'",
		"{\"recoverability\": {\n\n":    "line 3: unexpected end",
		"{\"auditQueue\": \"\xff\"}":    "not UTF-8",
		"{\n\"concurency\": 1}":         "concurency is unknown here",
		"{\"concurrency\": \"\n\"}\n{}": "line 2: invalid character",
	} {
		c := core.Config{AuditQueue: "kept"}
		if err := configfile.Decode([]byte(text), &c); err == nil || !strings.HasPrefix(err.Error(), "configfile: ") || !strings.Contains(err.Error(), says) || c.AuditQueue != "kept" {
			t.Errorf("%q: %v, want it to say %s", text, err, says)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		wholeConfig, "{}", "null", `{"recoverability":{"delayed":{"numberOfRetries":3,"timeIncrease":"-1s"}}}`,
		`{"recoverability":{"immediate":{"numberOfRetries":9223372036854775807},"delayed":{"numberOfRetries":9223372036854775807,"factor":1,"maxDelay":"1h","jitter":1}}}`,
		`{"transactions":"None"}`, `{"sendOnly":true}`, `{"concurrency":1}}`, `{"concurrency":0}`, `{"outageLimit":"0s","drainTimeout":"1.5ns"}`,
		`{"recoverability":{"delayed":{"numberOfRetries":0},"messageTypes":{"orders.placed":{"delayed":{"numberOfRetries":2,"jitter":0},"maxRetryAge":"0s"}}}}`,
		`{"recoverability":{"delayed":{"delays":["0s"],"jitter":1e-300},"messageTypes":{"a":{"delayed":{"factor":1.5,"numberOfRetries":1,"timeIncrease":"1h"}}}}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var c core.Config
		if err := configfile.Decode(text, &c); err != nil {
			if !strings.HasPrefix(err.Error(), "configfile: ") || !reflect.DeepEqual(c, core.Config{}) {
				t.Errorf("%v, %+v", err, c)
			}
			return
		}
		if !json.Valid(text) {
			t.Errorf("accepted, but no JSON")
		}
		roundTrip(t, c)
		ep, err := core.New("billing", inmemory.Open(), c)
		if err != nil {
			return
		}
		roundTrip(t, ep.Config())
		if second, err := core.New("billing", inmemory.Open(), ep.Config()); err != nil || !reflect.DeepEqual(second.Config(), ep.Config()) {
			t.Errorf("%v\n%+v", err, ep.Config())
		}
		for _, messageType := range []string{"order", "orders.placed", ""} {
			for _, round := range []int{0, 1, 1000, 1<<63 - 1} {
				failure := core.ErrorContext{Err: errFailed, ImmediateProcessingFailures: round, DelayedDeliveriesPerformed: round}
				action, _ := core.DefaultPolicy(t.Context(), ep.RecoverabilityConfig(messageType), failure)
				if action.Delay < 0 || action.Kind == 0 || action.Kind == core.ActionDelayedRetry && action.Delay >= 24*time.Hour {
					t.Errorf("R5 %v", action)
				}
			}
		}
	})
}

var errFailed = errors.New("failed")

// roundTrip fails if a configuration is not read as it is written.
func roundTrip(t *testing.T, c core.Config) {
	t.Helper()
	var read core.Config
	written, err := configfile.Encode(c)
	if err == nil {
		err = configfile.Decode(written, &read)
	}
	if err != nil || !reflect.DeepEqual(read, c) {
		t.Errorf("%v\n%+v is written as\n%s and read as\n%+v", err, c, written, read)
	}
}
