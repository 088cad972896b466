package configjson

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

type level struct {
	Count int
	Off   bool
}

type settings struct {
	Name    string
	Timeout time.Duration
	Limit   int
	Level   level
	Types   map[string]level
	Delays  []time.Duration
	Code    func() `json:"-"`
}

var format = Format{
	Off:        -1,
	ZeroErrors: map[string]string{"settings.Timeout": "", "settings.Limit": "write 1 or more", "level.Count": "write \"off\": true"},
	Levels: map[reflect.Type]func(own, base any) any{
		reflect.TypeFor[level](): func(own, base any) any {
			if own == (level{}) {
				return base
			}
			return own
		},
	},
}

func TestDecode_ChangesTheFieldsThatTheTextMentions(t *testing.T) {
	s := settings{Name: "kept", Level: level{Off: true}, Types: map[string]level{"kept": {Count: 1}}}
	text := `{"timeout": "0s", "limit": 3, "level": {"off": false}, "types": {"a": {"off": true}}, "delays": ["1s", "1h30m"]}`
	if err := format.Decode([]byte(text), &s, ""); err != nil {
		t.Fatal(err)
	}
	want := settings{Name: "kept", Timeout: -1, Limit: 3, Types: map[string]level{"kept": {Count: 1}, "a": {Off: true}}, Delays: []time.Duration{time.Second, 90 * time.Minute}}
	if !reflect.DeepEqual(s, want) {
		t.Errorf("%+v, want %+v", s, want)
	}
	written, err := format.Encode(s)
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"name":"kept","timeout":"0s","limit":3,"types":{"a":{"off":true},"kept":{"count":1}},"delays":["1s","1h30m0s"]}`; string(written) != want {
		t.Errorf("%s, want %s", written, want)
	}
}

func TestDecode_NamesThePlaceOfAnError(t *testing.T) {
	for text, want := range map[string]string{
		`{"limit": 0}`:                   "all.limit is 0; write 1 or more",
		`{"level": {"count": 0}}`:        `all.level.count is 0; write "off": true`,
		`{"timeout": 5}`:                 "all.timeout is 5; write a duration as text",
		`{"timeout": "-5s"}`:             "all.timeout is \"-5s\"; it cannot be negative",
		`{"name": null}`:                 "all.name is null",
		`{"Name": "x"}`:                  "all.Name is unknown here; known are name, timeout, limit, level, types, delays",
		`{"name": "x", "name": "y"}`:     "all.name is given twice",
		`{"types": {"a": {"count":-1}}}`: `all.types["a"].count is -1; it cannot be negative`,
		`{"delays": []}`:                 "all.delays is an empty list",
		`{"delays": ["1s", 2]}`:          "all.delays[1] is 2",
		`{"name": "x"} {}`:               "all is followed by something else",
		`[]`:                             "all is []; it must be an object",
	} {
		if err := format.Decode([]byte(text), &settings{}, "all"); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

func TestEncode_RefusesWhatCannotBeRead(t *testing.T) {
	for want, s := range map[string]settings{
		"timeout is -2ns; it cannot be negative":   {Timeout: -2},
		"level.count is -1; it cannot be negative": {Level: level{Count: -1}},
		"name is \"\\xff\", which is not UTF-8":    {Name: "\xff"},
	} {
		if text, err := format.Encode(s); err == nil || err.Error() != want {
			t.Errorf("%s, %v; want %s", text, err, want)
		}
	}
}
