package core_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

const thisPackage = "github.com/reprise-go/reprise/core_test."

func passesSlowly(context.Context, *core.Message, []byte) error {
	time.Sleep(2 * time.Second)
	return nil
}

func failsSlowly(context.Context, *core.Message, []byte) error {
	time.Sleep(3 * time.Second)
	return errBoom
}

type namedService struct{ name string }

func (d *namedService) serve(context.Context, *core.Message, []byte) error { panic(d.name) }

func endsGoroutine(context.Context, *core.Message, []byte) error {
	runtime.Goexit()
	return nil
}

// newHandler returns different handlers whose function is the same.
//
//go:noinline
func newHandler(err error) func(context.Context, *core.Message, []byte) error {
	return func(context.Context, *core.Message, []byte) error { return err }
}

func generic[T any](context.Context, *core.Message, T) error { return errBoom }

// Rule R23.
func TestFailureHeaders_NamesTheFailingHandler(t *testing.T) {
	type handlers []func(context.Context, *core.Message, []byte) error
	for _, test := range []struct {
		name     string
		handlers handlers
		want     string
		began    time.Duration // after the message was sent
		took     time.Duration
	}{
		{"a function, after one that succeeds", handlers{passesSlowly, failsSlowly, passesSlowly}, "failsSlowly", 2 * time.Second, 3 * time.Second},
		{"a method that panics", handlers{(&namedService{"x"}).serve}, "(*namedService).serve", 0, 0},
		{"one that ends its goroutine", handlers{passesSlowly, endsGoroutine}, "endsGoroutine", 2 * time.Second, 0},
		{"the second that a function made", handlers{newHandler(nil), newHandler(errBoom)}, "newHandler.func1 #2", 0, 0},
		{"an instance of a generic function", handlers{generic[[]byte]}, "TestFailureHeaders_NamesTheFailingHandler.func*|init.func*|generic[...]", 0, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			inModes(t, allModes, func(fx *fixture) {
				var policy core.ErrorContext
				var seen recoveryRecorder
				recover := core.Recoverability{Policy: func(_ context.Context, _ core.RecoverabilityConfig, f core.ErrorContext) (core.Action, error) {
					policy = f
					return core.MoveToError(""), nil
				}}
				ep := fx.newEndpoint("orders", core.Config{Recoverability: recover, Observers: []core.Observer{seen.observer()}})
				for _, h := range test.handlers {
					core.Handle(ep, orderType, h)
				}
				fx.run(ep)
				sentAt := time.Now()
				fx.enqueue("m1")
				fx.advance(time.Minute)
				h := fx.onlyMessage("error").Headers
				name := h.Get(headers.HandlerType)
				if !isNamed(name, test.want) {
					fx.Errorf("the failing handler is %q, want %q", name, test.want)
				}
				began, failed := sentAt.Add(test.began), sentAt.Add(test.began+test.took)
				equal(fx, "began", h.Get(headers.HandlerStartTime), headers.FormatTime(began))
				equal(fx, "failed", h.Get(headers.HandlerFailureTime), headers.FormatTime(failed))
				equal(fx, "message type", h.Get(headers.HandledMessageType), "order")
				equal(fx, "handler in ErrorContext", policy.Handler, name)
				equal(fx, "handler in Recovery", seen.all()[0].Failure.Handler, name)
			})
		})
	}
}

// isNamed reports whether a function of this package has one of the names that are
// separated by |. The compiler may put a closure into the function that it was inlined
// into.
func isNamed(name, want string) bool {
	name, ok := strings.CutPrefix(name, thisPackage)
	for each := range strings.SplitSeq(want, "|") {
		prefix, open := strings.CutSuffix(each, "*")
		if ok && (name == each || open && strings.HasPrefix(name, prefix)) {
			return true
		}
	}
	return false
}

// Rule R23.
func TestFailureHeaders_NamesNoHandlerWhereNoneFailed(t *testing.T) {
	fails := func(next core.HandlerFunc) core.HandlerFunc {
		return func(ctx context.Context, m *core.Message) error {
			if err := next(ctx, m); err != nil && m.ID != "no run" {
				return err
			}
			return errBoom
		}
	}
	twice := func(next core.HandlerFunc) core.HandlerFunc {
		return func(ctx context.Context, m *core.Message) error {
			first := next(ctx, m)
			return errors.Join(next(ctx, m), first)
		}
	}
	hides := core.MiddlewareFunc(func(next core.HandlerFunc) core.HandlerFunc {
		return func(ctx context.Context, m *core.Message) error {
			if next(ctx, m) == nil {
				return errors.New("the handler has not failed")
			}
			return m.Send("nowhere", xType.Of("x"))
		}
	})
	failing := func(context.Context, *core.Message) error { return errBoom }
	for name, test := range map[string]struct {
		config  core.Config
		message core.Outgoing
		handler core.HandlerFunc
		named   bool
	}{
		"middleware hides a failure, and a send fails":         {config: core.Config{Middleware: []core.Middleware{hides}}, message: order("m1"), handler: failing},
		"middleware hides a failure, and that around it fails": {config: core.Config{Middleware: []core.Middleware{core.MiddlewareFunc(fails), hides}}, message: order("m1"), handler: failing},
		"middleware fails after its handlers":                  {config: core.Config{Middleware: []core.Middleware{core.MiddlewareFunc(fails)}}, message: order("m1"), handler: func(context.Context, *core.Message) error { return nil }},
		"the last of several runs succeeds": {config: core.Config{Middleware: []core.Middleware{core.MiddlewareFunc(twice)}}, message: order("m1"), handler: func() core.HandlerFunc {
			runs := 0
			return func(context.Context, *core.Message) error {
				if runs++; runs%2 == 1 {
					return errBoom
				}
				return nil
			}
		}()},
		"middleware replaces its error": {
			config: core.Config{Middleware: []core.Middleware{core.MiddlewareFunc(func(next core.HandlerFunc) core.HandlerFunc {
				return func(ctx context.Context, m *core.Message) error {
					if next(ctx, m) != nil {
						return errors.New("replaced")
					}
					return nil
				}
			})}}, message: order("m1"), handler: func(context.Context, *core.Message) error { return errBoom }, named: true,
		},
		"no handler":             {message: orderWithout("m1", func(h *core.Headers) { h.Set(headers.MessageTypes, "stranger") }), handler: func(context.Context, *core.Message) error { return nil }},
		"a send that is refused": {message: order("m1"), handler: func(_ context.Context, m *core.Message) error { return m.Send("nowhere", xType.Of("x")) }},
	} {
		t.Run(name, func(t *testing.T) {
			inModes(t, allModes, func(fx *fixture) {
				test.config.Recoverability = noRetries
				fx.runOrders(test.config, test.handler)
				fx.send(test.message)
				h := fx.onlyMessage("error").Headers
				for _, key := range []string{headers.HandlerType, headers.HandlerStartTime, headers.HandlerFailureTime, headers.HandledMessageType} {
					if value, ok := h.Lookup(key); ok != test.named {
						fx.Errorf("header %s is %q", key, value)
					}
				}
			})
		})
	}
}

// Rule R23.
// A message that was sent back does not keep the handler of its earlier failure.
func TestFailureHeaders_ForgetsAnEarlierFailingHandler(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		stale := order("m1")
		stale.Headers.Set(headers.MessageTypes, "stranger")
		stale.Headers.Set(headers.HandlerType, "shop.charge")
		stale.Headers.Set(headers.HandlerStartTime, "then")
		fx.runOrders(core.Config{Recoverability: noRetries}, func(context.Context, *core.Message) error { return nil })
		fx.send(stale)
		h := fx.onlyMessage("error").Headers
		equal(fx, "handler", h.Get(headers.HandlerType), "")
		equal(fx, "its beginning", h.Get(headers.HandlerStartTime), "")
	})
}
