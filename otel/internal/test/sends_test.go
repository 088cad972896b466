package otelreprise_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/reprise-go/reprise/core"
	otelreprise "github.com/reprise-go/reprise/otel"
)

// TestSendsInHandler: what a handler sends belongs to its span, though it leaves later.
func TestSendsInHandler(t *testing.T) {
	for _, mode := range []core.TransactionMode{core.TransactionNone, core.TransactionReceiveOnly, core.TransactionSendsAtomicWithReceive} {
		t.Run(mode.String(), func(t *testing.T) {
			bubble(t, func(b *bed) {
				b.orders(core.Config{Transactions: mode}, b.observer(otelreprise.Config{}), func(ctx context.Context, m *core.Message) error {
					if err := m.SendNow(ctx, "audit", noticeType.Of("x")); err != nil {
						return err
					}
					return m.Send("shipping", shipType.Of("x"))
				})
				b.send(b.client())
				process, send, now := b.one("process orders"), b.one("send shipping"), b.one("send audit")
				b.isChild(send, process.SpanContext)
				b.isChild(now, process.SpanContext)
				equal(b, "kind", send.SpanKind, trace.SpanKindProducer)
				equal(b, "type", attr(send, "messaging.operation.type"), "send")
				equal(b, "message type", attr(send, "reprise.message.type"), "ship")
				sent := b.onlyMessage("shipping").Headers
				equal(b, "traceparent", sent.Get("traceparent"), "00-"+ids(send.SpanContext)+"-01")
				equal(b, "StartNewTrace", sent.Get(headerStartNewTrace), "")
			})
		})
	}
}

// TestSeveralSends: messages that leave together have a span each, to which the send links.
func TestSeveralSends(t *testing.T) {
	for _, mode := range []core.TransactionMode{core.TransactionReceiveOnly, core.TransactionSendsAtomicWithReceive} {
		t.Run(mode.String(), func(t *testing.T) {
			bubble(t, func(b *bed) {
				b.orders(core.Config{Transactions: mode}, b.observer(otelreprise.Config{}), func(_ context.Context, m *core.Message) error {
					return errors.Join(m.Send("shipping", shipType.Of("x")), m.Publish(eventPlacedEvent.Of("x")))
				})
				b.put(nil, "m1")
				process, send := b.one("process orders"), b.one("send")
				ship, publish := b.one("create shipping"), b.one("create event-placed")
				b.isChild(ship, process.SpanContext)
				b.isChild(publish, process.SpanContext)
				b.isChild(send, process.SpanContext)
				equal(b, "kind of create", ship.SpanKind, trace.SpanKindProducer)
				equal(b, "type of create", attr(ship, "messaging.operation.type"), "create")
				equal(b, "kind of send", send.SpanKind, trace.SpanKindClient)
				equal(b, "messages", attr(send, "messaging.batch.message_count"), "2")
				equal(b, "destination of both", attr(send, "messaging.destination.name"), "")
				b.links(send, creation(ship.SpanContext), creation(publish.SpanContext))
				equal(b, "traceparent", b.onlyMessage("shipping").Headers.Get("traceparent"), "00-"+ids(ship.SpanContext)+"-01")
			})
		})
	}
}

// TestSends_KeepTheContextOfTheSender: a context that the application set is the creation context.
func TestSends_KeepTheContextOfTheSender(t *testing.T) {
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	bubble(t, func(b *bed) {
		b.send(b.client(), core.SendOptions{Headers: map[string]string{"traceparent": parent}})
		equal(b, "traceparent", b.onlyMessage("orders").Headers.Get("traceparent"), parent)
		send := b.one("send orders")
		equal(b, "kind", send.SpanKind, trace.SpanKindClient)
		equal(b, "link", "00-"+ids(send.Links[0].SpanContext)+"-01", parent)
	})
}

func TestTraceModes_Defaults(t *testing.T) {
	for name, c := range map[string]struct {
		config otelreprise.Config
		send   func(ep *core.Endpoint) error
		isNew  bool
		header string
	}{
		"command":           {otelreprise.Config{}, func(ep *core.Endpoint) error { return ep.Send(context.Background(), "orders", orderType.Of("x")) }, false, ""},
		"event":             {otelreprise.Config{}, func(ep *core.Endpoint) error { return ep.Publish(context.Background(), eventPlacedEvent.Of("x")) }, true, "True"},
		"delayed command":   {otelreprise.Config{}, func(ep *core.Endpoint) error { return delayedSend(ep) }, true, "True"},
		"event, continued":  {otelreprise.Config{ContinueEvents: true}, func(ep *core.Endpoint) error { return ep.Publish(context.Background(), eventPlacedEvent.Of("x")) }, false, ""},
		"delayed, continue": {otelreprise.Config{ContinueDelayed: true}, func(ep *core.Endpoint) error { return delayedSend(ep) }, false, ""},
		"command, by option": {otelreprise.Config{}, func(ep *core.Endpoint) error {
			return ep.Send(context.Background(), "orders", orderType.Of("x").With(core.SendOptions{Headers: otelreprise.NewTrace()}))
		}, true, "True"},
		"event, by option": {otelreprise.Config{}, func(ep *core.Endpoint) error {
			return ep.Publish(context.Background(), eventPlacedEvent.Of("x").With(core.SendOptions{Headers: otelreprise.ContinueTrace()}))
		}, false, "False"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bed) {
				header := ""
				ep := b.endpoint("orders", core.Config{}, b.observer(c.config), func(_ context.Context, m *core.Message) error {
					header = m.Headers.Get(headerStartNewTrace)
					return nil
				}, "order", "event-placed")
				b.run(ep)
				if err := c.send(ep); err != nil {
					b.Fatal(err)
				}
				b.pass(time.Minute)
				send, process := b.all()[0], b.one("process orders")
				equal(b, "header", header, c.header)
				if c.isNew {
					b.isRoot(process)
					b.links(process, creation(send.SpanContext))
				} else {
					b.isChild(process, send.SpanContext)
					b.links(process)
				}
			})
		})
	}
}

func delayedSend(ep *core.Endpoint) error {
	return ep.Send(context.Background(), "orders", orderType.Of("x").With(core.SendOptions{Delay: time.Second}))
}

// TestTraceModes_Retries: where delayed retries continue, they are siblings of the first attempt.
func TestTraceModes_Retries(t *testing.T) {
	bubble(t, func(b *bed) {
		config := otelreprise.Config{ContinueDelayed: true}
		b.run(b.endpoint("orders", core.Config{Recoverability: delayed}, b.observer(config), func(context.Context, *core.Message) error { return errUnreachable }, "event-placed"))
		if err := b.client().Publish(b.Context(), eventPlacedEvent.Of("x")); err != nil {
			b.Fatal(err)
		}
		b.pass(time.Hour)
		publish, attempts := b.one("publish event-placed"), b.several("process orders", 4)
		b.isRoot(attempts[0])
		b.links(attempts[0], creation(publish.SpanContext))
		for i := 1; i < 4; i++ {
			b.isChild(attempts[i], publish.SpanContext)
			b.links(attempts[i], previous(attempts[i-1].SpanContext))
		}
		equal(b, "header in the error queue", b.onlyMessage("error").Headers.Get(headerStartNewTrace), "True")
	})
}

func TestBaggage_TravelsThroughHandlers(t *testing.T) {
	bubble(t, func(b *bed) {
		b.orders(core.Config{}, b.observer(otelreprise.Config{}), func(ctx context.Context, m *core.Message) error {
			equal(b, "baggage", baggage.FromContext(ctx).Member("tenant").Value(), "Österreich 1")
			return m.Send("shipping", shipType.Of("x"))
		})
		member, err := baggage.NewMemberRaw("tenant", "Österreich 1")
		if err != nil {
			b.Fatal(err)
		}
		bag, err := baggage.New(member)
		if err != nil {
			b.Fatal(err)
		}
		if err := b.client().Send(baggage.ContextWithBaggage(b.Context(), bag), "orders", orderByteType.Of([]byte("x"))); err != nil {
			b.Fatal(err)
		}
		b.pass(0)
		equal(b, "header", b.onlyMessage("shipping").Headers.Get("baggage"), "tenant=%C3%96sterreich%201")
	})
}

func TestSendErrors(t *testing.T) {
	bubble(t, func(b *bed) {
		client := b.client()
		if err := client.Send(b.Context(), "nowhere", orderType.Of("x")); !errors.Is(err, core.ErrQueueNotFound) {
			b.Fatal(err)
		}
		span := b.one("send nowhere")
		equal(b, "status", span.Status.Code, codes.Error)
		equal(b, "error.type", attr(span, "error.type"), "queue_not_found")
		equal(b, "counted", b.total("messaging.client.sent.messages", "error.type=queue_not_found"), int64(1))

		b.orders(core.Config{Recoverability: none}, b.observer(otelreprise.Config{}), func(_ context.Context, m *core.Message) error {
			return errors.Join(m.Send("shipping", shipType.Of("x")), m.Send("missing", shipType.Of("x")))
		})
		b.put(nil, "m1")
		send := b.one("send")
		equal(b, "status below an attempt", send.Status.Code, codes.Unset)
		equal(b, "error.type below an attempt", attr(send, "error.type"), "queue_not_found")
		equal(b, "failures counted", b.total("messaging.client.sent.messages", "messaging.destination.name=missing"), int64(1))
	})
}
