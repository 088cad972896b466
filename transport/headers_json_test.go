package transport_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/transport"
)

// headersOf returns headers from keys and values in turn.
func headersOf(pairs ...string) core.Headers {
	var h core.Headers
	for pair := range slices.Chunk(pairs, 2) {
		h.Set(pair[0], pair[1])
	}
	return h
}

// pairsOf returns keys and values in turn.
func pairsOf(h core.Headers) []string {
	pairs := []string{}
	for key, value := range h.All() {
		pairs = append(pairs, key, value)
	}
	return pairs
}

func TestAppendHeadersJSON(t *testing.T) {
	for name, c := range map[string]struct {
		headers []string
		want    string
	}{
		"none":                         {nil, `{}`},
		"one":                          {[]string{"a", "b"}, `{"a":"b"}`},
		"their order":                  {[]string{"b", "1", "a", "2", "c", "3"}, `{"b":"1","a":"2","c":"3"}`},
		"an empty value":               {[]string{"a", ""}, `{"a":""}`},
		"slashes":                      {[]string{"a/b", "/application//json/"}, `{"a\/b":"\/application\/\/json\/"}`},
		"quotes and backslashes":       {[]string{`"`, `\`, `\"`, `c:\"x"\`}, `{"\"":"\\","\\\"":"c:\\\"x\"\\"}`},
		"control characters":           {[]string{"\x00\x0b", "\x1fa\r\nb\t\b\f"}, `{"\u0000\u000b":"\u001fa\r\nb\t\b\f"}`},
		"DEL":                          {[]string{"a", "\x7f"}, "{\"a\":\"\x7f\"}"},
		"more than ASCII":              {[]string{"größe", "日本語 🫖"}, `{"größe":"日本語 🫖"}`},
		"line and paragraph separator": {[]string{"a", "\u2028\u2029"}, "{\"a\":\"\u2028\u2029\"}"},
		"text that .NET refuses":       {[]string{"\uFFFE", "a\uFFFF/\uFFFDb\uFFFE"}, "{\"\\ufffe\":\"a\\uffff\\/\uFFFDb\\ufffe\"}"},
		"their neighbours":             {[]string{"a", "\uEFBF\uF000\uFEFF\uFFBE\uFFFC"}, "{\"a\":\"\uEFBF\uF000\uFEFF\uFFBE\uFFFC\"}"},
		"text that is not UTF-8":       {[]string{"a", "\xef\xbf"}, "{\"a\":\"\xef\xbf\"}"},
	} {
		t.Run(name, func(t *testing.T) {
			before := []byte("before")
			if got := transport.AppendHeadersJSON(before, headersOf(c.headers...)); string(got) != "before"+c.want {
				t.Errorf("%s\nwant before%s", got, c.want)
			}
		})
	}
}

func TestParseHeadersJSON(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"none":                          {`{}`, nil},
		"space around none":             {" \t\r\n{ \t\r\n} \t\r\n", nil},
		"their order":                   {`{"b":"1","a":"2","c":"3"}`, []string{"b", "1", "a", "2", "c", "3"}},
		"space everywhere":              {" { \"a\"\t:\r\n\"1\" , \"b\" :\n\"\" }\n", []string{"a", "1", "b", ""}},
		"space in strings":              {`{" a ":" \t"}`, []string{" a ", " \t"}},
		"null":                          {`{"a":null,"b" : null , "c":"null"}`, []string{"a", "", "b", "", "c", "null"}},
		"a key twice":                   {`{"a":"1","b":"2","a":"3"}`, []string{"a", "3", "b", "2"}},
		"a key twice, then null":        {`{"a":"1","a":null}`, []string{"a", ""}},
		"every escape":                  {`{"\"\\\/\b\f\n\r\t\u0041":"\u00e9\uFFFE\u20aC"}`, []string{"\"\\/\b\f\n\r\tA", "é\uFFFE€"}},
		"a slash as it is":              {`{"a/b":"/c//d/"}`, []string{"a/b", "/c//d/"}},
		"escaped NUL":                   {`{"\u0000":"\u0000"}`, []string{"\x00", "\x00"}},
		"DEL":                           {"{\"a\":\"\x7f\"}", []string{"a", "\x7f"}},
		"more than ASCII":               {`{"größe":"日本語 🫖, 日本語 🫖"}`, []string{"größe", "日本語 🫖, 日本語 🫖"}},
		"a surrogate pair":              {`{"a":"\ud83e\udED6\uD83E\uDED6"}`, []string{"a", "🫖🫖"}},
		"a lone high surrogate":         {`{"a":"\ud83e","b":"\ud83e\n","c":"\ud83eu"}`, []string{"a", "\uFFFD", "b", "\uFFFD\n", "c", "\uFFFDu"}},
		"a lone low surrogate":          {`{"a":"\uded6x"}`, []string{"a", "\uFFFDx"}},
		"two high surrogates and a low": {`{"a":"\ud83e\ud83e\uded6"}`, []string{"a", "\uFFFD🫖"}},
		"a surrogate and another":       {`{"a":"\ud83e\u0041"}`, []string{"a", "\uFFFDA"}},
		"U+FFFD is UTF-8":               {"{\"a\":\"\uFFFD\\ufffd\"}", []string{"a", "\uFFFD\uFFFD"}},
		"headers that NServiceBus writes": {`{"NServiceBus.ContentType":"application\/json","NServiceBus.ReplyToAddress":"\"public\".\"sales\""}`,
			[]string{"NServiceBus.ContentType", "application/json", "NServiceBus.ReplyToAddress", `"public"."sales"`}},
	} {
		t.Run(name, func(t *testing.T) {
			text := []byte(c.text)
			h, err := transport.ParseHeadersJSON(text)
			if string(text) != c.text {
				t.Errorf("the text has become %q", text)
			}
			clear(text) // nothing may refer to it
			if err != nil || !slices.Equal(pairsOf(h), c.want) {
				t.Errorf("%q, %v\nwant %q", pairsOf(h), err, c.want)
			}
		})
	}
}

// Rule C4.
func TestParseHeadersJSON_KeepsValidHeaders(t *testing.T) {
	const at = "transport: parse headers: byte "
	for name, c := range map[string]struct {
		text string
		want []string
		err  string
	}{
		"nothing":                 {``, nil, at + "0: found the end of the text, want a JSON object"},
		"space":                   {"\n ", nil, at + "2: found the end of the text, want a JSON object"},
		"null":                    {`null`, nil, at + `0: found "n", want a JSON object`},
		"an array":                {`["a"]`, nil, at + `0: found "[", want a JSON object`},
		"a string":                {`"a"`, nil, at + `0: found "\"", want a JSON object`},
		"a byte order mark":       {"\uFEFF{}", nil, at + `0: found "\ufeff", want a JSON object`},
		"binary":                  {"\xff\x00", nil, at + `0: found "\xff", want a JSON object`},
		"a space that JSON lacks": {"{\v}", nil, at + `1: found "\v", want a string`},

		"it ends after the brace":     {`{`, nil, at + "1: found the end of the text, want a string"},
		"it ends in the key":          {`{"a":"1","b`, []string{"a", "1"}, at + "11: found the end of the text, want the rest of a string"},
		"it ends after the key":       {`{"a":"1","b" `, []string{"a", "1"}, at + `13: found the end of the text, want ":"`},
		"it ends after the colon":     {`{"a":"1","b":`, []string{"a", "1"}, at + `13: found the end of the text, want a value`},
		"it ends in the value":        {`{"a":"1","b":"2`, []string{"a", "1"}, at + "15: found the end of the text, want the rest of a string"},
		"it ends after the value":     {`{"a":"1","b":"2"`, []string{"a", "1", "b", "2"}, at + `16: found the end of the text, want "," or "}"`},
		"it ends after the comma":     {`{"a":"1",`, []string{"a", "1"}, at + "9: found the end of the text, want a string"},
		"it ends in null":             {`{"a":"1","b":nul`, []string{"a", "1"}, at + `13: found "n", want a value`},
		"it ends in a backslash":      {`{"a":"1","b":"\`, []string{"a", "1"}, at + `14: not an escape sequence of JSON`},
		"it ends in an escape":        {`{"a":"1","b":"\u00`, []string{"a", "1"}, at + `14: not an escape sequence of JSON`},
		"it ends in a surrogate pair": {`{"a":"1","b":"\ud83e\ude`, []string{"a", "1"}, at + `20: not an escape sequence of JSON`},

		"text after the object":           {`{"a":"1"} x`, []string{"a", "1"}, at + `10: found "x", want nothing after the object`},
		"two objects":                     {`{"a":"1"}{}`, []string{"a", "1"}, at + `9: found "{", want nothing after the object`},
		"text after none":                 {`{}}`, nil, at + `2: found "}", want nothing after the object`},
		"a comma first":                   {`{,"a":"1"}`, nil, at + `1: found ",", want a string`},
		"a comma last":                    {`{"a":"1",}`, []string{"a", "1"}, at + `9: found "}", want a string`},
		"two commas":                      {`{"a":"1",,"b":"2"}`, []string{"a", "1"}, at + `9: found ",", want a string`},
		"no comma":                        {`{"a":"1" "b":"2"}`, []string{"a", "1"}, at + `9: found "\"", want "," or "}"`},
		"no colon":                        {`{"a" "1"}`, nil, at + `5: found "\"", want ":"`},
		"a key without quotes":            {`{a:"1"}`, nil, at + `1: found "a", want a string`},
		"another case of null":            {`{"a":Null}`, nil, at + `5: found "N", want a value`},
		"more than null":                  {`{"a":nullx}`, []string{"a", ""}, at + `9: found "x", want "," or "}"`},
		"an escape that JSON lacks":       {`{"a":"1","b":"\x41"}`, []string{"a", "1"}, at + "14: not an escape sequence of JSON"},
		"a sign in an escape":             {`{"a":"\u+041"}`, nil, at + "6: not an escape sequence of JSON"},
		"a letter after F in an escape":   {`{"a":"\u00g0"}`, nil, at + "6: not an escape sequence of JSON"},
		"a control character in a value":  {"{\"a\":\"1\",\"b\":\"x\ny\"}", []string{"a", "1"}, at + `15: found "\n", want control characters to be escaped`},
		"NUL in a key":                    {"{\"a\x00\":\"1\"}", nil, at + `3: found "\x00", want control characters to be escaped`},
		"an unexpected byte is not UTF-8": {"{\"a\":\"1\"\xff", []string{"a", "1"}, at + `8: found "\xff", want "," or "}"`},

		"no value":               {`{"a":,"b":"2"}`, nil, at + `5: found ",", want a value`},
		"an object without end":  {`{"a":"1","b":{"x":"y"`, []string{"a", "1"}, at + `21: found the end of the text, want "," or "}"`},
		"an array without end":   {`{"a":"1","b":[1,`, []string{"a", "1"}, at + `16: found the end of the text, want a value`},
		"brackets that mismatch": {`{"a":"1","b":[1},"c":"3"}`, []string{"a", "1"}, at + `15: found "}", want "," or "]"`},
		"a bracket for a value":  {`{"a":"1","b":],"c":"3"}`, []string{"a", "1"}, at + `13: found "]", want a value`},
		"a comma last in it":     {`{"a":[1,]}`, nil, at + `8: found "]", want a value`},
		"no colon in it":         {`{"a":{"b" 1}}`, nil, at + `10: found "1", want ":"`},
		"no key in it":           {`{"a":{1:2}}`, nil, at + `6: found "1", want a string`},
		"a zero before a digit":  {`{"a":01}`, []string{"a", "0"}, at + `6: found "1", want "," or "}"`},
		"a sign alone":           {`{"a":-}`, nil, at + `6: found "}", want a digit`},
		"a point alone":          {`{"a":1.}`, nil, at + `7: found "}", want a digit`},
		"an exponent alone":      {`{"a":1e+}`, nil, at + `8: found "}", want a digit`},
		"not UTF-8 in an array":  {"{\"a\":[\"\xff\"],\"b\":\"2\"}", []string{"a", "\uFFFD", "b", "2"}, at + "7: invalid header: not UTF-8"},
		"nested deeper than 32": {`{"a":"1","b":` + strings.Repeat("[", 33) + strings.Repeat("]", 33) + `}`, []string{"a", "1"},
			at + `45: arrays and objects are nested deeper than 32`},

		"an empty key":            {`{"a":"1","":"2","c":"3"}`, []string{"a", "1", "c", "3"}, at + "9: invalid header: the key is empty"},
		"an empty key, then null": {`{"":"1","b":null}`, []string{"b", ""}, at + "1: invalid header: the key is empty"},
		"an empty key of null":    {`{"":null}`, nil, at + "1: invalid header: the key is empty"},
		"a value not UTF-8":       {"{\"a\":\"1\",\"b\":\"x\xffy\xe2\x82\",\"c\":\"3\"}", []string{"a", "1", "b", "x\uFFFDy\uFFFD\uFFFD", "c", "3"}, at + "15: invalid header: not UTF-8"},
		"a key not UTF-8":         {"{\"\xc0\x80\":\"1\"}", []string{"\uFFFD\uFFFD", "1"}, at + "2: invalid header: not UTF-8"},
		"a surrogate in UTF-8":    {"{\"a\":\"\xed\xa0\x80\"}", []string{"a", "\uFFFD\uFFFD\uFFFD"}, at + "6: invalid header: not UTF-8"},
	} {
		t.Run(name, func(t *testing.T) {
			h, err := transport.ParseHeadersJSON([]byte(c.text))
			if err == nil || err.Error() != c.err {
				t.Errorf("error %v\nwant  %s", err, c.err)
			}
			if got, want := errors.Is(err, core.ErrInvalidHeader), strings.Contains(c.err, "invalid header"); got != want {
				t.Errorf("is ErrInvalidHeader: %v, want %v", got, want)
			}
			if !slices.Equal(pairsOf(h), c.want) {
				t.Errorf("headers %q, want %q", pairsOf(h), c.want)
			}
		})
	}
}

// TestParseHeadersJSON_OtherValues: they have the text that AMQP's values of the same types have.
func TestParseHeadersJSON_OtherValues(t *testing.T) {
	for _, c := range []struct{ value, want string }{
		{`0`, `0`}, {`-2.50e+7`, `-2.50e+7`}, {`12345678901234567890123456789`, `12345678901234567890123456789`}, {`1e999`, `1e999`},
		{`true`, `true`}, {`false`, `false`}, {`null`, ``},
		{`[]`, ``}, {`[1]`, `1`}, {`[ 1 , "a;b" ,true,null,[2,[]],{"x":3} ]`, `1;a;b;true;;2;;x=3`},
		{`{}`, ``}, {`{"b":1,"a":"2"}`, `a=2,b=1`}, {`{"a":1,"b":{"d":[4,5],"c":null},"a":3}`, `a=3,b=c=,d=4;5`}, {`{"":"","ä\u20ac\u0000":"\/"}`, "=,ä€\x00=/"},
		{strings.Repeat("[", 32) + "1" + strings.Repeat("]", 32), `1`},
	} {
		text := `{"before":"b", "k" : ` + c.value + ` ,"after":"a"}`
		h, err := transport.ParseHeadersJSON([]byte(text))
		if want := []string{"before", "b", "k", c.want, "after", "a"}; err != nil || !slices.Equal(pairsOf(h), want) {
			t.Errorf("%s: %q, %v, want %q", text, pairsOf(h), err, want)
		}
	}
}

func TestHeadersJSON_EveryByteAtEveryPlace(t *testing.T) {
	// A byte that ends a run of plain ones, at every place of a word and beside
	// every other one.
	for _, length := range []int{7, 8, 17} {
		for place := range length {
			for c := range 0x80 {
				text := bytes.Repeat([]byte{'~'}, length)
				text[place] = byte(c)
				for _, next := range []byte{'~', ' ', '!', '"', '#', '.', '/', '0', '[', '\\', ']', 0x1f, 0} {
					if place+1 < length {
						text[place+1] = next
					}
					want := headersOf("k"+string(text), string(text))
					written := transport.AppendHeadersJSON(nil, want)
					got, err := transport.ParseHeadersJSON(written)
					if err != nil || !slices.Equal(pairsOf(got), pairsOf(want)) {
						t.Fatalf("%s\nis read as %q, %v\nwant       %q", written, pairsOf(got), err, pairsOf(want))
					}
				}
			}
		}
	}
}

func TestHeadersJSON_ManyHeaders(t *testing.T) {
	for n, sorted := range map[int]bool{10: false, 63: false, 65: true, 1000: true, 20_000: true} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			var pairs [][2]string
			text := []byte("{")
			for i := n; i > 0; i-- {
				key, value := fmt.Sprintf("key %06d", i), fmt.Sprint("value ", i)
				pairs = append(pairs, [2]string{key, value})
				text = fmt.Appendf(text, "%q:%q,", key, value)
			}
			text = append(text, `"key 000007":"again"`...)
			pairs[n-7][1] = "again"
			if sorted {
				slices.Reverse(pairs)
			}
			var want []string
			for _, pair := range pairs {
				want = append(want, pair[:]...)
			}
			if h, err := transport.ParseHeadersJSON(text); !slices.Equal(pairsOf(h), want) || err == nil {
				t.Errorf("without an end: %d headers, error %v, not those that were written", h.Len(), err)
			}
			if h, err := transport.ParseHeadersJSON(append(text, '}')); !slices.Equal(pairsOf(h), want) || err != nil {
				t.Errorf("%d headers, error %v, not those that were written", h.Len(), err)
			}
		})
	}
}

func TestHeadersJSON_Allocations(t *testing.T) {
	for _, c := range []struct{ headers, allocations int }{{0, 1}, {4, 2}, {8, 2}, {11, 3}} {
		h := standardHeaders(c.headers)
		text := transport.AppendHeadersJSON(nil, h)
		if n := testing.AllocsPerRun(100, func() { text = transport.AppendHeadersJSON(text[:0], h) }); n > 0 {
			t.Errorf("%d headers are written with %v allocations, want 0", c.headers, n)
		}
		if n := testing.AllocsPerRun(100, func() { _, _ = transport.ParseHeadersJSON(text) }); int(n) > c.allocations {
			t.Errorf("%d headers are read with %v allocations, want %d", c.headers, n, c.allocations)
		}
	}
}

func ExampleParseHeadersJSON() {
	var h core.Headers
	h.Set(headers.ContentType, "application/json")
	column := transport.AppendHeadersJSON(nil, h)
	fmt.Printf("%s\n", column)

	h, err := transport.ParseHeadersJSON(column)
	fmt.Println(h.Get(headers.ContentType), err)

	// The readable part of a broken column goes with the message, and so does the reason.
	in := core.Incoming{}
	in.Headers, in.Malformed = transport.ParseHeadersJSON([]byte(`{"Origin":"sales","Weight":3`))
	fmt.Println(in.Headers.Map())
	fmt.Println(in.Malformed)
	// Output:
	// {"NServiceBus.ContentType":"application\/json"}
	// application/json <nil>
	// map[Origin:sales Weight:3]
	// transport: parse headers: byte 28: found the end of the text, want "," or "}"
}

// standardHeaders returns the first n headers of an event.
func standardHeaders(n int) core.Headers {
	return headersOf([]string{
		headers.MessageID, "018f9c2e-6a51-7d3e-9b1a-2f6f0f6f5a11",
		headers.MessageTypes, "Shop.Orders.OrderPlaced, Shop.Messages, Version=1.4.0.0, Culture=neutral, PublicKeyToken=null",
		headers.ContentType, "application/json",
		headers.TimeSent, "2026-11-20 14:31:00:123456 Z",
		headers.MessageIntent, "Publish",
		headers.ConversationID, "018f9c2e-6a51-7d3e-9b1a-2f6f0f6f5a10",
		headers.CorrelationID, "018f9c2e-6a51-7d3e-9b1a-2f6f0f6f5a10",
		headers.RelatedTo, "018f9c2e-6a51-7d3e-9b1a-2f6f0f6f5a0f",
		headers.OriginatingEndpoint, "sales",
		headers.OriginatingMachine, "sales-7c9d6b5f4-x2x7k",
		headers.ReplyToAddress, `"shop"."sales"`,
	}[:2*n]...)
}

func BenchmarkAppendHeadersJSON(b *testing.B) {
	for _, n := range []int{4, 11} {
		h := standardHeaders(n)
		b.Run(fmt.Sprint(n, " headers"), func(b *testing.B) {
			b.ReportAllocs()
			var dst []byte
			for b.Loop() {
				dst = transport.AppendHeadersJSON(dst[:0], h)
			}
		})
		m := h.Map()
		b.Run(fmt.Sprint(n, " headers by encoding/json"), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := json.Marshal(m); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkParseHeadersJSON(b *testing.B) {
	for _, n := range []int{4, 11} {
		text := transport.AppendHeadersJSON(nil, standardHeaders(n))
		b.Run(fmt.Sprint(n, " headers"), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := transport.ParseHeadersJSON(text); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprint(n, " headers by encoding/json"), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				var m map[string]string
				if err := json.Unmarshal(text, &m); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
