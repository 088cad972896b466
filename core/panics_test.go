package core_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

//go:noinline
func panicWithError() { panic(errBoom) }

// nilError is an error whose text cannot be had when it is nil.
type nilError struct{ text string }

func (e *nilError) Error() string { return e.text }

// Rule R26.
func TestPanic_EndpointSurvivesHandlers(t *testing.T) {
	var nothing *nilError
	var noValue any
	var noItems []int
	for name, c := range map[string]struct {
		fail     func(m *core.Message) error
		text     string
		stack    string
		attempts int
	}{
		"panic":             {func(*core.Message) error { panicWithError(); return nil }, "panic: boom", "core_test.panicWithError", 3},
		"panic with nil":    {func(*core.Message) error { panic(noValue) }, "panic: ", "TestPanic_", 3},
		"runtime error":     {func(*core.Message) error { _ = noItems[len(t.Name())]; return nil }, "index out of range", "TestPanic_", 3},
		"Goexit":            {func(*core.Message) error { runtime.Goexit(); return nil }, "Goexit", "", 3},
		"typed nil error":   {func(*core.Message) error { return nothing }, "nilError", "", 3},
		"wrapped nil error": {func(*core.Message) error { return fmt.Errorf("wrapped: %w", nothing) }, "wrapped", "", 3},
		"panic with nil error": {
			func(*core.Message) error { panic(error(nothing)) }, "panic", "TestPanic_", 3,
		},
		"panic with a verdict": {func(*core.Message) error { panic(core.GiveUp(errBoom)) }, "panic: boom", "TestPanic_", 1},
	} {
		t.Run(name, func(t *testing.T) {
			inModes(t, allModes, func(fx *fixture) {
				attempts, want := 0, c.attempts
				config := core.Config{Concurrency: 1}
				if fx.mode == core.TransactionNone {
					want = 1
				} else {
					config.Recoverability = immediateRetries(2)
				}
				ep, _ := fx.runOrders(config, func(_ context.Context, m *core.Message) error {
					if m.ID == "good" {
						return nil
					}
					attempts++
					if err := m.Send("shipping", shipType.Of("x")); err != nil {
						fx.Error(err)
					}
					return c.fail(m)
				})
				fx.enqueue("m1")
				failed := fx.onlyMessage("error")
				equal(fx, "attempts", attempts, want)
				if text := failed.Headers.Get(headers.ExceptionMessage); !strings.Contains(text, c.text) {
					fx.Errorf("error text is %q, want it to contain %q", text, c.text)
				}
				if stack := failed.Headers.Get(headers.ExceptionStackTrace); !strings.Contains(stack, c.stack) {
					fx.Errorf("stack is %q, want it to contain %q", stack, c.stack)
				}
				fx.enqueue("good")
				fx.wantDepth("orders", 0)
				fx.wantDepth("error", 1)
				fx.wantDepth("shipping", 0)
				equal(fx, "messages being handled", ep.Health().InFlight, 0)
			})
		})
	}
}

// Rule R26.
func TestPanic_MiddlewareMayPanic(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		fx.runOrders(core.Config{
			Recoverability: noRetries,
			Middleware: []core.Middleware{core.MiddlewareFunc(func(core.HandlerFunc) core.HandlerFunc {
				return func(context.Context, *core.Message) error { panic("in middleware") }
			})},
		}, func(context.Context, *core.Message) error { return nil })
		fx.enqueue("m1")
		equal(fx, "error text", fx.onlyMessage("error").Headers.Get(headers.ExceptionMessage), "panic: in middleware")
	})
}

// A codec is users' code as well.
type panickingCodec struct{ core.Codec }

func (panickingCodec) Decode(string, []byte, any) error { panic("in codec") }
func (panickingCodec) Encode(any) ([]byte, error)       { panic("in codec") }

// Rule R26.
func TestPanic_PanicOfACodecIsUndecodable(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		ep := fx.newEndpoint("orders", core.Config{Codec: panickingCodec{core.JSON}})
		core.Handle(ep, orderStringType, func(context.Context, *core.Message, string) error { return nil })
		fx.run(ep)
		fx.enqueue("m1")
		failed := fx.onlyMessage("error")
		if text := failed.Headers.Get(headers.ExceptionMessage); !containsAll(text, "decode", "panic: in codec") {
			fx.Errorf("error text is %q", text)
		}
	})
}

// Rule R26.
func TestPanic_PanicOfAnEncoderFailsTheAttempt(t *testing.T) {
	for name, send := range map[string]func(m *core.Message) error{
		"Send":    func(m *core.Message) error { return m.Send("shipping", shipType.Of("x")) },
		"SendNow": func(m *core.Message) error { return m.SendNow(context.Background(), "shipping", shipType.Of("x")) },
	} {
		t.Run(name, func(t *testing.T) {
			inModes(t, allModes, func(fx *fixture) {
				fx.runOrders(core.Config{Codec: panickingCodec{core.JSON}, Recoverability: noRetries}, func(_ context.Context, m *core.Message) error { return send(m) })
				fx.enqueue("m1")
				equal(fx, "error text", fx.onlyMessage("error").Headers.Get(headers.ExceptionMessage), "panic: in codec")
			})
		})
	}
}

// Rule R12.
func TestPolicy_PanicMovesTheMessage(t *testing.T) {
	for name, policy := range map[string]core.Policy{
		"panics": func(context.Context, core.RecoverabilityConfig, core.ErrorContext) (core.Action, error) {
			panic("in policy")
		},
		"nothing": func(context.Context, core.RecoverabilityConfig, core.ErrorContext) (core.Action, error) {
			return core.Action{}, nil
		},
		"unknown": func(context.Context, core.RecoverabilityConfig, core.ErrorContext) (core.Action, error) {
			return core.Action{Kind: 42}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			inModes(t, allModes, func(fx *fixture) {
				runs := 0
				fx.runOrders(core.Config{Recoverability: core.Recoverability{Policy: policy}}, func(context.Context, *core.Message) error {
					runs++
					return errBoom
				})
				fx.enqueue("m1")
				equal(fx, "error text", fx.onlyMessage("error").Headers.Get(headers.ExceptionMessage), "boom")
				equal(fx, "runs", runs, 1)
				lines := fx.logs.find("recoverability policy failed", "message_id", "m1")
				if len(lines) != 1 || lines[0].attrs["error"] == nil || lines[0].attrs["policy_error"] == nil {
					fx.Errorf("logged %+v, want both errors in one line", lines)
				}
			})
		})
	}
}

// Rule R11.
func TestPolicy_RunsAfterTheRollback(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		fx.runOrders(core.Config{Recoverability: core.Recoverability{
			Policy: func(ctx context.Context, config core.RecoverabilityConfig, f core.ErrorContext) (core.Action, error) {
				doWork(ctx, "policy "+f.Message.ID)
				equal(fx, "error", f.Err, errBoom)
				equal(fx, "receive queue", f.ReceiveQueue, "orders")
				equal(fx, "immediate retries in force", config.Immediate.MaxNumberOfRetries, 5)
				f.Message.SetBody(nil)
				if err := f.Message.Send("shipping", shipType.Of("x")); !errors.Is(err, core.ErrHandlingEnded) {
					fx.Errorf("a send of the policy: %v", err)
				}
				return core.MoveToError(""), nil
			},
		}}, func(ctx context.Context, _ *core.Message) error {
			doWork(ctx, "handler")
			return errBoom
		})
		fx.enqueue("m1")
		equal(fx, "body in the error queue", string(fx.onlyMessage("error").Body), "body of m1")
		want := ""
		if fx.mode == core.TransactionSendsAtomicWithReceive {
			want = "policy m1"
		}
		equal(fx, "committed", strings.Join(fx.broker.committed.all(), " "), want)
	})
}
