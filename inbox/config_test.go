package inbox_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/coretest"
	"github.com/reprise-go/reprise/inbox"
	"github.com/reprise-go/reprise/transport/inmemory"
)

func TestNew_Refuses(t *testing.T) {
	for text, c := range map[string]inbox.Config{
		"Config.Store is nil":      {},
		"Config.Wait is -1s":       {Store: &inbox.Memory{}, Wait: -time.Second},
		"Config.Retention is -1ns": {Store: &inbox.Memory{}, Retention: -1},
		"Config.Duplicates is 2":   {Store: &inbox.Memory{}, Duplicates: 2},
	} {
		if _, err := inbox.New(c); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%v, want %q", err, text)
		}
	}
}

// endpoint makes one with the middleware of an inbox.
func endpoint(name string, c inbox.Config, cc core.Config, middleware func(*inbox.Inbox) []core.Middleware) (*core.Endpoint, error) {
	c.Store = &inbox.Memory{}
	box, err := inbox.New(c)
	if err != nil {
		return nil, err
	}
	cc.Middleware = middleware(box)
	return core.New(name, inmemory.Open(), cc)
}

func around(box *inbox.Inbox) []core.Middleware { return []core.Middleware{box.Middleware()} }

func TestMiddleware_Refuses(t *testing.T) {
	for text, try := range map[string]func() (*core.Endpoint, error){
		"in transaction mode None": func() (*core.Endpoint, error) {
			return endpoint("billing", inbox.Config{}, core.Config{Transactions: core.TransactionNone, Recoverability: core.Recoverability{Immediate: core.Immediate{NumberOfRetries: core.Off}, Delayed: core.Delayed{NumberOfRetries: core.Off}}}, around)
		},
		"Config.Retention is 1h0m0s, but delayed retries can keep a message for 2h0m0s": func() (*core.Endpoint, error) {
			return endpoint("billing", inbox.Config{Retention: time.Hour}, core.Config{Recoverability: core.Recoverability{
				MessageTypes: map[string]core.TypeRecoverability{"slow": {Delayed: core.Delayed{Delays: []time.Duration{time.Hour, time.Hour}}}},
			}}, around)
		},
		"has 256 bytes": func() (*core.Endpoint, error) {
			return endpoint("billing", inbox.Config{Scope: strings.Repeat("x", 256)}, core.Config{}, around)
		},
		"which is the same": func() (*core.Endpoint, error) {
			return endpoint("billing", inbox.Config{}, core.Config{}, func(box *inbox.Inbox) []core.Middleware { return []core.Middleware{box.Middleware(), box.Middleware()} })
		},
		"the name of a handler is empty": func() (*core.Endpoint, error) {
			return endpoint("billing", inbox.Config{}, core.Config{}, func(box *inbox.Inbox) []core.Middleware { return []core.Middleware{box.Handler("")} })
		},
	} {
		if _, err := try(); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%v, want %q", err, text)
		}
	}
}

// neighbour is middleware that only has facts.
type neighbour core.MiddlewareFacts

func (n neighbour) Describe(core.MiddlewareScope) ([]core.MiddlewareFacts, error) {
	return []core.MiddlewareFacts{core.MiddlewareFacts(n)}, nil
}

func (neighbour) Wrap(_ core.MiddlewareScope, next core.HandlerFunc) core.HandlerFunc { return next }

// The transaction of an inbox would commit the work of a failed handler if middleware inside
// of it may succeed nevertheless, for an endpoint and for one handler.
func TestMiddleware_RefusesToStandAroundTries(t *testing.T) {
	circuit := neighbour{Kind: "circuit breaker", Refusals: []error{core.ErrCircuitOpen}}
	for _, test := range []struct {
		name  string
		inner neighbour
		says  string // "" is right
	}{
		{"retry", neighbour{Kind: "retry", Name: "bank", Runs: 2}, `(retry "bank"), and its transaction would commit the work of failed handlers, too; list that before the inbox`},
		{"a single try", neighbour{Kind: "retry", Runs: 1}, ""},
		{"fallback", neighbour{Kind: "fallback", HidesFailures: true}, "(fallback), and its transaction would commit"},
		{"circuit breaker", circuit, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			wants := func(err error, text string) {
				t.Helper()
				if (err == nil) != (test.says == "") || err != nil && !strings.Contains(err.Error(), text+test.says) {
					t.Errorf("%v, want %q", err, test.says)
				}
			}
			inside := func(box *inbox.Inbox) []core.Middleware { return []core.Middleware{box.Middleware(), test.inner} }
			_, err := endpoint("billing", inbox.Config{}, core.Config{}, inside)
			wants(err, `Middleware[0] (inbox "billing") stands around Middleware[1] `)

			ep, err := endpoint("billing", inbox.Config{}, core.Config{}, around)
			if err != nil {
				t.Fatal(err)
			}
			handler := func(context.Context, *core.Message, []byte) error { return nil }
			core.Handle(ep, orderType, handler)
			if err := ep.Err(); err != nil {
				t.Error(err)
			}
			core.Handle(ep, orderType, handler, core.HandleOptions{Middleware: []core.Middleware{test.inner}})
			wants(ep.Err(), `Middleware[0] (inbox "billing") stands around HandleOptions.Middleware[0] `)

			outside := func(box *inbox.Inbox) []core.Middleware { return []core.Middleware{test.inner, box.Middleware()} }
			if _, err := endpoint("billing", inbox.Config{}, core.Config{}, outside); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestHandler_NameIsUniqueAmongHandlersOfAType(t *testing.T) {
	box, err := inbox.New(inbox.Config{Store: &inbox.Memory{}})
	if err != nil {
		t.Fatal(err)
	}
	ep, err := core.New("billing", inmemory.Open(), core.Config{})
	if err != nil {
		t.Fatal(err)
	}
	register := func(messageType, name string) error {
		core.Handle(ep, core.NewMessageType[[]byte](messageType), func(context.Context, *core.Message, []byte) error { return nil },
			core.HandleOptions{Middleware: []core.Middleware{box.Handler(name)}})
		return ep.Err()
	}
	for _, each := range [][2]string{{"order", "charge"}, {"order", "note"}, {"refund", "charge"}} {
		if err := register(each[0], each[1]); err != nil {
			t.Error(err)
		}
	}
	if err := register("order", "charge"); err == nil || !strings.Contains(err.Error(), "give each handler another name") {
		t.Error(err)
	}
}

// Scopes that look alike are none.
func TestScope(t *testing.T) {
	for _, c := range []struct{ scope, endpoint, handler, want string }{
		{"", "billing", "", "billing"},
		{"old name", "billing", "", "old%20name"},
		{"", "billing", "a/b", "billing/a%2Fb"},
		{"", "billing/a", "b", "billing%2Fa/b"},
	} {
		store := &inbox.Memory{}
		box, err := inbox.New(inbox.Config{Store: store, Scope: c.scope})
		if err != nil {
			t.Fatal(err)
		}
		ep, err := core.New(c.endpoint, inmemory.Open(), core.Config{})
		if err != nil {
			t.Fatal(err)
		}
		middleware := box.Middleware()
		if c.handler != "" {
			middleware = box.Handler(c.handler)
		}
		core.Handle(ep, orderType, func(context.Context, *core.Message, []byte) error { return nil }, core.HandleOptions{Middleware: []core.Middleware{
			core.MiddlewareFunc(func(next core.HandlerFunc) core.HandlerFunc { return next }), middleware,
		}})
		id := ""
		core.Handle(ep, orderType, func(_ context.Context, m *core.Message, _ []byte) error { id = m.ID; return nil })
		if err := ep.Invoke(t.Context(), orderType.Of([]byte("x"))); err != nil {
			t.Fatal(err)
		}
		if _, ok := store.Entry(inbox.Key{Scope: c.want, ID: id}); !ok {
			t.Errorf("%+v: there is no entry with this scope", c)
		}
	}
}

// Outside of an endpoint, in a test of a handler with its middleware, the scope is
// needed.
func TestMiddleware_OutsideOfAnEndpoint(t *testing.T) {
	for scope, works := range map[string]bool{"": false, "billing": true} {
		box, err := inbox.New(inbox.Config{Store: &inbox.Memory{}, Scope: scope})
		if err != nil {
			t.Fatal(err)
		}
		in, _, recorder := coretest.Message(orderType, []byte("x"))
		handle := box.Middleware().Wrap(core.MiddlewareScope{}, func(_ context.Context, m *core.Message) error { return m.Send("events", billedType.Of([]byte("bill"))) })
		for range 2 {
			if err := handle(t.Context(), in); (err == nil) != works {
				t.Errorf("scope %q: %v", scope, err)
			}
		}
		if sent := recorder.Sent(); works && (len(sent) != 2 || sent[0].Outgoing.ID != sent[1].Outgoing.ID) {
			t.Errorf("sent %v", sent)
		}
	}
}
