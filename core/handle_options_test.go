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
	inModes(t, everyMode, func(b *bed) {
		var ran record[string]
		says := func(name string) core.Middleware {
			return func(next core.HandlerFunc) core.HandlerFunc {
				return func(ctx context.Context, m *core.Message) error {
					ran.add(name)
					b.must(m.Send("shipping", "by "+name, nil))
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
			ran = record[string]{}
			with := func(middleware ...core.Middleware) core.HandleOptions {
				return core.HandleOptions{Independent: independent, Middleware: middleware}
			}
			ep := b.endpoint("orders", core.Config{Middleware: []core.Middleware{says("all")}})
			core.Handle(ep, "order", handler("a"), with(says("outer"), says("inner")))
			core.Handle(ep, "order", handler("b"), with())
			core.Handle(ep, "order", handler("c"), with(says("c's")))
			r := b.run(ep)
			b.put("m1")
			equal(b, "ran", fmt.Sprint(ran.all()), "[all outer inner a b c's c]")
			if got := b.sentTypes("shipping"); !slices.Equal(got, []string{"a", "b", "by all", "by c's", "by inner", "by outer", "c"}) {
				b.Errorf("sent %q", got)
			}
			ids := map[string]bool{}
			for _, m := range b.queue("shipping") {
				ids[m.ID] = true
			}
			equal(b, "different ids", len(ids), 7)
			b.must(r.stop())
			_, err := b.broker.Purge(b.Context(), "shipping")
			b.must(err)
		}
	})
}

func TestHandleOptions_MiddlewareTriesOneHandlerAgain(t *testing.T) {
	inModes(t, everyMode, func(b *bed) {
		for _, independent := range []bool{false, true} {
			var ran record[string]
			ep := b.endpoint("orders", core.Config{})
			failing := 2
			core.Handle(ep, "order", func(_ context.Context, m *core.TypedMessage[[]byte]) error {
				ran.add("a")
				return m.Send("shipping", "a", nil)
			}, core.HandleOptions{Independent: independent})
			core.Handle(ep, "order", func(_ context.Context, m *core.TypedMessage[[]byte]) error {
				ran.add("b")
				b.must(m.Send("shipping", "b", nil))
				if failing--; failing >= 0 {
					return errBoom
				}
				return nil
			}, core.HandleOptions{Independent: independent, Middleware: []core.Middleware{tries(3)}})
			r := b.run(ep)
			b.put("m1")
			equal(b, "ran", strings.Join(ran.all(), ""), "abbb")
			equal(b, "sent", b.shipped(), "a b")
			b.must(r.stop())
			_, err := b.broker.Purge(b.Context(), "shipping")
			b.must(err)
		}
	})
}

func TestHandleOptions_SkipOfTheLastRunCounts(t *testing.T) {
	bubble(t, func(b *bed) {
		var ran record[string]
		ep := b.endpoint("orders", core.Config{})
		core.Handle(ep, "order", func(_ context.Context, m *core.TypedMessage[[]byte]) error {
			if ran.add("a"); ran.len() == 1 {
				return errBoom
			}
			m.SkipRemainingHandlers()
			return nil
		}, core.HandleOptions{Middleware: []core.Middleware{tries(2)}})
		b.handle(ep, "order", func(context.Context, *core.Message) error { ran.add("b"); return nil })
		b.run(ep)
		b.put("m1")
		equal(b, "ran", strings.Join(ran.all(), ""), "aa")
	})
}

func TestHandleOptions_OfDefaultAndEventHandlers(t *testing.T) {
	bubble(t, func(b *bed) {
		var ran record[string]
		says := func(next core.HandlerFunc) core.HandlerFunc {
			return func(ctx context.Context, m *core.Message) error {
				ran.add("around " + m.Type)
				return next(ctx, m)
			}
		}
		o := core.HandleOptions{Middleware: []core.Middleware{says}}
		ep := b.endpoint("orders", core.Config{})
		h := func(context.Context, *core.TypedMessage[[]byte]) error { return nil }
		core.HandleDefault(ep, h, o)
		core.HandleEvent(ep, "event", h, o)
		b.must(ep.Invoke(b.Context(), "order", []byte("x")))
		b.must(ep.Invoke(b.Context(), "event", []byte("x")))
		equal(b, "ran", fmt.Sprint(ran.all()), "[around order around event]")
	})
}

func TestHandleOptions_MiddlewareTakesPartInTheStart(t *testing.T) {
	bubble(t, func(b *bed) {
		retry, breaker := core.Step{Kind: "retry", Tries: 3}, core.Step{Kind: "circuit breaker", Refuses: true}
		ep := b.endpoint("orders", core.Config{Middleware: []core.Middleware{described(retry)}})
		h := func(context.Context, *core.TypedMessage[[]byte]) error { return nil }
		core.Handle(ep, "order", h, core.HandleOptions{Middleware: []core.Middleware{described(breaker)}})
		if err := ep.Err(); err == nil || !strings.Contains(err.Error(), "HandleOptions.Middleware[0] (circuit breaker) stands inside of Middleware[0] (retry)") {
			b.Errorf("a circuit breaker of a handler within a retry of the endpoint: %v", err)
		}
		ep = b.endpoint("orders", core.Config{Middleware: []core.Middleware{described(breaker)}})
		core.Handle(ep, "order", h, core.HandleOptions{Middleware: []core.Middleware{described(retry)}})
		core.Handle(ep, "order", h)
		core.Handle(ep, "order", h, core.HandleOptions{Middleware: []core.Middleware{func(core.HandlerFunc) core.HandlerFunc { return nil }}})
		if err := ep.Err(); err == nil || !strings.Contains(err.Error(), "HandleOptions.Middleware[0] returned no handler") {
			b.Errorf("middleware that returns nothing: %v", err)
		}
		ep = b.endpoint("orders", core.Config{Middleware: []core.Middleware{described(breaker)}})
		core.Handle(ep, "order", h, core.HandleOptions{Middleware: []core.Middleware{described(retry)}})
		b.run(ep)
		lines := b.nestLines()
		equal(b, "lines", len(lines), 1)
		nest := fmt.Sprint(lines[0].attrs["nest"])
		if !strings.HasPrefix(nest, "circuit breaker > retry (3 tries) > ") || !strings.Contains(nest, "HandleOptions") {
			b.Errorf("the nest is %q", nest)
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
			b := newBed(t, able(func(*core.Capabilities) {}), core.TransactionReceiveOnly)
			var got record[string]
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
			ep := b.endpoint("orders", core.Config{})
			core.Handle(ep, "order", handler, core.HandleOptions{Independent: independent, Middleware: []core.Middleware{rename, tries(1), rename}})
			core.Handle(ep, "order", handler, core.HandleOptions{Independent: independent})
			b.must(ep.Invoke(b.Context(), "order", placed{Name: "original"}))
			want := "[sees original sees changed handles changed handles original]"
			equal(b, "bodies", fmt.Sprint(got.all()), want)
		})
	}
}

func TestTypedMiddleware_BodyThatAnInnerMiddlewareReplaces(t *testing.T) {
	bubble(t, func(b *bed) {
		typed := core.TypedMiddleware(func(next core.TypedHandlerFunc[placed]) core.TypedHandlerFunc[placed] { return next })
		replace := func(next core.HandlerFunc) core.HandlerFunc {
			return func(ctx context.Context, m *core.Message) error {
				m.SetBody([]byte(`{"Name":"replaced"}`))
				return next(ctx, m)
			}
		}
		got := ""
		ep := b.endpoint("orders", core.Config{})
		core.Handle(ep, "order", func(_ context.Context, m *core.TypedMessage[placed]) error {
			got = m.Body.Name
			again, err := core.DecodeBody[placed](m.Message)
			equal(b, "DecodeBody", again.Name, got)
			return err
		}, core.HandleOptions{Middleware: []core.Middleware{typed, replace}})
		b.must(ep.Invoke(b.Context(), "order", placed{Name: "original"}))
		equal(b, "the handler's body", got, "replaced")
	})
}

func TestTypedMiddleware_NotForBodiesThatCannotBeDecoded(t *testing.T) {
	bubble(t, func(b *bed) {
		never := core.TypedMiddleware(func(core.TypedHandlerFunc[placed]) core.TypedHandlerFunc[placed] {
			return func(context.Context, *core.TypedMessage[placed]) error {
				b.Error("it runs")
				return nil
			}
		})
		ep := b.endpoint("orders", core.Config{})
		core.Handle(ep, "order", func(context.Context, *core.TypedMessage[placed]) error { return nil }, core.HandleOptions{Middleware: []core.Middleware{never}})
		if err := ep.Invoke(b.Context(), "order", []byte("no JSON")); !errors.Is(err, core.ErrUndecodable) {
			b.Errorf("Invoke returned %v", err)
		}
		others := b.endpoint("others", core.Config{})
		core.Handle(others, "order", func(context.Context, *core.TypedMessage[placed]) error { return nil },
			core.HandleOptions{Middleware: []core.Middleware{core.TypedMiddleware(func(core.TypedHandlerFunc[placed]) core.TypedHandlerFunc[placed] { return nil })}})
		if err := others.Err(); err == nil || !strings.Contains(err.Error(), "returned no handler") {
			b.Errorf("typed middleware that returns nothing: %v", err)
		}
	})
}
