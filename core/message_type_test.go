package core_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
)

// foreign is a message to the queue "orders" whose headers name no type.
func foreign(id, kind string) core.Outgoing {
	out := order(id)
	out.Headers.Del(core.HeaderMessageTypes)
	out.Headers.Set("ce-type", kind)
	return out
}

// deliver sends messages past the endpoints, one after the other, and waits for
// what they do with each.
func (b *bed) deliver(msgs ...core.Outgoing) {
	b.Helper()
	for _, out := range msgs {
		b.send(out)
		synctest.Wait()
	}
}

// byKind names the type of a foreign message.
func byKind(in *core.Incoming) string { return in.Headers.Get("ce-type") }

// setsType is middleware that gives every message a type.
func setsType(messageType string) core.Middleware {
	return func(next core.HandlerFunc) core.HandlerFunc {
		return func(ctx context.Context, m *core.Message) error {
			m.Type = messageType
			return next(ctx, m)
		}
	}
}

func TestMessageType_OfForeignMessages(t *testing.T) {
	inModes(t, everyMode, func(b *bed) {
		var handled record[string]
		ep := b.endpoint("orders", core.Config{MessageType: byKind, Recoverability: noRetries})
		note := func(by string) core.HandlerFunc {
			return func(_ context.Context, m *core.Message) error {
				handled.add(by + " " + m.ID + " " + m.Type)
				return nil
			}
		}
		b.handle(ep, "order", note("order"))
		b.handle(ep, "Shop.Cancelled", note("cancelled"))
		b.run(ep)
		b.deliver(foreign("m1", "order"))
		b.deliver(foreign("m2", "Shop.Special, Shop;Shop.Cancelled, Shop")) // as a header may say it
		b.put("m3")                                                         // the function says nothing, the header does
		renamed := order("m4")
		renamed.Headers.Set("ce-type", "Shop.Cancelled") // the function comes before the header
		b.deliver(renamed)
		b.deliver(foreign("m5", "unknown"))
		failed := b.only("error")
		equal(b, "failed", failed.ID, "m5")
		if text := failed.Headers.Get(core.HeaderExceptionMessage); !strings.Contains(text, `no handler for the message type: "unknown"`) {
			b.Errorf("the error queue tells %q", text)
		}
		equal(b, "handled", strings.Join(handled.all(), ", "), "order m1 order, cancelled m2 Shop.Cancelled, order m3 order, cancelled m4 Shop.Cancelled")
	})
}

func TestMessageType_SelectsRecoverability(t *testing.T) {
	for name, c := range map[string]core.Config{
		"Config.MessageType": {MessageType: byKind},
		"middleware":         {Middleware: []core.Middleware{setsType("fragile")}},
		// the type that was chosen counts, whatever is written to the message
		"a handler that writes its message": {MessageType: byKind},
	} {
		t.Run(name, func(t *testing.T) {
			inModes(t, retrying, func(b *bed) {
				var attempts record[int]
				var told recoveries
				c.Recoverability = immediate(1)
				c.Recoverability.MessageTypes = map[string]core.TypeRecoverability{
					"fragile": {Immediate: core.Immediate{Retries: 3}},
					"robust":  {Immediate: core.Immediate{Retries: 7}},
				}
				c.Observers = []core.Observer{told.observer()}
				ep := b.endpoint("orders", c)
				b.handle(ep, "fragile", func(_ context.Context, m *core.Message) error {
					attempts.add(m.Attempt)
					if strings.HasPrefix(name, "a handler") {
						m.Type, m.ID = "robust", "another"
					}
					return errBoom
				})
				b.handle(ep, "robust", func(context.Context, *core.Message) error {
					b.Error("the message was given to the handler of another type")
					return nil
				})
				var last record[string]
				core.HandleFailed(ep, "fragile", func(_ context.Context, m *core.TypedMessage[[]byte], _ *core.Failed) error {
					last.add(m.ID + " " + m.Type)
					return nil
				})
				b.run(ep)
				b.send(foreign("m1", "fragile"))
				equal(b, "failed", b.only("error").ID, "m1")
				equal(b, "attempts", attempts.len(), 4)
				equal(b, "last resort", strings.Join(last.all(), ", "), "m1 fragile")
				for _, e := range told.all() {
					equal(b, "observed", e.MessageID+" "+e.MessageType, "m1 fragile")
				}
				for _, line := range b.logs.about("'m1'") {
					equal(b, "logged id", line.attrs["message_id"], any("m1"))
					equal(b, "logged type", line.attrs["message_type"], any("fragile"))
				}
			})
		})
	}
}

func TestMessageType_MayPanicOrEndItsGoroutine(t *testing.T) {
	for name, fail := range map[string]func(){
		"panic":  func() { panic("boom") },
		"Goexit": runtime.Goexit,
	} {
		t.Run(name, func(t *testing.T) {
			inModes(t, retrying, func(b *bed) {
				var calls record[int]
				c := core.Config{Recoverability: immediate(2), MessageType: func(in *core.Incoming) string {
					if in.ID == "bad" {
						calls.add(in.DeliveryCount)
						fail()
					}
					return ""
				}}
				b.orders(c, func(_ context.Context, m *core.Message) error {
					equal(b, "handled", m.ID, "good")
					return nil
				})
				b.put("bad", "good")
				failed := b.only("error")
				equal(b, "failed", failed.ID, "bad")
				equal(b, "calls", calls.len(), 3)
				if text := failed.Headers.Get(core.HeaderExceptionMessage); name == "panic" && text != "Config.MessageType: panic: boom" {
					b.Errorf("the error queue tells %q", text)
				}
			})
		})
	}
}

// A type that middleware changed is kept with a decision that has to wait.
func TestMessageType_OfAWaitingMove(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		began := time.Now()
		b.broker.provoke(faults{send: func(out []core.Outgoing) error {
			if (goesTo(out, "error") || goesTo(out, "orders")) && time.Since(began) < time.Minute {
				return errBoom
			}
			return nil
		}})
		ep := b.endpoint("orders", core.Config{Recoverability: noRetries, Middleware: []core.Middleware{setsType("typed")}})
		b.handle(ep, "typed", func(context.Context, *core.Message) error { return errBoom })
		var last record[string]
		core.HandleFailed(ep, "typed", func(_ context.Context, m *core.TypedMessage[[]byte], _ *core.Failed) error {
			last.add(m.Type)
			return nil
		})
		b.run(ep)
		b.put("m1")
		time.Sleep(2 * time.Minute)
		equal(b, "failed", b.only("error").ID, "m1")
		if last.len() == 0 || b.mode == core.TransactionSendsAtomicWithReceive && last.len() < 2 {
			b.Errorf("last resort ran for %q", last.all())
		}
	})
}

func TestMiddleware_MayChangeTheTypeForEachRun(t *testing.T) {
	inModes(t, everyMode, func(b *bed) {
		ep := b.endpoint("orders", core.Config{Recoverability: noRetries, Middleware: []core.Middleware{func(next core.HandlerFunc) core.HandlerFunc {
			return func(ctx context.Context, m *core.Message) error {
				if err := next(ctx, m); !errors.Is(err, core.ErrNoType) {
					b.Errorf("the foreign message: %v", err)
				}
				m.Type = "v2"
				if err := next(ctx, m); !errors.Is(err, errBoom) {
					b.Errorf("v2: %v", err)
				}
				m.Type = "v1"
				return next(ctx, m)
			}
		}}})
		b.handle(ep, "v1", func(_ context.Context, m *core.Message) error { return m.Send("shipping", "as "+m.Type, "x") })
		b.handle(ep, "v2", func(context.Context, *core.Message) error { return errBoom })
		b.run(ep)
		b.send(foreign("m1", ""))
		equal(b, "types that left", b.shipped(), "as v1")
		b.holds("error", 0)
	})
}

func TestDefaultHandler_TakesOtherTypes(t *testing.T) {
	inModes(t, everyMode, func(b *bed) {
		var handled record[string]
		ep := b.endpoint("orders", core.Config{Recoverability: noRetries})
		b.handle(ep, "order", func(_ context.Context, m *core.Message) error {
			handled.add("order " + m.ID)
			return nil
		})
		for _, name := range []string{"first", "second"} {
			core.HandleDefault(ep, func(_ context.Context, m *core.TypedMessage[[]byte]) error {
				handled.add(name + " " + m.Type + " " + string(m.Body))
				return nil
			})
		}
		b.run(ep)
		b.put("m1")
		other := order("m3")
		other.Headers.Set(core.HeaderMessageTypes, "order.v2, Shop")
		b.deliver(foreign("m2", ""), other)
		equal(b, "handled", strings.Join(handled.all(), ", "),
			"order m1, first  body of m2, second  body of m2, first order.v2 body of m3, second order.v2 body of m3")
		b.holds("error", 0)
		if err := ep.Invoke(b.Context(), "unheard of", []byte("x")); err != nil {
			b.Error(err)
		}
		equal(b, "invoked", strings.Join(handled.all()[5:], ", "), "first unheard of x, second unheard of x")
	})
}

func TestDefaultHandler_Alone(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		type parcel struct{ Weight int }
		var recover = noRetries
		recover.MessageTypes = map[string]core.TypeRecoverability{"parcel": {Immediate: core.Immediate{Retries: 2}}}
		ep := b.endpoint("orders", core.Config{Recoverability: recover})
		var attempts, last record[string]
		core.HandleDefault(ep, func(_ context.Context, m *core.TypedMessage[parcel]) error {
			attempts.add(m.Type)
			return errBoom
		})
		core.HandleFailed(ep, "parcel", func(_ context.Context, m *core.TypedMessage[parcel], _ *core.Failed) error {
			last.add(m.Type)
			equal(b, "weight", m.Body.Weight, 7)
			return nil
		})
		b.run(ep)
		out := order("m1")
		out.Headers.Set(core.HeaderMessageTypes, "parcel")
		out.Body = []byte(`{"Weight": 7}`)
		b.send(out)
		equal(b, "failed", b.only("error").ID, "m1")
		equal(b, "attempts", attempts.len(), 3)
		equal(b, "last resort", strings.Join(last.all(), ", "), "parcel")
		undecodable := foreign("m2", "")
		b.send(undecodable)
		equal(b, "in the error queue", len(b.queue("error")), 2)
		for _, text := range []string{"has no handlers", "without a handler"} {
			equal(b, "lines that say "+text, len(b.logs.about(text)), 0)
		}
	})
}
