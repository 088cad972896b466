package core

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
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

func (c tagCodec) Decode(body []byte, v any) error {
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

func codecsOf(t *testing.T, standard Codec, more ...Codec) *codecs {
	t.Helper()
	c, err := newCodecs(standard, more)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestEncode(t *testing.T) {
	c := codecsOf(t, nil, tagCodec{"tag:", "text/tag"})
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
		body, contentType, err := codecsOf(t, tagCodec{"tag:", "Text/Tag; v=1"}).encode("order", "x")
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
	c := codecsOf(t, nil, tagCodec{"tag:", "text/tag"}, tagCodec{"other:", "text/other; charset=utf-8"})
	for _, test := range []struct {
		name, contentType, body, want string
	}{
		{"JSON", "application/json", `"x"`, "x"},
		{"JSON with parameters", "application/json; charset=utf-8", `"x"`, "x"},
		{"JSON in capitals", " Application/JSON ", `"x"`, "x"},
		{"the default without a content type", "", `"x"`, "x"},
		{"another codec", "text/tag", "tag:x", "x"},
		{"a codec whose content type has parameters", "text/other", "other:x", "x"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got string
			if err := c.decode("order", test.contentType, []byte(test.body), &got); err != nil || got != test.want {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

// Rule R6.
func TestUndecodable_MessageIsNotRetried(t *testing.T) {
	c := codecsOf(t, nil, tagCodec{"tag:", "text/tag"})
	for _, test := range []struct {
		name, contentType, body string
		says                    string
	}{
		{"no JSON", "application/json", "x", `decode "order" from application/json: invalid character`},
		{"no body", "application/json", "", `decode "order" from application/json: unexpected end`},
		{"JSON of another kind", "", "1", `decode "order" from application/json: json: cannot unmarshal number`},
		{"an unknown content type", "text/unknown", "x", "from text/unknown: no codec for this content type; add one to Config.Codecs"},
		{"a codec that fails", "text/tag", "x", `decode "order" from text/tag: handler failed: no tag`},
		{"a codec that panics", "text/tag", "tag:panic", `decode "order" from text/tag: panic: handler failed`},
	} {
		t.Run(test.name, func(t *testing.T) {
			var v string
			err := c.decode("order", test.contentType, []byte(test.body), &v)
			d, ok := errors.AsType[*DecodeError](err)
			if !ok || d.MessageType != "order" || !errors.Is(err, ErrUndecodable) || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%v, want it to say %q", err, test.says)
			}
			if errors.Is(err, ErrMalformed) {
				t.Error("matches ErrMalformed")
			}
		})
	}
	t.Run("keeps the codec's error", func(t *testing.T) {
		var v string
		if err := c.decode("order", "text/tag", []byte("tag:panic"), &v); !errors.Is(err, errFailed) {
			t.Errorf("%v", err)
		}
	})
}

func TestCodec_Contradictions(t *testing.T) {
	for _, test := range []struct {
		name     string
		standard Codec
		more     []Codec
		says     string
	}{
		{"two for one type", nil, []Codec{JSON}, `both for content type "application/json"`},
		{"two that differ in parameters alone", nil, []Codec{tagCodec{"a", "text/a"}, tagCodec{"b", "TEXT/A; x=y"}}, `both for content type "text/a"`},
		{"none", nil, []Codec{tagCodec{"a", "text/a"}, nil}, "Codecs[1] is nil"},
		{"a nil pointer", (*tagCodec)(nil), nil, "Codec is a nil *core.tagCodec"},
		{"a nil pointer among others", nil, []Codec{(*tagCodec)(nil)}, "Codecs[0] is nil"},
		{"no content type", tagCodec{"a", ""}, nil, "core.tagCodec has no content type"},
		{"only parameters", nil, []Codec{tagCodec{"a", "; x=y"}}, "core.tagCodec has no content type"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if _, err := newCodecs(test.standard, test.more); err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%v, want it to say %q", err, test.says)
			}
		})
	}
}
