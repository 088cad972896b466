package dialect_test

import (
	"maps"
	"testing"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/dialect"
)

func TestHeaders_WithNUL(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		headers map[string]string
		column  string
	}{
		{map[string]string{"a": "1"}, `{"a":"1"}`},
		{map[string]string{"a": "x\x00", "b": "2"}, `{"Reprise.HeadersWithNUL":"{\"a\":\"x\\u0000\"}","a":"x` + "\uFFFD" + `","b":"2"}`},
		{map[string]string{"a\x00": "1", "a\uFFFD": "2"}, `{"Reprise.HeadersWithNUL":"{\"a\\u0000\":\"1\"}","a` + "\uFFFD" + `":"2"}`},
		{map[string]string{"Reprise.HeadersWithNUL": "mine"}, `{"Reprise.HeadersWithNUL":"{\"Reprise.HeadersWithNUL\":\"mine\"}"}`},
		{map[string]string{"Reprise.HeadersWithNUL": `{"b":"\u0000"}`, "b": "\uFFFD"}, `{"Reprise.HeadersWithNUL":"{\"Reprise.HeadersWithNUL\":\"{\\\"b\\\":\\\"\\\\u0000\\\"}\"}","b":"` + "\uFFFD" + `"}`},
	} {
		column := dialect.AppendHeaders(nil, core.HeadersFromMap(c.headers))
		if string(column) != c.column {
			t.Errorf("%q is stored as\n%s, want\n%s", c.headers, column, c.column)
		}
		if h, err := dialect.ParseHeaders(column); err != nil || !maps.Equal(h.Map(), c.headers) {
			t.Errorf("%q is read as %q, %v", c.headers, h.Map(), err)
		}
	}
}

// TestParseHeaders_OfOthers: an operator may have changed a row, and any sender may have written it.
func TestParseHeaders_OfOthers(t *testing.T) {
	t.Parallel()
	for column, want := range map[string]map[string]string{
		`{"Reprise.HeadersWithNUL":"{\"a\":\"x\\u0000\",\"b\":\"\\u0000\"}","a":"fixed"}`: {"a": "fixed"},
		`{"Reprise.HeadersWithNUL":"{\"a\":\"other\"}","a":"x"}`:                          {"a": "x"},
		`{"Reprise.HeadersWithNUL":"no JSON","a":"x"}`:                                    {"Reprise.HeadersWithNUL": "no JSON", "a": "x"},
		`{"Reprise.HeadersWithNUL":"{\"\":\"x\"}"}`:                                       {"Reprise.HeadersWithNUL": `{"":"x"}`},
		`{"a":"\u0000","\u0000":"b"}`:                                                     {"a": "\x00", "\x00": "b"},
	} {
		if h, err := dialect.ParseHeaders([]byte(column)); err != nil || !maps.Equal(h.Map(), want) {
			t.Errorf("%s is read as %q, %v, want %q", column, h.Map(), err, want)
		}
	}
}
