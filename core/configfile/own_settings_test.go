package configfile_test

import (
	"encoding/json"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/configfile"
)

// shop has one field of each kind that an application may have.
type shop struct {
	Name     string
	URL      string `json:"db_url"`
	Timeout  time.Duration
	Offset   int
	Port     uint16
	Share    float32
	Debug    bool
	Key      []byte
	Level    slog.Level
	Opened   time.Time
	Any      any
	Retry    *time.Duration
	Hosts    []host
	Pair     [2]time.Duration
	Timeouts map[region]time.Duration
	Main     *host
	Orders   core.Config
	Patient  core.Delayed

	Log     *slog.Logger
	Do      func()
	Err     error
	Ignored int `json:"-"`
	private int
	common
}

type region string

type host struct {
	Address string
	Wait    time.Duration
	Next    *host
}

type common struct{ Region region }

const wholeShop = `{"name":"x","db_url":"postgres://db","timeout":"1h30m0s","offset":-5,"port":8080,"share":0.5,"debug":true,"key":"AQI=","level":"WARN",` +
	`"opened":"2024-05-06T07:08:09Z","any":{"a":[1]},"retry":"1s","hosts":[{"address":"a","wait":"1s"},{"address":"b"}],"pair":["1s","2s"],` +
	`"timeouts":{"eu":"-1s"},"main":{"wait":"1s","next":{"address":"c"}},"orders":{"concurrency":3,"recoverability":{"delayed":{"jitter":0}}},"patient":{"timeIncrease":"1m0s"},"region":"eu"}`

func TestDecode_ReadsAnApplicationsOwnSettings(t *testing.T) {
	second := time.Second
	want := shop{
		Name: "x", URL: "postgres://db", Timeout: 90 * time.Minute, Offset: -5, Port: 8080, Share: 0.5, Debug: true, Key: []byte{1, 2}, Level: slog.LevelWarn,
		Opened: time.Date(2024, 5, 6, 7, 8, 9, 0, time.UTC), Any: map[string]any{"a": []any{1.0}}, Retry: &second,
		Hosts: []host{{Address: "a", Wait: second}, {Address: "b"}}, Pair: [2]time.Duration{second, 2 * second}, Timeouts: map[region]time.Duration{"eu": -second},
		Main: &host{Wait: second, Next: &host{Address: "c"}}, Orders: core.Config{Concurrency: 3, Recoverability: core.Recoverability{Delayed: core.Delayed{Jitter: core.Off}}},
		Patient: core.Delayed{TimeIncrease: time.Minute}, common: common{Region: "eu"},
	}
	var got shop
	if err := configfile.Decode([]byte(wholeShop), &got); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	got.Log, got.Do, got.private = slog.Default(), func() {}, 7
	for _, value := range []any{got, &got} {
		if text, err := configfile.Encode(value); err != nil || string(text) != wholeShop {
			t.Errorf("%v\n%s, want\n%s", err, text, wholeShop)
		}
	}
}

func TestDecode_ErrorsInOwnSettingsNameThePlace(t *testing.T) {
	for text, says := range map[string]string{
		`{"timeout": 30}`:                         `timeout is 30; write a duration as text, such as "10s"`,
		`{"timeout": "-"}`:                        `timeout is "-", which is no duration`,
		`{"hosts": [{}, {"wait": 5}]}`:            `hosts[1].wait is 5; write a duration as text`,
		`{"main": {"next": {"wiat": "1s"}}}`:      "main.next.wiat is unknown here; known are address, wait, next",
		`{"timeouts": {"eu": "1"}}`:               `timeouts["eu"] is "1", which is no duration`,
		`{"pair": ["1s"]}`:                        "pair has 1 elements; it must have 2",
		`{"Name": "x"}`:                           "Name is unknown here; known are name, db_url, timeout",
		`{"name": "x", "name": "y"}`:              "name is given twice",
		`{"url": "x"}`:                            "url is unknown here",
		`{"log": {}}`:                             "log is unknown here",
		`{"do": 1}`:                               "do is unknown here",
		`{"err": "x"}`:                            "err is unknown here",
		`{"ignored": 1}`:                          "ignored is unknown here",
		`{"private": 1}`:                          "private is unknown here",
		`{"port": 70000}`:                         "port is 70000; it must be a whole number in the range of uint16",
		`{"name": null}`:                          "name is null; leave the key out",
		`{"key": "?"}`:                            "key: illegal base64",
		`{"level": "loud"}`:                       "level: slog: level string \"loud\"",
		`{"opened": "today"}`:                     "opened: parsing time",
		`{"orders": {"concurrency": 0}}`:          "orders.concurrency is 0; write 1 or more",
		`{"patient": {"timeIncrease": "-1s"}}`:    `patient.timeIncrease is "-1s"; it cannot be negative`,
		`{"orders": {"recoverability": {"x":1}}}`: "orders.recoverability.x is unknown here",
	} {
		s := shop{Name: "kept", Main: &host{}}
		if err := configfile.Decode([]byte(text), &s); err == nil || !strings.HasPrefix(err.Error(), "configfile: "+says) {
			t.Errorf("%s: %v, want %s", text, err, says)
		}
		if !reflect.DeepEqual(s, shop{Name: "kept", Main: &host{}}) {
			t.Errorf("%s changed the settings to %+v", text, s)
		}
	}
}

// A second text changes the settings that it mentions, and no value shared with the first.
func TestDecode_SecondTextOfOwnSettings(t *testing.T) {
	second, shared := time.Second, &host{Address: "a"}
	s := shop{Main: shared, Retry: &second, Name: "x", Timeouts: map[region]time.Duration{"eu": 1}}
	timeouts := s.Timeouts
	if err := configfile.Decode([]byte(`{"main": {"wait": "1s"}, "retry": "2s", "name": "", "timeout": "0s", "timeouts": {"us": "2ns"}}`), &s); err != nil {
		t.Fatal(err)
	}
	if s.Main.Address != "a" || s.Main.Wait != second || *s.Retry != 2*time.Second || s.Name != "" || s.Timeout != 0 || len(s.Timeouts) != 2 {
		t.Errorf("%+v", s)
	}
	if shared.Wait != 0 || second != time.Second || len(timeouts) != 1 {
		t.Error("a value that others share was changed")
	}
	if err := configfile.Decode([]byte(`{"main": null, "any": null}`), &s); err != nil || s.Main != nil {
		t.Errorf("%v, %+v", err, s.Main)
	}
}

// The keys of an embedded Config are beside those of the struct that embeds it.
func TestDecode_EmbeddedConfig(t *testing.T) {
	type embedding struct {
		core.Config
		Name string
	}
	var s embedding
	const text = `{"concurrency":3,"handlerTimeout":"0s","name":"x"}`
	if err := configfile.Decode([]byte(text), &s); err != nil || !reflect.DeepEqual(s, embedding{core.Config{Concurrency: 3, HandlerTimeout: core.Off}, "x"}) {
		t.Errorf("%v, %+v", err, s)
	}
	if written, err := configfile.Encode(s); err != nil || string(written) != text {
		t.Errorf("%v, %s", err, written)
	}
	if err := configfile.DecodeEnv([]string{"SHOP_CONCURRENCY=4", "SHOP_NAME=y"}, "SHOP", &s); err != nil || s.Concurrency != 4 || s.Name != "y" {
		t.Errorf("%v, %+v", err, s)
	}
}

func TestDecode_RefusesTargets(t *testing.T) {
	type key struct {
		core.Config
		Concurrency int
	}
	type level struct{ core.Delayed }
	type endpoints struct{ configfile.Endpoints }
	type keys struct{ Ports map[int]string }
	type complexNumber struct{ C []complex128 }
	for says, target := range map[string]any{
		"the target is a <nil>; pass a pointer to a struct":                                 nil,
		"the target is a core.Config; pass a pointer to a struct":                           core.Config{},
		"the target is a *core.Config; pass a pointer":                                      (*core.Config)(nil),
		"the target is a *int; pass a pointer":                                              new(int),
		"configfile_test.key has two fields with the key concurrency, core.Config.Concurre": &key{},
		"configfile_test.level embeds core.Delayed, which has to be a field with a name":    &level{},
		"configfile_test.endpoints embeds configfile.Endpoints, which has to be a field":    &endpoints{},
		"configfile_test.keys.Ports is a map[int]string, whose keys are no text; tag it":    &keys{},
		"configfile_test.complexNumber.C is a complex128, which JSON does not have; tag it": &complexNumber{},
	} {
		if err := configfile.Decode([]byte(`{}`), target); err == nil || !strings.HasPrefix(err.Error(), "configfile: "+says) {
			t.Errorf("%T: %v, want %s", target, err, says)
		}
		if err := configfile.DecodeEnv(nil, "SHOP", target); err == nil || !strings.HasPrefix(err.Error(), "configfile: "+says) {
			t.Errorf("%T: %v, want %s", target, err, says)
		}
	}
}

func TestEncode_Refuses(t *testing.T) {
	for says, settings := range map[string]any{
		"the settings are a int; pass a struct":               5,
		"the settings are a *core.Config; pass a struct":      (*core.Config)(nil),
		"messaging has the settings of several endpoints":     struct{ Messaging configfile.Endpoints }{endpointsOf(t, `{"endpoints": {"a": {}}}`)},
		"the configuration has the settings of several":       configfile.Endpoints{},
		`name is "\xff", which is not UTF-8`:                  shop{Name: "\xff"},
		"any: json: unsupported type":                         shop{Any: func() {}},
		"patient.jitter is NaN; it must be a finite number":   shop{Patient: core.Delayed{Jitter: nan()}},
		"patient.timeIncrease is -1ns; it cannot be negative": shop{Patient: core.Delayed{TimeIncrease: core.Off}},
		"patient.delays[0] is -1ns; it cannot be negative":    shop{Patient: core.Delayed{Delays: []time.Duration{core.Off}}},
		"orders.provision is Provisioning(9); use Auto, Alwa": shop{Orders: core.Config{Provision: 9}},
	} {
		if text, err := configfile.Encode(settings); err == nil || !strings.HasPrefix(err.Error(), "configfile: "+says) {
			t.Errorf("%s, %v; want %s", text, err, says)
		}
	}
}

func endpointsOf(t *testing.T, text string) (e configfile.Endpoints) {
	t.Helper()
	if err := configfile.Decode([]byte(text), &e); err != nil {
		t.Fatal(err)
	}
	return e
}

// encoding/json would write durations as nanoseconds, and read them so.
func TestConfig_EncodingJSONRefuses(t *testing.T) {
	if text, err := json.Marshal(core.Config{Concurrency: 1}); err == nil { //nolint:staticcheck // that it fails is the test
		t.Errorf("a Config is written as %s", text)
	}
	var c core.Config
	if err := json.Unmarshal([]byte(`{"handlerTimeout": "10s"}`), &c); err == nil {
		t.Errorf("a duration as text is read as %v", c.HandlerTimeout)
	}
	if text, err := configfile.Encode(nil); err == nil {
		t.Errorf("nil is written as %s", text)
	}
}
