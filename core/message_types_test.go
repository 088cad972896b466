package core_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

const assembly = ", Shop.Contracts, Version=1.0.0.0, Culture=neutral, PublicKeyToken=null"

// threeTypes is the header of a message of a derived type, its base class and an interface.
const threeTypes = "Shop.OrderPlaced" + assembly + ";Shop.OrderChanged" + assembly + ";Shop.IOrderEvent" + assembly

// orderOfTypes is an order with another header of types.
func orderOfTypes(id, types string) core.Outgoing {
	out := order(id)
	out.Headers.Set(headers.MessageTypes, types)
	out.Body = []byte(`{"ID":"` + id + `","Total":5}`)
	return out
}

// sendEach sends messages one after the other, and waits for the outcome of each.
func (fx *fixture) sendEach(msgs ...core.Outgoing) {
	fx.Helper()
	for _, out := range msgs {
		fx.send(out)
		fx.depth("orders")
	}
}

func TestMessageTypes_HandlersOfAllTypesRunInTheirOrder(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		type placed struct {
			ID    string
			Total int
		}
		type changed struct{ ID string }
		var ran recorder[string]
		ep := fx.newEndpoint("orders", core.Config{})
		core.Handle(ep, iOrderEventType, func(_ context.Context, _ *core.Message, body json.RawMessage) error {
			ran.add("interface " + string(body))
			return nil
		})
		core.Handle(ep, core.NewMessageType[placed]("Shop.OrderPlaced"), func(_ context.Context, m *core.Message, body placed) error {
			ran.add("placed " + body.ID + " as " + m.Type)
			return nil
		})
		for _, name := range []string{"changed", "changed too"} {
			core.Handle(ep, core.NewMessageType[changed]("Shop.OrderChanged"), func(_ context.Context, _ *core.Message, body changed) error {
				ran.add(name + " " + body.ID)
				return nil
			})
		}
		fx.run(ep)
		fx.sendEach(orderOfTypes("m1", threeTypes), orderOfTypes("m2", "Shop.Other"+assembly+";Shop.OrderChanged"+assembly))
		equal(fx, "ran", strings.Join(ran.all()[:4], ", "), `placed m1 as Shop.OrderPlaced, changed m1, changed too m1, interface {"ID":"m1","Total":5}`)
		equal(fx, "ran of an unknown derived type", strings.Join(ran.all()[4:], ", "), "changed m2, changed too m2")
	})
}

func TestMessageTypes_AFailureStopsTheHandlersOfFurtherTypes(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		var ran recorder[string]
		ep := fx.newEndpoint("orders", core.Config{Recoverability: immediateRetries(1)})
		fx.handle(ep, "Shop.OrderPlaced", func(_ context.Context, m *core.Message) error {
			ran.add("placed")
			sendToShipping(fx, m, "of placed")
			return nil
		})
		fx.handle(ep, "Shop.OrderChanged", func(_ context.Context, m *core.Message) error {
			ran.add("changed")
			sendToShipping(fx, m, "of changed")
			if m.Attempt == 1 {
				return errBoom
			}
			return nil
		})
		fx.handle(ep, "Shop.IOrderEvent", func(context.Context, *core.Message) error { ran.add("interface"); return nil })
		fx.run(ep)
		fx.sendEach(orderOfTypes("m1", threeTypes))
		equal(fx, "sent", fx.shippedTypes(), "of placed of changed")
		equal(fx, "ran", strings.Join(ran.all(), " "), "placed changed placed changed interface")
	})
}

func TestMessageTypes_SkipRemainingHandlers(t *testing.T) {
	bubble(t, func(fx *fixture) {
		var ran recorder[string]
		ep := fx.newEndpoint("orders", core.Config{})
		fx.handle(ep, "Shop.OrderPlaced", func(_ context.Context, m *core.Message) error {
			ran.add("placed")
			m.SkipRemainingHandlers()
			return nil
		})
		fx.handle(ep, "Shop.OrderChanged", func(context.Context, *core.Message) error { ran.add("changed"); return nil })
		core.Handle(ep, iOrderByteType, func(context.Context, *core.Message, []byte) error {
			ran.add("interface")
			return nil
		}, core.HandleOptions{Independent: true})
		fx.run(ep)
		fx.sendEach(orderOfTypes("m1", threeTypes), orderOfTypes("m2", "Shop.OrderPlaced;Shop.OrderChanged"))
		fx.wantDepth("orders", 0)
		equal(fx, "ran", strings.Join(ran.all(), " "), "placed interface placed")
	})
}

// Those of one type stop each other, and no independent one.
func TestMessageTypes_IndependentBesideOthers(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		var ran recorder[string]
		ep := fx.newEndpoint("orders", core.Config{Recoverability: noRetries})
		add := func(messageType, name string, err error, o core.HandleOptions) {
			core.Handle(ep, core.NewMessageType[[]byte](messageType), func(_ context.Context, m *core.Message, _ []byte) error {
				ran.add(name)
				sendToShipping(fx, m, name)
				if o.Independent {
					m.SkipRemainingHandlers() // which skips none
				}
				return err
			}, o)
		}
		add("Shop.OrderPlaced", "a", nil, core.HandleOptions{})
		add("Shop.OrderPlaced", "b", errBoom, core.HandleOptions{})
		add("Shop.OrderPlaced", "not run", nil, core.HandleOptions{})
		add("Shop.OrderChanged", "c", errors.New("other"), core.HandleOptions{Independent: true})
		add("Shop.OrderChanged", "d", nil, core.HandleOptions{Independent: true})
		add("Shop.IOrderEvent", "e", nil, core.HandleOptions{})
		add("Shop.IOrderEvent", "f", nil, core.HandleOptions{})
		fx.run(ep)
		fx.sendEach(orderOfTypes("m1", threeTypes))
		text := fx.onlyMessage("error").Headers.Get(headers.ExceptionMessage)
		if !containsAll(text, "2 of 7 handlers failed", "boom", "other") {
			fx.Errorf("the failure says %q", text)
		}
		equal(fx, "ran", strings.Join(ran.all(), " "), "a b c d e f")
		fx.wantDepth("shipping", 0)
	})
}

// Two handlers in separate runs, each the first of its type, would send with one id.
func TestMessageTypes_SendsOfEachTypeHaveIDsOfTheirOwn(t *testing.T) {
	bubble(t, func(fx *fixture) {
		for name, o := range map[string]core.HandleOptions{
			"independent": {Independent: true},
			"middleware":  {Middleware: []core.Middleware{retryMiddleware(1)}},
		} {
			ep := fx.newEndpoint("orders", core.Config{})
			alone := map[string]string{}
			for _, messageType := range []string{"Shop.OrderPlaced", "Shop.OrderChanged", "Shop.IOrderEvent"} {
				core.Handle(ep, core.NewMessageType[[]byte](messageType), func(_ context.Context, m *core.Message, _ []byte) error {
					sendToShipping(fx, m, messageType)
					return nil
				}, o)
			}
			r := fx.run(ep)
			fx.sendEach(orderOfTypes(name, "Shop.OrderPlaced"))
			alone["Shop.OrderPlaced"] = fx.onlyMessage("shipping").ID
			_, err := fx.broker.Purge(fx.Context(), "shipping")
			fx.noError(err)
			fx.sendEach(orderOfTypes(name, threeTypes))
			ids := map[string]string{}
			for _, m := range fx.messages("shipping") {
				ids[m.ID] = m.Headers.Get(headers.MessageTypes)
			}
			if len(ids) != 3 {
				fx.Errorf("%s: three messages have the ids %v", name, ids)
			}
			equal(fx, name+": the message of the first type", ids[alone["Shop.OrderPlaced"]], "Shop.OrderPlaced")
			_, err = fx.broker.Purge(fx.Context(), "shipping")
			fx.noError(err)
			fx.noError(r.stop())
		}
	})
}

func TestMessageTypes_LastResortIsThatOfTheFirstTypeThatHasOne(t *testing.T) {
	bubble(t, func(fx *fixture) {
		var ran recorder[string]
		ep := fx.newEndpoint("orders", core.Config{Recoverability: noRetries})
		core.HandleDefault(ep, func(_ context.Context, m *core.Message) error {
			ran.add("default " + m.Type)
			return nil
		})
		fx.handle(ep, "Shop.OrderChanged", func(_ context.Context, m *core.Message) error {
			ran.add("changed as " + m.Type)
			return errBoom
		})
		failed := func(messageType string) {
			core.HandleFailed(ep, core.NewMessageType[[]byte](messageType), func(_ context.Context, _ *core.Message, _ []byte, f *core.Failed) error {
				ran.add("failed " + messageType)
				f.TakeOver()
				return nil
			})
		}
		failed("Shop.OrderPlaced") // which has no other handler
		failed("Shop.OrderChanged")
		fx.run(ep)
		fx.sendEach(orderOfTypes("m1", threeTypes), orderOfTypes("m2", "Shop.OrderPlaced;Shop.Other"))
		fx.wantDepth("orders", 0)
		equal(fx, "ran", strings.Join(ran.all(), ", "), "changed as Shop.OrderPlaced, failed Shop.OrderPlaced, default Shop.OrderPlaced")
	})
}

func TestMessageTypes_RetriesKeepThem(t *testing.T) {
	bubble(t, func(fx *fixture) {
		var ran recorder[string]
		ep := fx.newEndpoint("orders", core.Config{Recoverability: core.Recoverability{Immediate: core.Immediate{NumberOfRetries: core.Off}, Delayed: core.Delayed{NumberOfRetries: 1}}})
		for _, messageType := range []string{"Shop.OrderPlaced", "Shop.IOrderEvent"} {
			fx.handle(ep, messageType, func(context.Context, *core.Message) error {
				if n := ran.add(messageType); n == 2 || n == 4 {
					return errBoom
				}
				return nil
			})
		}
		fx.run(ep)
		fx.sendEach(orderOfTypes("m1", threeTypes))
		fx.advance(24 * time.Hour)
		equal(fx, "types in the error queue", fx.onlyMessage("error").Headers.Get(headers.MessageTypes), threeTypes)
		equal(fx, "ran", strings.Join(ran.all(), " "), strings.TrimSpace(strings.Repeat("Shop.OrderPlaced Shop.IOrderEvent ", 2)))
	})
}

var orderTypes = map[string][]string{"Shop.OrderPlaced": {"Shop.OrderChanged", "Shop.IOrderEvent"}}

func TestBaseTypes_SubscribersToEachGetAnEventOnce(t *testing.T) {
	bubble(t, func(fx *fixture) {
		var ran recorder[string]
		subscriber := func(name string, types ...string) {
			ep := fx.newEndpoint(name, core.Config{Provision: core.ProvisionAlways})
			for _, messageType := range types {
				core.HandleEvent(ep, core.NewEvent[[]byte](messageType), func(_ context.Context, _ *core.Message, _ []byte) error {
					ran.add(name + " " + messageType)
					return nil
				})
			}
			fx.run(ep)
		}
		subscriber("all", "Shop.IOrderEvent", "Shop.OrderPlaced", "Shop.OrderChanged")
		subscriber("base", "Shop.IOrderEvent")
		subscriber("sibling", "Shop.OrderCancelled")
		sender := fx.newEndpoint("sender", core.Config{SendOnly: true, BaseTypes: orderTypes})
		fx.noError(sender.Publish(fx.Context(), orderPlacedEvent.Of("x")))
		fx.wantDepth("base", 0)
		for _, want := range []string{"all Shop.OrderPlaced", "all Shop.OrderChanged", "all Shop.IOrderEvent", "base Shop.IOrderEvent"} {
			n := 0
			for _, got := range ran.all() {
				if got == want {
					n++
				}
			}
			equal(fx, want, n, 1)
		}
		equal(fx, "runs of handlers", ran.len(), 4)
	})
}

func TestBaseTypes_HeaderOfEachSend(t *testing.T) {
	bubble(t, func(fx *fixture) {
		const want = "Shop.OrderPlaced;Shop.OrderChanged;Shop.IOrderEvent"
		types := map[string][]string{"Shop.OrderPlaced": {"Shop.OrderChanged", "Shop.IOrderEvent"}}
		ep := fx.newEndpoint("orders", core.Config{BaseTypes: types})
		types["Shop.OrderPlaced"][0] = "changed since"
		fx.handle(ep, "order", func(ctx context.Context, m *core.Message) error {
			return errors.Join(
				m.Send("shipping", orderPlacedEvent.MessageType.Of("x")),
				m.Reply(orderPlacedEvent.MessageType.Of("x")),
				m.SendNow(ctx, "shipping", orderPlacedEvent.MessageType.Of("x")))
		})
		fx.run(ep)
		fx.noError(ep.Send(fx.Context(), "shipping", orderPlacedEvent.MessageType.Of("x")))
		out := order("m1")
		out.Headers.Set(headers.ReplyToAddress, "shipping")
		fx.send(out)
		for _, m := range fx.messages("shipping") {
			equal(fx, "types of "+m.Headers.Get(headers.MessageIntent), m.Headers.Get(headers.MessageTypes), want)
		}
		equal(fx, "messages", len(fx.messages("shipping")), 4)
	})
}

// The header lists all. Where the transport does not know base topics, subscribers to the
// type itself get the event.
func TestBaseTypes_WithoutBaseTopics(t *testing.T) {
	bubbleWith(t, withCapabilities(func(c *core.Capabilities) { c.BaseTopics = false }), func(fx *fixture) {
		var ran recorder[string]
		ep := fx.newEndpoint("orders", core.Config{BaseTypes: orderTypes})
		core.HandleEvent(ep, orderPlacedByteType, func(_ context.Context, m *core.Message, _ []byte) error {
			ran.add(m.Headers.Get(headers.MessageTypes))
			return nil
		})
		fx.run(ep)
		fx.noError(ep.Publish(fx.Context(), orderPlacedEvent.Of("x")))
		fx.wantDepth("orders", 0)
		equal(fx, "types", strings.Join(ran.all(), "|"), "Shop.OrderPlaced;Shop.OrderChanged;Shop.IOrderEvent")
	})
}

func TestBaseTypes_WrongOnesAreRefused(t *testing.T) {
	bubble(t, func(fx *fixture) {
		for says, types := range map[string]map[string][]string{
			`BaseTypes: "" cannot be a message type`:           {"": {"base"}},
			`BaseTypes: "a;b" cannot be a message type`:        {"a;b": {"base"}},
			`BaseTypes["a"] names no type`:                     {"a": {}},
			`BaseTypes["a"][1]: "b,c" cannot be a message typ`: {"a": {"b", "b,c"}},
			`BaseTypes["a"][0]: " b" cannot be a message type`: {"a": {" b"}},
			`BaseTypes["a"][0] is the type itself`:             {"a": {"a"}},
			`BaseTypes["a"] names "b" twice`:                   {"a": {"b", "c", "b"}},
		} {
			if _, err := core.New("orders", fx.broker, core.Config{BaseTypes: types}); err == nil || !strings.Contains(err.Error(), says) {
				fx.Errorf("%v, want it to say %s", err, says)
			}
		}
	})
}

// SendMiddleware may make a command of an event.
func TestBaseTypes_LeaveWithTheTopic(t *testing.T) {
	bubble(t, func(fx *fixture) {
		redirect := func(next core.SendFunc) core.SendFunc {
			return func(ctx context.Context, out *core.Outgoing) error {
				equal(fx, "base topics", strings.Join(out.BaseTopics, " "), "Shop.OrderChanged Shop.IOrderEvent")
				out.Topic, out.Queue = "", "shipping"
				return next(ctx, out)
			}
		}
		ep := fx.newEndpoint("orders", core.Config{BaseTypes: orderTypes, SendMiddleware: []core.SendMiddleware{redirect}})
		fx.noError(ep.Publish(fx.Context(), orderPlacedEvent.Of("x")))
		fx.wantDepth("shipping", 1)
	})
}

func TestEndpoint_MessageTypes(t *testing.T) {
	bubble(t, func(fx *fixture) {
		ep := fx.newEndpoint("orders", core.Config{})
		if got := ep.MessageTypes(); len(got) != 0 {
			fx.Errorf("types %q without handlers", got)
		}
		fx.handle(ep, "b", func(context.Context, *core.Message) error { return nil })
		fx.handle(ep, "a", func(context.Context, *core.Message) error { return nil })
		core.HandleDefault(ep, func(context.Context, *core.Message) error { return nil })
		if got := ep.MessageTypes(); !slices.Equal(got, []string{"a", "b"}) {
			fx.Errorf("types %q, want a and b", got)
		}
	})
}
