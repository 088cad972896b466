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

// changes is SendMiddleware that changes messages and sends them on.
func changes(change func(ctx context.Context, out *core.Outgoing)) core.SendMiddleware {
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
	inModes(t, everyMode[1:], func(b *bed) {
		types := changes(func(_ context.Context, out *core.Outgoing) { out.Headers.Set(core.HeaderMessageTypes, "ship;order") })
		b.orders(core.Config{SendMiddleware: []core.SendMiddleware{types}}, func(_ context.Context, m *core.Message) error {
			forged := core.SendOptions{Headers: map[string]string{core.HeaderMessageTypes: "other"}}
			for _, err := range []error{m.Send("shipping", "ship", nil, forged), m.Reply("ship", nil, forged), m.SendNow(b.Context(), "shipping", "ship", nil, forged)} {
				if err == nil || !containsAll(err.Error(), core.HeaderMessageTypes, "cannot be set by SendOptions.Headers") {
					b.Errorf("a send with another type among its headers returned %v", err)
				}
			}
			return m.Send("shipping", "ship", nil)
		})
		m := order("m1")
		m.Headers.Set(core.HeaderReplyToAddress, "shipping")
		b.send(m)
		b.pass(time.Minute)
		equal(b, "types", b.only("shipping").Headers.Get(core.HeaderMessageTypes), "ship;order")
	})
}

// A body that is compressed on its way out arrives decompressed, by every way to send.
func TestSendMiddleware_ChangesBodiesOfEverySend(t *testing.T) {
	inModes(t, everyMode, func(b *bed) {
		var got record[string]
		ep := b.endpoint("orders", core.Config{SendMiddleware: []core.SendMiddleware{compress}, Middleware: []core.Middleware{decompress}})
		core.Handle(ep, "start", func(ctx context.Context, m *core.TypedMessage[parcel]) error {
			return errors.Join(
				m.Send("orders", "order", parcel{m.Body.Text + "send"}),
				m.Reply("order", parcel{m.Body.Text + "reply"}),
				m.Publish("event", parcel{m.Body.Text + "publish"}),
				m.SendNow(ctx, "orders", "order", parcel{m.Body.Text + "send now"}),
				m.PublishNow(ctx, "event", parcel{m.Body.Text + "publish now"}),
			)
		})
		note := func(_ context.Context, m *core.TypedMessage[parcel]) error { got.add(m.Body.Text); return nil }
		core.Handle(ep, "order", note)
		core.HandleEvent(ep, "event", note)
		b.run(ep)
		b.must(ep.Send(b.Context(), "orders", "start", parcel{"by "}))
		b.must(ep.Send(b.Context(), "orders", "order", parcel{"endpoint"}))
		b.must(ep.Publish(b.Context(), "event", parcel{"endpoint's event"}))
		synctest.Wait()
		all := got.all()
		slices.Sort(all)
		equal(b, "bodies", fmt.Sprintf("%q", all), `["by publish" "by publish now" "by reply" "by send" "by send now" "endpoint" "endpoint's event"]`)
		b.must(ep.Send(b.Context(), "shipping", "order", parcel{"x"}))
		sent := b.only("shipping")
		if !bytes.HasPrefix(sent.Body, []byte{0x1f, 0x8b}) || sent.Headers.Get("Encoding") != "gzip" {
			b.Errorf("on the wire is %q with %v", sent.Body, sent.Headers)
		}
	})
}

// must fails the test at an error.
func (b *bed) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// The engine's own copies carry what was received: none is compressed a second time.
func TestSendMiddleware_LeavesCopiesAlone(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		var ran record[string]
		b.must(b.broker.Provision(b.Context(), core.Topology{Queues: []string{"audit", "parked"}}))
		rules := core.Recoverability{Immediate: core.Immediate{Retries: 1}, Delayed: core.Delayed{Retries: 1}}
		ep := b.endpoint("orders", core.Config{
			Recoverability: rules, AuditQueue: "audit", Middleware: []core.Middleware{decompress},
			SendMiddleware: []core.SendMiddleware{changes(func(_ context.Context, out *core.Outgoing) { ran.add(out.ID) }), compress},
		})
		core.Handle(ep, "order", func(_ context.Context, m *core.TypedMessage[parcel]) error {
			switch {
			case m.Body.Text == "bad":
				return errBoom
			case m.Body.Text == "late" && m.Deferrals == 0:
				return core.Defer(time.Second)
			}
			return m.Forward("parked")
		})
		b.run(ep)
		for _, text := range []string{"bad", "late"} {
			b.must(ep.Send(b.Context(), "orders", "order", parcel{text}, core.SendOptions{ID: text}))
		}
		b.pass(time.Hour)
		equal(b, "runs", fmt.Sprint(ran.all()), "[bad late]")
		for queue, id := range map[string]string{"error": "bad", "audit": "late", "parked": "late"} {
			in := b.only(queue)
			equal(b, "id in "+queue, in.ID, id)
			r, err := gzip.NewReader(bytes.NewReader(in.Body))
			b.must(err)
			text, err := io.ReadAll(r)
			equal(b, "body in "+queue, fmt.Sprint(string(text), err), fmt.Sprintf(`{"Text":%q}<nil>`, id))
		}
	})
}

// HandleFailed gets the body that the handlers of the last attempt got.
func TestSetBody_HandleFailedGetsTheSameBody(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		var got record[string]
		ep := b.endpoint("orders", core.Config{
			Recoverability: immediate(1), SendMiddleware: []core.SendMiddleware{compress}, Middleware: []core.Middleware{decompress},
		})
		core.Handle(ep, "order", func(_ context.Context, m *core.TypedMessage[parcel]) error { return errBoom })
		core.HandleFailed(ep, "order", func(_ context.Context, m *core.TypedMessage[parcel], _ *core.Failed) error {
			got.add(m.Body.Text + m.Headers.Get("Encoding"))
			return nil
		})
		b.run(ep)
		b.must(ep.Send(b.Context(), "orders", "order", parcel{"x"}))
		synctest.Wait()
		equal(b, "HandleFailed got", fmt.Sprint(got.all()), "[x]")
		equal(b, "encoding in the error queue", b.only("error").Headers.Get("Encoding"), "gzip")
	})
}

// A body is set for inner middleware and handlers alone, may be empty, and may have
// another content type.
func TestSetBody_ChangesContentTypeAndNothingElse(t *testing.T) {
	bubble(t, func(b *bed) {
		var got record[string]
		look := func(name string) core.Middleware {
			return func(next core.HandlerFunc) core.HandlerFunc {
				return func(ctx context.Context, m *core.Message) error {
					err := next(ctx, m)
					got.add(name + " " + string(m.RawBody()))
					return err
				}
			}
		}
		set := func(body []byte, contentType string) core.Middleware {
			return func(next core.HandlerFunc) core.HandlerFunc {
				return func(ctx context.Context, m *core.Message) error {
					m.SetBody(body)
					m.Headers.Set(core.HeaderContentType, contentType)
					return next(ctx, m)
				}
			}
		}
		ep := b.endpoint("orders", core.Config{Middleware: []core.Middleware{look("outer"), set([]byte(`{"Text":"set"}`), "application/json"), look("inner")}})
		core.Handle(ep, "order", func(_ context.Context, m *core.TypedMessage[parcel]) error {
			got.add("handler " + m.Body.Text)
			return nil
		})
		b.run(ep)
		m := order("m1")
		m.Headers.Set(core.HeaderContentType, "application/unknown")
		b.deliver(m)
		equal(b, "seen", fmt.Sprintf("%q", got.all()), `["handler set" "inner {\"Text\":\"set\"}" "outer body of m1"]`)

		empty := b.endpoint("shipping", core.Config{Middleware: []core.Middleware{set(nil, "")}})
		b.handle(empty, "order", func(_ context.Context, m *core.Message) error { got.add(fmt.Sprintf("%q", m.RawBody())); return nil })
		b.run(empty)
		m = order("m2")
		m.Queue = "shipping"
		b.deliver(m)
		equal(b, "an empty body", got.all()[3], `""`)
	})
}

// What is wrong with a message after its middleware is an error of the call, which then
// sends and collects nothing.
func TestSendMiddleware_ErrorsFailTheCall(t *testing.T) {
	twice := func(then error) core.SendMiddleware {
		return func(next core.SendFunc) core.SendFunc {
			return func(ctx context.Context, out *core.Outgoing) error {
				return errors.Join(next(ctx, out), then)
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
		"an error after next": {twice(errBoom), "boom", errBoom},
		"no message": {func(next core.SendFunc) core.SendFunc {
			return func(ctx context.Context, _ *core.Outgoing) error { return next(ctx, nil) }
		}, "no message to next", nil},
		"a new message": {func(next core.SendFunc) core.SendFunc {
			return func(ctx context.Context, _ *core.Outgoing) error {
				return next(ctx, &core.Outgoing{ID: "x", Queue: "shipping"})
			}
		}, "a copy of it", nil},
		"no id":                   {changes(func(_ context.Context, out *core.Outgoing) { out.ID = "" }), "removed the ID", nil},
		"no destination":          {changes(func(_ context.Context, out *core.Outgoing) { out.Queue = "" }), "no destination queue", nil},
		"two destinations":        {changes(func(_ context.Context, out *core.Outgoing) { out.Topic = "t" }), `both queue "shipping" and topic "t"`, nil},
		"a negative delay":        {changes(func(_ context.Context, out *core.Outgoing) { out.Delay = -1 }), "delay -1ns is negative", nil},
		"a body that is too long": {changes(func(_ context.Context, out *core.Outgoing) { out.Body = make([]byte, 200_000) }), "MaxMessageBytes", core.ErrTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			inModesOn(t, able(func(c *core.Capabilities) { c.MaxMessageBytes = 100_000 }), retrying, func(b *bed) {
				var errs record[error]
				_, running := b.orders(core.Config{SendMiddleware: []core.SendMiddleware{c.middleware}}, func(ctx context.Context, m *core.Message) error {
					errs.add(m.Send("shipping", "ship", "x"))
					errs.add(m.SendNow(ctx, "shipping", "ship", "x"))
					return nil
				})
				b.put("m1")
				ep := b.endpoint("sender", core.Config{SendOnly: true, SendMiddleware: []core.SendMiddleware{c.middleware}})
				errs.add(ep.Send(b.Context(), "shipping", "ship", "x"))
				b.pass(time.Minute)
				for i, err := range errs.all() {
					if err == nil || !strings.Contains(err.Error(), c.says) || c.is != nil && !errors.Is(err, c.is) {
						b.Errorf("call %d returned %v, want it to say %q", i, err, c.says)
					}
				}
				equal(b, "calls", errs.len(), 3)
				b.holds("orders", 0)
				b.holds("shipping", 0)
				b.must(running.stop())
			})
		})
	}
}

// A middleware that calls next when its call has returned sends nothing.
func TestSendMiddleware_NextEndsWithTheCall(t *testing.T) {
	bubble(t, func(b *bed) {
		var late record[error]
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
		ep := b.endpoint("sender", core.Config{SendOnly: true, SendMiddleware: []core.SendMiddleware{slow}})
		b.must(ep.Send(b.Context(), "shipping", "ship", "x"))
		b.pass(time.Minute)
		if err := late.all()[0]; err == nil || !strings.Contains(err.Error(), "after the call had returned") {
			b.Errorf("next returned %v", err)
		}
		b.holds("shipping", 0)
	})
}

// A middleware can send a message elsewhere, several times, or not at all; what follows
// from its other fields follows their changes.
func TestSendMiddleware_ChangesDestinationAndOptions(t *testing.T) {
	inModes(t, everyMode, func(b *bed) {
		b.must(b.broker.Provision(b.Context(), core.Topology{Queues: []string{"copies"}}))
		start := time.Now()
		route := func(next core.SendFunc) core.SendFunc {
			return func(ctx context.Context, out *core.Outgoing) error {
				switch out.Headers.Get(core.HeaderMessageTypes) {
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
		_, running := b.orders(core.Config{SendMiddleware: []core.SendMiddleware{route}}, func(_ context.Context, m *core.Message) error {
			slow := core.SendOptions{Delay: time.Hour, TimeToBeReceived: 2 * time.Hour}
			return errors.Join(m.Send("shipping", "dropped", "x"), m.Send("shipping", "copied", "x", core.SendOptions{ID: "c"}),
				m.Send("shipping", "delayed", "x"), m.Send("shipping", "hurried", "x", slow))
		})
		b.put("m1")
		equal(b, "sent at once", b.shipped(), "copied hurried")
		hurried := b.queue("shipping")[1].Headers
		equal(b, "headers of what is no longer delayed", hurried.Get(core.HeaderDeliverAt)+hurried.Get(core.HeaderTimeToBeReceived), "")
		equal(b, "headers of the first copy", b.queue("shipping")[0].Headers.Get("Copy"), "")
		second := b.only("copies")
		equal(b, "second copy", second.ID+second.Headers.Get(core.HeaderMessageID)+second.Headers.Get("Copy"), "c-copyc-copyyes")
		b.pass(time.Minute)
		equal(b, "sent after a minute", b.shipped(), "copied hurried delayed")
		delayed := b.queue("shipping")[2]
		equal(b, "headers of what is delayed", delayed.Headers.Get(core.HeaderDeliverAt)+" "+delayed.Headers.Get(core.HeaderTimeToBeReceived)+" "+delayed.GroupKey,
			core.FormatTime(start.Add(time.Minute))+" 01:00:00 g")
		b.must(running.stop())
	})
}

// The middleware sees the context of the handler, with what observers and middleware
// put into it, and may send messages itself.
func TestSendMiddleware_HasTheHandlersContext(t *testing.T) {
	type key struct{}
	inModes(t, retrying, func(b *bed) {
		var seen record[string]
		look := changes(func(ctx context.Context, out *core.Outgoing) {
			m, ok := core.MessageFromContext(ctx)
			if !ok {
				seen.add("no message")
				return
			}
			seen.add(fmt.Sprint(m.ID, " ", ctx.Value(key{})))
			if out.Queue == "shipping" {
				b.must(m.Send("error", "note", len(m.Outgoing())))
			}
		})
		value := func(next core.HandlerFunc) core.HandlerFunc {
			return func(ctx context.Context, m *core.Message) error {
				return next(context.WithValue(ctx, key{}, "value"), m)
			}
		}
		_, running := b.orders(core.Config{SendMiddleware: []core.SendMiddleware{look}, Middleware: []core.Middleware{value}}, func(ctx context.Context, m *core.Message) error {
			return errors.Join(m.Send("shipping", "ship", "x"), m.SendNow(context.Background(), "shipping", "ship", "x"))
		})
		b.put("m1")
		equal(b, "seen", fmt.Sprintf("%q", seen.all()), `["m1 value" "m1 value" "m1 <nil>" "m1 value"]`)
		b.holds("shipping", 2)
		b.holds("error", 2)
		b.must(running.stop())
	})
}

// What the broker accepted of an attempt that failed is not sent again, although the
// middleware makes another body of it each time, and its delay is another.
func TestSendMiddleware_AcceptedSendsAreNotRepeated(t *testing.T) {
	inModes(t, everyMode[1:2], func(b *bed) {
		b.broker.provoke(b.accepts("shipping"))
		runs, due := 0, time.Now().Add(time.Hour)
		nonce := changes(func(_ context.Context, out *core.Outgoing) {
			out.Body = append([]byte(fmt.Sprint(runs, " ")), out.Body...)
		})
		b.orders(core.Config{SendMiddleware: []core.SendMiddleware{nonce}}, func(_ context.Context, m *core.Message) error {
			time.Sleep(time.Second)
			if runs++; runs == 3 {
				b.broker.provoke(faults{})
			}
			return errors.Join(m.Send("shipping", "ship", "x"), m.Send("shipping", "remind", "x", core.SendOptions{DeliverAt: due}), m.Send("error", "bill", "x"))
		})
		b.put("m1")
		b.pass(time.Minute)
		equal(b, "runs", runs, 3)
		b.holds("error", 1)
		b.holds("shipping", 2)
		b.holds("orders", 0)
	})
}

// A panic in the middleware is one of the call: the attempt fails, and locks nothing.
func TestSendMiddleware_MayPanic(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		b.orders(core.Config{Recoverability: immediate(1), SendMiddleware: []core.SendMiddleware{changes(func(context.Context, *core.Outgoing) { panic("no key") })}},
			func(_ context.Context, m *core.Message) error { return m.Send("shipping", "ship", "x") })
		b.put("m1")
		if text := b.only("error").Headers.Get(core.HeaderExceptionMessage); !strings.Contains(text, "no key") {
			b.Errorf("the error queue says %q", text)
		}
	})
}

// A message with a due time is there at this time, however long its handler goes on.
func TestDeliverAt_HoldsAfterALongHandler(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		due := time.Now().Add(time.Minute)
		_, running := b.orders(core.Config{}, func(_ context.Context, m *core.Message) error {
			err := errors.Join(
				m.Send("shipping", "due", "x", core.SendOptions{DeliverAt: due}),
				m.Send("shipping", "overdue", "x", core.SendOptions{DeliverAt: time.Now().Add(10 * time.Second)}),
			)
			time.Sleep(40 * time.Second)
			return err
		})
		b.put("m1")
		b.pass(41 * time.Second)
		equal(b, "sent when the handler returned", b.shipped(), "overdue")
		b.pass(18 * time.Second)
		equal(b, "sent before it was due", b.shipped(), "overdue")
		b.pass(2 * time.Second)
		equal(b, "sent when it was due", b.shipped(), "overdue due")
		b.must(running.stop())
	})
}
