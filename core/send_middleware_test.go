package core_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/core/messagekit"
)

// compress is SendMiddleware that compresses bodies.
func compress(next core.SendFunc) core.SendFunc {
	return func(ctx context.Context, out *core.Outgoing) error {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		if _, err := w.Write(out.Body); err != nil {
			return err
		}
		if err := w.Close(); err != nil {
			return err
		}
		out.Body = b.Bytes()
		out.Headers.Set("Encoding", "gzip")
		return next(ctx, out)
	}
}

// decompress is its counterpart.
func decompress(next core.HandlerFunc) core.HandlerFunc {
	return func(ctx context.Context, m *core.Message) error {
		if m.Headers.Get("Encoding") != "gzip" {
			return next(ctx, m)
		}
		r, err := gzip.NewReader(bytes.NewReader(m.RawBody()))
		if err != nil {
			return err
		}
		body, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		m.SetBody(body)
		m.Headers.Del("Encoding")
		return next(ctx, m)
	}
}

// changeSends is SendMiddleware that changes messages and sends them on.
func changeSends(change func(ctx context.Context, out *core.Outgoing)) core.SendMiddleware {
	return func(next core.SendFunc) core.SendFunc {
		return func(ctx context.Context, out *core.Outgoing) error {
			change(ctx, out)
			return next(ctx, out)
		}
	}
}

type parcel struct{ Text string }

// SendOptions cannot say another type than the call does, SendMiddleware can: for
// receivers of .NET, which want the base types too.
func TestSendMiddleware_MayReplaceTheType(t *testing.T) {
	inModes(t, allModes[1:], func(fx *fixture) {
		types := changeSends(func(_ context.Context, out *core.Outgoing) { out.Headers.Set(headers.MessageTypes, "ship;order") })
		fx.runOrders(core.Config{SendMiddleware: []core.SendMiddleware{types}}, func(_ context.Context, m *core.Message) error {
			forged := core.SendOptions{Headers: map[string]string{headers.MessageTypes: "other"}}
			for _, err := range []error{m.Send("shipping", shipByteType.Of(nil).With(forged)), m.Reply(shipByteType.Of(nil).With(forged)), m.SendNow(fx.Context(), "shipping", shipByteType.Of(nil).With(forged))} {
				if err == nil || !containsAll(err.Error(), headers.MessageTypes, "cannot be set by SendOptions.Headers") {
					fx.Errorf("a send with another type among its headers returned %v", err)
				}
			}
			return m.Send("shipping", shipByteType.Of(nil))
		})
		m := order("m1")
		m.Headers.Set(headers.ReplyToAddress, "shipping")
		fx.send(m)
		fx.advance(time.Minute)
		equal(fx, "types", fx.onlyMessage("shipping").Headers.Get(headers.MessageTypes), "ship;order")
	})
}

// A body that is compressed on its way out arrives decompressed, by every way to send.
func TestSendMiddleware_ChangesBodiesOfEverySend(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		var got recorder[string]
		ep := fx.newEndpoint("orders", core.Config{SendMiddleware: []core.SendMiddleware{compress}, Middleware: []core.Middleware{core.MiddlewareFunc(decompress)}})
		core.Handle(ep, startType, func(ctx context.Context, m *core.Message, body parcel) error {
			return errors.Join(
				m.Send("orders", orderParcelType.Of(parcel{body.Text + "send"})),
				m.Reply(orderParcelType.Of(parcel{body.Text + "reply"})),
				m.Publish(eventParcelType.Of(parcel{body.Text + "publish"})),
				m.SendNow(ctx, "orders", orderParcelType.Of(parcel{body.Text + "send now"})),
				m.PublishNow(ctx, eventParcelType.Of(parcel{body.Text + "publish now"})),
			)
		})
		note := func(_ context.Context, _ *core.Message, body parcel) error { got.add(body.Text); return nil }
		core.Handle(ep, orderParcelType, note)
		core.HandleEvent(ep, eventParcelType, note)
		fx.run(ep)
		fx.noError(ep.Send(fx.Context(), "orders", startType.Of(parcel{"by "})))
		fx.noError(ep.Send(fx.Context(), "orders", orderParcelType.Of(parcel{"endpoint"})))
		fx.noError(ep.Publish(fx.Context(), eventParcelType.Of(parcel{"endpoint's event"})))
		synctest.Wait()
		all := got.all()
		slices.Sort(all)
		equal(fx, "bodies", fmt.Sprintf("%q", all), `["by publish" "by publish now" "by reply" "by send" "by send now" "endpoint" "endpoint's event"]`)
		fx.noError(ep.Send(fx.Context(), "shipping", orderParcelType.Of(parcel{"x"})))
		sent := fx.onlyMessage("shipping")
		if !bytes.HasPrefix(sent.Body, []byte{0x1f, 0x8b}) || sent.Headers.Get("Encoding") != "gzip" {
			fx.Errorf("on the wire is %q with %v", sent.Body, sent.Headers)
		}
	})
}

// noError fails the test at an error.
func (fx *fixture) noError(err error) {
	fx.Helper()
	if err != nil {
		fx.Fatal(err)
	}
}

// The engine's copies have the received bodies: none is compressed a second time.
func TestSendMiddleware_LeavesCopiesAlone(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		var ran recorder[string]
		fx.noError(fx.broker.Provision(fx.Context(), core.Topology{Queues: []string{"audit", "parked"}}))
		rules := core.Recoverability{Immediate: core.Immediate{NumberOfRetries: 1}, Delayed: core.Delayed{NumberOfRetries: 1}}
		ep := fx.newEndpoint("orders", core.Config{
			Recoverability: rules, AuditQueue: "audit", Middleware: []core.Middleware{core.MiddlewareFunc(decompress)},
			SendMiddleware: []core.SendMiddleware{changeSends(func(_ context.Context, out *core.Outgoing) { ran.add(out.ID) }), compress},
		})
		core.Handle(ep, orderParcelType, func(_ context.Context, m *core.Message, body parcel) error {
			switch {
			case body.Text == "bad":
				return errBoom
			case body.Text == "late" && m.Deferrals == 0:
				return core.Defer(errors.New("not yet"), time.Second)
			}
			return m.Forward("parked")
		})
		fx.run(ep)
		for _, text := range []string{"bad", "late"} {
			fx.noError(ep.Send(fx.Context(), "orders", orderParcelType.Of(parcel{text}).With(core.SendOptions{ID: text})))
		}
		fx.advance(time.Hour)
		equal(fx, "runs", fmt.Sprint(ran.all()), "[bad late]")
		for queue, id := range map[string]string{"error": "bad", "audit": "late", "parked": "late"} {
			in := fx.onlyMessage(queue)
			equal(fx, "id in "+queue, in.ID, id)
			r, err := gzip.NewReader(bytes.NewReader(in.Body))
			fx.noError(err)
			text, err := io.ReadAll(r)
			equal(fx, "body in "+queue, fmt.Sprint(string(text), err), fmt.Sprintf(`{"Text":%q}<nil>`, id))
		}
	})
}

// HandleFailed gets the body that the handlers of the last attempt got.
func TestSetBody_HandleFailedGetsTheSameBody(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		var got recorder[string]
		ep := fx.newEndpoint("orders", core.Config{
			Recoverability: immediateRetries(1), SendMiddleware: []core.SendMiddleware{compress}, Middleware: []core.Middleware{core.MiddlewareFunc(decompress)},
		})
		core.Handle(ep, orderParcelType, func(_ context.Context, _ *core.Message, _ parcel) error { return errBoom })
		core.HandleFailed(ep, orderParcelType, func(_ context.Context, m *core.Message, body parcel, _ *core.Failed) error {
			got.add(body.Text + m.Headers.Get("Encoding"))
			return nil
		})
		fx.run(ep)
		fx.noError(ep.Send(fx.Context(), "orders", orderParcelType.Of(parcel{"x"})))
		synctest.Wait()
		equal(fx, "HandleFailed got", fmt.Sprint(got.all()), "[x]")
		equal(fx, "encoding in the error queue", fx.onlyMessage("error").Headers.Get("Encoding"), "gzip")
	})
}

// A body is set for inner middleware and handlers alone, may be empty, and may have
// another content type.
func TestSetBody_ChangesContentTypeAndNothingElse(t *testing.T) {
	bubble(t, func(fx *fixture) {
		var got recorder[string]
		look := func(name string) core.MiddlewareFunc {
			return func(next core.HandlerFunc) core.HandlerFunc {
				return func(ctx context.Context, m *core.Message) error {
					err := next(ctx, m)
					got.add(name + " " + string(m.RawBody()))
					return err
				}
			}
		}
		set := func(body []byte, contentType string) core.MiddlewareFunc {
			return func(next core.HandlerFunc) core.HandlerFunc {
				return func(ctx context.Context, m *core.Message) error {
					m.SetBody(body)
					m.Headers.Set(headers.ContentType, contentType)
					return next(ctx, m)
				}
			}
		}
		ep := fx.newEndpoint("orders", core.Config{Middleware: []core.Middleware{look("outer"), set([]byte(`{"Text":"set"}`), "application/json"), look("inner")}})
		core.Handle(ep, orderParcelType, func(_ context.Context, _ *core.Message, body parcel) error {
			got.add("handler " + body.Text)
			return nil
		})
		fx.run(ep)
		m := order("m1")
		m.Headers.Set(headers.ContentType, "application/unknown")
		fx.sendOneByOne(m)
		equal(fx, "seen", fmt.Sprintf("%q", got.all()), `["handler set" "inner {\"Text\":\"set\"}" "outer body of m1"]`)

		empty := fx.newEndpoint("shipping", core.Config{Middleware: []core.Middleware{set(nil, "")}})
		fx.handle(empty, "order", func(_ context.Context, m *core.Message) error { got.add(fmt.Sprintf("%q", m.RawBody())); return nil })
		fx.run(empty)
		m = order("m2")
		m.Queue = "shipping"
		fx.sendOneByOne(m)
		equal(fx, "an empty body", got.all()[3], `""`)
	})
}

// What is wrong with a message after its middleware is an error of the call, which then
// sends and collects nothing.
func TestSendMiddleware_ErrorsFailTheCall(t *testing.T) {
	sendTwice := func(result error) core.SendMiddleware {
		return func(next core.SendFunc) core.SendFunc {
			return func(ctx context.Context, out *core.Outgoing) error {
				return errors.Join(next(ctx, out), result)
			}
		}
	}
	for name, c := range map[string]struct {
		middleware core.SendMiddleware
		says       string
		is         error
	}{
		"an error": {func(core.SendFunc) core.SendFunc {
			return func(context.Context, *core.Outgoing) error { return errBoom }
		}, "boom", errBoom},
		"an error after next": {sendTwice(errBoom), "boom", errBoom},
		"no message": {func(next core.SendFunc) core.SendFunc {
			return func(ctx context.Context, _ *core.Outgoing) error { return next(ctx, nil) }
		}, "no message to next", nil},
		"a new message": {func(next core.SendFunc) core.SendFunc {
			return func(ctx context.Context, _ *core.Outgoing) error {
				return next(ctx, &core.Outgoing{ID: "x", Queue: "shipping"})
			}
		}, "a copy of it", nil},
		"no id":                   {changeSends(func(_ context.Context, out *core.Outgoing) { out.ID = "" }), "removed the ID", nil},
		"no destination":          {changeSends(func(_ context.Context, out *core.Outgoing) { out.Queue = "" }), "no destination queue", nil},
		"two destinations":        {changeSends(func(_ context.Context, out *core.Outgoing) { out.Topic = "t" }), `both queue "shipping" and topic "t"`, nil},
		"a negative delay":        {changeSends(func(_ context.Context, out *core.Outgoing) { out.Delay = -1 }), "delay -1ns is negative", nil},
		"a body that is too long": {changeSends(func(_ context.Context, out *core.Outgoing) { out.Body = make([]byte, 200_000) }), "MaxMessageBytes", core.ErrTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			inModesWith(t, withCapabilities(func(c *core.Capabilities) { c.MaxMessageBytes = 100_000 }), retryModes, func(fx *fixture) {
				var errs recorder[error]
				_, running := fx.runOrders(core.Config{SendMiddleware: []core.SendMiddleware{c.middleware}}, func(ctx context.Context, m *core.Message) error {
					errs.add(m.Send("shipping", shipType.Of("x")))
					errs.add(m.SendNow(ctx, "shipping", shipType.Of("x")))
					return nil
				})
				fx.enqueue("m1")
				ep := fx.newEndpoint("sender", core.Config{SendOnly: true, SendMiddleware: []core.SendMiddleware{c.middleware}})
				errs.add(ep.Send(fx.Context(), "shipping", shipType.Of("x")))
				fx.advance(time.Minute)
				for i, err := range errs.all() {
					if err == nil || !strings.Contains(err.Error(), c.says) || c.is != nil && !errors.Is(err, c.is) {
						fx.Errorf("call %d returned %v, want it to say %q", i, err, c.says)
					}
				}
				equal(fx, "calls", errs.len(), 3)
				fx.wantDepth("orders", 0)
				fx.wantDepth("shipping", 0)
				fx.noError(running.stop())
			})
		})
	}
}

// A middleware that calls next when its call has returned sends nothing.
func TestSendMiddleware_NextEndsWithTheCall(t *testing.T) {
	bubble(t, func(fx *fixture) {
		var late recorder[error]
		slow := func(next core.SendFunc) core.SendFunc {
			return func(ctx context.Context, out *core.Outgoing) error {
				early := *out
				go func() {
					time.Sleep(time.Second)
					late.add(next(ctx, &early))
				}()
				return nil
			}
		}
		ep := fx.newEndpoint("sender", core.Config{SendOnly: true, SendMiddleware: []core.SendMiddleware{slow}})
		fx.noError(ep.Send(fx.Context(), "shipping", shipType.Of("x")))
		fx.advance(time.Minute)
		if err := late.all()[0]; err == nil || !strings.Contains(err.Error(), "after the call had returned") {
			fx.Errorf("next returned %v", err)
		}
		fx.wantDepth("shipping", 0)
	})
}

// A middleware can send a message elsewhere, several times, or not at all; what follows
// from its other fields follows their changes.
func TestSendMiddleware_ChangesDestinationAndOptions(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		fx.noError(fx.broker.Provision(fx.Context(), core.Topology{Queues: []string{"copies"}}))
		start := time.Now()
		route := func(next core.SendFunc) core.SendFunc {
			return func(ctx context.Context, out *core.Outgoing) error {
				switch out.Headers.Get(headers.MessageTypes) {
				case "dropped":
					return nil
				case "copied":
					other := *out
					other.ID, other.Queue = out.ID+"-copy", "copies"
					other.Headers.Set("Copy", "yes")
					return errors.Join(next(ctx, out), next(ctx, &other))
				case "delayed":
					out.Delay, out.TimeToBeReceived, out.GroupKey = time.Minute, time.Hour, "g"
				case "hurried":
					out.Delay, out.TimeToBeReceived = 0, 0
				}
				return next(ctx, out)
			}
		}
		_, running := fx.runOrders(core.Config{SendMiddleware: []core.SendMiddleware{route}}, func(_ context.Context, m *core.Message) error {
			slow := core.SendOptions{Delay: time.Hour, TimeToBeReceived: 2 * time.Hour}
			return errors.Join(m.Send("shipping", droppedType.Of("x")), m.Send("shipping", copiedType.Of("x").With(core.SendOptions{ID: "c"})),
				m.Send("shipping", delayedType.Of("x")), m.Send("shipping", hurriedType.Of("x").With(slow)))
		})
		fx.enqueue("m1")
		equal(fx, "sent at once", fx.shippedTypes(), "copied hurried")
		hurried := fx.messages("shipping")[1].Headers
		equal(fx, "headers of a message that is no longer delayed", hurried.Get(headers.DeliverAt)+hurried.Get(headers.TimeToBeReceived), "")
		equal(fx, "headers of the first copy", fx.messages("shipping")[0].Headers.Get("Copy"), "")
		second := fx.onlyMessage("copies")
		equal(fx, "second copy", second.ID+second.Headers.Get(headers.MessageID)+second.Headers.Get("Copy"), "c-copyc-copyyes")
		fx.advance(time.Minute)
		equal(fx, "sent after a minute", fx.shippedTypes(), "copied delayed hurried")
		delayed := fx.messages("shipping")[1]
		equal(fx, "headers of a delayed message", delayed.Headers.Get(headers.DeliverAt)+" "+delayed.Headers.Get(headers.TimeToBeReceived)+" "+delayed.GroupKey,
			headers.FormatTime(start.Add(time.Minute))+" 01:00:00 g")
		fx.noError(running.stop())
	})
}

// The middleware sees the context of the handler, with what observers and middleware
// put into it, and may send messages itself.
func TestSendMiddleware_HasTheHandlersContext(t *testing.T) {
	type key struct{}
	inModes(t, retryModes, func(fx *fixture) {
		var seen recorder[string]
		look := changeSends(func(ctx context.Context, out *core.Outgoing) {
			m, ok := core.MessageFromContext(ctx)
			if !ok {
				seen.add("no message")
				return
			}
			seen.add(fmt.Sprint(m.ID, " ", ctx.Value(key{})))
			if out.Queue == "shipping" {
				fx.noError(m.Send("error", noteIntType.Of(len(messagekit.Collected(m)))))
			}
		})
		value := func(next core.HandlerFunc) core.HandlerFunc {
			return func(ctx context.Context, m *core.Message) error {
				return next(context.WithValue(ctx, key{}, "value"), m)
			}
		}
		_, running := fx.runOrders(core.Config{SendMiddleware: []core.SendMiddleware{look}, Middleware: []core.Middleware{core.MiddlewareFunc(value)}}, func(ctx context.Context, m *core.Message) error {
			return errors.Join(m.Send("shipping", shipType.Of("x")), m.SendNow(context.Background(), "shipping", shipType.Of("x")))
		})
		fx.enqueue("m1")
		equal(fx, "seen", fmt.Sprintf("%q", seen.all()), `["m1 value" "m1 value" "m1 <nil>" "m1 value"]`)
		fx.wantDepth("shipping", 2)
		fx.wantDepth("error", 2)
		fx.noError(running.stop())
	})
}

// A panic in the middleware is one of the call: the attempt fails, and locks nothing.
func TestSendMiddleware_MayPanic(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		fx.runOrders(core.Config{Recoverability: immediateRetries(1), SendMiddleware: []core.SendMiddleware{changeSends(func(context.Context, *core.Outgoing) { panic("no key") })}},
			func(_ context.Context, m *core.Message) error { return m.Send("shipping", shipType.Of("x")) })
		fx.enqueue("m1")
		if text := fx.onlyMessage("error").Headers.Get(headers.ExceptionMessage); !strings.Contains(text, "no key") {
			fx.Errorf("the error queue says %q", text)
		}
	})
}

// A message with a due time is there at this time, however long its handler goes on.
func TestDeliverAt_HoldsAfterALongHandler(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		due := time.Now().Add(time.Minute)
		_, running := fx.runOrders(core.Config{}, func(_ context.Context, m *core.Message) error {
			err := errors.Join(
				m.Send("shipping", dueType.Of("x").With(core.SendOptions{DeliverAt: due})),
				m.Send("shipping", overdueType.Of("x").With(core.SendOptions{DeliverAt: time.Now().Add(10 * time.Second)})),
			)
			time.Sleep(40 * time.Second)
			return err
		})
		fx.enqueue("m1")
		fx.advance(41 * time.Second)
		equal(fx, "sent when the handler returned", fx.shippedTypes(), "overdue")
		fx.advance(18 * time.Second)
		equal(fx, "sent before it was due", fx.shippedTypes(), "overdue")
		fx.advance(2 * time.Second)
		equal(fx, "sent when it was due", fx.shippedTypes(), "due overdue")
		fx.noError(running.stop())
	})
}
