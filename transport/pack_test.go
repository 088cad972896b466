package transport_test

import (
	"errors"
	"maps"
	"testing"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/transport"
)

func TestUnpackHeaders_UndoesPackHeaders(t *testing.T) {
	for name, out := range map[string]core.Outgoing{
		"nothing":             {},
		"headers":             {Headers: core.HeadersFromMap(map[string]string{"a": "1", "Reprise.Attempts": "2"})},
		"a group key":         {GroupKey: "customer 7"},
		"an odd group key":    {GroupKey: " \x00\"ключ\"\n"},
		"properties":          {Properties: map[string]string{"rabbitmq.priority": "9", "empty": "", "ключ": "\"значение\"\x00"}},
		"headers of our name": {Headers: core.HeadersFromMap(map[string]string{"Reprise.GroupKey": "the application's", "Reprise.Properties": "[]"})},
		"all of it": {
			GroupKey: "g", Properties: map[string]string{"p": "1"},
			Headers: core.HeadersFromMap(map[string]string{"Reprise.GroupKey": "x", "Reprise.Escaped.": "y", "Reprise.Escaped.Reprise.GroupKey": "z", "z": ""}),
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := core.Incoming{Headers: transport.PackHeaders(&out)}
			transport.UnpackHeaders(&in)
			if in.GroupKey != out.GroupKey {
				t.Errorf("group key %q, want %q", in.GroupKey, out.GroupKey)
			}
			if !maps.Equal(in.Properties, out.Properties) {
				t.Errorf("properties %q, want %q", in.Properties, out.Properties)
			}
			if got, want := in.Headers.Map(), out.Headers.Map(); !maps.Equal(got, want) {
				t.Errorf("headers %q, want %q", got, want)
			}
		})
	}
}

func TestUnpackHeaders_LeavesForeignProperties(t *testing.T) {
	sent := map[string]string{"Reprise.Properties": "no JSON", "a": "1"}
	in := core.Incoming{Headers: core.HeadersFromMap(sent)}
	transport.UnpackHeaders(&in)
	if got := in.Headers.Map(); !maps.Equal(got, sent) || in.Properties != nil {
		t.Errorf("headers %q and properties %q, want the headers %q alone", got, in.Properties, sent)
	}
}

// A sender need not use PackHeaders: any header may arrive, and none gets the empty name, with
// which a handler could not send the message on.
func TestUnpackHeaders_MakesNoEmptyName(t *testing.T) {
	for _, name := range []string{"Reprise.Escaped.", "Reprise.Escaped.Reprise.Escaped.", "Reprise.Escaped.Reprise.Escaped.Reprise.Escaped."} {
		in := core.Incoming{Headers: core.HeadersFromMap(map[string]string{name: "x", "Reprise.Escaped.Reprise.GroupKey": "y"})}
		transport.UnpackHeaders(&in)
		if _, ok := in.Headers.Lookup(""); ok || in.Headers.Len() != 2 {
			t.Errorf("%s arrives as %q", name, in.Headers.Map())
		}
		forwarded := core.Incoming{Headers: transport.PackHeaders(&core.Outgoing{Headers: in.Headers})}
		if transport.UnpackHeaders(&forwarded); !maps.Equal(forwarded.Headers.Map(), in.Headers.Map()) {
			t.Errorf("%s is sent on as %q, and arrives as %q", name, in.Headers.Map(), forwarded.Headers.Map())
		}
	}
}

func TestPackHeaders_AllocatesNothingWithoutNeed(t *testing.T) {
	out := core.Outgoing{Headers: core.HeadersFromMap(map[string]string{"NServiceBus.MessageId": "1", "Reprise.Attempts": "2"})}
	in := core.Incoming{Headers: out.Headers}
	if n := testing.AllocsPerRun(100, func() {
		in.Headers = transport.PackHeaders(&out)
		transport.UnpackHeaders(&in)
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

func TestCheckOutgoing_GroupKeyAndPropertiesAreTextAndCount(t *testing.T) {
	caps := &core.Capabilities{Limits: core.Limits{MaxHeaderBytes: 8}}
	for name, c := range map[string]struct {
		out  core.Outgoing
		want error
	}{
		"as many bytes as there may be": {core.Outgoing{ID: "1", Queue: "q", GroupKey: "1234", Properties: map[string]string{"p": "123"}}, nil},
		"a group key that is too long":  {core.Outgoing{ID: "1", Queue: "q", GroupKey: "123456789"}, core.ErrTooLarge},
		"properties that are too long":  {core.Outgoing{ID: "1", Queue: "q", Properties: map[string]string{"p": "12345678"}}, core.ErrTooLarge},
		"a group key of bytes":          {core.Outgoing{ID: "1", Queue: "q", GroupKey: "\xff"}, core.ErrInvalidHeader},
		"a property without a name":     {core.Outgoing{ID: "1", Queue: "q", Properties: map[string]string{"": "1"}}, core.ErrInvalidHeader},
		"a name of bytes":               {core.Outgoing{ID: "1", Queue: "q", Properties: map[string]string{"\xff": "1"}}, core.ErrInvalidHeader},
		"a value of bytes":              {core.Outgoing{ID: "1", Queue: "q", Properties: map[string]string{"p": "\xff"}}, core.ErrInvalidHeader},
	} {
		if err := transport.CheckOutgoing(&c.out, caps); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

func TestCheckOutgoing_RefusesAMessageWithoutAnID(t *testing.T) {
	if err := transport.CheckOutgoing(&core.Outgoing{Queue: "q"}, &core.Capabilities{}); err == nil {
		t.Error("a message without an id can be sent")
	}
}

// The ID of a message without the header NServiceBus.MessageId arrives, and the header stays
// missing.
func TestPackHeaders_CarriesTheID(t *testing.T) {
	out := core.Outgoing{ID: "1", Queue: "q"}
	out.Headers.Set("key", "value")
	in := core.Incoming{Headers: transport.PackHeaders(&out)}
	transport.UnpackHeaders(&in)
	if in.ID != "1" || !in.IDSent || !maps.Equal(in.Headers.Map(), map[string]string{"key": "value"}) {
		t.Errorf("the message arrives with the ID %q, IDSent %t and the headers %v", in.ID, in.IDSent, in.Headers.Map())
	}
}

func TestUnpackHeaders_ReadsTheIDOfTheHeader(t *testing.T) {
	for generated, sent := range map[string]bool{"": true, "True": false} {
		h := core.HeadersFromMap(map[string]string{headers.MessageID: "1"})
		if generated != "" {
			h.Set(headers.GeneratedID, generated)
		}
		in := core.Incoming{Headers: h}
		transport.UnpackHeaders(&in)
		if in.ID != "1" || in.IDSent != sent || in.Headers.Get(headers.MessageID) != "1" {
			t.Errorf("with the mark %q the ID is %q, IDSent %t", generated, in.ID, in.IDSent)
		}
	}
}
