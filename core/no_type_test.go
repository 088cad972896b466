package core_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

// typeless are the ways not to name a type.
var typeless = map[string]func(h *core.Headers){
	"no header":        func(h *core.Headers) { h.Del(headers.MessageTypes) },
	"an empty header":  func(h *core.Headers) { h.Set(headers.MessageTypes, "") },
	"blanks":           func(h *core.Headers) { h.Set(headers.MessageTypes, " \t ") },
	"only separators":  func(h *core.Headers) { h.Set(headers.MessageTypes, ";; ,;") },
	"only an assembly": func(h *core.Headers) { h.Set(headers.MessageTypes, ", Shop, Version=1.0.0.0") },
	"another spelling": func(h *core.Headers) {
		h.Del(headers.MessageTypes)
		h.Set("nservicebus.enclosedmessagetypes", "order")
	},
	"a control message": func(h *core.Headers) { h.Del(headers.MessageTypes); h.Set(headers.ControlMessage, "False") },
}

// orderWithout returns an order that names no type, in one of these ways.
func orderWithout(id string, name func(h *core.Headers)) core.Outgoing {
	out := order(id)
	name(&out.Headers)
	return out
}

// Rule R6.
func TestNoType_MessageIsAttemptedOnce(t *testing.T) {
	for name, way := range typeless {
		t.Run(name, func(t *testing.T) {
			inModes(t, allModes, func(fx *fixture) {
				var middleware recorder[string]
				var seen recoveryRecorder
				ep := fx.newEndpoint("orders", core.Config{
					Observers:   []core.Observer{seen.observer()},
					MessageType: func(*core.Incoming) string { return "" },
					Middleware: []core.Middleware{core.MiddlewareFunc(func(next core.HandlerFunc) core.HandlerFunc {
						return func(ctx context.Context, m *core.Message) error {
							middleware.add(m.ID + " " + m.Type)
							return next(ctx, m)
						}
					})},
				})
				fx.handle(ep, "order", func(context.Context, *core.Message) error {
					fx.Error("a handler ran")
					return nil
				})
				fx.run(ep)
				sent := orderWithout("m1", way)
				fx.send(sent)
				fx.advance(time.Hour)
				failed := fx.onlyMessage("error")
				equal(fx, "attempts", middleware.len(), 1)
				equal(fx, "middleware saw", middleware.all()[0], "m1 ")
				equal(fx, "recovered by", seen.actions(), "MoveToError")
				if err := seen.all()[0].Failure.Err; !errors.Is(err, core.ErrNoType) || errors.Is(err, core.ErrNoHandler) {
					fx.Errorf("failed with %v", err)
				}
				equal(fx, "body", string(failed.Body), "body of m1")
				for key, want := range sent.Headers.All() {
					equal(fx, key, failed.Headers.Get(key), want)
				}
				equal(fx, "FailedQ", failed.Headers.Get(headers.FailedQ), "orders")
				if text := failed.Headers.Get(headers.ExceptionMessage); !containsAll(text, core.ErrNoType.Error(), headers.MessageTypes, "HandleDefault") {
					fx.Errorf("error text is %q", text)
				}
				fx.wantDepth("orders", 0)
			})
		})
	}
}

// Rule R6.
// Handlers and hooks that can still take a message without a type.
func TestNoType_Handlers(t *testing.T) {
	catchAll := core.Config{Middleware: []core.Middleware{core.MiddlewareFunc(func(next core.HandlerFunc) core.HandlerFunc {
		return func(ctx context.Context, m *core.Message) error {
			if err := next(ctx, m); !errors.Is(err, core.ErrNoType) {
				return err
			}
			return m.Send("shipping", caughtType.Of(m.RawBody()))
		}
	})}}
	for name, test := range map[string]struct {
		config       core.Config
		defaultTakes bool
	}{
		"a middleware that catches the error": {config: catchAll},
		"a middleware that names the type":    {config: core.Config{Middleware: []core.Middleware{setsType("order")}}},
		"Config.MessageType":                  {config: core.Config{MessageType: func(*core.Incoming) string { return "order" }}},
		"a default handler":                   {defaultTakes: true},
	} {
		t.Run(name, func(t *testing.T) {
			inModes(t, allModes, func(fx *fixture) {
				ep := fx.newEndpoint("orders", test.config)
				fx.handle(ep, "order", func(_ context.Context, m *core.Message) error { return m.Send("shipping", caughtType.Of(m.RawBody())) })
				if test.defaultTakes {
					core.HandleDefault(ep, func(_ context.Context, m *core.Message) error {
						return m.Send("shipping", caughtType.Of(m.RawBody()))
					})
				}
				fx.run(ep)
				fx.send(orderWithout("m1", typeless["blanks"]))
				equal(fx, "taken", string(fx.onlyMessage("shipping").Body), "body of m1")
				fx.wantDepth("error", 0)
				fx.wantDepth("orders", 0)
			})
		})
	}
}

// Rule R6.
func TestDefaultHandler_FailureIsRetried(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		runs := 0
		ep := fx.newEndpoint("orders", core.Config{Recoverability: immediateRetries(2)})
		core.HandleDefault(ep, func(context.Context, *core.Message) error {
			runs++
			return errBoom
		})
		fx.run(ep)
		fx.send(orderWithout("m1", typeless["no header"]))
		equal(fx, "moved", fx.onlyMessage("error").ID, "m1")
		equal(fx, "runs", runs, 3)
	})
}

// Rule R6.
func TestNoType_PolicyDecides(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		fx.provision("typeless")
		recover := core.Recoverability{Policy: func(ctx context.Context, c core.RecoverabilityConfig, f core.ErrorContext) (core.Action, error) {
			equal(fx, "unrecoverable", c.IsUnrecoverable(f.Err), true)
			if errors.Is(f.Err, core.ErrNoType) {
				return core.MoveToError("typeless"), nil
			}
			return core.DefaultPolicy(ctx, c, f)
		}}
		fx.runOrders(core.Config{Recoverability: recover}, func(context.Context, *core.Message) error { return nil })
		fx.send(orderWithout("m1", typeless["no header"]))
		equal(fx, "moved", fx.onlyMessage("typeless").ID, "m1")
		fx.wantDepth("error", 0)
	})
}

// Rule R44.
// No handler was asked: it says nothing about an outage.
func TestRateLimit_MessageWithoutATypeDoesNotCount(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		recover := noRetries
		recover.RateLimit = core.RateLimit{ConsecutiveFailures: 2}
		ep, _ := fx.runOrders(core.Config{Recoverability: recover}, func(context.Context, *core.Message) error { return errBoom })
		for _, id := range []string{"m1", "m2", "m3", "m4"} {
			fx.send(orderWithout(id, typeless["no header"]))
		}
		fx.advance(time.Second)
		fx.wantDepth("error", 4)
		equal(fx, "rate limited by messages without a type", ep.Health().RateLimited, false)
		fx.enqueue("m5", "m6")
		equal(fx, "rate limited by failures", ep.Health().RateLimited, true)
	})
}

// controlMessage is a control message as NServiceBus makes one.
func controlMessage(id string) core.Outgoing {
	return core.Outgoing{ID: id, Queue: "orders", Headers: core.HeadersFromMap(map[string]string{
		headers.MessageID:      id,
		headers.ControlMessage: "True",
		headers.MessageIntent:  headers.IntentSend,
	})}
}

func TestControlMessage_IsConsumedWithoutHandlers(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		fx.provision("acks")
		var middleware recorder[string]
		config := auditConfig
		config.Middleware = []core.Middleware{core.MiddlewareFunc(func(next core.HandlerFunc) core.HandlerFunc {
			return func(ctx context.Context, m *core.Message) error {
				middleware.add(m.ID + m.Type)
				return next(ctx, m)
			}
		})}
		ep := fx.newEndpoint("orders", config)
		fx.handle(ep, "order", func(context.Context, *core.Message) error { return errBoom })
		core.HandleDefault(ep, func(context.Context, *core.Message) error { return errBoom })
		fx.run(ep)
		sent := controlMessage("m1")
		sent.Headers.Set(headers.RetryUniqueMessageID, "unique m1")
		sent.Headers.Set(headers.RetryAckQueue, "acks")
		fx.send(sent)
		equal(fx, "acknowledged", fx.onlyMessage("acks").Headers.Get(headers.RetryUniqueMessageID), "unique m1")
		audit := fx.onlyMessage("audit")
		equal(fx, "audited", audit.ID, "m1")
		equal(fx, "acknowledgement noted", audit.Headers.Get(headers.RetryAckSent), "true")
		equal(fx, "body", len(audit.Body), 0)
		equal(fx, "middleware runs", middleware.len(), 1)
		fx.wantDepth("orders", 0)
		fx.wantDepth("error", 0)
		lines := fx.logs.find("control message consumed")
		if len(lines) != 1 || lines[0].level != slog.LevelDebug || lines[0].attrs["message_id"] != "m1" {
			fx.Errorf("logged %+v", lines)
		}
	})
}

// A boolean of AMQP arrives as "true".
func TestControlMessage_HeaderValues(t *testing.T) {
	named := func(messageType string) func(m *core.Outgoing) {
		return func(m *core.Outgoing) { m.Headers.Set(headers.MessageTypes, messageType) }
	}
	inModes(t, allModes, func(fx *fixture) {
		recover := noRetries
		runs := 0
		ep := fx.newEndpoint("orders", core.Config{Recoverability: recover, MessageType: func(in *core.Incoming) string {
			if in.Headers.Get("Named") != "" {
				return "order"
			}
			return ""
		}})
		fx.handle(ep, "order", func(context.Context, *core.Message) error {
			runs++
			return nil
		})
		fx.run(ep)
		for _, test := range []struct {
			name          string
			change        func(m *core.Outgoing)
			failed, rises int
		}{
			{"True", func(*core.Outgoing) {}, 0, 0},
			{"true", func(m *core.Outgoing) { m.Headers.Set(headers.ControlMessage, "true") }, 0, 0},
			{"with a body", func(m *core.Outgoing) { m.Body = []byte("<x/>") }, 0, 0},
			{"False", func(m *core.Outgoing) { m.Headers.Set(headers.ControlMessage, "False") }, 1, 0},
			{"of a type that has a handler", named("order"), 0, 1},
			{"named by Config.MessageType", func(m *core.Outgoing) { m.Headers.Set("Named", "x") }, 0, 1},
			{"of an unknown type", named("stranger"), 1, 0},
		} {
			before, beforeRuns := len(fx.messages("error")), runs
			m := controlMessage(test.name)
			test.change(&m)
			fx.send(m)
			equal(fx, test.name+": failed", len(fx.messages("error"))-before, test.failed)
			equal(fx, test.name+": handled", runs-beforeRuns, test.rises)
			fx.wantDepth("orders", 0)
		}
	})
}

// A subscriber of NServiceBus that subscribes by message would wait for ever, without an
// error.
func TestControlMessage_SubscriptionIsLogged(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		fx.runOrders(core.Config{}, func(context.Context, *core.Message) error { return nil })
		for _, intent := range []string{"Subscribe", "Unsubscribe"} {
			m := controlMessage(intent)
			m.Headers.Set(headers.MessageIntent, intent)
			m.Headers.Set("SubscriptionMessageType", "Shop.Placed, Shop")
			m.Headers.Set("NServiceBus.SubscriberAddress", "billing")
			fx.send(m)
			fx.wantDepth("orders", 0)
			fx.wantDepth("error", 0)
			lines := fx.logs.find("subscription by message")
			if len(lines) == 0 {
				fx.Fatalf("%s is not told", intent)
			}
			line := lines[len(lines)-1]
			if line.level != slog.LevelWarn || line.attrs["intent"] != intent || line.attrs["topic"] != "Shop.Placed, Shop" || line.attrs["subscriber"] != "billing" {
				fx.Errorf("logged %+v", line)
			}
		}
	})
}
