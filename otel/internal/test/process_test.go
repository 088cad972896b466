package otelreprise_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/core/messagekit"
	"github.com/reprise-go/reprise/middleware/fallback"
	otelreprise "github.com/reprise-go/reprise/otel"
)

func TestProcessSpan_Attributes(t *testing.T) {
	bubble(t, func(b *bed) {
		ep := b.orders(core.Config{}, b.observer(otelreprise.Config{}), func(context.Context, *core.Message) error {
			time.Sleep(time.Second)
			return nil
		})
		b.put(map[string]string{headers.ConversationID: "c1", headers.Retries: "2", headers.Deferrals: "1"}, "m1")
		b.pass(time.Second)
		span := b.one("process orders")
		equal(b, "kind", span.SpanKind, trace.SpanKindConsumer)
		equal(b, "duration", span.EndTime.Sub(span.StartTime), time.Second)
		equal(b, "status", span.Status.Code, codes.Unset)
		for key, want := range map[string]string{
			"messaging.system": "reprise.inmemory", "messaging.operation.name": "process", "messaging.operation.type": "process",
			"messaging.destination.name": "orders", "messaging.message.id": "m1", "messaging.message.conversation_id": "c1",
			"messaging.client.id": ep.Health().Instance, "reprise.endpoint": "orders", "reprise.message.type": "order",
			"reprise.attempt": "1", "reprise.delayed_retries": "2", "reprise.deferrals": "1", "reprise.outcome": "succeeded",
		} {
			equal(b, key, attr(span, key), want)
		}
	})
}

func TestProcessSpan_EndsHoweverTheHandlerEnds(t *testing.T) {
	for name, c := range map[string]struct {
		handler core.HandlerFunc
		kind    string
	}{
		"error":  {func(context.Context, *core.Message) error { return fmt.Errorf("pay: %w", errUnreachable) }, "*errors.errorString"},
		"panic":  {func(context.Context, *core.Message) error { panic("nil map") }, "*core.PanicError"},
		"Goexit": {func(context.Context, *core.Message) error { runtime.Goexit(); return nil }, "*errors.errorString"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bed) {
				b.orders(core.Config{Recoverability: none}, b.observer(otelreprise.Config{}), c.handler)
				b.put(nil, "m1")
				span := b.one("process orders")
				equal(b, "outcome", attr(span, "reprise.outcome"), "failed")
				equal(b, "error.type", attr(span, "error.type"), c.kind)
				equal(b, "header", b.onlyMessage("error").Headers.Get(headers.ExceptionType), c.kind)
				if len(span.Events) != 1 || span.Events[0].Name != "exception" || valueOf(span.Events[0].Attributes, "exception.type") != c.kind {
					b.Errorf("the events are %+v, want one exception", span.Events)
				}
				equal(b, "has a stack", valueOf(span.Events[0].Attributes, "exception.stacktrace") != "", name == "panic")
			})
		})
	}
}

func TestProcessSpan_Duplicate(t *testing.T) {
	bubble(t, func(b *bed) {
		answer := func(core.HandlerFunc) core.HandlerFunc {
			return func(_ context.Context, m *core.Message) error {
				messagekit.MarkDuplicate(m)
				return nil
			}
		}
		b.orders(core.Config{Middleware: []core.Middleware{core.MiddlewareFunc(answer)}}, b.observer(otelreprise.Config{}), func(context.Context, *core.Message) error { return errUnreachable })
		b.put(nil, "m1")
		equal(b, "outcome", attr(b.one("process orders"), "reprise.outcome"), "duplicate")
		equal(b, "duplicates", b.total("reprise.attempts", "reprise.outcome=duplicate"), int64(1))
		equal(b, "successes", b.total("reprise.attempts", "reprise.outcome=succeeded"), int64(0))
	})
}

func TestProcessSpan_FallbackIsNoFailure(t *testing.T) {
	bubble(t, func(b *bed) {
		answer := fallback.Middleware{On: fallback.On{Any: true}, EachAttempt: true, Handle: func(context.Context, *core.Message, error) error { return nil }}
		b.orders(core.Config{Middleware: []core.Middleware{answer}}, b.observer(otelreprise.Config{}), func(context.Context, *core.Message) error { return errUnreachable })
		b.put(nil, "m1")
		span := b.one("process orders")
		equal(b, "outcome", attr(span, "reprise.outcome"), "fallback")
		equal(b, "reprise.fallback", attr(span, "reprise.fallback"), "*errors.errorString")
		equal(b, "error.type", attr(span, "error.type"), "")
	})
}

func TestHandlerContext_CarriesTheSpan(t *testing.T) {
	bubble(t, func(b *bed) {
		b.orders(core.Config{}, b.observer(otelreprise.Config{}), func(ctx context.Context, _ *core.Message) error {
			_, span := b.tracers.Tracer("database").Start(ctx, "SELECT")
			span.End()
			return nil
		})
		b.put(nil, "m1")
		b.isChild(b.one("SELECT"), b.one("process orders").SpanContext)
	})
}

// TestHandlerSpan: each handler has a span below that of the attempt, however it ends.
func TestHandlerSpan(t *testing.T) {
	for name, c := range map[string]struct {
		end           func() error
		outcome, kind string
	}{
		"success": {func() error { return nil }, "succeeded", ""},
		"error":   {func() error { return fmt.Errorf("pay: %w", errUnreachable) }, "failed", "*errors.errorString"},
		"verdict": {func() error { return core.Discard(errors.New("not needed")) }, "discarded", ""},
		"panic":   {func() error { panic("nil map") }, "failed", "_OTHER"},
		"Goexit":  {func() error { runtime.Goexit(); return nil }, "failed", "_OTHER"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bed) {
				o := b.observer(otelreprise.Config{ErrorOn: otelreprise.ErrorOnAttempt})
				ep := b.endpoint("orders", core.Config{Recoverability: none}, o, nil)
				handler := func(name string, end func() error) {
					b.Helper()
					core.Handle(ep, orderByteType, func(ctx context.Context, m *core.Message, _ []byte) error {
						if err := m.SendNow(ctx, "audit", noticeType.Of("x")); err != nil {
							return err
						}
						return end()
					}, core.HandleOptions{Middleware: []core.Middleware{o.HandlerSpan(name)}})
				}
				handler("first", func() error { return nil })
				handler("second", c.end)
				b.run(ep)
				b.put(nil, "m1")
				process, handles, sends := b.one("process orders"), b.several("handle order", 2), b.several("send audit", 2)
				for i, span := range handles {
					b.isChild(span, process.SpanContext)
					b.isChild(sends[i], span.SpanContext)
					equal(b, "handler", attr(span, "reprise.handler"), []string{"first", "second"}[i])
					equal(b, "endpoint", attr(span, "reprise.endpoint"), "orders")
					equal(b, "message", attr(span, "messaging.message.id"), "m1")
				}
				equal(b, "outcome", attr(handles[1], "reprise.outcome"), c.outcome)
				equal(b, "error.type", attr(handles[1], "error.type"), c.kind)
				equal(b, "is an error", handles[1].Status.Code == codes.Error, c.kind != "")
				equal(b, "outcome of the first", attr(handles[0], "reprise.outcome"), "succeeded")
			})
		})
	}
}

// TestHandlerSpan_FailuresDoNotAffectMessages: a tracer that panics fails no message.
func TestHandlerSpan_FailuresDoNotAffectMessages(t *testing.T) {
	for _, p := range []panicky{{}, {spans: true}} {
		bubble(t, func(b *bed) {
			o := b.observer(otelreprise.Config{TracerProvider: p})
			ep := b.endpoint("orders", core.Config{Recoverability: none}, o, nil)
			handled := 0
			core.Handle(ep, orderByteType, func(context.Context, *core.Message, []byte) error { handled++; return nil },
				core.HandleOptions{Middleware: []core.Middleware{o.HandlerSpan("only")}})
			b.run(ep)
			b.put(nil, "m1")
			b.pass(0)
			equal(b, "handled", handled, 1)
		})
	}
}

// TestProcessSpan_NotOfTheTraceOfRun: a span around Run is not the parent of all messages.
func TestProcessSpan_NotOfTheTraceOfRun(t *testing.T) {
	bubble(t, func(b *bed) {
		ctx, span := b.tracers.Tracer("main").Start(b.Context(), "main")
		defer span.End()
		b.runUnder(ctx, b.endpoint("orders", core.Config{}, b.observer(otelreprise.Config{}), func(context.Context, *core.Message) error { return nil }, "order"))
		b.put(nil, "m1")
		b.isRoot(b.one("process orders"))
	})
}

func TestProcessSpan_OfInvokeIsAChild(t *testing.T) {
	bubble(t, func(b *bed) {
		ep := b.orders(core.Config{}, b.observer(otelreprise.Config{}), func(_ context.Context, m *core.Message) error {
			return m.Send("shipping", shipType.Of("x"))
		})
		ctx, span := b.tracers.Tracer("main").Start(b.Context(), "POST /orders")
		if err := ep.Invoke(ctx, orderByteType.Of([]byte("x"))); err != nil {
			b.Fatal(err)
		}
		span.End()
		b.isChild(b.one("process orders"), span.SpanContext())
		b.isChild(b.one("send shipping"), b.one("process orders").SpanContext)
	})
}

func TestStatus_ErrorOnFinal(t *testing.T) {
	bubble(t, func(b *bed) {
		b.orders(core.Config{Recoverability: immediate}, b.observer(otelreprise.Config{}), func(context.Context, *core.Message) error { return errUnreachable })
		b.put(nil, "m1")
		for _, span := range b.several("process orders", 3) {
			equal(b, "status of an attempt", span.Status.Code, codes.Unset)
			equal(b, "events", len(span.Events), 1)
		}
		recovers := b.several("recover orders", 3)
		for i, want := range []codes.Code{codes.Unset, codes.Unset, codes.Error} {
			equal(b, fmt.Sprint("status of recovery ", i), recovers[i].Status.Code, want)
		}
		equal(b, "text", recovers[2].Status.Description, "503")
	})
}

func TestStatus_ErrorOnAttempt(t *testing.T) {
	bubble(t, func(b *bed) {
		b.orders(core.Config{Recoverability: immediate}, b.observer(otelreprise.Config{ErrorOn: otelreprise.ErrorOnAttempt}), func(context.Context, *core.Message) error { return errUnreachable })
		b.put(nil, "m1")
		for _, span := range b.several("process orders", 3) {
			equal(b, "status", span.Status.Code, codes.Error)
		}
	})
}

func TestRecoverSpan_HasTheOutcomeOfTheMessage(t *testing.T) {
	bubble(t, func(b *bed) {
		b.orders(core.Config{Recoverability: delayed}, b.observer(otelreprise.Config{}), func(context.Context, *core.Message) error { return errUnreachable })
		b.put(nil, "m1")
		b.pass(time.Hour)
		attempts, recovers := b.several("process orders", 4), b.several("recover orders", 4)
		for i, want := range []string{"delayed_retry", "delayed_retry", "delayed_retry", "error"} {
			b.isChild(recovers[i], attempts[i].SpanContext)
			equal(b, "kind", recovers[i].SpanKind, trace.SpanKindInternal)
			equal(b, "action", attr(recovers[i], "reprise.action"), want)
			equal(b, "error.type", attr(recovers[i], "error.type"), "*errors.errorString")
		}
		equal(b, "delay", attr(recovers[1], "reprise.delay"), "20")
		equal(b, "destination", attr(recovers[3], "reprise.destination"), "error")
	})
}

func TestProcessSpan_DroppedBySampling(t *testing.T) {
	bubble(t, func(b *bed) {
		unsampled := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample()), sdktrace.WithSyncer(b.spans))
		b.orders(core.Config{Recoverability: immediate}, b.observer(otelreprise.Config{TracerProvider: unsampled}), func(_ context.Context, m *core.Message) error {
			if m.Attempt < 3 {
				return errUnreachable
			}
			return m.Send("shipping", shipType.Of("x"))
		})
		b.put(nil, "m1")
		equal(b, "spans", len(b.all()), 0)
		equal(b, "measured", b.total("messaging.process.duration", ""), int64(3))
		if parent := b.onlyMessage("shipping").Headers.Get("traceparent"); len(parent) != 55 || parent[53:] != "00" {
			b.Errorf("traceparent is %q; want one that says that nothing was sampled", parent)
		}
	})
}

func TestProcessSpan_VerdictsWithoutAnErrorAreNoFailures(t *testing.T) {
	for outcome, verdict := range map[string]error{"deferred": core.Defer(errors.New("not yet"), time.Hour), "discarded": core.Discard(errors.New("not needed"))} {
		bubble(t, func(b *bed) {
			b.orders(core.Config{}, b.observer(otelreprise.Config{ErrorOn: otelreprise.ErrorOnAttempt, NServiceBusMetrics: true}), func(context.Context, *core.Message) error { return verdict })
			b.put(nil, "m1")
			span := b.one("process orders")
			equal(b, "outcome", attr(span, "reprise.outcome"), outcome)
			equal(b, "error.type", attr(span, "error.type"), "")
			equal(b, "status", span.Status.Code, codes.Unset)
			equal(b, "events", len(span.Events), 0)
			equal(b, "error.type of the action", attr(b.one("recover orders"), "error.type"), "")
			equal(b, "actions", b.total("reprise.recoverability.actions", ""), int64(1))
			equal(b, "failures of NServiceBus", b.total("nservicebus.messaging.failures", ""), int64(0))
		})
	}
}

// TestProcessSpan_WaitingIsNotGivenUp: the message stays in its queue.
func TestProcessSpan_WaitingIsNotGivenUp(t *testing.T) {
	for _, test := range []struct {
		verdict         func(error, time.Duration) error
		outcome, action string
	}{
		{core.PutBack, "put_back", "put_back"},
		{core.Refuse, "deferred", "deferral"},
	} {
		t.Run(test.action, func(t *testing.T) {
			bubble(t, func(b *bed) {
				done := false
				b.orders(core.Config{Transactions: core.TransactionReceiveOnly}, b.observer(otelreprise.Config{NServiceBusMetrics: true}), func(context.Context, *core.Message) error {
					if !done {
						done = true
						return test.verdict(errUnreachable, time.Second)
					}
					return nil
				})
				b.put(nil, "m1")
				b.pass(time.Minute)
				equal(b, "outcome", attr(b.several("process orders", 2)[0], "reprise.outcome"), test.outcome)
				span := b.one("recover orders")
				equal(b, "action", attr(span, "reprise.action"), test.action)
				equal(b, "status", span.Status.Code, codes.Unset)
				equal(b, "given up", b.total("reprise.attempts", "reprise.outcome=given_up"), int64(0))
				equal(b, "failed age", b.total("reprise.failed.age", ""), int64(0))
				// A feature that is switched off is no failure.
				equal(b, "attempts", b.total("messaging.process.duration", ""), int64(2))
				equal(b, "attempts that failed", b.total("messaging.process.duration", "error.type=*errors.errorString"), int64(0))
				equal(b, "error.type of the attempt", attr(b.several("process orders", 2)[0], "error.type"), "")
				equal(b, "NServiceBus's failures", b.total("nservicebus.messaging.failures", ""), int64(0))
			})
		})
	}
}
