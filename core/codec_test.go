package core

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/reprise-go/reprise/core/internal/mediatype"
)

// tagCodec writes its tag before the value's text.
type tagCodec struct {
	tag, contentType string
}

func (c tagCodec) ContentType() string { return c.contentType }

func (c tagCodec) Encode(v any) ([]byte, error) {
	switch v {
	case "panic":
		panic("cannot encode this")
	case "fail":
		return nil, errFailed
	}
	return fmt.Append(nil, c.tag, v), nil
}

func (c tagCodec) Decode(contentType string, body []byte, v any) error {
	if contentType != "" && contentType != mediatype.Of(c.contentType) {
		return JSON.Decode(contentType, body, v)
	}
	text, ok := strings.CutPrefix(string(body), c.tag)
	switch {
	case text == "panic":
		panic(errFailed)
	case !ok:
		return fmt.Errorf("%w: no tag", errFailed)
	}
	*v.(*string) = text
	return nil
}

func codecOf(t *testing.T, codec Codec) *bodyCodec {
	t.Helper()
	c, err := newBodyCodec(codec)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestEncode(t *testing.T) {
	c := codecOf(t, nil)
	t.Run("JSON by default", func(t *testing.T) {
		body, contentType, err := c.encode("order", map[string]int{"n": 1})
		if err != nil || string(body) != `{"n":1}` || contentType != "application/json" {
			t.Errorf("%s, %s, %v", body, contentType, err)
		}
	})
	t.Run("bytes as they are, copied", func(t *testing.T) {
		raw := []byte("raw")
		body, contentType, err := c.encode("order", raw)
		raw[0] = 'X'
		if err != nil || string(body) != "raw" || contentType != "application/octet-stream" {
			t.Errorf("%s, %s, %v", body, contentType, err)
		}
	})
	t.Run("the configured codec", func(t *testing.T) {
		body, contentType, err := codecOf(t, tagCodec{"tag:", "Text/Tag; v=1"}).encode("order", "x")
		if err != nil || string(body) != "tag:x" || contentType != "Text/Tag; v=1" {
			t.Errorf("%s, %s, %v", body, contentType, err)
		}
	})
	t.Run("an error names message type and Go type", func(t *testing.T) {
		_, _, err := c.encode("order", make(chan int))
		if _, ok := errors.AsType[*json.UnsupportedTypeError](err); !ok || !strings.Contains(err.Error(), `encode "order" from chan int`) {
			t.Errorf("%v", err)
		}
	})
}

func TestDecode(t *testing.T) {
	tag := tagCodec{"tag:", "Text/Tag; v=1"}
	for _, test := range []struct {
		name                    string
		codec                   Codec
		contentType, body, want string
	}{
		{"JSON", nil, "application/json", `"x"`, "x"},
		{"JSON with parameters", nil, "application/json; charset=utf-8", `"x"`, "x"},
		{"JSON in capitals", nil, " Application/JSON ", `"x"`, "x"},
		{"JSON without a content type", nil, "", `"x"`, "x"},
		{"JSON with a byte order mark, as of Newtonsoft.Json", nil, "application/json", "\xef\xbb\xbf\"x\"", "x"},
		{"JSON in UTF-16", nil, "application/json; charset=utf-16", "\"\x00x\x00\"\x00", "x"},
		{"JSON in Latin-1", nil, "application/json;charset=ISO-8859-1", "\"\xfc\"", "ü"},
		{"JSON in ASCII", nil, "application/json;charset=us-ascii", `"x"`, "x"},
		{"a vendor's JSON", nil, "application/vnd.shop.order+json; v=2", `"x"`, "x"},
		{"an older name of JSON", nil, "text/json", `"x"`, "x"},
		{"another codec", tag, "Text/Tag; v=1", "tag:x", "x"},
		{"other parameters", tag, "text/tag", "tag:x", "x"},
		{"another codec without a content type", tag, "", "tag:x", "x"},
		{"the other format of a codec", tag, "application/JSON; charset=utf-8", `"x"`, "x"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got string
			if err := codecOf(t, test.codec).decode("order", test.contentType, []byte(test.body), &got, noEncoding); err != nil || got != test.want {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

func noEncoding() string { return "" }

// A body is private: an error has no more of it than bytes that a reader cannot see.
func TestUndecodable_ErrorShowsNoText(t *testing.T) {
	for _, body := range []string{"{secret", "  \r\n\t x", "Zürich", "Zürich €", "€€€", ""} {
		if got := beginning([]byte(body)); got != "" {
			t.Errorf("%q: %s", body, got)
		}
	}
}

func TestUndecodable_ErrorNamesTheContentEncoding(t *testing.T) {
	for name, in := range map[string]*Incoming{
		"a header":                      {Headers: HeadersFromMap(map[string]string{"Content-Encoding": "br"})},
		"a field of the native message": {Native: &struct{ ContentEncoding string }{"br"}},
	} {
		var m Message
		in.Body = []byte("\x1b\x03")
		m.begin(&messageDeps{composer: &composer{codec: codecOf(t, nil)}}, in, selection{messageType: "order"})
		_, err := decodeBody[string](&m)
		if want := `the body begins with 1b 03; its content encoding is "br"`; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want it to say %q", name, err, want)
		}
	}
}

func TestUndecodable_OtherNativeMessagesNameNoEncoding(t *testing.T) {
	type delivery struct{ ContentEncoding string }
	for name, native := range map[string]any{
		"none": nil, "a nil pointer": (*delivery)(nil), "a text": "x", "no such field": struct{}{}, "another type": struct{ ContentEncoding int }{1},
		"an embedded nil pointer": struct{ *delivery }{},
	} {
		m := Message{incoming: &Incoming{Native: native}}
		if got := m.contentEncoding(); got != "" {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// Rule R6.
func TestUndecodable_MessageIsNotRetried(t *testing.T) {
	c := codecOf(t, tagCodec{"tag:", "text/tag"})
	for _, test := range []struct {
		name, contentType, body string
		says                    string
	}{
		{"no JSON", "application/json", "x", `decode "order" from application/json: invalid character`},
		{"no body", "application/json", "", `decode "order" from application/json: unexpected end`},
		{"JSON of another kind", "application/json", "1", `decode "order" from application/json: json: cannot unmarshal number`},
		{"an unknown content type", "text/unknown", "x", `decode "order" from text/unknown: this content type is not JSON; let the sender name another one, or set a Config.Codec that reads it`},
		{"an envelope", "application/cloudevents+json", `{"data":"x"}`, "add package middleware/cloudevents"},
		{"a charset that is not read", "application/json; charset=Windows-1252", `"x"`, `decode "order" from application/json; charset=Windows-1252: its charset "windows-1252" is none of`},
		{"another codec with a charset", "text/tag; charset=utf-16", "tag:x", `this content type is not JSON`},
		{"UTF-16 cut in a character", "application/json", "{\x00}", "odd number of bytes: its end is missing; the body begins with 7b 00 7d"},
		{"a body that is not text", "application/json", "\x93NUMPY and more", `invalid character '\u0093' looking for beginning of value; the body begins with 93 4e 55 4d 50 59 20 61`},
		{"a compressed body", "application/json", "\x1f\x8b\x08", "the body begins with 1f 8b 08: it is compressed with gzip, which middleware has to unpack (Message.SetBody)"},
		{"no content type", "", "x", `decode "order" from text/tag: handler failed: no tag`},
		{"a codec that fails", "text/tag", "x", `decode "order" from text/tag: handler failed: no tag`},
		{"a codec that panics", "text/tag", "tag:panic", `decode "order" from text/tag: panic: handler failed`},
	} {
		t.Run(test.name, func(t *testing.T) {
			var v string
			err := c.decode("order", test.contentType, []byte(test.body), &v, noEncoding)
			if !errors.Is(err, ErrUndecodable) || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%v, want it to say %q", err, test.says)
			}
			if errors.Is(err, ErrMalformed) {
				t.Error("matches ErrMalformed")
			}
		})
	}
	t.Run("keeps the codec's error", func(t *testing.T) {
		var v string
		if err := c.decode("order", "text/tag", []byte("tag:panic"), &v, noEncoding); !errors.Is(err, errFailed) {
			t.Errorf("%v", err)
		}
	})
}

func TestCodec_Refused(t *testing.T) {
	for says, codec := range map[string]Codec{
		"Codec is a nil *core.tagCodec":                   (*tagCodec)(nil),
		"codec core.tagCodec has no content type; return": tagCodec{"only parameters", "; x=y"},
	} {
		if _, err := newBodyCodec(codec); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want it to say %q", err, says)
		}
	}
}
