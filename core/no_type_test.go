package core_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
)

// typeless are the ways not to name a type.
var typeless = map[string]func(h *core.Headers){
	"no header":        func(h *core.Headers) { h.Del(core.HeaderMessageTypes) },
	"an empty header":  func(h *core.Headers) { h.Set(core.HeaderMessageTypes, "") },
	"blanks":           func(h *core.Headers) { h.Set(core.HeaderMessageTypes, " \t ") },
	"only separators":  func(h *core.Headers) { h.Set(core.HeaderMessageTypes, ";; ,;") },
	"only an assembly": func(h *core.Headers) { h.Set(core.HeaderMessageTypes, ", Shop, Version=1.0.0.0") },
	"another spelling": func(h *core.Headers) {
		h.Del(core.HeaderMessageTypes)
		h.Set("nservicebus.enclosedmessagetypes", "order")
	},
	"a control message": func(h *core.Headers) { h.Del(core.HeaderMessageTypes); h.Set(core.HeaderControlMessage, "False") },
}

// orderWithout returns an order that names no type, in one of these ways.
func orderWithout(id string, name func(h *core.Headers)) core.Outgoing {
	out := order(id)
	name(&out.Headers)
	return out
}

func TestR6_MessageWithoutATypeIsAttemptedOnce(t *testing.T) {
	for name, way := range typeless {
		t.Run(name, func(t *testing.T) {
			inModes(t, everyMode, func(b *bed) {
				var middleware record[string]
				var seen recoveries
				ep := b.endpoint("orders", core.Config{
					Observers:   []core.Observer{seen.observer()},
					MessageType: func(*core.Incoming) string { return "" },
					Middleware: []core.Middleware{func(next core.HandlerFunc) core.HandlerFunc {
						return func(ctx context.Context, m *core.Message) error {
							middleware.add(m.ID + " " + m.Type)
							return next(ctx, m)
						}
					}},
				})
				b.handle(ep, "order", func(context.Context, *core.Message) error {
					b.Error("a handler ran")
					return nil
				})
				b.run(ep)
				sent := orderWithout("m1", way)
				b.send(sent)
				b.pass(time.Hour)
				failed := b.only("error")
				equal(b, "attempts", middleware.len(), 1)
				equal(b, "middleware saw", middleware.all()[0], "m1 ")
				equal(b, "recovered by", seen.kinds(), "MoveToError")
				if err := seen.all()[0].Err; !errors.Is(err, core.ErrNoType) || errors.Is(err, core.ErrNoHandler) {
					b.Errorf("failed with %v", err)
				}
				equal(b, "body", string(failed.Body), "body of m1")
				for key, want := range sent.Headers.All() {
					equal(b, key, failed.Headers.Get(key), want)
				}
				equal(b, "FailedQ", failed.Headers.Get(core.HeaderFailedQ), "orders")
				if text := failed.Headers.Get(core.HeaderExceptionMessage); !containsAll(text, core.ErrNoType.Error(), core.HeaderMessageTypes, "HandleDefault") {
					b.Errorf("error text is %q", text)
				}
				b.holds("orders", 0)
			})
		})
	}
}

// What can still take a message without a type.
func TestR6_HandlersOfMessagesWithoutAType(t *testing.T) {
	catchAll := core.Config{Middleware: []core.Middleware{func(next core.HandlerFunc) core.HandlerFunc {
		return func(ctx context.Context, m *core.Message) error {
			if err := next(ctx, m); !errors.Is(err, core.ErrNoType) {
				return err
			}
			return m.Send("shipping", "caught", m.RawBody())
		}
	}}}
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
			inModes(t, everyMode, func(b *bed) {
				ep := b.endpoint("orders", test.config)
				b.handle(ep, "order", func(_ context.Context, m *core.Message) error { return m.Send("shipping", "caught", m.RawBody()) })
				if test.defaultTakes {
					core.HandleDefault(ep, func(_ context.Context, m *core.TypedMessage[[]byte]) error {
						return m.Send("shipping", "caught", m.Body)
					})
				}
				b.run(ep)
				b.send(orderWithout("m1", typeless["blanks"]))
				equal(b, "taken", string(b.only("shipping").Body), "body of m1")
				b.holds("error", 0)
				b.holds("orders", 0)
			})
		})
	}
}

func TestR6_FailureOfADefaultHandlerIsRetried(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		runs := 0
		ep := b.endpoint("orders", core.Config{Recoverability: immediate(2)})
		core.HandleDefault(ep, func(context.Context, *core.TypedMessage[[]byte]) error {
			runs++
			return errBoom
		})
		b.run(ep)
		b.send(orderWithout("m1", typeless["no header"]))
		equal(b, "moved", b.only("error").ID, "m1")
		equal(b, "runs", runs, 3)
	})
}

func TestR6_PolicyDecidesAboutAMessageWithoutAType(t *testing.T) {
	inModes(t, everyMode, func(b *bed) {
		b.provision("typeless")
		recover := core.Recoverability{Policy: func(ctx context.Context, c core.RecoverabilityConfig, f core.ErrorContext) core.Action {
			equal(b, "unrecoverable", c.IsUnrecoverable(f.Err), true)
			if errors.Is(f.Err, core.ErrNoType) {
				return core.MoveToError("typeless")
			}
			return core.DefaultPolicy(ctx, c, f)
		}}
		b.orders(core.Config{Recoverability: recover}, func(context.Context, *core.Message) error { return nil })
		b.send(orderWithout("m1", typeless["no header"]))
		equal(b, "moved", b.only("typeless").ID, "m1")
		b.holds("error", 0)
	})
}

// No handler was asked: it says nothing about an outage.
func TestR44_MessageWithoutATypeDoesNotCount(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		recover := noRetries
		recover.RateLimit = core.RateLimit{ConsecutiveFailures: 2}
		ep, _ := b.orders(core.Config{Recoverability: recover}, func(context.Context, *core.Message) error { return errBoom })
		for _, id := range []string{"m1", "m2", "m3", "m4"} {
			b.send(orderWithout(id, typeless["no header"]))
		}
		b.pass(time.Second)
		b.holds("error", 4)
		equal(b, "rate limited by messages without a type", ep.Health().RateLimited, false)
		b.put("m5", "m6")
		equal(b, "rate limited by failures", ep.Health().RateLimited, true)
	})
}

// control is a control message as NServiceBus makes one.
func control(id string) core.Outgoing {
	return core.Outgoing{ID: id, Queue: "orders", Headers: core.HeadersFromMap(map[string]string{
		core.HeaderMessageID:      id,
		core.HeaderControlMessage: "True",
		core.HeaderMessageIntent:  core.IntentSend,
	})}
}

func TestControlMessage_IsConsumedWithoutHandlers(t *testing.T) {
	inModes(t, everyMode, func(b *bed) {
		b.provision("acks")
		var middleware record[string]
		config := audited
		config.Middleware = []core.Middleware{func(next core.HandlerFunc) core.HandlerFunc {
			return func(ctx context.Context, m *core.Message) error {
				middleware.add(m.ID + m.Type)
				return next(ctx, m)
			}
		}}
		ep := b.endpoint("orders", config)
		b.handle(ep, "order", func(context.Context, *core.Message) error { return errBoom })
		core.HandleDefault(ep, func(context.Context, *core.TypedMessage[ping]) error { return errBoom })
		b.run(ep)
		sent := control("m1")
		sent.Headers.Set(core.HeaderRetryUniqueMessageID, "unique m1")
		sent.Headers.Set(core.HeaderRetryAckQueue, "acks")
		b.send(sent)
		equal(b, "acknowledged", b.only("acks").Headers.Get(core.HeaderRetryUniqueMessageID), "unique m1")
		audit := b.only("audit")
		equal(b, "audited", audit.ID, "m1")
		equal(b, "acknowledgement noted", audit.Headers.Get(core.HeaderRetryAckSent), "true")
		equal(b, "body", len(audit.Body), 0)
		equal(b, "middleware runs", middleware.len(), 1)
		b.holds("orders", 0)
		b.holds("error", 0)
		lines := b.logs.about("control message consumed")
		if len(lines) != 1 || lines[0].level != slog.LevelDebug || lines[0].attrs["message_id"] != "m1" {
			b.Errorf("logged %+v", lines)
		}
	})
}

// A boolean of AMQP arrives as "true".
func TestControlMessage_HeaderValues(t *testing.T) {
	named := func(messageType string) func(m *core.Outgoing) {
		return func(m *core.Outgoing) { m.Headers.Set(core.HeaderMessageTypes, messageType) }
	}
	inModes(t, everyMode, func(b *bed) {
		recover := noRetries
		runs := 0
		ep := b.endpoint("orders", core.Config{Recoverability: recover, MessageType: func(in *core.Incoming) string {
			if in.Headers.Get("Named") != "" {
				return "order"
			}
			return ""
		}})
		b.handle(ep, "order", func(context.Context, *core.Message) error {
			runs++
			return nil
		})
		b.run(ep)
		for _, test := range []struct {
			name          string
			change        func(m *core.Outgoing)
			failed, rises int
		}{
			{"True", func(*core.Outgoing) {}, 0, 0},
			{"true", func(m *core.Outgoing) { m.Headers.Set(core.HeaderControlMessage, "true") }, 0, 0},
			{"with a body", func(m *core.Outgoing) { m.Body = []byte("<x/>") }, 0, 0},
			{"False", func(m *core.Outgoing) { m.Headers.Set(core.HeaderControlMessage, "False") }, 1, 0},
			{"of a type that has a handler", named("order"), 0, 1},
			{"named by Config.MessageType", func(m *core.Outgoing) { m.Headers.Set("Named", "x") }, 0, 1},
			{"of an unknown type", named("stranger"), 1, 0},
		} {
			before, beforeRuns := len(b.queue("error")), runs
			m := control(test.name)
			test.change(&m)
			b.send(m)
			equal(b, test.name+": failed", len(b.queue("error"))-before, test.failed)
			equal(b, test.name+": handled", runs-beforeRuns, test.rises)
			b.holds("orders", 0)
		}
	})
}

// A subscriber of NServiceBus that subscribes by message would wait for ever, and nobody
// would know why.
func TestControlMessage_SubscriptionIsLogged(t *testing.T) {
	inModes(t, everyMode, func(b *bed) {
		b.orders(core.Config{}, func(context.Context, *core.Message) error { return nil })
		for _, intent := range []string{"Subscribe", "Unsubscribe"} {
			m := control(intent)
			m.Headers.Set(core.HeaderMessageIntent, intent)
			m.Headers.Set("SubscriptionMessageType", "Shop.Placed, Shop")
			m.Headers.Set("NServiceBus.SubscriberAddress", "billing")
			b.send(m)
			b.holds("orders", 0)
			b.holds("error", 0)
			lines := b.logs.about("subscription by message")
			if len(lines) == 0 {
				b.Fatalf("%s is not told", intent)
			}
			line := lines[len(lines)-1]
			if line.level != slog.LevelWarn || line.attrs["intent"] != intent || line.attrs["topic"] != "Shop.Placed, Shop" || line.attrs["subscriber"] != "billing" {
				b.Errorf("logged %+v", line)
			}
		}
	})
}
