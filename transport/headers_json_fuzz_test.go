package transport_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/reprise-go/reprise/transport"
)

// FuzzHeadersJSONWritten writes any headers and has them read, here and by
// encoding/json.
func FuzzHeadersJSONWritten(f *testing.F) {
	f.Add("a", "1", "b", "2")
	f.Add("NServiceBus.ContentType", "application/json", "NServiceBus.ReplyToAddress", `"public"."sales"`)
	f.Add("\x00\x1f\x7f", "\b\f\n\r\t\"\\/", "größe", "\u2028\u2029\uFFFD\uFFFE\uFFFF\U0010FFFF")
	f.Add("same", "first", "same", "second")
	f.Fuzz(func(t *testing.T, key, value, otherKey, otherValue string) {
		for _, s := range []*string{&key, &value, &otherKey, &otherValue} {
			*s = strings.ToValidUTF8(*s, "?")
		}
		h := headersOf("1"+key, value, "2"+otherKey, otherValue, "3"+value, key)
		text := transport.AppendHeadersJSON(nil, h)
		var m map[string]string
		if err := json.Unmarshal(text, &m); err != nil || !maps.Equal(m, h.Map()) {
			t.Fatalf("%q: encoding/json reads %q, %v\nwant %q", text, m, err, h.Map())
		}
		read, err := transport.ParseHeadersJSON(text)
		if err != nil || !slices.Equal(pairsOf(read), pairsOf(h)) {
			t.Fatalf("%q: %q, %v\nwant %q", text, pairsOf(read), err, pairsOf(h))
		}
		if bytes.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == '\uFFFE' || r == '\uFFFF' }) ||
			bytes.Count(text, []byte(`/`)) != bytes.Count(text, []byte(`\/`)) {
			t.Errorf("%q has characters that must be escaped", text)
		}
		other, err := json.Marshal(h.Map())
		if err != nil {
			t.Fatal(err)
		}
		read, err = transport.ParseHeadersJSON(other)
		if err != nil || !maps.Equal(read.Map(), h.Map()) {
			t.Fatalf("%q by encoding/json: %q, %v\nwant %q", other, read.Map(), err, h.Map())
		}
	})
}

// FuzzHeadersJSONRead reads any text and compares with encoding/json.
func FuzzHeadersJSONRead(f *testing.F) {
	for _, text := range []string{
		`{"NServiceBus.ContentType":"application\/json","b":"2"}`,
		" {\n\t\"a\" : \"1\" , \"b\" : null }\r\n",
		`{"a":"1","a":"2","":"3"}`, `{"":null}`, `{}`, `null`, ``, `"a"`, `{"a":"1"}x`, `{"a":"1",}`, `{,}`, `{"a":nul}`,
		`{"a":"\"\\\/\b\f\n\r\t\u0041\u00e9\ud83e\udED6\ud83e\ud83ex\udED6\ud83e\u0041"}`, `{"a":"\ud83e\u`, `{"a":"\x"}`,
		`{"a":1,"b":"2","c":true,"d":[1,"]",{"x":"\"}"}],"e":{"y":[]},"f":"6"}`, `{"a":{]},"b":"2"}`,
		`{"b":{"d":[4,-5.0e+1],"c":null,"d":[]},"a":[[[]],{},"x;"]}`, `{"a":01}`, `{"a":[1,]}`, `{"a":{"b":1,}}`, `{"a":-}`, `{"a":` + strings.Repeat("[", 33) + strings.Repeat("]", 33) + `}`,
		"{\"a\":\"\x00\"}", "{\"a\xff\":\"\xe2\x82\"}", "{\"a\":\"\uFFFD\uFFFE\u2028\x7f\"}", "\uFEFF{}", "{\"a\":\"1\"\v}",
		string(transport.AppendHeadersJSON(nil, standardHeaders(11))),
		"{" + strings.Repeat(`"a":"1",`, 70) + `"b":"2"}`,
		// Inputs of the fuzzer that are worth keeping.
		`{"":"1","b":null}`, `{"":0"`, `{"":,"a":"1"`, `{"\ud800\u000X`, `"\uA000\uA`, "{\n\t\"\": \"\" , \"\" \x80",
		"{\"a\":\"\",\"a\":\"\xec\xc3\xc7\xee\",\"a\":\"\"", "{\"\xe2\xbe\xe2\x80\xef\xa8\uFFFD", "{\"0\":,\"\xed\xed\":,\"\":,\"0\":0",
	} {
		f.Add([]byte(text))
	}
	var many strings.Builder
	for c := range 70 {
		many.WriteString(`"k` + string(rune('0'+c)) + `":"",`)
	}
	f.Add([]byte("{" + many.String() + `"k1":"again","":"none"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		original := string(text)
		h, err := transport.ParseHeadersJSON(text)
		if string(text) != original {
			t.Fatalf("%q has become %q", original, text)
		}
		for key, value := range h.All() {
			if key == "" || !utf8.ValidString(key) || !utf8.ValidString(value) {
				t.Errorf("%q: no header may be %q: %q", text, key, value)
			}
		}

		m, isObject := asTexts(text)
		_, emptyKey := m[""]
		if want := isObject && !emptyKey && utf8.Valid(text); (err == nil) != want {
			t.Fatalf("%q: error %v, want one: %v", text, err, !want)
		}
		delete(m, "")
		if isObject && !maps.Equal(h.Map(), m) {
			t.Fatalf("%q: %q, %v\nwant %q", text, h.Map(), err, m)
		}
	})
}

// asTexts reads an object with encoding/json. isObject is false for any other text, and for one
// that is nested too deep.
func asTexts(text []byte) (m map[string]string, isObject bool) {
	var values map[string]any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if !json.Valid(text) || decoder.Decode(&values) != nil || values == nil || depthOf(text) > 1+32 {
		return nil, false
	}
	m = map[string]string{}
	for key, value := range values {
		m[key] = asText(value)
	}
	return m, true
}

// depthOf returns how deep arrays and objects are nested in JSON.
func depthOf(text []byte) (deepest int) {
	depth, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			quoted = !quoted
		case quoted && c == '\\':
			i++
		case !quoted && (c == '[' || c == '{'):
			depth++
			deepest = max(deepest, depth)
		case !quoted && (c == ']' || c == '}'):
			depth--
		}
	}
	return deepest
}

func asText(value any) string {
	var texts []string
	switch v := value.(type) {
	case nil:
		return ""
	case []any:
		for _, each := range v {
			texts = append(texts, asText(each))
		}
		return strings.Join(texts, ";")
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			texts = append(texts, key+"="+asText(v[key]))
		}
		return strings.Join(texts, ",")
	default:
		return fmt.Sprint(v)
	}
}
