package core_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/reprise-go/reprise/core"
)

func TestHandleOptions_MiddlewareWrapsOneHandler(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		var ran recorder[string]
		says := func(name string) core.MiddlewareFunc {
			return func(next core.HandlerFunc) core.HandlerFunc {
				return func(ctx context.Context, m *core.Message) error {
					ran.add(name)
					fx.noError(m.Send("shipping", "by "+name, nil))
					return next(ctx, m)
				}
			}
		}
		handler := func(name string) func(context.Context, *core.TypedMessage[[]byte]) error {
			return func(_ context.Context, m *core.TypedMessage[[]byte]) error {
				ran.add(name)
				return m.Send("shipping", name, nil)
			}
		}
		for _, independent := range []bool{false, true} {
			ran = recorder[string]{}
			with := func(middleware ...core.Middleware) core.HandleOptions {
				return core.HandleOptions{Independent: independent, Middleware: middleware}
			}
			ep := fx.newEndpoint("orders", core.Config{Middleware: []core.Middleware{says("all")}})
			core.Handle(ep, "order", handler("a"), with(says("outer"), says("inner")))
			core.Handle(ep, "order", handler("b"), with())
			core.Handle(ep, "order", handler("c"), with(says("c's")))
			r := fx.run(ep)
			fx.enqueue("m1")
			equal(fx, "ran", fmt.Sprint(ran.all()), "[all outer inner a b c's c]")
			if got := fx.sentTypes("shipping"); !slices.Equal(got, []string{"a", "b", "by all", "by c's", "by inner", "by outer", "c"}) {
				fx.Errorf("sent %q", got)
			}
			ids := map[string]bool{}
			for _, m := range fx.messages("shipping") {
				ids[m.ID] = true
			}
			equal(fx, "different ids", len(ids), 7)
			fx.noError(r.stop())
			_, err := fx.broker.Purge(fx.Context(), "shipping")
			fx.noError(err)
		}
	})
}

func TestHandleOptions_MiddlewareTriesOneHandlerAgain(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		for _, independent := range []bool{false, true} {
			var ran recorder[string]
			ep := fx.newEndpoint("orders", core.Config{})
			failing := 2
			core.Handle(ep, "order", func(_ context.Context, m *core.TypedMessage[[]byte]) error {
				ran.add("a")
				return m.Send("shipping", "a", nil)
			}, core.HandleOptions{Independent: independent})
			core.Handle(ep, "order", func(_ context.Context, m *core.TypedMessage[[]byte]) error {
				ran.add("b")
				fx.noError(m.Send("shipping", "b", nil))
				if failing--; failing >= 0 {
					return errBoom
				}
				return nil
			}, core.HandleOptions{Independent: independent, Middleware: []core.Middleware{retryMiddleware(3)}})
			r := fx.run(ep)
			fx.enqueue("m1")
			equal(fx, "ran", strings.Join(ran.all(), ""), "abbb")
			equal(fx, "sent", fx.shippedTypes(), "a b")
			fx.noError(r.stop())
			_, err := fx.broker.Purge(fx.Context(), "shipping")
			fx.noError(err)
		}
	})
}

func TestHandleOptions_SkipOfTheLastRunCounts(t *testing.T) {
	bubble(t, func(fx *fixture) {
		var ran recorder[string]
		ep := fx.newEndpoint("orders", core.Config{})
		core.Handle(ep, "order", func(_ context.Context, m *core.TypedMessage[[]byte]) error {
			if ran.add("a"); ran.len() == 1 {
				return errBoom
			}
			m.SkipRemainingHandlers()
			return nil
		}, core.HandleOptions{Middleware: []core.Middleware{retryMiddleware(2)}})
		fx.handle(ep, "order", func(context.Context, *core.Message) error { ran.add("b"); return nil })
		fx.run(ep)
		fx.enqueue("m1")
		equal(fx, "ran", strings.Join(ran.all(), ""), "aa")
	})
}

func TestHandleOptions_OfDefaultAndEventHandlers(t *testing.T) {
	bubble(t, func(fx *fixture) {
		var ran recorder[string]
		says := func(next core.HandlerFunc) core.HandlerFunc {
			return func(ctx context.Context, m *core.Message) error {
				ran.add("around " + m.Type)
				return next(ctx, m)
			}
		}
		o := core.HandleOptions{Middleware: []core.Middleware{core.MiddlewareFunc(says)}}
		ep := fx.newEndpoint("orders", core.Config{})
		h := func(context.Context, *core.TypedMessage[[]byte]) error { return nil }
		core.HandleDefault(ep, h, o)
		core.HandleEvent(ep, "event", h, o)
		fx.noError(ep.Invoke(fx.Context(), "order", []byte("x")))
		fx.noError(ep.Invoke(fx.Context(), "event", []byte("x")))
		equal(fx, "ran", fmt.Sprint(ran.all()), "[around order around event]")
	})
}

func TestHandleOptions_RefusesAWrongOrderOfMiddleware(t *testing.T) {
	bubble(t, func(fx *fixture) {
		retry, breaker := core.MiddlewareFacts{Kind: "retry", Runs: 3}, core.MiddlewareFacts{Kind: "circuit breaker", Refusals: []error{core.Refuse(errBoom, 0)}}
		ep := fx.newEndpoint("orders", core.Config{Middleware: []core.Middleware{describingMiddleware(retry)}})
		h := func(context.Context, *core.TypedMessage[[]byte]) error { return nil }
		core.Handle(ep, "order", h, core.HandleOptions{Middleware: []core.Middleware{describingMiddleware(breaker)}})
		if err := ep.Err(); err == nil || !strings.Contains(err.Error(), "HandleOptions.Middleware[0] (circuit breaker) stands inside of Middleware[0] (retry)") {
			fx.Errorf("a circuit breaker of a handler within a retry of the endpoint: %v", err)
		}
		ep = fx.newEndpoint("orders", core.Config{Middleware: []core.Middleware{describingMiddleware(breaker)}})
		core.Handle(ep, "order", h, core.HandleOptions{Middleware: []core.Middleware{describingMiddleware(retry)}})
		core.Handle(ep, "order", h)
		core.Handle(ep, "order", h, core.HandleOptions{Middleware: []core.Middleware{core.MiddlewareFunc(func(core.HandlerFunc) core.HandlerFunc { return nil })}})
		if err := ep.Err(); err == nil || !strings.Contains(err.Error(), "HandleOptions.Middleware[0] returned no handler") {
			fx.Errorf("middleware that returns nothing: %v", err)
		}
		ep = fx.newEndpoint("orders", core.Config{})
		core.Handle(ep, "order", h, core.HandleOptions{Middleware: []core.Middleware{nil}})
		if err := ep.Err(); err == nil || !strings.Contains(err.Error(), "HandleOptions.Middleware[0] is nil; remove it") {
			fx.Errorf("nil: %v", err)
		}
	})
}

type placed struct {
	Name string
	Tags []string
}

func TestTypedMiddleware_GetsTheBody(t *testing.T) {
	for _, independent := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			fx := newFixture(t, withCapabilities(func(*core.Capabilities) {}), core.TransactionReceiveOnly)
			var got recorder[string]
			rename := core.TypedMiddleware(func(next core.TypedHandlerFunc[placed]) core.TypedHandlerFunc[placed] {
				return func(ctx context.Context, m *core.TypedMessage[placed]) error {
					got.add("sees " + m.Body.Name)
					m.Body.Name = "changed"
					return next(ctx, m)
				}
			})
			handler := func(_ context.Context, m *core.TypedMessage[placed]) error {
				got.add("handles " + m.Body.Name)
				return nil
			}
			ep := fx.newEndpoint("orders", core.Config{})
			core.Handle(ep, "order", handler, core.HandleOptions{Independent: independent, Middleware: []core.Middleware{rename, retryMiddleware(1), rename}})
			core.Handle(ep, "order", handler, core.HandleOptions{Independent: independent})
			fx.noError(ep.Invoke(fx.Context(), "order", placed{Name: "original"}))
			want := "[sees original sees changed handles changed handles original]"
			equal(fx, "bodies", fmt.Sprint(got.all()), want)
		})
	}
}

func TestTypedMiddleware_BodyThatAnInnerMiddlewareReplaces(t *testing.T) {
	bubble(t, func(fx *fixture) {
		typed := core.TypedMiddleware(func(next core.TypedHandlerFunc[placed]) core.TypedHandlerFunc[placed] { return next })
		replace := func(next core.HandlerFunc) core.HandlerFunc {
			return func(ctx context.Context, m *core.Message) error {
				m.SetBody([]byte(`{"Name":"replaced"}`))
				return next(ctx, m)
			}
		}
		got := ""
		ep := fx.newEndpoint("orders", core.Config{})
		core.Handle(ep, "order", func(_ context.Context, m *core.TypedMessage[placed]) error {
			got = m.Body.Name
			again, err := core.DecodeBody[placed](m.Message)
			equal(fx, "DecodeBody", again.Name, got)
			return err
		}, core.HandleOptions{Middleware: []core.Middleware{typed, core.MiddlewareFunc(replace)}})
		fx.noError(ep.Invoke(fx.Context(), "order", placed{Name: "original"}))
		equal(fx, "the handler's body", got, "replaced")
	})
}

func TestTypedMiddleware_NotForBodiesThatCannotBeDecoded(t *testing.T) {
	bubble(t, func(fx *fixture) {
		never := core.TypedMiddleware(func(core.TypedHandlerFunc[placed]) core.TypedHandlerFunc[placed] {
			return func(context.Context, *core.TypedMessage[placed]) error {
				fx.Error("it runs")
				return nil
			}
		})
		ep := fx.newEndpoint("orders", core.Config{})
		core.Handle(ep, "order", func(context.Context, *core.TypedMessage[placed]) error { return nil }, core.HandleOptions{Middleware: []core.Middleware{never}})
		if err := ep.Invoke(fx.Context(), "order", []byte("no JSON")); !errors.Is(err, core.ErrUndecodable) {
			fx.Errorf("Invoke returned %v", err)
		}
		others := fx.newEndpoint("others", core.Config{})
		core.Handle(others, "order", func(context.Context, *core.TypedMessage[placed]) error { return nil },
			core.HandleOptions{Middleware: []core.Middleware{core.TypedMiddleware(func(core.TypedHandlerFunc[placed]) core.TypedHandlerFunc[placed] { return nil })}})
		if err := others.Err(); err == nil || !strings.Contains(err.Error(), "returned no handler") {
			fx.Errorf("typed middleware that returns nothing: %v", err)
		}
	})
}
