package configfile_test

import (
	"fmt"
	"io/fs"
	"net"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/configfile"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// A 0 in a file is refused or obeyed, never replaced by a default.
func TestConfig_ExplicitZeroIsNoDefault(t *testing.T) {
	const obeyed = "" // as the value in the table; otherwise what the refusal says
	for _, test := range []struct {
		path, zero string // the key in the configuration, and its zero
		says       string
		want       any // of the field, where obeyed
	}{
		{"concurrency", "0", "write 1 or more", nil},
		{"handlerTimeout", `"0s"`, obeyed, time.Duration(core.Off)},
		{"outageLimit", `"0s"`, obeyed, time.Duration(core.Off)},
		{"drainTimeout", `"0s"`, obeyed, time.Duration(core.Off)},
		{"recoverability.immediate.numberOfRetries", "0", obeyed, core.Off},
		{"recoverability.delayed.numberOfRetries", "0", obeyed, core.Off},
		{"recoverability.delayed.timeIncrease", `"0s"`, `"delays": ["0s", "0s"]`, nil},
		{"recoverability.delayed.factor", "0", obeyed, float64(core.Off)},
		{"recoverability.delayed.maxDelay", `"0s"`, obeyed, time.Duration(core.Off)},
		{"recoverability.delayed.jitter", "0", obeyed, float64(core.Off)},
		{"recoverability.maxRetryAge", `"0s"`, obeyed, time.Duration(core.Off)},
		{"recoverability.retryAfterLimit", `"0s"`, obeyed, time.Duration(core.Off)},
		{"recoverability.maxDeliveries", "0", obeyed, core.Off},
		{"recoverability.requeueDelay", `"0s"`, `write "1ms" or more`, nil},
		{"recoverability.requeueLimit", "0", obeyed, core.Off},
		{"recoverability.unacceptableMessageLimit.count", "0", obeyed, 0},
		{"recoverability.unacceptableMessageLimit.window", `"0s"`, obeyed, time.Duration(0)},
		{"recoverability.rateLimit.consecutiveFailures", "0", obeyed, 0},
		{"recoverability.rateLimit.timeToWait", `"0s"`, `write "1ms" or more`, nil},
		{"recoverability.messageTypes.order.handlerTimeout", `"0s"`, obeyed, time.Duration(core.Off)},
		{"recoverability.messageTypes.order.maxRetryAge", `"0s"`, obeyed, time.Duration(core.Off)},
		{"recoverability.messageTypes.order.requeueDelay", `"0s"`, `write "1ms" or more`, nil},
		{"recoverability.messageTypes.order.requeueLimit", "0", obeyed, core.Off},
		{"instance", `""`, "leave the key out", nil},
		{"inputQueue", `""`, "leave the key out for the queue with the endpoint's name", nil},
		{"auditQueue", `""`, obeyed, ""},
		{"recoverability.errorQueue", `""`, "leave the key out", nil},
		{"recoverability.messageTypes.order.errorQueue", `""`, "leave the key out for the endpoint's", nil},
		{"recoverability.delayed.delays", "[]", `write "numberOfRetries": 0 for no retries`, nil},
	} {
		t.Run(test.path, func(t *testing.T) {
			keys := strings.Split(test.path, ".")
			text := test.zero
			for _, key := range slices.Backward(keys) {
				text = fmt.Sprintf(`{%q: %s}`, key, text)
			}
			var c core.Config
			err := configfile.Decode([]byte(text), &c)
			if test.says != obeyed {
				at := strings.Replace(test.path, "messageTypes.order.", `messageTypes["order"].`, 1) + " is "
				if err == nil || !strings.Contains(err.Error(), at) || !strings.Contains(err.Error(), test.says) {
					t.Errorf("%v, want it to say %s and %s", err, at, test.says)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			v := reflect.ValueOf(c)
			for _, key := range keys {
				if v.Kind() == reflect.Map {
					v = v.MapIndex(reflect.ValueOf(key))
					continue
				}
				v = v.FieldByName(strings.ToUpper(key[:1]) + key[1:])
			}
			if v.Interface() != test.want {
				t.Errorf("%v, want %v", v, test.want)
			}
			// A second text with a 0 resets a value that a first one has set.
			if _, err := core.New("billing", inmemory.Open(), c); err != nil && !strings.Contains(err.Error(), "has no settings") {
				t.Error(err)
			}
		})
	}
}

func TestConfig_RefusesNegativeNumbers(t *testing.T) {
	for text, says := range map[string]string{
		`{"concurrency": -1}`:                                               "concurrency is -1; it cannot be negative",
		`{"outageLimit": "-1ns"}`:                                           `outageLimit is "-1ns"; it cannot be negative`,
		`{"recoverability": {"delayed": {"jitter": -1}}}`:                   "recoverability.delayed.jitter is -1; it cannot be negative",
		`{"recoverability": {"requeueLimit": -1}}`:                          "recoverability.requeueLimit is -1; it cannot be negative",
		`{"recoverability": {"delayed": {"delays": ["-1s"]}}}`:              `recoverability.delayed.delays[0] is "-1s"; it cannot be negative`,
		`{"recoverability": {"immediate": {"numberOfRetries": -1}}}`:        "recoverability.immediate.numberOfRetries is -1; it cannot be negative",
		`{"recoverability": {"unacceptableMessageLimit": {"count": -100}}}`: "recoverability.unacceptableMessageLimit.count is -100; it cannot be negative",
	} {
		var c core.Config
		if err := configfile.Decode([]byte(text), &c); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// A second text changes the settings that it mentions, and no others.
func TestConfig_SecondTextKeepsTheFirst(t *testing.T) {
	for _, test := range []struct{ name, first, second, want string }{
		{
			"other message types", `{"messageTypes": {"a": {"immediate": {"numberOfRetries": 0}}}}`, `{"messageTypes": {"b": {"requeueLimit": 3}}}`,
			`{"messageTypes": {"a": {"immediate": {"numberOfRetries": 0}}, "b": {"requeueLimit": 3}}}`,
		},
		{
			"other fields of a message type", `{"messageTypes": {"a": {"immediate": {"numberOfRetries": 0}, "errorQueue": "x"}}}`, `{"messageTypes": {"a": {"errorQueue": "y", "maxRetryAge": "1h"}}}`,
			`{"messageTypes": {"a": {"immediate": {"numberOfRetries": 0}, "errorQueue": "y", "maxRetryAge": "1h"}}}`,
		},
		{"no message types", `{"messageTypes": {"a": {"errorQueue": "x"}}}`, `{"messageTypes": {}}`, `{"messageTypes": {"a": {"errorQueue": "x"}}}`},
		{"other fields of a level", `{"delayed": {"numberOfRetries": 9, "timeIncrease": "2s"}}`, `{"delayed": {"maxDelay": "1m"}}`, `{"delayed": {"numberOfRetries": 9, "timeIncrease": "2s", "maxDelay": "1m"}}`},
		{"a level off", `{"immediate": {"numberOfRetries": 2}, "delayed": {"numberOfRetries": 9, "jitter": 1}}`, `{"immediate": {"numberOfRetries": 0}, "delayed": {"numberOfRetries": 0}}`, `{"immediate": {"numberOfRetries": 0}, "delayed": {"numberOfRetries": 0}}`},
		{"a level on by retries", `{"immediate": {"numberOfRetries": 0}, "delayed": {"numberOfRetries": 0}}`, `{"immediate": {"numberOfRetries": 2}, "delayed": {"numberOfRetries": 9}}`, `{"immediate": {"numberOfRetries": 2}, "delayed": {"numberOfRetries": 9}}`},
		{"a level on by delays", `{"delayed": {"numberOfRetries": 0}}`, `{"delayed": {"delays": ["1s"]}}`, `{"delayed": {"delays": ["1s"]}}`},
		{"a list instead of growing delays", `{"delayed": {"numberOfRetries": 9, "timeIncrease": "2s", "factor": 2, "jitter": 1}}`, `{"delayed": {"delays": ["1s"]}}`, `{"delayed": {"delays": ["1s"], "jitter": 1}}`},
		{"growing delays instead of a list", `{"delayed": {"delays": ["1s"]}}`, `{"delayed": {"numberOfRetries": 9, "timeIncrease": "2s"}}`, `{"delayed": {"numberOfRetries": 9, "timeIncrease": "2s"}}`},
		{"empty levels", `{"immediate": {"numberOfRetries": 2}, "delayed": {"numberOfRetries": 0}, "maxDeliveries": 9}`, `{"immediate": {}, "delayed": {}}`, `{"immediate": {"numberOfRetries": 2}, "delayed": {"numberOfRetries": 0}, "maxDeliveries": 9}`},
		{"a limit instead of none", `{"maxDeliveries": 0}`, `{"maxDeliveries": 9}`, `{"maxDeliveries": 9}`},
		{"no limit instead of one", `{"maxDeliveries": 9, "maxRetryAge": "1h"}`, `{"maxDeliveries": 0, "maxRetryAge": "0s"}`, `{"maxDeliveries": 0, "maxRetryAge": "0s"}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got, want core.Recoverability
			for _, text := range []string{test.first, test.second} {
				if err := configfile.Decode([]byte(text), &got); err != nil {
					t.Fatal(err)
				}
			}
			if err := configfile.Decode([]byte(test.want), &want); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
		})
	}
	t.Run("contradictions within one text stay", func(t *testing.T) {
		c := core.Config{Recoverability: core.Recoverability{Immediate: core.Immediate{NumberOfRetries: 1}}}
		if err := configfile.Decode([]byte(`{"recoverability": {"immediate": {"numberOfRetries": 0, "pause": "1s"}}}`), &c); err != nil {
			t.Fatal(err)
		}
		if c.Recoverability.Immediate != (core.Immediate{NumberOfRetries: core.Off, Pause: time.Second}) {
			t.Errorf("%+v", c)
		}
	})
	t.Run("names of errors replace names, not errors of code", func(t *testing.T) {
		r := core.Recoverability{Unrecoverable: []error{core.ErrorOfType[*net.OpError](), errFailed, core.ErrorOfType[net.Error]()}}
		if err := configfile.Decode([]byte(`{"unrecoverable": ["*fs.PathError"]}`), &r); err != nil {
			t.Fatal(err)
		}
		if want := []error{errFailed, core.ErrorOfType[net.Error](), core.ErrorOfType[*fs.PathError]()}; !slices.Equal(r.Unrecoverable, want) {
			t.Errorf("%v, want %v", r.Unrecoverable, want)
		}
	})
	t.Run("a map that was there is not written", func(t *testing.T) {
		shared := map[string]core.TypeRecoverability{"a": {ErrorQueue: "x"}}
		r := core.Recoverability{MessageTypes: shared}
		if err := configfile.Decode([]byte(`{"messageTypes": {"a": {"errorQueue": "y"}, "b": {"errorQueue": "z"}}}`), &r); err != nil {
			t.Fatal(err)
		}
		if len(shared) != 1 || shared["a"].ErrorQueue != "x" {
			t.Errorf("%+v", shared)
		}
	})
}

func TestConfig_OfParts(t *testing.T) {
	for _, test := range []struct {
		text string
		into any // a pointer
		want any
	}{
		{`{"numberOfRetries":2}`, &core.Immediate{}, core.Immediate{NumberOfRetries: 2}},
		{`{"numberOfRetries":0}`, &core.Immediate{NumberOfRetries: 2}, core.Immediate{NumberOfRetries: core.Off}},
		{`{"numberOfRetries":2,"timeIncrease":"1m0s","jitter":0}`, &core.Delayed{}, core.Delayed{NumberOfRetries: 2, TimeIncrease: time.Minute, Jitter: core.Off}},
		{`{"delays":["1s","0s"]}`, &core.Delayed{}, core.Delayed{Delays: []time.Duration{time.Second, 0}}},
		{`{"consecutiveFailures":9,"timeToWait":"5s"}`, &core.RateLimit{}, core.RateLimit{ConsecutiveFailures: 9, TimeToWait: 5 * time.Second}},
		{`{"maxDeliveries":60}`, &core.Recoverability{}, core.Recoverability{MaxDeliveries: 60}},
		{`{"immediate":{"numberOfRetries":0},"errorQueue":"x","handlerTimeout":"1s","maxRetryAge":"0s"}`, &core.TypeRecoverability{}, core.TypeRecoverability{Immediate: core.Immediate{NumberOfRetries: core.Off}, ErrorQueue: "x", HandlerTimeout: time.Second, MaxRetryAge: core.Off}},
		{`{"errorQueue":"x","requeueLimit":0}`, &core.Recoverability{}, core.Recoverability{ErrorQueue: "x", RequeueLimit: core.Off}},
		{`{"transactions":"ReceiveOnly","provision":"Never","drainTimeout":"0s","outageLimit":"0s"}`, &core.Config{}, core.Config{Transactions: core.TransactionReceiveOnly, Provision: core.ProvisionNever, DrainTimeout: core.Off, OutageLimit: core.Off}},
		{`{"retryAckQueues":[]}`, &core.Config{RetryAckQueues: []string{"acks"}}, core.Config{RetryAckQueues: []string{}}},
		{`{}`, &core.Config{}, core.Config{}},
	} {
		if err := configfile.Decode([]byte(test.text), test.into); err != nil {
			t.Errorf("%s: %v", test.text, err)
			continue
		}
		got := reflect.ValueOf(test.into).Elem().Interface()
		if !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s is read as %+v, want %+v", test.text, got, test.want)
		}
		for _, value := range []any{got, test.into} {
			if text, err := configfile.Encode(value); err != nil || string(text) != test.text {
				t.Errorf("%s is written as %s, %v", test.text, text, err)
			}
		}
	}
	t.Run("an unknown key", func(t *testing.T) {
		var d core.Delayed
		if err := configfile.Decode([]byte(`{"retrys": 2}`), &d); err == nil || !strings.HasPrefix(err.Error(), "configfile: retrys is unknown here; known are numberOfRetries, ") {
			t.Errorf("%v", err)
		}
	})
}

func TestConfig_RoundTrip(t *testing.T) {
	var c core.Config
	if err := configfile.Decode([]byte(wholeConfig), &c); err != nil {
		t.Fatal(err)
	}
	listed := c.Recoverability.Unrecoverable
	c.Recoverability.Unrecoverable = slices.Concat([]error{errFailed, core.ErrorOfType[net.Error]()}, listed) // code is left out
	c.Codec = core.JSON
	text, err := configfile.Encode(c)
	if err != nil {
		t.Fatal(err)
	}
	var read core.Config
	if err := configfile.Decode(text, &read); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	c.Recoverability.Unrecoverable, c.Codec = listed, nil
	if !reflect.DeepEqual(read, c) {
		t.Errorf("got  %+v\nwant %+v", read, c)
	}
	t.Run("in a struct", func(t *testing.T) {
		type file struct {
			Name    string       `json:"name"`
			Billing core.Config  `json:"billing"`
			Retries core.Delayed `json:"numberOfRetries"`
		}
		want := file{"x", c, core.Delayed{NumberOfRetries: 2}}
		text, err := configfile.Encode(want)
		if err != nil {
			t.Fatal(err)
		}
		var got file
		if err := configfile.Decode(text, &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%v: %+v", err, got)
		}
	})
	t.Run("a value that no text can have is an error", func(t *testing.T) {
		for says, c := range map[string]core.Config{
			"concurrency is -1; it cannot be negative":                            {Concurrency: -1},
			"outageLimit is -2ns; it cannot be negative":                          {OutageLimit: -2},
			"recoverability.delayed.numberOfRetries is -3; it cannot be negative": {Recoverability: core.Recoverability{Delayed: core.Delayed{NumberOfRetries: -3}}},
			"recoverability.delayed.jitter is NaN; it must be a finite number":    {Recoverability: core.Recoverability{Delayed: core.Delayed{Jitter: nan()}}},
			"provision is Provisioning(9); use Auto":                              {Provision: 9},
			"transactions is TransactionMode(9); use None":                        {Transactions: 9},
			`instance is "\xff", which is not UTF-8`:                              {Instance: "\xff"},
			`recoverability.messageTypes["\xff"] is "\xff", which is not`:         {Recoverability: core.Recoverability{MessageTypes: map[string]core.TypeRecoverability{"\xff": {}}}},
			`recoverability.messageTypes["a"].requeueDelay is -1ns; it can`:       {Recoverability: core.Recoverability{MessageTypes: map[string]core.TypeRecoverability{"a": {RequeueDelay: -1}}}},
		} {
			if _, err := configfile.Encode(c); err == nil || !strings.HasPrefix(err.Error(), "configfile: "+says) {
				t.Errorf("%v, want it to say %s", err, says)
			}
		}
	})
}

func nan() float64 { zero := 0.0; return zero / zero }
