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
	"github.com/reprise-go/reprise/core/headers"
)

// foreign is a message to the queue "orders" whose headers name no type.
func foreign(id, kind string) core.Outgoing {
	out := order(id)
	out.Headers.Del(headers.MessageTypes)
	out.Headers.Set("ce-type", kind)
	return out
}

// sendOneByOne sends messages past the endpoints, one after the other, and waits for
// what they do with each.
func (fx *fixture) sendOneByOne(msgs ...core.Outgoing) {
	fx.Helper()
	for _, out := range msgs {
		fx.send(out)
		synctest.Wait()
	}
}

// typeOfKind names the type of a foreign message.
func typeOfKind(in *core.Incoming) string { return in.Headers.Get("ce-type") }

// setsType is middleware that gives every message a type.
func setsType(messageType string) core.MiddlewareFunc {
	return func(next core.HandlerFunc) core.HandlerFunc {
		return func(ctx context.Context, m *core.Message) error {
			m.Type = messageType
			return next(ctx, m)
		}
	}
}

func TestMessageType_OfForeignMessages(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		var handled recorder[string]
		ep := fx.newEndpoint("orders", core.Config{MessageType: typeOfKind, Recoverability: noRetries})
		note := func(by string) core.HandlerFunc {
			return func(_ context.Context, m *core.Message) error {
				handled.add(by + " " + m.ID + " " + m.Type)
				return nil
			}
		}
		fx.handle(ep, "order", note("order"))
		fx.handle(ep, "Shop.Cancelled", note("cancelled"))
		fx.run(ep)
		fx.sendOneByOne(foreign("m1", "order"))
		fx.sendOneByOne(foreign("m2", "Shop.Special, Shop;Shop.Cancelled, Shop")) // as a header may say it
		fx.enqueue("m3")                                                          // the function says nothing, the header does
		renamed := order("m4")
		renamed.Headers.Set("ce-type", "Shop.Cancelled") // the function comes before the header
		fx.sendOneByOne(renamed)
		fx.sendOneByOne(foreign("m5", "unknown"))
		failed := fx.onlyMessage("error")
		equal(fx, "failed", failed.ID, "m5")
		if text := failed.Headers.Get(headers.ExceptionMessage); !strings.Contains(text, `no handler for the message type: "unknown"`) {
			fx.Errorf("the error queue tells %q", text)
		}
		equal(fx, "handled", strings.Join(handled.all(), ", "), "order m1 order, cancelled m2 Shop.Cancelled, order m3 order, cancelled m4 Shop.Cancelled")
	})
}

func TestMessageType_SelectsRecoverability(t *testing.T) {
	for name, c := range map[string]core.Config{
		"Config.MessageType": {MessageType: typeOfKind},
		"middleware":         {Middleware: []core.Middleware{setsType("fragile")}},
		// the type that was chosen counts, also after changes of the message
		"a handler that writes its message": {MessageType: typeOfKind},
	} {
		t.Run(name, func(t *testing.T) {
			inModes(t, retryModes, func(fx *fixture) {
				var attempts recorder[int]
				var told recoveryRecorder
				c.Recoverability = immediateRetries(1)
				c.Recoverability.MessageTypes = map[string]core.TypeRecoverability{
					"fragile": {Immediate: core.Immediate{NumberOfRetries: 3}},
					"robust":  {Immediate: core.Immediate{NumberOfRetries: 7}},
				}
				c.Observers = []core.Observer{told.observer()}
				ep := fx.newEndpoint("orders", c)
				fx.handle(ep, "fragile", func(_ context.Context, m *core.Message) error {
					attempts.add(m.Attempt)
					if strings.HasPrefix(name, "a handler") {
						m.Type, m.ID = "robust", "another"
					}
					return errBoom
				})
				fx.handle(ep, "robust", func(context.Context, *core.Message) error {
					fx.Error("the message was given to the handler of another type")
					return nil
				})
				var last recorder[string]
				core.HandleFailed(ep, fragileType, func(_ context.Context, m *core.Message, _ []byte, _ *core.Failed) error {
					last.add(m.ID + " " + m.Type)
					return nil
				})
				fx.run(ep)
				fx.send(foreign("m1", "fragile"))
				equal(fx, "failed", fx.onlyMessage("error").ID, "m1")
				equal(fx, "attempts", attempts.len(), 4)
				equal(fx, "last resort", strings.Join(last.all(), ", "), "m1 fragile")
				for _, e := range told.all() {
					equal(fx, "observed", e.Failure.Message.ID+" "+e.Failure.Message.Type, "m1 fragile")
				}
				lines := fx.logs.find("", "message_id", "m1")
				if len(lines) == 0 {
					fx.Error("no line is about m1")
				}
				for _, line := range lines {
					equal(fx, "logged type", line.attrs["message_type"], any("fragile"))
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
			inModes(t, retryModes, func(fx *fixture) {
				var calls recorder[int]
				c := core.Config{Recoverability: immediateRetries(2), MessageType: func(in *core.Incoming) string {
					if in.ID == "bad" {
						calls.add(in.DeliveryCount)
						fail()
					}
					return ""
				}}
				fx.runOrders(c, func(_ context.Context, m *core.Message) error {
					equal(fx, "handled", m.ID, "good")
					return nil
				})
				fx.enqueue("bad", "good")
				failed := fx.onlyMessage("error")
				equal(fx, "failed", failed.ID, "bad")
				equal(fx, "calls", calls.len(), 3)
				if text := failed.Headers.Get(headers.ExceptionMessage); name == "panic" && text != "Config.MessageType: panic: boom" {
					fx.Errorf("the error queue tells %q", text)
				}
			})
		})
	}
}

// A type that middleware changed is kept with a decision that has to wait.
func TestMessageType_OfAWaitingMove(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		began := time.Now()
		fx.broker.setFaults(faults{send: func(out []core.Outgoing) error {
			if (sendsTo(out, "error") || sendsTo(out, "orders")) && time.Since(began) < time.Minute {
				return errBoom
			}
			return nil
		}})
		ep := fx.newEndpoint("orders", core.Config{Recoverability: noRetries, Middleware: []core.Middleware{setsType("typed")}})
		fx.handle(ep, "typed", func(context.Context, *core.Message) error { return errBoom })
		var last recorder[string]
		core.HandleFailed(ep, typedType, func(_ context.Context, m *core.Message, _ []byte, _ *core.Failed) error {
			last.add(m.Type)
			return nil
		})
		fx.run(ep)
		fx.enqueue("m1")
		time.Sleep(2 * time.Minute)
		equal(fx, "failed", fx.onlyMessage("error").ID, "m1")
		if last.len() == 0 || fx.mode == core.TransactionSendsAtomicWithReceive && last.len() < 2 {
			fx.Errorf("last resort ran for %q", last.all())
		}
	})
}

func TestMiddleware_MayChangeTheTypeForEachRun(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		ep := fx.newEndpoint("orders", core.Config{Recoverability: noRetries, Middleware: []core.Middleware{core.MiddlewareFunc(func(next core.HandlerFunc) core.HandlerFunc {
			return func(ctx context.Context, m *core.Message) error {
				if err := next(ctx, m); !errors.Is(err, core.ErrNoType) {
					fx.Errorf("the foreign message: %v", err)
				}
				m.Type = "v2"
				if err := next(ctx, m); !errors.Is(err, errBoom) {
					fx.Errorf("v2: %v", err)
				}
				m.Type = "v1"
				return next(ctx, m)
			}
		})}})
		fx.handle(ep, "v1", func(_ context.Context, m *core.Message) error {
			return m.Send("shipping", core.NewMessageType[string]("as "+m.Type).Of("x"))
		})
		fx.handle(ep, "v2", func(context.Context, *core.Message) error { return errBoom })
		fx.run(ep)
		fx.send(foreign("m1", ""))
		equal(fx, "types that left", fx.shippedTypes(), "as v1")
		fx.wantDepth("error", 0)
	})
}

func TestDefaultHandler_TakesOtherTypes(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		var handled recorder[string]
		ep := fx.newEndpoint("orders", core.Config{Recoverability: noRetries})
		fx.handle(ep, "order", func(_ context.Context, m *core.Message) error {
			handled.add("order " + m.ID)
			return nil
		})
		for _, name := range []string{"first", "second"} {
			core.HandleDefault(ep, func(_ context.Context, m *core.Message) error {
				handled.add(name + " " + m.Type + " " + string(m.RawBody()))
				return nil
			})
		}
		fx.run(ep)
		fx.enqueue("m1")
		other := order("m3")
		other.Headers.Set(headers.MessageTypes, "order.v2, Shop")
		fx.sendOneByOne(foreign("m2", ""), other)
		equal(fx, "handled", strings.Join(handled.all(), ", "),
			"order m1, first  body of m2, second  body of m2, first order.v2 body of m3, second order.v2 body of m3")
		fx.wantDepth("error", 0)
		if err := ep.Invoke(fx.Context(), ofByteType.Of([]byte("x"))); err != nil {
			fx.Error(err)
		}
		equal(fx, "invoked", strings.Join(handled.all()[5:], ", "), "first unheard of x, second unheard of x")
	})
}

func TestDefaultHandler_Alone(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		type parcel struct{ Weight int }
		var recover = noRetries
		recover.MessageTypes = map[string]core.TypeRecoverability{"parcel": {Immediate: core.Immediate{NumberOfRetries: 2}}}
		ep := fx.newEndpoint("orders", core.Config{Recoverability: recover})
		var attempts, last recorder[string]
		core.HandleDefault(ep, func(_ context.Context, m *core.Message) error {
			attempts.add(m.Type)
			return errBoom
		})
		core.HandleFailed(ep, core.NewMessageType[parcel]("parcel"), func(_ context.Context, m *core.Message, body parcel, _ *core.Failed) error {
			last.add(m.Type)
			equal(fx, "weight", body.Weight, 7)
			return nil
		})
		fx.run(ep)
		out := order("m1")
		out.Headers.Set(headers.MessageTypes, "parcel")
		out.Body = []byte(`{"Weight": 7}`)
		fx.send(out)
		equal(fx, "failed", fx.onlyMessage("error").ID, "m1")
		equal(fx, "attempts", attempts.len(), 3)
		equal(fx, "last resort", strings.Join(last.all(), ", "), "parcel")
		undecodable := foreign("m2", "")
		fx.send(undecodable)
		equal(fx, "in the error queue", len(fx.messages("error")), 2)
		for _, text := range []string{"has no handlers", "without a handler"} {
			equal(fx, "lines that say "+text, len(fx.logs.find(text)), 0)
		}
	})
}
