package sqlserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/dialect"
)

// FuzzRow reads any row of a queue's table, and writes the headers of a copy of the message,
// as the engine sends it on.
func FuzzRow(f *testing.F) {
	for _, text := range []string{
		`{"NServiceBus.MessageId":"m-1","Reprise.GroupKey":"g","Reprise.Properties":"{\"a\":\"b\"}"}`, `{"Reprise.Escaped.":"x"}`, `{"":"no key","a":1}`, `{"a":"\u0000","\ud800":"","\u0000":"b"}`,
		`{"Reprise.HeadersWithNUL":"{\"a\":\"\\u0000\"}","a":"\ufffd"}`, `{"Reprise.HeadersWithNUL":"mine","a":"\u0000"}`, `{"a":[1,{"b":true}],"n":null}`, `[]`, ``, "\xff",
	} {
		f.Add([]byte(text), []byte("body"), "0b7c", 1, 1, "failed")
	}
	f.Add([]byte(`{}`), []byte(nil), "", -1, 1<<40, "")
	f.Fuzz(func(t *testing.T, text, body []byte, id string, deliveries, claims int, lastError string) {
		row := &dialect.Row{ID: id, Headers: text, Body: body, Deliveries: deliveries, Claims: claims, LastError: lastError}
		in := (&receiver{}).incoming(row)
		for key, value := range in.Headers.All() {
			if key == "" || !utf8.ValidString(key) || !utf8.ValidString(value) {
				t.Errorf("no header may be %q: %q", key, value)
			}
		}
		if in.ID == "" && id != "" || in.NativeID != id || !bytes.Equal(in.Body, body) || deliveries > 1 && !in.Redelivered {
			t.Errorf("%q is read as %+v", text, in)
		}

		out := core.Outgoing{ID: "m", Queue: "error", Headers: in.Headers, Body: in.Body, GroupKey: in.GroupKey, Properties: in.Properties}
		written := dialect.AppendHeaders(nil, transport.PackHeaders(&out))
		if bytes.IndexByte(written, 0) >= 0 || !utf8.Valid(written) || strings.ContainsFunc(string(written), func(r rune) bool { return r < ' ' }) {
			t.Errorf("a column of text refuses %q", written)
		}
		var values map[string]string
		if err := json.Unmarshal(written, &values); err != nil || strings.Contains(fmt.Sprint(values), "\x00") {
			t.Errorf("the server's functions refuse %q: %v", written, err)
		}
		copied := (&receiver{}).incoming(&dialect.Row{ID: id, Headers: written, Body: body, Deliveries: 1})
		if copied.Malformed != nil || !maps.Equal(copied.Headers.Map(), in.Headers.Map()) || copied.GroupKey != in.GroupKey || !maps.Equal(copied.Properties, in.Properties) {
			t.Errorf("a copy of %+v with %q is written as %q and read as %+v with %q", in, in.Headers.Map(), written, copied, copied.Headers.Map())
		}
	})
}
