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
					fx.noError(m.Send("shipping", core.NewMessageType[[]byte]("by "+name).Of(nil)))
					return next(ctx, m)
				}
			}
		}
		handler := func(name string) func(context.Context, *core.Message, []byte) error {
			return func(_ context.Context, m *core.Message, _ []byte) error {
				ran.add(name)
				return m.Send("shipping", core.NewMessageType[[]byte](name).Of(nil))
			}
		}
		for _, independent := range []bool{false, true} {
			ran = recorder[string]{}
			with := func(middleware ...core.Middleware) core.HandleOptions {
				return core.HandleOptions{Independent: independent, Middleware: middleware}
			}
			ep := fx.newEndpoint("orders", core.Config{Middleware: []core.Middleware{says("all")}})
			core.Handle(ep, orderType, handler("a"), with(says("outer"), says("inner")))
			core.Handle(ep, orderType, handler("b"), with())
			core.Handle(ep, orderType, handler("c"), with(says("c's")))
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
			core.Handle(ep, orderType, func(_ context.Context, m *core.Message, _ []byte) error {
				ran.add("a")
				return m.Send("shipping", aType.Of(nil))
			}, core.HandleOptions{Independent: independent})
			core.Handle(ep, orderType, func(_ context.Context, m *core.Message, _ []byte) error {
				ran.add("b")
				fx.noError(m.Send("shipping", bType.Of(nil)))
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
		core.Handle(ep, orderType, func(_ context.Context, m *core.Message, _ []byte) error {
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
		core.HandleDefault(ep, func(context.Context, *core.Message) error { return nil }, o)
		core.HandleEvent(ep, eventEvent, func(context.Context, *core.Message, []byte) error { return nil }, o)
		fx.noError(ep.Invoke(fx.Context(), orderType.Of([]byte("x"))))
		fx.noError(ep.Invoke(fx.Context(), eventEvent.MessageType.Of([]byte("x"))))
		equal(fx, "ran", fmt.Sprint(ran.all()), "[around order around event]")
	})
}

func TestHandleOptions_RefusesAWrongOrderOfMiddleware(t *testing.T) {
	bubble(t, func(fx *fixture) {
		retry, breaker := core.MiddlewareFacts{Kind: "retry", Runs: 3}, core.MiddlewareFacts{Kind: "circuit breaker", Refusals: []error{core.Refuse(errBoom, 0)}}
		ep := fx.newEndpoint("orders", core.Config{Middleware: []core.Middleware{describingMiddleware(retry)}})
		h := func(context.Context, *core.Message, []byte) error { return nil }
		core.Handle(ep, orderType, h, core.HandleOptions{Middleware: []core.Middleware{describingMiddleware(breaker)}})
		if err := ep.Err(); err == nil || !strings.Contains(err.Error(), "HandleOptions.Middleware[0] (circuit breaker) stands inside of Middleware[0] (retry)") {
			fx.Errorf("a circuit breaker of a handler within a retry of the endpoint: %v", err)
		}
		ep = fx.newEndpoint("orders", core.Config{Middleware: []core.Middleware{describingMiddleware(breaker)}})
		core.Handle(ep, orderType, h, core.HandleOptions{Middleware: []core.Middleware{describingMiddleware(retry)}})
		core.Handle(ep, orderType, h)
		core.Handle(ep, orderType, h, core.HandleOptions{Middleware: []core.Middleware{core.MiddlewareFunc(func(core.HandlerFunc) core.HandlerFunc { return nil })}})
		if err := ep.Err(); err == nil || !strings.Contains(err.Error(), "HandleOptions.Middleware[0] returned no handler") {
			fx.Errorf("middleware that returns nothing: %v", err)
		}
		ep = fx.newEndpoint("orders", core.Config{})
		core.Handle(ep, orderType, h, core.HandleOptions{Middleware: []core.Middleware{nil}})
		if err := ep.Err(); err == nil || !strings.Contains(err.Error(), "HandleOptions.Middleware[0] is nil; remove it") {
			fx.Errorf("nil: %v", err)
		}
	})
}

type placed struct {
	Name string
	Tags []string
}

type handlerOf[T any] = func(ctx context.Context, m *core.Message, body T) error

func TestTypedMiddleware_GetsTheBody(t *testing.T) {
	for _, independent := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			fx := newFixture(t, withCapabilities(func(*core.Capabilities) {}), core.TransactionReceiveOnly)
			var got recorder[string]
			rename := core.TypedMiddleware(func(ctx context.Context, m *core.Message, body placed, next handlerOf[placed]) error {
				got.add("sees " + body.Name)
				body.Name = "changed"
				return next(ctx, m, body)
			})
			handler := func(_ context.Context, _ *core.Message, body placed) error {
				got.add("handles " + body.Name)
				return nil
			}
			ep := fx.newEndpoint("orders", core.Config{})
			core.Handle(ep, orderPlacedType, handler, core.HandleOptions{Independent: independent, Middleware: []core.Middleware{rename, retryMiddleware(1), rename}})
			core.Handle(ep, orderPlacedType, handler, core.HandleOptions{Independent: independent})
			fx.noError(ep.Invoke(fx.Context(), orderPlacedType.Of(placed{Name: "original"})))
			want := "[sees original sees changed handles changed handles original]"
			equal(fx, "bodies", fmt.Sprint(got.all()), want)
		})
	}
}

func TestTypedMiddleware_BodyThatAnInnerMiddlewareReplaces(t *testing.T) {
	bubble(t, func(fx *fixture) {
		typed := core.TypedMiddleware(func(ctx context.Context, m *core.Message, body placed, next handlerOf[placed]) error {
			return next(ctx, m, body)
		})
		replace := func(next core.HandlerFunc) core.HandlerFunc {
			return func(ctx context.Context, m *core.Message) error {
				m.SetBody([]byte(`{"Name":"replaced"}`))
				return next(ctx, m)
			}
		}
		got := ""
		ep := fx.newEndpoint("orders", core.Config{})
		core.Handle(ep, orderPlacedType, func(_ context.Context, m *core.Message, body placed) error {
			got = body.Name
			decoded, err := orderPlacedType.Decode(m)
			equal(fx, "decoded again", decoded.Name, got)
			return err
		}, core.HandleOptions{Middleware: []core.Middleware{typed, core.MiddlewareFunc(replace)}})
		fx.noError(ep.Invoke(fx.Context(), orderPlacedType.Of(placed{Name: "original"})))
		equal(fx, "the handler's body", got, "replaced")
	})
}

func TestTypedMiddleware_NotForBodiesThatCannotBeDecoded(t *testing.T) {
	bubble(t, func(fx *fixture) {
		never := core.TypedMiddleware(func(context.Context, *core.Message, placed, handlerOf[placed]) error {
			fx.Error("it runs")
			return nil
		})
		ep := fx.newEndpoint("orders", core.Config{})
		core.Handle(ep, orderPlacedType, func(context.Context, *core.Message, placed) error { return nil }, core.HandleOptions{Middleware: []core.Middleware{never}})
		if err := ep.Invoke(fx.Context(), orderType.Of([]byte("no JSON"))); !errors.Is(err, core.ErrUndecodable) {
			fx.Errorf("Invoke returned %v", err)
		}
	})
}
