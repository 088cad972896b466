package transport_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
)

// FuzzPackHeaders packs any message of an application, and unpacks it.
func FuzzPackHeaders(f *testing.F) {
	f.Add("key", "value", "Reprise.GroupKey", "x", "id", "group", "name", "property")
	f.Add("Reprise.Escaped.", "a", "Reprise.Escaped.Reprise.Escaped.", "b", "", "", "", "")
	f.Add("Reprise.Properties", `{"a":"b"}`, "NServiceBus.MessageId", "m-1", "m-1", "\u2028", "Reprise.MessageID", "\x00")
	f.Add("NServiceBus.MessageId", "", "Reprise.MessageID", "other", "id", "", "", "")
	f.Fuzz(func(t *testing.T, key, value, otherKey, otherValue, id, group, property, content string) {
		for _, s := range []*string{&key, &value, &otherKey, &otherValue, &id, &group, &property, &content} {
			*s = strings.ToValidUTF8(*s, "?")
		}
		out := core.Outgoing{ID: "i" + id, GroupKey: group}
		for _, h := range [][2]string{{key, value}, {otherKey, otherValue}} {
			if h[0] != "" && h[0] != "NServiceBus.MessageId" {
				out.Headers.Set(h[0], h[1])
			}
		}
		if property != "" {
			out.Properties = map[string]string{property: content}
		}
		before := out.Headers.Map()
		in := core.Incoming{Headers: transport.PackHeaders(&out)}
		checkHeaders(t, in.Headers)
		transport.UnpackHeaders(&in)
		if !maps.Equal(in.Headers.Map(), before) || in.ID != out.ID || !in.IDSent || in.GroupKey != group || !maps.Equal(in.Properties, out.Properties) {
			t.Errorf("%+v with %q is received as %+v with %q", out, before, in, in.Headers.Map())
		}
		if !maps.Equal(out.Headers.Map(), before) {
			t.Errorf("the message's headers were %q and are %q", before, out.Headers.Map())
		}
	})
}

// FuzzUnpackHeaders unpacks the headers of any sender, and packs a copy of the message, as
// the engine sends it on.
func FuzzUnpackHeaders(f *testing.F) {
	for _, text := range []string{
		`{"a":"1","b":"2"}`, `{"Reprise.Escaped.":"no name"}`, `{"Reprise.Escaped.Reprise.Escaped.":"x","Reprise.Escaped.":"y"}`,
		`{"Reprise.GroupKey":"g","Reprise.MessageID":"m","Reprise.Properties":"{\"a\":\"b\"}"}`, `{"Reprise.Properties":"{\"\":\"b\"}"}`,
		`{"Reprise.Properties":"no JSON","Reprise.Escaped.Reprise.Properties":"mine"}`, `{"Reprise.Escaped.a":"1","a":"2"}`,
		`{"NServiceBus.MessageId":"m","Reprise.MessageID":"other","NServiceBus.GeneratedId":"True"}`, `{"Reprise.MessageID":"","Reprise.GroupKey":""}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		h, _ := transport.ParseHeadersJSON(text) // what cannot be read is left out
		received := core.Incoming{Headers: h, Body: []byte("body")}
		transport.UnpackHeaders(&received)
		checkHeaders(t, received.Headers)
		size := received.Headers.Bytes() + len(received.ID) + len(received.GroupKey)
		for name, value := range received.Properties {
			if name == "" || !utf8.ValidString(name) || !utf8.ValidString(value) {
				t.Errorf("%q: no property may be %q: %q", text, name, value)
			}
			size += len(name) + len(value)
		}
		if size > 2*h.Bytes() || received.Headers.Len() > h.Len() { // the id stays among the headers
			t.Errorf("%d headers of %d bytes are read as %d, and %d bytes with the other fields", h.Len(), h.Bytes(), received.Headers.Len(), size)
		}

		out := core.Outgoing{ID: "i" + received.ID, Headers: received.Headers, GroupKey: received.GroupKey, Properties: received.Properties}
		copied := core.Incoming{Headers: transport.PackHeaders(&out)}
		transport.UnpackHeaders(&copied)
		if !slices.Equal(sortedPairs(copied.Headers), sortedPairs(received.Headers)) || copied.GroupKey != received.GroupKey || !maps.Equal(copied.Properties, received.Properties) {
			t.Errorf("%q: a copy of %+v with %q is received as %+v with %q", text, received, received.Headers.Map(), copied, copied.Headers.Map())
		}
	})
}

// checkHeaders fails for a header that no handler may see.
func checkHeaders(t *testing.T, h core.Headers) {
	t.Helper()
	for key, value := range h.All() {
		if key == "" || !utf8.ValidString(key) || !utf8.ValidString(value) {
			t.Errorf("no header may be %q: %q", key, value)
		}
	}
}

func sortedPairs(h core.Headers) (pairs []string) {
	for key, value := range h.All() {
		pairs = append(pairs, key+"\x00"+value)
	}
	slices.Sort(pairs)
	return pairs
}
