package core

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/reprise-go/reprise/core/headers"
)

// FuzzDecode gives handlers of several kinds any content type and body:
// each either gets a body or fails with an error that is not retried.
func FuzzDecode(f *testing.F) {
	f.Add("application/json", []byte(`{"ID":"o-1","Lines":[{"N":1}]}`))
	f.Add("application/json; charset=utf-8", []byte(`null`))
	f.Add("Application/JSON", []byte(`{"ID":1}`))
	f.Add("", []byte("two teapots, please"))
	f.Add("text/xml;", []byte(`<order/>`))
	f.Add(";;;", []byte{0xff, 0})
	f.Add("application/json", []byte(strings.Repeat("[", 20_000)))
	type order struct {
		ID    string
		Lines []struct{ N int }
		More  map[string]any
	}
	codec, err := newBodyCodec(nil)
	if err != nil {
		f.Fatal(err)
	}
	env := &messageDeps{composer: &composer{codec: codec}}
	f.Fuzz(func(t *testing.T, contentType string, body []byte) {
		original := string(body)
		in := &Incoming{ID: "m1", DeliveryCount: 1, Body: body}
		in.Headers.Set(headers.ContentType, contentType)
		var m Message
		m.begin(env, in, selection{messageType: "order"})
		for name, handle := range map[string]HandlerFunc{
			"struct":  func(_ context.Context, m *Message) error { _, err := decodeBody[order](m); return err },
			"pointer": func(_ context.Context, m *Message) error { _, err := decodeBody[*order](m); return err },
			"any":     func(_ context.Context, m *Message) error { _, err := decodeBody[any](m); return err },
		} {
			err := handle.callRecovered(t.Context(), &m)
			if err != nil && !errors.Is(err, ErrUndecodable) {
				t.Errorf("%s: %v is retried", name, err)
			}
		}
		raw, err := decodeBody[[]byte](&m)
		if err != nil || string(raw) != original {
			t.Fatalf("raw body %q, %v", raw, err)
		}
		clear(raw)
		if string(in.Body) != original {
			t.Error("a handler's change to its body reached the message")
		}
	})
}

// FuzzMessageTypes looks handlers up by any text of the header.
func FuzzMessageTypes(f *testing.F) {
	for _, header := range []string{"order", "a.B, Shop, Version=1.0;order", ";;", " order ", "order,", "\xff;order", ""} {
		f.Add(header)
	}
	want := &handlerSet{}
	r := &registry{handlers: map[string]*handlerSet{"order": want}}
	f.Fuzz(func(t *testing.T, header string) {
		messageType, set := r.lookup(header)
		switch {
		case set == want && messageType != "order":
			t.Errorf("%q: found by the type %q", header, messageType)
		case set == nil && messageType == "order":
			t.Errorf("%q: the type is order, but its handlers are not found", header)
		case set == nil && !strings.Contains(header, messageType):
			t.Errorf("%q: the type %q is not in the header", header, messageType)
		}
	})
}
