package core

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
)

func newEndpoint(t *testing.T) *Endpoint {
	t.Helper()
	ep, err := New("billing", capableTransport(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	return ep
}

func ignore[T any](context.Context, *Message, T) error { return nil }

func ignoreAll(context.Context, *Message) error { return nil }

func ignoreFailed[T any](context.Context, *Message, T, *Failed) error { return nil }

func TestHandle_TellsErrorsOfRegistrations(t *testing.T) {
	for _, test := range []struct {
		name     string
		register func(ep *Endpoint)
		says     string
	}{
		{"no name", func(ep *Endpoint) { Handle(ep, messageStringType, ignore[string]) }, "Handle: the message type has no name"},
		{"a name with ';'", func(ep *Endpoint) { Handle(ep, aBType, ignore[string]) }, `"a;b" cannot be a message type`},
		{"a name with ','", func(ep *Endpoint) { HandleEvent(ep, bEvent, ignore[string]) }, `HandleEvent: "a, b" cannot be a message type`},
		{"a name that is not UTF-8", func(ep *Endpoint) { HandleFailed(ep, aType, ignoreFailed[string]) }, `HandleFailed: "a\xff" cannot be`},
		{"no handler", func(ep *Endpoint) { Handle[string](ep, aEvent.MessageType, nil) }, `Handle "a": the handler is nil`},
		{"no handler of an event", func(ep *Endpoint) { HandleEvent[string](ep, aEvent, nil) }, `HandleEvent "a": the handler is nil`},
		{"no handler of failures", func(ep *Endpoint) { HandleFailed[string](ep, aEvent.MessageType, nil) }, `HandleFailed "a": the handler is nil`},
		{"no default handler", func(ep *Endpoint) { HandleDefault(ep, nil) }, `HandleDefault: the handler is nil`},
		{"two types for one message", func(ep *Endpoint) {
			Handle(ep, aEvent.MessageType, ignore[string])
			Handle(ep, aIntType, ignore[int])
		}, `handlers for "a" contradict each other: one takes string, another int`},
		{"a value and a pointer", func(ep *Endpoint) {
			Handle(ep, aEvent.MessageType, ignore[string])
			Handle(ep, aStringType, ignore[*string])
		}, "one takes string, another *string"},
		{"another type for failures", func(ep *Endpoint) {
			Handle(ep, aEvent.MessageType, ignore[string])
			HandleFailed(ep, aIntType, ignoreFailed[int])
		}, "one takes string, another int"},
		{"another type than for failures", func(ep *Endpoint) {
			HandleFailed(ep, aIntType, ignoreFailed[int])
			Handle(ep, aEvent.MessageType, ignore[string])
		}, "one takes int, another string"},
		{"a command and an event", func(ep *Endpoint) {
			Handle(ep, aEvent.MessageType, ignore[string])
			HandleEvent(ep, aEvent, ignore[string])
		}, `"a" is registered both by Handle and by HandleEvent`},
		{"an event and a command", func(ep *Endpoint) {
			HandleEvent(ep, aEvent, ignore[string])
			Handle(ep, aEvent.MessageType, ignore[string])
		}, `"a" is registered both by Handle and by HandleEvent`},
		{"failures handled twice", func(ep *Endpoint) {
			Handle(ep, aEvent.MessageType, ignore[string])
			HandleFailed(ep, aEvent.MessageType, ignoreFailed[string])
			HandleFailed(ep, aEvent.MessageType, ignoreFailed[string])
		}, `HandleFailed is registered twice for "a"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			ep := newEndpoint(t)
			test.register(ep)
			err := ep.Err()
			if err == nil || !strings.Contains(err.Error(), test.says) || !strings.Contains(err.Error(), `core: endpoint "billing": `) {
				t.Fatalf("%v, want it to say %q", err, test.says)
			}
			for _, later := range []error{ep.Provision(t.Context()), ep.Run(t.Context()), ep.Run(t.Context()), ep.Invoke(t.Context(), aEvent.MessageType.Of("x"))} {
				if later == nil || !strings.HasPrefix(later.Error(), err.Error()) {
					t.Errorf("later %v, want it to begin with %v", later, err)
				}
			}
		})
	}
	t.Run("all together", func(t *testing.T) {
		ep := newEndpoint(t)
		Handle[string](ep, firstType, nil)
		HandleFailed(ep, secondType, ignoreFailed[string])
		err := ep.Run(t.Context())
		if err == nil || !strings.Contains(err.Error(), "first") || !strings.Contains(err.Error(), "second") {
			t.Errorf("%v", err)
		}
	})
	t.Run("R51 HandleFailed without a handler", func(t *testing.T) {
		ep := newEndpoint(t)
		HandleFailed(ep, aEvent.MessageType, ignoreFailed[string])
		if err := ep.Run(t.Context()); err == nil || !strings.Contains(err.Error(), `HandleFailed is registered for "a", which has no handler`) {
			t.Errorf("%v", err)
		}
	})
	t.Run("HandleFailed for a type with the default handler", func(t *testing.T) {
		ep := newEndpoint(t)
		HandleFailed(ep, aEvent.MessageType, ignoreFailed[string])
		HandleDefault(ep, ignoreAll)
		if err := ep.registry.seal(); err != nil {
			t.Fatal(err)
		}
		if _, set := ep.registry.lookup("a"); len(set.handlers) != 1 || set.handleFailed == nil {
			t.Errorf("%d handlers, last resort %t", len(set.handlers), set.handleFailed != nil)
		}
	})
	t.Run("too late", func(t *testing.T) {
		ep := newEndpoint(t)
		Handle(ep, aEvent.MessageType, ignore[string])
		if err := ep.Invoke(t.Context(), aEvent.MessageType.Of("x")); err != nil {
			t.Fatal(err)
		}
		Handle(ep, bStringType.MessageType, ignore[string])
		HandleFailed(ep, aEvent.MessageType, ignoreFailed[string])
		for _, err := range []error{ep.Err(), ep.Run(t.Context()), ep.Invoke(t.Context(), aEvent.MessageType.Of("x"))} {
			if !errors.Is(err, errSealed) || !strings.Contains(err.Error(), `handler for "b"`) || !strings.Contains(err.Error(), `handler for "a"`) {
				t.Errorf("%v, want it to name both", err)
			}
		}
	})
	t.Run("on a send-only endpoint", func(t *testing.T) {
		ep, err := New("billing", capableTransport(), Config{SendOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		Handle(ep, aEvent.MessageType, ignore[string])
		HandleEvent(ep, bStringType, ignore[string])
		HandleDefault(ep, ignoreAll)
		HandleFailed(ep, aEvent.MessageType, ignoreFailed[string])
		err = ep.Run(t.Context())
		for _, name := range []string{`Handle "a"`, `HandleEvent "b"`, `HandleDefault`, `HandleFailed "a"`} {
			if err == nil || !strings.Contains(err.Error(), name+": the endpoint is send-only") {
				t.Errorf("Run: %v, want it to tell that of %s", err, name)
			}
		}
	})
}

func TestHandle_AcceptsRegistrations(t *testing.T) {
	ep := newEndpoint(t)
	Handle(ep, aEvent.MessageType, ignore[string])
	Handle(ep, aEvent.MessageType, ignore[string])
	HandleEvent(ep, eventEvent, ignore[int])
	HandleEvent(ep, eventIntType, ignore[int])
	HandleEvent(ep, eventIntType, ignore[int])
	HandleFailed(ep, aEvent.MessageType, ignoreFailed[string])
	HandleFailed(ep, eventIntType.MessageType, ignoreFailed[int])
	HandleFailed(ep, cType, ignoreFailed[[]byte])
	Handle(ep, cType, ignore[[]byte])
	if err := ep.registry.seal(); err != nil {
		t.Error(err)
	}
	if got, want := ep.registry.topics(), []string{"b event", "z.event"}; !slices.Equal(got, want) {
		t.Errorf("topics %v, want the events %v", got, want)
	}
	if n := len(ep.registry.handlers["a"].handlers); n != 2 {
		t.Errorf("%d handlers of a", n)
	}
}

func TestMessageTypeOf_Message(t *testing.T) {
	ep := newEndpoint(t)
	for _, name := range []string{"orders.place", "Sales.OrderPlaced", "Sales.IEvent"} {
		Handle(ep, NewMessageType[string](name), ignore[string])
	}
	const assembly = ", Sales, Version=1.0.0.0, Culture=neutral, PublicKeyToken=null"
	for _, test := range []struct {
		name, header, want string
		handlers           int
	}{
		{"a name", "orders.place", "orders.place", 1},
		{"with an assembly", "Sales.OrderPlaced" + assembly, "Sales.OrderPlaced", 1},
		{"the first of several", "Sales.OrderPlaced" + assembly + ";Sales.IEvent" + assembly, "Sales.OrderPlaced", 2},
		{"the first that has a handler", "Sales.Special" + assembly + ";Sales.Other;Sales.IEvent;Sales.OrderPlaced", "Sales.IEvent", 2},
		{"one type twice", "Sales.IEvent;Sales.OrderPlaced;Sales.IEvent" + assembly + ";Sales.OrderPlaced", "Sales.IEvent", 2},
		{"with spaces", " Sales.Other ; Sales.IEvent " + assembly, "Sales.IEvent", 1},
		{"after empty entries", ";;,;Sales.IEvent;", "Sales.IEvent", 1},
		{"none that has a handler is the first", "Sales.Special" + assembly + ";Sales.Other", "Sales.Special", 0},
		{"the first that is not empty", "; ;Sales.Other", "Sales.Other", 0},
		{"no header", "", "", 0},
		{"nothing but separators", ";,;", "", 0},
		{"names are case sensitive", "sales.orderplaced", "sales.orderplaced", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, set := ep.registry.lookup(test.header)
			handlers := 0
			if set != nil {
				handlers = len(set.handlers)
			}
			if got != test.want || handlers != test.handlers {
				t.Errorf("%q with %d handlers, want %q with %d", got, handlers, test.want, test.handlers)
			}
			if handlers == 1 && set != ep.registry.handlers[test.want] {
				t.Error("another type's handlers")
			}
		})
	}
}

func TestMessageTypeOf_DefaultHandler(t *testing.T) {
	ep := newEndpoint(t)
	Handle(ep, placeType, ignore[string])
	HandleDefault(ep, ignoreAll)
	for header, want := range map[string]string{
		"":                                   "",
		";,;":                                "",
		";orders.place":                      "orders.place",
		"orders.cancel, Orders;orders.other": "orders.cancel",
		"orders.cancel;orders.place":         "orders.place",
	} {
		got, set := ep.registry.lookup(header)
		if isDefault := set == ep.registry.handlers[anyType]; got != want || isDefault != (want != "orders.place") {
			t.Errorf("%q is %q, for the default handler: %t", header, got, isDefault)
		}
	}
}

func TestHandlers_GetTheirOwnBodies(t *testing.T) {
	ep := newEndpoint(t)
	var got []string
	change := func(_ context.Context, m *Message, body []byte) error {
		got = append(got, string(body))
		copy(body, "XXX")
		copy(m.RawBody(), "YYY")
		return nil
	}
	Handle(ep, aByteType, change)
	Handle(ep, aByteType, change)
	if err := ep.Invoke(t.Context(), aByteType.Of([]byte("raw"))); err != nil || !slices.Equal(got, []string{"raw", "raw"}) {
		t.Errorf("%q, %v", got, err)
	}
}
