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
		return m.Commit(m.Outgoing(), func() { k.sent.add(m.ID) })
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

// commits is a handler's middleware that commits the messages of its handler, and does not
// run it again where they are known.
func (k *keeps) commits(next core.HandlerFunc) core.HandlerFunc {
	return func(ctx context.Context, m *core.Message) error {
		before := len(m.Outgoing())
		out, known := k.stored[m.ID]
		if known {
			if err := m.Resend(out...); err != nil {
				return err
			}
		} else {
			if err := next(ctx, m); err != nil {
				return err
			}
			out = m.Outgoing()[before:]
			k.stored[m.ID] = out
		}
		return m.Commit(out, func() { k.sent.add(m.ID) })
	}
}

// committing runs an endpoint whose first handler commits a message to shipping, and whose
// second one ends with result.
func (b *bed) committing(c core.Config, result error) (k *keeps, ep *core.Endpoint) {
	k = &keeps{stored: map[string][]core.Outgoing{}}
	ep = b.endpoint("orders", c)
	core.Handle(ep, "order", func(_ context.Context, m *core.TypedMessage[[]byte]) error {
		return m.Send("shipping", "ship", []byte("body"))
	}, core.HandleOptions{Middleware: []core.Middleware{k.commits}})
	core.Handle(ep, "order", func(_ context.Context, m *core.TypedMessage[[]byte]) error {
		return errors.Join(m.Send("shipping", "other", []byte("dropped")), result)
	})
	return k, ep
}

var errSecondHandler = errors.New("the second handler fails")

func TestCommit_LeavesWhateverBecomesOfTheAttempt(t *testing.T) {
	for name, c := range map[string]struct {
		result error
		failed int // messages in the error queue afterwards
	}{
		"Discard":       {core.Discard("not wanted"), 0},
		"Unrecoverable": {core.Unrecoverable(errSecondHandler), 1},
		"delayed retry": {core.RetryAfter(errSecondHandler, time.Hour), 0},
	} {
		for _, loss := range []int{0, 3} {
			t.Run(fmt.Sprint(name, " after sends that failed: ", loss), func(t *testing.T) {
				inModes(t, retrying, func(b *bed) {
					k, ep := b.committing(core.Config{Recoverability: core.Recoverability{Immediate: core.Immediate{Off: true}, Delayed: core.Delayed{Retries: 3}}}, c.result)
					b.broker.provoke(loses(loss, "shipping"))
					b.run(ep)
					b.put("m1")
					b.pass(time.Minute)
					b.holds("error", c.failed)
					if loss > 0 && name != "Discard" { // a message that stays stands for them
						b.holds("shipping", 0)
						equal(b, "told", len(k.sent.all()), 0)
						return
					}
					equal(b, "id", b.only("shipping").ID, k.stored["m1"][0].ID)
					equal(b, "told", fmt.Sprint(k.sent.all()), "[m1]")
				})
			})
		}
	}
}

// Where a committed message is refused for good, its message is not discarded.
func TestCommit_RefusedMessageKeepsTheDiscardedOne(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		k, ep := b.committing(core.Config{Recoverability: noRetries}, core.Discard("not wanted"))
		b.broker.provoke(faults{send: func(out []core.Outgoing) error {
			if out[0].Queue == "shipping" {
				return fmt.Errorf("no such queue: %w", core.ErrQueueNotFound)
			}
			return nil
		}})
		b.run(ep)
		b.put("m1")
		b.pass(time.Minute)
		if text := b.only("error").Headers.Get(core.HeaderExceptionMessage); !strings.Contains(text, "no such queue") {
			b.Errorf("the failure is %q", text)
		}
		equal(b, "told", len(k.sent.all()), 0)
	})
}

func TestCommit_TakenOver(t *testing.T) {
	for _, loss := range []int{0, 1} {
		inModes(t, retrying, func(b *bed) {
			k, ep := b.committing(core.Config{Recoverability: noRetries}, errSecondHandler)
			core.HandleFailed(ep, "order", func(_ context.Context, _ *core.TypedMessage[[]byte], f *core.Failed) error {
				f.TakeOver()
				return nil
			})
			b.broker.provoke(loses(loss, "shipping"))
			b.run(ep)
			b.put("m1")
			b.pass(time.Minute)
			b.only("shipping") // at the second try, beside the move
			equal(b, "told", fmt.Sprint(k.sent.all()), "[m1]")
			b.holds("error", loss)
		})
	}
}

// Runs that middleware repeats commit the same messages, which leave once.
func TestCommit_LeavesOnceAfterSeveralRuns(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		k := &keeps{stored: map[string][]core.Outgoing{}}
		runs := 0
		b.orders(core.Config{Middleware: []core.Middleware{tries(3), func(next core.HandlerFunc) core.HandlerFunc {
			inner := k.around(next)
			return func(ctx context.Context, m *core.Message) error {
				if err := inner(ctx, m); err != nil {
					return err
				}
				if runs++; runs < 3 {
					return errors.New("the run fails after the commit")
				}
				return nil
			}
		}}, Recoverability: noRetries}, func(_ context.Context, m *core.Message) error {
			return m.Send("shipping", "ship", []byte("body"))
		})
		b.put("m1")
		equal(b, "id", b.only("shipping").ID, k.stored["m1"][0].ID)
		equal(b, "runs", runs, 3)
	})
}

func TestCommit_Refuses(t *testing.T) {
	bubble(t, func(b *bed) {
		var late *core.Message
		_, running := b.orders(core.Config{Recoverability: noRetries}, func(_ context.Context, m *core.Message) error {
			late = m
			if err := m.Commit([]core.Outgoing{{Queue: "shipping"}}, nil); err == nil || !strings.Contains(err.Error(), "no ID") {
				b.Errorf("a message without an id: %v", err)
			}
			return m.Commit(nil, func() { panic("in Commit") })
		})
		b.put("m1")
		b.holds("error", 0)
		if err := late.Commit(nil, func() {}); !errors.Is(err, core.ErrHandlingEnded) {
			b.Errorf("Commit after the end: %v", err)
		}
		if err := late.Resend(); !errors.Is(err, core.ErrHandlingEnded) {
			b.Errorf("Resend after the end: %v", err)
		}
		b.must(running.stop())
	})
}

func TestCommit_Invoke(t *testing.T) {
	bubble(t, func(b *bed) {
		k, ep := b.committing(core.Config{}, errSecondHandler)
		b.broker.provoke(loses(1, "shipping"))
		if err := ep.Invoke(b.Context(), "order", []byte("x")); !errors.Is(err, errLostSend) || !errors.Is(err, errSecondHandler) || len(k.sent.all()) > 0 {
			b.Errorf("a lost send: %v, told %v", err, k.sent.all())
		}
		if err := ep.Invoke(b.Context(), "order", []byte("x")); !errors.Is(err, errSecondHandler) || errors.Is(err, errLostSend) {
			b.Error(err)
		}
		b.only("shipping")
		equal(b, "told", len(k.sent.all()), 1)
	})
}

// ends keeps what observers were told of attempts.
type ends struct{ record[string] }

func (e *ends) HandleEnd(_ context.Context, end core.HandleEnd) {
	e.add(fmt.Sprint("end ", end.Duplicate))
}
func (e *ends) Succeeded(_ context.Context, s core.Success) {
	e.add(fmt.Sprint("success ", s.Duplicate))
}

func (e *ends) observer() core.Observer {
	return core.Observer{HandleEnd: e.HandleEnd, Succeeded: e.Succeeded}
}

func TestSetDuplicate_UnlessHandlersHaveRun(t *testing.T) {
	for runs, want := range map[bool]string{false: "[end true success true]", true: "[end false success false]"} {
		bubble(t, func(b *bed) {
			seen := &ends{}
			b.orders(core.Config{Observers: []core.Observer{seen.observer()}, Middleware: []core.Middleware{func(next core.HandlerFunc) core.HandlerFunc {
				return func(ctx context.Context, m *core.Message) error {
					m.SetDuplicate()
					if runs {
						return next(ctx, m)
					}
					return nil
				}
			}}}, func(context.Context, *core.Message) error { return nil })
			b.put("m1")
			equal(b, "told", fmt.Sprint(seen.all()), want)
		})
	}
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
		handler := func(context.Context, *core.TypedMessage[[]byte]) error { return nil }
		register := func(unique bool, first, second string) error {
			ep := b.endpoint("orders", core.Config{Recoverability: core.Recoverability{
				Delayed:      core.Delayed{Retries: 2, Delays: []time.Duration{time.Minute, time.Minute}},
				MessageTypes: map[string]core.TypeRecoverability{"slow": {Delayed: core.Delayed{Retries: 1, Delays: []time.Duration{3 * time.Hour}}}},
			}})
			core.Handle(ep, "order", handler, describes(first, unique))
			core.Handle(ep, "other", handler, describes(first, unique))
			core.Handle(ep, "order", handler, describes(second, unique))
			return ep.Err()
		}
		b.must(register(true, "a", "b"))
		b.must(register(false, "a", "a"))
		if err := register(true, "a", "a"); err == nil || !strings.Contains(err.Error(), `(inbox "a") has the name of the one of handler 1`) {
			b.Errorf("two of one name: %v", err)
		}
	})
}
