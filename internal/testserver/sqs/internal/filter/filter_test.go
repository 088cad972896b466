package filter

import (
	"testing"

	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/content"
)

func TestFilter_OnAttributes(t *testing.T) {
	t.Parallel()
	attributes := []content.Attribute{
		{Name: "text", Type: "String", String: "order-created"},
		{Name: "number", Type: "Number", String: "100.0"},
		{Name: "list", Type: "String.Array", String: `["a","b",5,true]`},
		{Name: "binary", Type: "Binary", Binary: []byte{1}},
		{Name: "address", Type: "String", String: "10.0.0.5"},
	}
	for policy, want := range map[string]bool{
		`{}`:                                                true,
		`{"text":["order-created"]}`:                        true,
		`{"text":["other","order-created"]}`:                true,
		`{"text":["other"]}`:                                false,
		`{"text":[{"prefix":"order-"}]}`:                    true,
		`{"text":[{"prefix":"created"}]}`:                   false,
		`{"text":[{"suffix":"-created"}]}`:                  true,
		`{"text":[{"equals-ignore-case":"Order-Created"}]}`: true,
		`{"text":[{"wildcard":"order*ed"}]}`:                true,
		`{"text":[{"anything-but":["other"]}]}`:             true,
		`{"text":[{"anything-but":"order-created"}]}`:       false,
		`{"text":[{"anything-but":{"prefix":"order"}}]}`:    false,
		`{"text":[{"anything-but":{"suffix":"x"}}]}`:        true,
		`{"none":[{"anything-but":["x"]}]}`:                 false,
		`{"text":[{"exists":true}]}`:                        true,
		`{"text":[{"exists":false}]}`:                       false,
		`{"none":[{"exists":false}]}`:                       true,
		`{"none":["x"]}`:                                    false,
		`{"number":[100]}`:                                  true,
		`{"number":["100.0"]}`:                              false,
		`{"number":[{"numeric":[">",99,"<=",100]}]}`:        true,
		`{"number":[{"numeric":["<",100]}]}`:                false,
		`{"number":[{"numeric":["=",1e2]}]}`:                true,
		`{"text":[{"numeric":["=",1]}]}`:                    false,
		`{"list":["b"]}`:                                    true,
		`{"list":[5]}`:                                      true,
		`{"list":["c"]}`:                                    false,
		`{"list":[{"anything-but":["a"]}]}`:                 true,
		`{"binary":[{"exists":true}]}`:                      false,
		`{"address":[{"cidr":"10.0.0.0/24"}]}`:              true,
		`{"address":[{"cidr":"10.0.1.0/24"}]}`:              false,
		`{"text":["order-created"],"number":[1]}`:           false,
		`{"$or":[{"text":["x"]},{"number":[100]}]}`:         true,
		`{"$or":[{"text":["x"]},{"number":[1]}]}`:           false,
	} {
		f, reason := Parse(policy, false)
		if reason != "" {
			t.Errorf("%s: %s", policy, reason)
			continue
		}
		if got := f.MatchesAttributes(attributes); got != want {
			t.Errorf("%s: %t, want %t", policy, got, want)
		}
	}
}

func TestFilter_OnTheBody(t *testing.T) {
	t.Parallel()
	const body = `{"kind":"order","customer":{"name":"A","tags":["x","y"]},"gone":null,"paid":true}`
	for policy, want := range map[string]bool{
		`{"kind":["order"]}`:                           true,
		`{"customer":{"name":["A"]}}`:                  true,
		`{"customer":{"name":["B"]}}`:                  false,
		`{"customer":{"tags":["y"]}}`:                  true,
		`{"customer":{"none":[{"exists":false}]}}`:     true,
		`{"kind":{"none":[{"exists":true}]}}`:          false,
		`{"gone":[null]}`:                              true,
		`{"paid":[true]}`:                              true,
		`{"paid":["true"]}`:                            false,
		`{"kind":["order"],"customer":{"name":["B"]}}`: false,
	} {
		f, reason := Parse(policy, true)
		if reason != "" {
			t.Errorf("%s: %s", policy, reason)
			continue
		}
		if got := f.MatchesBody(body); got != want {
			t.Errorf("%s: %t, want %t", policy, got, want)
		}
	}
}

func TestFilter_Refuses(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{
		`[]`, `{"a":"b"}`, `{"a":[]}`, `{"a":{"b":["c"]}}`, `{"a":[["b"]]}`, `{"a":[{"near":"b"}]}`, `{"a":[{"exists":"yes"}]}`,
		`{"a":[{"numeric":[">"]}]}`, `{"a":[{"numeric":["near",1]}]}`, `{"a":[{"prefix":1}]}`, `{"a":[{"cidr":"x"}]}`,
		`{"a":[{"prefix":"b","suffix":"c"}]}`, `{"$or":["x"]}`,
		`{"a":[1],"b":[1],"c":[1],"d":[1],"e":[1],"f":[1]}`,
		`{"a":[1,2,3,4,5,6],"b":[1,2,3,4,5,6],"c":[1,2,3,4,5,6]}`, // 216 combinations
	} {
		if _, reason := Parse(policy, false); reason == "" {
			t.Errorf("%s is taken", policy)
		}
	}
}
