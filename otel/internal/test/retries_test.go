package otelreprise_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	otelreprise "github.com/reprise-go/reprise/otel"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// TestImmediateRetryLinks: the attempts of a command are siblings below its send, and each links
// to the one before.
func TestImmediateRetryLinks(t *testing.T) {
	for _, mode := range []core.TransactionMode{core.TransactionReceiveOnly, core.TransactionSendsAtomicWithReceive} {
		t.Run(mode.String(), func(t *testing.T) {
			bubble(t, func(b *bed) {
				b.orders(core.Config{Transactions: mode, Recoverability: immediate}, b.observer(otelreprise.Config{}), func(_ context.Context, m *core.Message) error {
					if m.Attempt < 3 {
						return errUnreachable
					}
					return nil
				})
				b.send(b.client())
				send, attempts := b.one("send orders"), b.several("process orders", 3)
				equal(b, "kind of the send", send.SpanKind, trace.SpanKindProducer)
				for i, attempt := range attempts {
					b.isChild(attempt, send.SpanContext)
					equal(b, "attempt", attr(attempt, "reprise.attempt"), fmt.Sprint(i+1))
				}
				b.links(attempts[0])
				b.links(attempts[1], previous(attempts[0].SpanContext))
				b.links(attempts[2], previous(attempts[1].SpanContext))
			})
		})
	}
}

// TestImmediateRetryLinks_InAnotherProcess: what another observer saw is not known, and no error.
func TestImmediateRetryLinks_InAnotherProcess(t *testing.T) {
	bubble(t, func(b *bed) {
		first := b.endpoint("orders", core.Config{Recoverability: immediate}, b.observer(otelreprise.Config{}), func(ctx context.Context, _ *core.Message) error {
			<-ctx.Done()
			return ctx.Err()
		}, "order")
		stop := b.run(first)
		b.send(b.client())
		stop()
		b.orders(core.Config{Recoverability: immediate}, b.observer(otelreprise.Config{}), func(context.Context, *core.Message) error { return nil })
		attempts := b.several("process orders", 2)
		b.isChild(attempts[1], b.one("send orders").SpanContext)
		b.links(attempts[1])
	})
}

// TestRetryLinks: each delayed retry begins a trace that links to the send and to the attempt
// before, through the error queue and back.
func TestRetryLinks(t *testing.T) {
	for _, mode := range []core.TransactionMode{core.TransactionReceiveOnly, core.TransactionSendsAtomicWithReceive} {
		t.Run(mode.String(), func(t *testing.T) {
			bubble(t, func(b *bed) {
				var healthy atomic.Bool
				b.orders(core.Config{Transactions: mode, Recoverability: delayed}, b.observer(otelreprise.Config{}), func(context.Context, *core.Message) error {
					if healthy.Load() {
						return nil
					}
					return errUnreachable
				})
				b.send(b.client())
				b.pass(time.Hour)

				send, attempts := b.named("send orders")[0], b.several("process orders", 4)
				b.isChild(attempts[0], send.SpanContext)
				b.links(attempts[0])
				for i := 1; i < 4; i++ {
					b.isRoot(attempts[i])
					b.links(attempts[i], creation(send.SpanContext), previous(attempts[i-1].SpanContext))
				}

				failed := b.onlyMessage("error")
				b.sendBack(failed)
				healthy.Store(true)
				b.pass(time.Hour)
				replayed := b.several("process orders", 6)
				b.isRoot(replayed[4])
				b.links(replayed[4], creation(send.SpanContext), previous(attempts[3].SpanContext))
				b.isRoot(replayed[5])
				b.links(replayed[5], creation(send.SpanContext), previous(replayed[4].SpanContext))
				equal(b, "outcome", attr(replayed[5], "reprise.outcome"), "succeeded")
			})
		})
	}
}

// sendBack does with a message of the error queue what an operator's tool does.
func (b *bed) sendBack(failed core.Incoming) {
	b.Helper()
	h := failed.Headers
	h.Del(headers.FailedQ, headers.TimeOfFailure, headers.ExceptionType, headers.ExceptionMessage, headers.ExceptionStackTrace)
	if err := b.transport.Send(b.Context(), core.Outgoing{ID: failed.ID, Queue: "orders", Headers: h, Body: failed.Body}); err != nil {
		b.Fatal(err)
	}
	b.pass(0)
}

// TestRetrySpans: the copy of a delayed retry is sent by a client span below its attempt, which
// links to the first send.
func TestRetrySpans(t *testing.T) {
	bubble(t, func(b *bed) {
		client := b.client()
		b.orders(core.Config{Recoverability: delayed}, b.observer(otelreprise.Config{}), func(_ context.Context, m *core.Message) error {
			if m.DelayedRetries == 0 {
				return errUnreachable
			}
			return nil
		})
		b.send(client)
		b.pass(time.Minute)
		sends, attempts := b.several("send orders", 2), b.several("process orders", 2)
		b.isChild(sends[1], attempts[0].SpanContext)
		b.links(sends[1], creation(sends[0].SpanContext))
		equal(b, "kind", sends[1].SpanKind, trace.SpanKindClient)
		equal(b, "reason", attr(sends[1], "reprise.send.reason"), "delayed_retry")
		equal(b, "delay", attr(sends[1], "reprise.delay"), "10")
		equal(b, "reason of the first", attr(sends[0], "reprise.send.reason"), "application")
	})
}

// TestRetryLinks_InPlace: a message of a group is retried without a copy, so that memory tells of
// the attempt before.
func TestRetryLinks_InPlace(t *testing.T) {
	bubble(t, func(b *bed) {
		start := time.Now()
		b.orders(core.Config{Recoverability: delayed}, b.observer(otelreprise.Config{}), func(_ context.Context, m *core.Message) error {
			switch {
			case time.Since(start) < time.Second:
				return core.RetryAfter(errUnreachable, time.Second)
			case m.DelayedRetries < 2:
				return errUnreachable
			}
			return nil
		})
		b.send(b.client(), core.SendOptions{GroupKey: "customer 7"})
		b.pass(time.Minute)
		send, attempts := b.one("send orders"), b.several("process orders", 4)
		for i := 1; i < 4; i++ {
			b.isChild(attempts[i], send.SpanContext)
			b.links(attempts[i], previous(attempts[i-1].SpanContext))
		}
	})
}

// TestCreationContextKept: each copy of a message has the context of its first send.
func TestCreationContextKept(t *testing.T) {
	for name, c := range map[string]struct {
		handler core.HandlerFunc
		queue   string // which has the copy in the end
	}{
		"delayed retries, then the error queue": {func(context.Context, *core.Message) error { return errUnreachable }, "error"},
		"deferral, then the error queue": {func(_ context.Context, m *core.Message) error {
			if m.Deferrals == 0 {
				return core.Defer(errors.New("not yet"), time.Minute)
			}
			return core.GiveUp(errUnreachable)
		}, "error"},
		"audit queue":     {func(context.Context, *core.Message) error { return nil }, "audit"},
		"forwarded":       {func(_ context.Context, m *core.Message) error { return m.Forward("shipping") }, "shipping"},
		"forwarded now":   {func(ctx context.Context, m *core.Message) error { return m.ForwardNow(ctx, "shipping") }, "shipping"},
		"moved elsewhere": {func(context.Context, *core.Message) error { return core.GiveUpTo(errUnreachable, "shipping") }, "shipping"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bed) {
				b.orders(core.Config{Recoverability: delayed, AuditQueue: "audit"}, b.observer(otelreprise.Config{}), c.handler)
				b.send(b.client())
				b.pass(time.Hour)
				send := b.named("send orders")[0].SpanContext
				want := fmt.Sprintf("00-%s-%s-01", send.TraceID(), send.SpanID())
				equal(b, "traceparent", b.onlyMessage(c.queue).Headers.Get("traceparent"), want)
			})
		})
	}
}

// TestPreviousHeader_NamesTheLastAttempt, and only copies for another attempt have it.
func TestPreviousHeader_NamesTheLastAttempt(t *testing.T) {
	bubble(t, func(b *bed) {
		b.orders(core.Config{Recoverability: delayed, AuditQueue: "audit"}, b.observer(otelreprise.Config{}), func(_ context.Context, m *core.Message) error {
			if m.Headers.Get("good") != "" {
				return nil
			}
			return errUnreachable
		})
		b.put(map[string]string{"good": "yes"}, "m0")
		b.send(b.client())
		b.pass(time.Hour)
		attempts := b.named("process orders")
		last := attempts[len(attempts)-1].SpanContext
		equal(b, "header", b.onlyMessage("error").Headers.Get(headerPrevious), fmt.Sprintf("00-%s-%s-01", last.TraceID(), last.SpanID()))
		equal(b, "header of the audit copy", b.onlyMessage("audit").Headers.Get(headerPrevious), "")
	})
}

// TestPreviousHeader_GivesWayWhereItDoesNotFit: a message that is as large as can be goes to the
// error queue without headers of ours.
func TestPreviousHeader_GivesWayWhereItDoesNotFit(t *testing.T) {
	const limit = 64 << 10
	bubbleOn(t, inmemory.Config{}, func(b *bed) {
		b.transport = strict{b.broker, limit}
		b.orders(core.Config{Recoverability: none}, b.observer(otelreprise.Config{}), func(context.Context, *core.Message) error { return errUnreachable })
		h := core.HeadersFromMap(map[string]string{headers.MessageID: "m1", headers.MessageTypes: "order"})
		body := make([]byte, limit-h.Bytes())
		if err := b.broker.Send(b.Context(), core.Outgoing{ID: "m1", Queue: "orders", Headers: h, Body: body}); err != nil {
			b.Fatal(err)
		}
		b.pass(time.Hour)
		equal(b, "bytes of the body", len(b.onlyMessage("error").Body), len(body))
	})
}

// strict is a broker that refuses messages that are too large, also copies.
type strict struct {
	core.Transport
	max int
}

func (s strict) Capabilities() core.Capabilities {
	caps := s.Transport.Capabilities()
	caps.Transactions = []core.TransactionMode{core.TransactionReceiveOnly}
	return caps
}

func (s strict) Send(ctx context.Context, out ...core.Outgoing) error {
	for _, m := range out {
		if size := len(m.Body) + m.Headers.Bytes(); size > s.max {
			tooLarge := &core.TooLargeError{Limit: "the broker's", Max: s.max, Size: size}
			return &core.SendError{Results: []core.SendResult{{ID: m.ID, To: m.Queue, State: core.SendRefused, Err: tooLarge}}}
		}
	}
	return s.Transport.Send(ctx, out...)
}

// TestRefusedMessages: a message that no handler gets has a span and metrics all the same.
func TestRefusedMessages(t *testing.T) {
	const traceID = "4bf92f3577b34da6a3ce929d0e0e4736"
	for _, c := range []struct {
		name      string
		arrives   func(in *core.Incoming)
		errorType string
		attempts  int
	}{
		{"malformed", func(in *core.Incoming) { in.Malformed = errors.New("not JSON") }, "*core.malformedError", 0},
		{"delivered too often", func(in *core.Incoming) { in.DeliveryCount = 100 }, "*errors.errorString", 0},
		{"undecodable", func(in *core.Incoming) { in.Body = []byte("{") }, "*json.SyntaxError", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(b *bed) {
				b.transport = altered{b.broker, c.arrives}
				ep := b.endpoint("orders", core.Config{Recoverability: none, Transactions: core.TransactionReceiveOnly}, b.observer(otelreprise.Config{}), nil)
				core.Handle(ep, orderStructType, func(context.Context, *core.Message, struct{}) error {
					b.Error("the handler is called")
					return nil
				})
				b.run(ep)
				b.put(map[string]string{"traceparent": "00-" + traceID + "-00f067aa0ba902b7-01"}, "m1")
				b.pass(time.Second)
				equal(b, "attempts", len(b.named("process orders")), c.attempts)
				span := b.one("recover orders")
				equal(b, "trace", span.SpanContext.TraceID().String(), traceID)
				equal(b, "error.type", attr(span, "error.type"), c.errorType)
				equal(b, "exceptions", len(span.Events)+c.attempts, 1)
				equal(b, "status", span.Status.Code, codes.Error)
				equal(b, "consumed", b.total("messaging.client.consumed.messages", ""), int64(1))
				equal(b, "consumed without an attempt", b.total("messaging.client.consumed.messages", "error.type="+c.errorType), int64(1-c.attempts))
				equal(b, "attempts measured", b.total("messaging.process.duration", "error.type="+c.errorType), int64(c.attempts))
				equal(b, "actions", b.total("reprise.recoverability.actions", "error.type="+c.errorType), int64(1))
				equal(b, "moves", b.total("reprise.recoverability.actions", "reprise.action=error"), int64(1))
				equal(b, "given up", b.total("reprise.attempts", "reprise.outcome=given_up"), int64(1))
			})
		})
	}
}

// altered is a transport whose messages arrive otherwise than they were sent.
type altered struct {
	*inmemory.Transport
	arrives func(in *core.Incoming)
}

func (a altered) OpenReceiver(ctx context.Context, c core.ReceiverConfig) (core.Receiver, error) {
	r, err := a.Transport.OpenReceiver(ctx, c)
	return alteredReceiver{r, a.arrives}, err
}

type alteredReceiver struct {
	core.Receiver
	arrives func(in *core.Incoming)
}

func (r alteredReceiver) Receive(ctx context.Context, dst []core.Delivery) (int, error) {
	n, err := r.Receiver.Receive(ctx, dst)
	for i, d := range dst[:n] {
		in := *d.Incoming()
		r.arrives(&in)
		dst[i] = alteredDelivery{d, &in}
	}
	return n, err
}

type alteredDelivery struct {
	core.Delivery
	in *core.Incoming
}

func (d alteredDelivery) Incoming() *core.Incoming { return d.in }
