package otelreprise_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	otelreprise "github.com/reprise-go/reprise/otel"
)

// handleAll makes and runs the endpoint "orders" with a handler for "order" and for all
// other types.
func (b *bed) handleAll(c core.Config, o *otelreprise.Observer, h core.HandlerFunc) *core.Endpoint {
	b.Helper()
	ep := b.endpoint("orders", c, o, h, "order")
	core.HandleDefault(ep, h)
	b.run(ep)
	return ep
}

// A sender invents types, which are parts of long headers. 2,000 messages left 521 MiB.
func TestTypes_InventedOnesLeaveNoMemory(t *testing.T) {
	bubble(t, func(b *bed) {
		o := b.observer(otelreprise.Config{NServiceBusMetrics: true, TracerProvider: sdktrace.NewTracerProvider()})
		handled := 0
		rules := none
		b.handleAll(core.Config{Concurrency: 1, Recoverability: rules}, o, func(_ context.Context, m *core.Message) error {
			if handled++; handled%2 == 0 {
				return core.Discard(errUnreachable)
			}
			return nil
		})
		padding := strings.Repeat(" ", 256<<10)
		heap := func() uint64 {
			runtime.GC()
			runtime.GC()
			var s runtime.MemStats
			runtime.ReadMemStats(&s)
			return s.HeapAlloc
		}
		b.put(nil, "first")
		before := heap()
		for i := range 2000 {
			b.put(map[string]string{headers.MessageTypes: fmt.Sprint(i, ";", padding)}, fmt.Sprint(i))
		}
		after := heap()
		if handled != 2001 || after > before+5<<20 {
			b.Errorf("%d messages were handled and left %d KiB", handled, (int64(after)-int64(before))>>10)
		}
		runtime.KeepAlive(o)
	})
}

func TestTypes_RegisteredOnesAreNeverDisplaced(t *testing.T) {
	bubble(t, func(b *bed) {
		o := b.observer(otelreprise.Config{NServiceBusMetrics: true})
		rules := none
		rules.Policy = func(ctx context.Context, c core.RecoverabilityConfig, e core.ErrorContext) (core.Action, error) {
			if e.Message.ID == "replies" { // nothing is sent to the error queue yet
				return core.DiscardMessage(), nil
			}
			return core.DefaultPolicy(ctx, c, e)
		}
		b.handleAll(core.Config{Recoverability: rules}, o, func(_ context.Context, m *core.Message) error {
			switch m.ID {
			case "sends":
				return m.Send("shipping", core.NewMessageType[string]("sent-last").Of("x"))
			case "fails":
				return errUnreachable
			case "replies":
				return m.Reply(shipType.Of("x"))
			}
			return errUnreachable
		})
		for i := range 300 {
			invented := fmt.Sprint("invented-", i)
			b.put(map[string]string{headers.MessageTypes: invented, headers.ReplyToAddress: invented}, "replies")
		}
		b.spans.Reset()
		b.put(nil, "sends", "fails")
		b.put(map[string]string{headers.MessageTypes: "order, Shop;base"}, "fails")
		b.put(map[string]string{headers.MessageTypes: "the-last"}, "fails")
		for metric, wants := range map[string][]string{
			"messaging.client.consumed.messages":  {"reprise.message.type=order"},
			"messaging.process.duration":          {"reprise.message.type=order"},
			"reprise.recoverability.actions":      {"reprise.message.type=order"},
			"messaging.client.sent.messages":      {"messaging.destination.name=error", "reprise.message.type=order", "reprise.message.type=sent-last"},
			"nservicebus.messaging.fetches":       {"nservicebus.message_type=order"},
			"messaging.client.operation.duration": {"messaging.destination.name=error"},
		} {
			points := b.points(metric)
			for _, want := range append(wants, "type=_OTHER") {
				found := 0
				for _, p := range points {
					if strings.Contains(p.attrs+" ", want+" ") {
						found++
					}
				}
				if found == 0 {
					b.Errorf("%s has no series with %s", metric, want)
				}
			}
		}
		types := map[string]bool{}
		for _, span := range b.named("process orders") {
			types[attr(span, "reprise.message.type")] = true
		}
		if !types["the-last"] || !types["order"] || len(types) != 2 {
			b.Errorf("spans have the types %v", types)
		}
		moves := map[string]bool{}
		for _, span := range b.named("send error") {
			moves[attr(span, "reprise.message.type")] = true
		}
		if !moves["the-last"] || !moves["order"] {
			b.Errorf("spans of sends to the error queue have the types %v", moves)
		}
	})
}

// A batch of messages whose types are beyond the bounds is a batch.
func TestTypes_SendOfSeveralOthers(t *testing.T) {
	bubble(t, func(b *bed) {
		o := b.observer(otelreprise.Config{})
		send := func(types ...string) {
			var out []core.Outgoing
			for _, messageType := range types {
				out = append(out, core.Outgoing{ID: messageType, Queue: "shipping", Headers: core.HeadersFromMap(map[string]string{headers.MessageTypes: messageType})})
			}
			e := core.Sending{ObservedEndpoint: core.ObservedEndpoint{Endpoint: "orders"}, Messages: out}
			ctx := o.SendStart(b.Context(), e)
			o.SendEnd(ctx, e)
		}
		for i := range 300 {
			send(fmt.Sprint("t", i))
		}
		for _, test := range []struct {
			types      []string
			span, want string
		}{
			{[]string{"a"}, "send shipping", "a"},
			{[]string{"a", "a"}, "send shipping", "a"},
			{[]string{"a", "b"}, "send", ""},
			{[]string{"t0", "t1"}, "send", ""},
			{[]string{"t0", "t0"}, "send shipping", "t0"},
		} {
			b.spans.Reset()
			send(test.types...)
			equal(b, fmt.Sprint("type of the span of ", test.types), attr(b.one(test.span), "reprise.message.type"), test.want)
			if len(test.types) > 1 {
				for i, span := range b.several("create shipping", len(test.types)) {
					equal(b, "type of a creation", attr(span, "reprise.message.type"), test.types[i])
				}
			}
		}
	})
}

func TestTypes_SpanAttributesAreBounded(t *testing.T) {
	bubble(t, func(b *bed) {
		long := strings.Repeat("x", 1<<20)
		b.handleAll(core.Config{Recoverability: delayed, AuditQueue: "audit"}, b.observer(otelreprise.Config{}), func(_ context.Context, m *core.Message) error {
			if m.Attempt == 1 && m.DelayedRetries == 0 {
				return errUnreachable
			}
			return m.Reply(shipType.Of("x"))
		})
		putLong := func(id string) {
			b.put(map[string]string{
				headers.MessageTypes: id + long, headers.ConversationID: "talk" + long, headers.ReplyToAddress: "shipping",
			}, id+long)
		}
		putLong("among the first types")
		for i := range 250 {
			b.put(map[string]string{headers.MessageTypes: fmt.Sprint("invented-", i), headers.ReplyToAddress: "shipping"}, fmt.Sprint(i))
		}
		putLong("beyond them")
		b.pass(time.Minute)
		longest, seen := 0, map[string]bool{}
		for _, span := range b.all() {
			for _, a := range span.Attributes {
				longest = max(longest, len(a.Value.String()))
				seen[string(a.Key)] = true
			}
			longest = max(longest, len(span.Name))
		}
		if longest > 300 {
			b.Errorf("an attribute or name of a span has %d bytes", longest)
		}
		for _, key := range []string{"messaging.message.id", "messaging.message.conversation_id", "reprise.message.type"} {
			if !seen[key] {
				b.Errorf("no span has the attribute %s", key)
			}
		}
	})
}
