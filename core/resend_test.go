package core_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
)

// keeps is middleware that stores what the handler collects, as an inbox does: a message
// that it knows is not handled again, and its stored messages are sent again.
type keeps struct {
	stored map[string][]core.Outgoing
	sent   record[string]
}

func (k *keeps) around(next core.HandlerFunc) core.HandlerFunc {
	return func(ctx context.Context, m *core.Message) error {
		out, known := k.stored[m.ID]
		if known {
			if err := m.Resend(out...); err != nil {
				return err
			}
		} else {
			if err := next(ctx, m); err != nil {
				return err
			}
			k.stored[m.ID] = m.Outgoing()
		}
		return m.OnSent(func() { k.sent.add(m.ID) })
	}
}

var errLostSend = errors.New("the send was lost")

// loses lets the first n sends to a queue fail.
func loses(n int, queue string) faults {
	return faults{send: func(out []core.Outgoing) error {
		for i := range out {
			if out[i].Queue == queue && n > 0 {
				n--
				return errLostSend
			}
		}
		return nil
	}}
}

func TestResend_LeavesAsItWasFirstComposed(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		k := &keeps{stored: map[string][]core.Outgoing{}}
		b.broker.provoke(loses(1, "shipping"))
		runs := 0
		b.orders(core.Config{
			Middleware: []core.Middleware{k.around}, Recoverability: immediate(2),
			SendMiddleware: []core.SendMiddleware{changes(func(_ context.Context, out *core.Outgoing) { out.Headers.Set("passed", out.Headers.Get("passed")+"x") })},
		}, func(_ context.Context, m *core.Message) error {
			runs++
			return m.Send("shipping", "ship", []byte("body"), core.SendOptions{GroupKey: "g", Properties: map[string]string{"p": "1"}})
		})
		b.put("m1")
		got := b.only("shipping")
		equal(b, "runs", runs, 1)
		equal(b, "id", got.ID, k.stored["m1"][0].ID)
		equal(b, "content", fmt.Sprint(string(got.Body), got.GroupKey, got.Properties, got.Headers.Get("passed")), "bodygmap[p:1]x")
		equal(b, "told", fmt.Sprint(k.sent.all()), "[m1]")
		b.holds("error", 0)
	})
}

func TestResend_RefusesWhatHandlersDoNotSend(t *testing.T) {
	bubbleOn(t, able(func(c *core.Capabilities) { c.TimeToBeReceived = false }), func(b *bed) {
		good := core.Outgoing{ID: "s1", Queue: "shipping", Body: []byte("x")}
		for what, change := range map[string]func(*core.Outgoing){
			"no ID":                         func(o *core.Outgoing) { o.ID = "" },
			"no destination":                func(o *core.Outgoing) { o.Queue = "" },
			"both queue":                    func(o *core.Outgoing) { o.Topic = "t" },
			"audit copy":                    func(o *core.Outgoing) { o.Reason = core.ReasonAudit },
			"negative":                      func(o *core.Outgoing) { o.Delay = -1 },
			"limit the time to be received": func(o *core.Outgoing) { o.TimeToBeReceived = time.Minute },
		} {
			bad := good
			change(&bad)
			ep := b.endpoint("orders", core.Config{})
			b.handle(ep, "order", func(_ context.Context, m *core.Message) error {
				err := m.Resend(good, bad)
				if err == nil || !strings.Contains(err.Error(), what) {
					b.Errorf("%s: %v", what, err)
				}
				equal(b, what, len(m.Outgoing()), 0)
				return nil
			})
			b.must(ep.Invoke(b.Context(), "order", []byte("x")))
		}
	})
}

func TestOnSent_NotForRunsThatFail(t *testing.T) {
	bubble(t, func(b *bed) {
		var told record[string]
		registers := func(name string, result ...error) core.Middleware {
			run := 0
			return func(next core.HandlerFunc) core.HandlerFunc {
				return func(ctx context.Context, m *core.Message) error {
					b.must(m.OnSent(func() { told.add(fmt.Sprint(name, " ", run)) }))
					err := next(ctx, m)
					if run++; run <= len(result) && err == nil {
						err = result[run-1]
					}
					return err
				}
			}
		}
		var late *core.Message
		_, running := b.orders(core.Config{
			Middleware:     []core.Middleware{registers("outer"), tries(2), registers("inner", errors.New("the first run fails"))},
			Concurrency:    1, // the middleware count their runs
			Recoverability: noRetries,
		}, func(_ context.Context, m *core.Message) error {
			late = m
			if m.ID == "bad" {
				return errors.New("bad")
			}
			return m.OnSent(func() { panic("in OnSent") })
		})
		b.put("m1")
		b.put("bad")
		equal(b, "told", fmt.Sprint(told.all()), "[outer 1 inner 2]")
		b.holds("error", 1)
		if err := late.OnSent(func() {}); !errors.Is(err, core.ErrHandlingEnded) {
			b.Errorf("OnSent after the end: %v", err)
		}
		if err := late.Resend(); !errors.Is(err, core.ErrHandlingEnded) {
			b.Errorf("Resend after the end: %v", err)
		}
		b.must(running.stop())
	})
}

func TestOnSent_Invoke(t *testing.T) {
	bubble(t, func(b *bed) {
		told := 0
		ep := b.endpoint("orders", core.Config{})
		b.handle(ep, "order", func(_ context.Context, m *core.Message) error {
			b.must(m.Send("shipping", "ship", []byte("x")))
			return m.OnSent(func() { told++ })
		})
		b.broker.provoke(loses(1, "shipping"))
		if err := ep.Invoke(b.Context(), "order", []byte("x")); !errors.Is(err, errLostSend) || told != 0 {
			b.Errorf("a lost send: %v, told %d times", err, told)
		}
		b.must(ep.Invoke(b.Context(), "order", []byte("x")))
		equal(b, "told", told, 1)
	})
}

// An id that was generated is known as such in each copy of the message.
func TestSentID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			id   func(*core.Incoming) string
			sent string
			want bool
		}{
			"sent":      {nil, "m1", true},
			"generated": {nil, "", false},
			"by Config": {func(*core.Incoming) string { return "business" }, "", true},
		} {
			b := newBed(t, able(func(*core.Capabilities) {}), core.TransactionReceiveOnly)
			var got record[string]
			attempts := 0
			_, running := b.orders(core.Config{
				MessageID:      c.id,
				Recoverability: core.Recoverability{Immediate: core.Immediate{Off: true}, Delayed: core.Delayed{Retries: 1, Delays: []time.Duration{time.Second}}},
			}, func(_ context.Context, m *core.Message) error {
				_, sent := m.SentID()
				got.add(fmt.Sprint(sent))
				if attempts++; attempts == 2 {
					b.must(m.Forward("shipping"))
					return nil
				}
				return errors.New("again")
			})
			out := order(c.sent)
			if c.sent == "" {
				out.Headers.Del(core.HeaderMessageID)
			}
			b.send(out)
			b.pass(5 * time.Second)
			equal(b, name, fmt.Sprint(got.all()), fmt.Sprintf("[%v %v]", c.want, c.want))
			equal(b, name+", forwarded", b.only("shipping").Headers.Get(core.HeaderGeneratedID) == "", c.want)
			b.must(running.stop())
		}
	})
}

func TestStep_UniqueNameBesideAnotherHandler(t *testing.T) {
	bubble(t, func(b *bed) {
		describes := func(name string, unique bool) core.HandleOptions {
			return core.HandleOptions{Middleware: []core.Middleware{func(next core.HandlerFunc) core.HandlerFunc {
				start := core.StartUpOf(next)
				equal(b, "endpoint", start.Endpoint(), "orders")
				equal(b, "retry span", start.RetrySpan(), 3*time.Hour)
				start.Describe(core.Step{Kind: "inbox", Name: name, Unique: unique})
				return next
			}}}
		}
		handler := func(context.Context, *core.Inbound[[]byte]) error { return nil }
		register := func(unique bool, first, second string) error {
			ep := b.endpoint("orders", core.Config{Recoverability: core.Recoverability{
				Delayed:      core.Delayed{Retries: 2, Delays: []time.Duration{time.Minute, time.Minute}},
				MessageTypes: map[string]core.TypeRecoverability{"slow": {Delayed: core.Delayed{Retries: 1, Delays: []time.Duration{3 * time.Hour}}}},
			}})
			b.must(core.Handle(ep, "order", handler, describes(first, unique)))
			b.must(core.Handle(ep, "other", handler, describes(first, unique)))
			return core.Handle(ep, "order", handler, describes(second, unique))
		}
		b.must(register(true, "a", "b"))
		b.must(register(false, "a", "a"))
		if err := register(true, "a", "a"); err == nil || !strings.Contains(err.Error(), `(inbox "a") has the name of the one of handler 1`) {
			b.Errorf("two of one name: %v", err)
		}
	})
}
