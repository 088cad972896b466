package core_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/core/messagekit"
)

// retryMiddleware is middleware that runs the handlers up to n times, until they succeed.
func retryMiddleware(n int) core.MiddlewareFunc {
	return func(next core.HandlerFunc) core.HandlerFunc {
		return func(ctx context.Context, m *core.Message) (err error) {
			for range n {
				if err = next(ctx, m); err == nil || core.VerdictOf(err) != nil {
					return err
				}
			}
			return err
		}
	}
}

// recoveringMiddleware is middleware under which a run may panic or end its goroutine.
func recoveringMiddleware(next core.HandlerFunc) core.HandlerFunc {
	return func(ctx context.Context, m *core.Message) error {
		err, done := errors.New("the run did not return"), make(chan struct{})
		go func() {
			defer close(done)
			defer func() { _ = recover() }()
			err = next(ctx, m)
		}()
		<-done
		return err
	}
}

// sendToShipping collects a message of a type for the queue "shipping".
func sendToShipping(fx *fixture, m *core.Message, messageType string) {
	fx.Helper()
	if err := m.Send("shipping", core.NewMessageType[string](messageType).Of("x")); err != nil {
		fx.Error(err)
	}
}

// shippedTypes returns the types of the messages in the queue "shipping", in order.
func (fx *fixture) shippedTypes() string {
	fx.Helper()
	var types []string
	for _, m := range fx.messages("shipping") {
		types = append(types, m.Headers.Get(headers.MessageTypes))
	}
	return strings.Join(types, " ")
}

// What leaves when middleware runs the handlers several times or decides instead
// of them. The handler is given the number of its call and sends "run 1" and so on
// before it takes the action of the case.
var runs = []struct {
	name       string
	middleware func(fx *fixture) []core.Middleware
	run        func(ctx context.Context, n int) error // nil succeeds
	err        error                                  // of the attempt
	want       string
}{
	{
		name:       "the run that succeeds after two that failed",
		middleware: func(*fixture) []core.Middleware { return []core.Middleware{retryMiddleware(3)} },
		run: func(_ context.Context, n int) error {
			if n < 3 {
				return errBoom
			}
			return nil
		},
		want: "run 3",
	},
	{
		name:       "nothing of runs that all fail",
		middleware: func(*fixture) []core.Middleware { return []core.Middleware{retryMiddleware(3)} },
		run:        func(context.Context, int) error { return errBoom },
		err:        errBoom,
	},
	{
		name: "the answer of middleware that takes the error",
		middleware: func(fx *fixture) []core.Middleware {
			return []core.Middleware{core.MiddlewareFunc(func(next core.HandlerFunc) core.HandlerFunc {
				return func(ctx context.Context, m *core.Message) error {
					if next(ctx, m) != nil {
						sendToShipping(fx, m, "answer")
					}
					return nil
				}
			})}
		},
		run:  func(context.Context, int) error { return errBoom },
		want: "answer",
	},
	{
		name: "messages that middleware collects before, between and after runs",
		middleware: func(fx *fixture) []core.Middleware {
			return []core.Middleware{core.MiddlewareFunc(func(next core.HandlerFunc) core.HandlerFunc {
				return func(ctx context.Context, m *core.Message) error {
					sendToShipping(fx, m, "before")
					if next(ctx, m) == nil {
						fx.Error("the first run succeeded")
					}
					sendToShipping(fx, m, "between")
					err := next(ctx, m)
					sendToShipping(fx, m, "after")
					equal(fx, "messages that middleware sees", len(messagekit.Collected(m)), 4)
					return err
				}
			})}
		},
		run: func(_ context.Context, n int) error {
			if n == 1 {
				return errBoom
			}
			return nil
		},
		want: "before between run 2 after",
	},
	{
		name: "the last of two runs that succeed",
		middleware: func(fx *fixture) []core.Middleware {
			return []core.Middleware{core.MiddlewareFunc(func(next core.HandlerFunc) core.HandlerFunc {
				return func(ctx context.Context, m *core.Message) error {
					sendToShipping(fx, m, "before")
					err := next(ctx, m)
					sendToShipping(fx, m, "between")
					return errors.Join(err, next(ctx, m))
				}
			})}
		},
		run:  func(context.Context, int) error { return nil },
		want: "before between run 2",
	},
	{
		name: "the run that succeeded before one that failed",
		middleware: func(fx *fixture) []core.Middleware {
			return []core.Middleware{core.MiddlewareFunc(func(next core.HandlerFunc) core.HandlerFunc {
				return func(ctx context.Context, m *core.Message) error {
					err := next(ctx, m)
					if next(ctx, m) == nil {
						fx.Error("the second run succeeded")
					}
					return err
				}
			})}
		},
		run: func(_ context.Context, n int) error {
			if n == 2 {
				return errBoom
			}
			return nil
		},
		want: "run 1",
	},
	{
		name: "nothing of a run that succeeded under middleware that fails",
		middleware: func(*fixture) []core.Middleware {
			return []core.Middleware{core.MiddlewareFunc(func(next core.HandlerFunc) core.HandlerFunc {
				return func(ctx context.Context, m *core.Message) error { return errors.Join(next(ctx, m), errBoom) }
			})}
		},
		run: func(context.Context, int) error { return nil },
		err: errBoom,
	},
	{
		name: "nothing of a run that panicked or ended its goroutine",
		middleware: func(*fixture) []core.Middleware {
			return []core.Middleware{retryMiddleware(3), core.MiddlewareFunc(recoveringMiddleware)}
		},
		run: func(_ context.Context, n int) error {
			switch n {
			case 1:
				panic("boom")
			case 2:
				runtime.Goexit()
			}
			return nil
		},
		want: "run 3",
	},
	{
		name: "messages that inner middleware collected in the run that succeeded",
		middleware: func(fx *fixture) []core.Middleware {
			return []core.Middleware{retryMiddleware(2), core.MiddlewareFunc(func(next core.HandlerFunc) core.HandlerFunc {
				return func(ctx context.Context, m *core.Message) error {
					sendToShipping(fx, m, "inner")
					return next(ctx, m)
				}
			})}
		},
		run: func(_ context.Context, n int) error {
			if n == 1 {
				return errBoom
			}
			return nil
		},
		want: "inner run 2",
	},
	{
		name: "the last of two runs at the same time",
		middleware: func(*fixture) []core.Middleware {
			return []core.Middleware{core.MiddlewareFunc(func(next core.HandlerFunc) core.HandlerFunc {
				return func(ctx context.Context, m *core.Message) error {
					var wg sync.WaitGroup
					wg.Go(func() { _ = next(ctx, m) })
					wg.Go(func() { _ = next(ctx, m) })
					wg.Wait()
					return nil
				}
			})}
		},
		run: func(_ context.Context, n int) error {
			if n == 1 {
				return errBoom
			}
			return nil
		},
		want: "run 2",
	},
}

// Rule R20.
func TestHandlerSends_OnlyASuccessfulRunSends(t *testing.T) {
	for _, c := range runs {
		t.Run(c.name, func(t *testing.T) {
			handler := func(fx *fixture) core.HandlerFunc {
				var calls recorder[int]
				return func(ctx context.Context, m *core.Message) error {
					n := calls.add(0)
					sendToShipping(fx, m, fmt.Sprintf("run %d", n))
					return c.run(ctx, n)
				}
			}
			inModes(t, allModes, func(fx *fixture) {
				fx.runOrders(core.Config{Recoverability: noRetries, Middleware: c.middleware(fx)}, handler(fx))
				fx.enqueue("m1")
				equal(fx, "types that left", fx.shippedTypes(), c.want)
				fx.wantDepth("orders", 0)
				if failed := len(fx.messages("error")) > 0; failed != (c.err != nil) {
					fx.Errorf("failed: %t", failed)
				}
			})
			t.Run("Invoke", func(t *testing.T) {
				bubble(t, func(fx *fixture) {
					ep := fx.newEndpoint("orders", core.Config{Middleware: c.middleware(fx)})
					fx.handle(ep, "order", handler(fx))
					if err := ep.Invoke(fx.Context(), orderType.Of([]byte("x"))); !errors.Is(err, c.err) {
						fx.Errorf("Invoke: %v", err)
					}
					equal(fx, "types that left", fx.shippedTypes(), c.want)
				})
			})
		})
	}
}

// Rule R20.
func TestHandlerSends_HandlersOfATypeAreOneRun(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		ep := fx.newEndpoint("orders", core.Config{Middleware: []core.Middleware{retryMiddleware(2)}})
		var calls recorder[int]
		fx.handle(ep, "order", func(_ context.Context, m *core.Message) error {
			sendToShipping(fx, m, "first")
			return nil
		})
		fx.handle(ep, "order", func(_ context.Context, m *core.Message) error {
			sendToShipping(fx, m, "second")
			if calls.add(0) == 1 {
				return errBoom
			}
			return nil
		})
		fx.run(ep)
		fx.enqueue("m1")
		equal(fx, "types that left", fx.shippedTypes(), "first second")
	})
}

// Rule R20.
func TestHandlerSends_EndedRunTakesNoSends(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		var calls recorder[*core.Message]
		late, refused := make(chan struct{}), make(chan error, 2)
		fx.runOrders(core.Config{Middleware: []core.Middleware{retryMiddleware(2)}}, func(ctx context.Context, m *core.Message) error {
			if calls.add(m) == 1 {
				go func() {
					<-late
					refused <- m.Send("shipping", lateType.Of("x"))
					refused <- m.SendNow(fx.Context(), "shipping", lateType.Of("x"))
				}()
				return errBoom
			}
			close(late)
			for range 2 {
				if err := <-refused; !errors.Is(err, core.ErrHandlingEnded) {
					fx.Errorf("a send by the run that failed: %v, want ErrHandlingEnded", err)
				}
			}
			sendToShipping(fx, m, "in time")
			return nil
		})
		fx.enqueue("m1")
		equal(fx, "types that left", fx.shippedTypes(), "in time")
		if all := calls.all(); len(all) != 2 || all[0] == all[1] {
			fx.Errorf("%d runs, with messages %p", len(all), all)
		}
	})
}

// Rule R20.
// Middleware that gives a slow run up answers itself; the run goes on alone.
func TestHandlerSends_AbandonedRunSendsNothing(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		slow, stuck, refused := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		fx.runOrders(core.Config{Middleware: []core.Middleware{core.MiddlewareFunc(func(next core.HandlerFunc) core.HandlerFunc {
			return func(ctx context.Context, m *core.Message) error {
				go func() { _ = next(ctx, m) }()
				<-slow
				sendToShipping(fx, m, "too slow")
				return nil
			}
		})}}, func(_ context.Context, m *core.Message) error {
			sendToShipping(fx, m, "slow")
			close(slow)
			<-stuck
			refused <- m.Send("shipping", slowerType.Of("x"))
			return nil
		})
		fx.enqueue("m1")
		close(stuck)
		if err := <-refused; !errors.Is(err, core.ErrHandlingEnded) {
			fx.Errorf("a send after the attempt: %v, want ErrHandlingEnded", err)
		}
		equal(fx, "types that left", fx.shippedTypes(), "too slow")
	})
}

// Rule R20.
func TestHandlerSends_EachRunHasTheSameMessageIDs(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		var calls recorder[int]
		fx.runOrders(core.Config{Middleware: []core.Middleware{core.MiddlewareFunc(func(next core.HandlerFunc) core.HandlerFunc {
			return func(ctx context.Context, m *core.Message) error {
				err := retryMiddleware(2)(next)(ctx, m)
				return errors.Join(err, m.SendNow(ctx, "shipping", middlewareType.Of("x")))
			}
		})}}, func(ctx context.Context, m *core.Message) error {
			if err := m.SendNow(ctx, "shipping", handlerStringType.Of("x")); err != nil {
				return err
			}
			if calls.add(0) < 4 { // both runs of the first attempt, one of the second
				return errBoom
			}
			return nil
		})
		fx.enqueue("m1")
		ids := map[string][]string{}
		for _, m := range fx.messages("shipping") {
			messageType := m.Headers.Get(headers.MessageTypes)
			ids[messageType] = append(ids[messageType], m.ID)
		}
		equal(fx, "sends of the handler", len(ids["handler"]), 4)
		equal(fx, "sends of middleware", len(ids["middleware"]), 2)
		for messageType, list := range ids {
			ids[messageType] = slices.Compact(list)
			equal(fx, "ids of "+messageType, len(ids[messageType]), 1)
		}
		if ids["handler"][0] == ids["middleware"][0] {
			fx.Error("a message of the handler and one of middleware have the same id")
		}
	})
}

func TestMiddleware_ChangesTheMessageForInnerOnes(t *testing.T) {
	bubble(t, func(fx *fixture) {
		sees := func(name string, m *core.Message, want string) {
			fx.Helper()
			equal(fx, name+" sees", m.Headers.Get("by"), want)
		}
		step := func(name, before string) core.MiddlewareFunc {
			return func(next core.HandlerFunc) core.HandlerFunc {
				return func(ctx context.Context, m *core.Message) error {
					sees(name, m, before)
					if from, ok := core.MessageFromContext(ctx); !ok || from != m {
						fx.Errorf("the context of %s has another message", name)
					}
					m.Headers.Set("by", name)
					err := next(ctx, m)
					sees(name, m, name)
					return err
				}
			}
		}
		fx.runOrders(core.Config{Middleware: []core.Middleware{step("outer", ""), step("inner", "outer")}}, func(ctx context.Context, m *core.Message) error {
			sees("the handler", m, "inner")
			if from, ok := core.MessageFromContext(ctx); !ok || from != m {
				fx.Error("the context of the handler has another message")
			}
			m.Headers.Set("by", "handler")
			return nil
		})
		fx.enqueue("m1")
		fx.wantDepth("orders", 0)
	})
}

// Middleware learns whether a retry follows, as the settings have it.
func TestIsLastAttempt(t *testing.T) {
	errKnown := errors.New("known")
	retries := core.Recoverability{
		Immediate: core.Immediate{NumberOfRetries: 1}, Delayed: core.Delayed{NumberOfRetries: 1, TimeIncrease: time.Second}, Unrecoverable: []error{errKnown},
	}
	policy := retries
	policy.Policy = core.DefaultPolicy
	for _, test := range []struct {
		name  string
		rules core.Recoverability
		err   error
		want  string
	}{
		{"an error", retries, errBoom, "[false false false true]"},
		{"an unrecoverable error", retries, errKnown, "[true]"},
		{"a verdict", retries, core.Discard(errors.New("not needed")), "[true]"},
		{"a policy, which is not asked beforehand", policy, errBoom, "[false false false false]"},
	} {
		t.Run(test.name, func(t *testing.T) {
			inModes(t, retryModes, func(fx *fixture) {
				var last recorder[bool]
				asks := core.MiddlewareFunc(func(next core.HandlerFunc) core.HandlerFunc {
					return func(ctx context.Context, m *core.Message) error {
						err := next(ctx, m)
						last.add(m.IsLastAttempt(err))
						return err
					}
				})
				fx.runOrders(core.Config{Middleware: []core.Middleware{retryMiddleware(1), asks}, Recoverability: test.rules}, func(context.Context, *core.Message) error { return test.err })
				fx.enqueue("m1")
				fx.advance(time.Minute)
				equal(fx, "last", fmt.Sprint(last.all()), test.want)
			})
		})
	}
	if m := (&core.Message{}); !m.IsLastAttempt(errBoom) {
		t.Error("another attempt follows outside an endpoint")
	}
	bubble(t, func(fx *fixture) {
		ep := fx.newEndpoint("orders", core.Config{Recoverability: retries})
		fx.handle(ep, "order", func(_ context.Context, m *core.Message) error {
			equal(fx, "last attempt in Invoke", m.IsLastAttempt(errBoom), true)
			return nil
		})
		fx.noError(ep.Invoke(fx.Context(), orderType.Of([]byte("x"))))
	})
}
