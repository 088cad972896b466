package otelreprise_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/trace"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/coretest"
	otelreprise "github.com/reprise-go/reprise/otel"
)

// TestNServiceBusHeaders: what NServiceBus writes is understood. The headers are those of its
// versions 8 (which continues every trace), 9 and 10.
func TestNServiceBusHeaders(t *testing.T) {
	const traceID, spanID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	for name, c := range map[string]struct {
		headers map[string]string
		isNew   bool
	}{
		"8: send":    {map[string]string{"NServiceBus.Version": "8.2.4", "NServiceBus.MessageIntent": "Send", "traceparent": "00-" + traceID + "-" + spanID + "-01"}, false},
		"8: publish": {map[string]string{"NServiceBus.Version": "8.2.4", "NServiceBus.MessageIntent": "Publish", "traceparent": "00-" + traceID + "-" + spanID + "-01"}, false},
		"9: send": {map[string]string{
			"NServiceBus.Version": "9.2.6", "NServiceBus.MessageIntent": "Send", "traceparent": "00-" + traceID + "-" + spanID + "-01",
			"tracestate": "congo=t61rcWkgMzE", "baggage": "tenant=%C3%96sterreich%201,plan=gold",
		}, false},
		"9: publish": {map[string]string{
			"NServiceBus.Version": "9.2.6", "NServiceBus.MessageIntent": "Publish", "traceparent": "00-" + traceID + "-" + spanID + "-01",
			"NServiceBus.OpenTelemetry.StartNewTrace": "True", "baggage": "tenant=%C3%96sterreich%201",
		}, true},
		"10: reply that continues": {map[string]string{
			"NServiceBus.Version": "10.1.0", "NServiceBus.MessageIntent": "Reply", "traceparent": "00-" + traceID + "-" + spanID + "-01",
			"NServiceBus.OpenTelemetry.StartNewTrace": "False",
		}, false},
		"10: delayed retry of NServiceBus": {map[string]string{
			"NServiceBus.Version": "10.1.0", "NServiceBus.Retries": "1", "traceparent": "00-" + traceID + "-" + spanID + "-01",
			"NServiceBus.OpenTelemetry.StartNewTrace": "True",
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bed) {
				b.orders(core.Config{}, b.observer(otelreprise.Config{}), func(ctx context.Context, _ *core.Message) error {
					if want := c.headers["baggage"]; want != "" {
						equal(b, "tenant", baggage.FromContext(ctx).Member("tenant").Value(), "Österreich 1")
					}
					if want := c.headers["tracestate"]; want != "" {
						equal(b, "tracestate", trace.SpanContextFromContext(ctx).TraceState().String(), want)
					}
					return nil
				})
				b.put(c.headers, "m1")
				span := b.one("process orders")
				if c.isNew {
					b.isRoot(span)
					equal(b, "links", len(span.Links), 1)
					equal(b, "linked span", span.Links[0].SpanContext.SpanID().String(), spanID)
					return
				}
				equal(b, "trace", span.SpanContext.TraceID().String(), traceID)
				equal(b, "parent", span.Parent.SpanID().String(), spanID)
			})
		})
	}
}

// TestCloudEvents_Trace: the trace of an event in the binary mode continues, and a sent event
// has it as an attribute.
func TestCloudEvents_Trace(t *testing.T) {
	const traceID, spanID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	for _, prefix := range []string{"cloudEvents:", "cloudEvents_", "ce-"} {
		t.Run(prefix, func(t *testing.T) {
			bubble(t, func(b *bed) {
				b.orders(core.Config{}, b.observer(otelreprise.Config{}), func(ctx context.Context, m *core.Message) error {
					equal(b, "tracestate", trace.SpanContextFromContext(ctx).TraceState().String(), "congo=t61rcWkgMzE")
					event := core.SendOptions{Headers: map[string]string{"cloudEvents:specversion": "1.0"}}
					return errors.Join(m.Send("shipping", shipType.Of("x").With(event)), m.SendNow(ctx, "audit", noticeType.Of("x")))
				})
				b.put(map[string]string{prefix + "traceparent": "00-" + traceID + "-" + spanID + "-01", prefix + "tracestate": "congo=t61rcWkgMzE"}, "m1")
				span := b.one("process orders")
				equal(b, "trace", span.SpanContext.TraceID().String(), traceID)
				equal(b, "parent", span.Parent.SpanID().String(), spanID)
				sent := b.onlyMessage("shipping").Headers
				equal(b, "attribute", sent.Get("cloudEvents:traceparent"), "00-"+ids(b.one("send shipping").SpanContext)+"-01")
				equal(b, "header", sent.Get("traceparent"), sent.Get("cloudEvents:traceparent"))
				equal(b, "state", sent.Get("cloudEvents:tracestate"), "congo=t61rcWkgMzE")
				_, isEvent := b.onlyMessage("audit").Headers.Lookup("cloudEvents:traceparent")
				equal(b, "attribute of another message", isEvent, false)
			})
		})
	}
}

// garbage is what headers may hold instead of trace contexts.
var garbage = []string{
	"", " ", "00", "00-", "---", "x", "\x00", "\xff\xfe", "00-00000000000000000000000000000000-0000000000000000-00",
	"ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-extra",
	"00-4BF92F3577B34DA6A3CE929D0E0E4736-00F067AA0BA902B7-01", strings.Repeat("0", 100_000), strings.Repeat("a=b,", 50_000), "a=%", "=;=,;",
}

// TestExtract: the message is handled with any headers.
func TestExtract_Garbage(t *testing.T) {
	bubble(t, func(b *bed) {
		handled := 0
		b.orders(core.Config{Transactions: core.TransactionReceiveOnly}, b.observer(otelreprise.Config{}), func(context.Context, *core.Message) error { handled++; return nil })
		for _, text := range garbage {
			if strings.ToValidUTF8(text, "") != text {
				continue // no transport carries it
			}
			b.put(map[string]string{"traceparent": text, "tracestate": text, "baggage": text, headerPrevious: text, headerStartNewTrace: text}, "m1")
			b.put(map[string]string{headerPrevious: text, headerStartNewTrace: "True"}, "m1")
		}
		equal(b, "handled", handled, 2*(len(garbage)-1))
		for _, span := range b.all() {
			b.isRoot(span)
			b.links(span)
		}
	})
}

func FuzzExtract(f *testing.F) {
	for _, text := range garbage {
		f.Add(text, text, text, text, "True")
	}
	o := otelreprise.New(otelreprise.Config{})
	f.Fuzz(func(t *testing.T, parent, state, bag, previous, startNew string) {
		h := map[string]string{
			"traceparent": parent, "tracestate": state, "baggage": bag, headerPrevious: previous, headerStartNewTrace: startNew,
		}
		e := core.Handling{Message: newMessage("order", coretest.Options{Headers: h})}
		ctx := o.HandleStart(context.Background(), e)
		o.HandleEnd(ctx, core.Handling{Message: e.Message})
	})
}

// TestCustomPropagator: another propagator writes its fields, and keeps those that are there.
func TestCustomPropagator(t *testing.T) {
	bubble(t, func(b *bed) {
		o := b.observer(otelreprise.Config{Propagator: single{}})
		ep := b.endpoint("orders", core.Config{Recoverability: delayed}, o, func(context.Context, *core.Message) error { return core.GiveUp(errUnreachable) }, "order")
		b.run(ep)
		b.send(ep)
		b.isChild(b.one("process orders"), b.one("send orders").SpanContext)
		synctest.Wait()
		failed := b.onlyMessage("error").Headers
		equal(b, "b3", failed.Get("b3"), ids(b.one("send orders").SpanContext))
		equal(b, "traceparent", failed.Get("traceparent"), "")
	})
}
