package core_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
)

// A forwarded message is the received one: not what middleware made of it, and without
// the history of its retries here.
func TestForward_KeepsTheMessage(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		rules := core.Recoverability{Immediate: core.Immediate{Off: true}, Delayed: core.Delayed{Retries: 2}, RequeueDelay: time.Second}
		changed := func(next core.HandlerFunc) core.HandlerFunc {
			return func(ctx context.Context, m *core.Message) error {
				m.SetBody([]byte("changed"))
				m.Headers.Set("Sender", "changed")
				return next(ctx, m)
			}
		}
		_, running := b.orders(core.Config{Recoverability: rules, Middleware: []core.Middleware{changed}}, func(_ context.Context, m *core.Message) error {
			if m.Deferrals == 0 {
				return core.Defer(0)
			}
			if m.DelayedRetries == 0 {
				return errBoom
			}
			return m.Forward("shipping")
		})
		sent := order("m1")
		sent.GroupKey, sent.Properties = "g", map[string]string{"p": "1"}
		sent.Headers.Set(core.HeaderReplyToAddress, "elsewhere")
		sent.Headers.Set(core.HeaderRetryUniqueMessageID, "unique")
		sent.Headers.Set(core.HeaderTimeToBeReceived, "01:00:00")
		b.send(sent)
		b.pass(time.Hour)
		got := b.only("shipping")
		equal(b, "forwarded", fmt.Sprint(got.ID, " ", string(got.Body), " ", got.GroupKey, " ", got.Properties), "m1 body of m1 g map[p:1]")
		want := sent.Headers.Map()
		delete(want, core.HeaderRetryUniqueMessageID)
		delete(want, core.HeaderTimeToBeReceived)
		sameHeaders(b, "headers", got.Headers, want)
		b.must(running.stop())
	})
}

// A collected forward leaves with the handler's success alone; ForwardNow in any case.
func TestForward_LeavesAsSendsDo(t *testing.T) {
	inModes(t, everyMode, func(b *bed) {
		var after *core.Message
		var seen tracer
		b.must(b.broker.Provision(b.Context(), core.Topology{Queues: []string{"at once"}}))
		b.orders(core.Config{Recoverability: noRetries, Observers: []any{&seen}}, func(ctx context.Context, m *core.Message) error {
			after = m
			if err := m.Forward(""); err == nil {
				b.Error("forwarded to no queue")
			}
			b.must(errors.Join(m.Forward("shipping"), m.Forward("error"), m.ForwardNow(ctx, "at once")))
			if m.ID == "bad" {
				return errBoom
			}
			return nil
		})
		b.put("bad")
		b.holds("shipping", 0)
		b.holds("at once", 1)
		equal(b, "reasons", fmt.Sprint(seen.all()), "[forwarded copy to at once move to the error queue to error]")
		b.put("good")
		equal(b, "forwarded", b.only("shipping").ID, "good")
		b.holds("error", 2)
		b.holds("at once", 2)
		for what, err := range map[string]error{"Forward": after.Forward("shipping"), "ForwardNow": after.ForwardNow(b.Context(), "shipping")} {
			if !errors.Is(err, core.ErrHandlingEnded) {
				b.Errorf("%s after the handler returned %v", what, err)
			}
		}
	})
}

// The message of a foreign sender has the id that Config.MessageID gives it, wherever it
// is named; one of an endpoint, one that cannot be parsed and "" are left alone.
func TestMessageID_NamesForeignMessages(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		var handled, sent record[string]
		var recovered recoveries
		b.must(b.broker.Provision(b.Context(), core.Topology{Queues: []string{"audit"}}))
		name := func(in *core.Incoming) string {
			if in.Malformed != nil {
				b.Errorf("asked for a message that could not be parsed: %v", in.Malformed)
			}
			return in.Headers.Get("invoice")
		}
		ep := b.endpoint("orders", core.Config{
			MessageID: name, AuditQueue: "audit", Observers: []any{&recovered},
			Recoverability: core.Recoverability{Immediate: core.Immediate{Retries: 1}, Delayed: core.Delayed{Retries: 1}},
		})
		b.handle(ep, "order", func(_ context.Context, m *core.Message) error {
			handled.add(m.ID)
			if err := m.Send("shipping", "ship", m.ID); err != nil {
				return err
			}
			sent.add(m.Outgoing()[0].Headers.Get(core.HeaderRelatedTo))
			if m.Headers.Get("bad") != "" {
				return errBoom
			}
			return nil
		})
		b.run(ep)
		named, nameless, own, bad := order("1"), order("2"), order("3"), order("4")
		for _, m := range []*core.Outgoing{&named, &nameless, &bad} {
			m.Headers.Del(core.HeaderMessageID)
		}
		named.Headers.Set("invoice", "invoice-1")
		own.Headers.Set("invoice", "invoice-3")
		bad.Headers.Set("invoice", "invoice-4")
		bad.Headers.Set("bad", "yes")
		b.deliver(named, nameless, own)
		nativeOf := handled.all()[1]
		equal(b, "handled", fmt.Sprint(handled.all()), fmt.Sprint([]string{"invoice-1", nativeOf, "3"}))
		if nativeOf == "" || nativeOf == "3" {
			b.Errorf("the message without a name has the id %q", nativeOf)
		}
		equal(b, "related to", fmt.Sprint(sent.all()), fmt.Sprint(handled.all()))
		var audited []string
		for _, in := range b.queue("audit") {
			audited = append(audited, in.Headers.Get(core.HeaderMessageID))
		}
		slices.Sort(audited)
		want := handled.all()
		slices.Sort(want)
		equal(b, "audited", fmt.Sprint(audited), fmt.Sprint(want))

		b.send(bad)
		b.pass(time.Hour)
		equal(b, "attempts of the bad one", fmt.Sprint(handled.all()[3:]), "[invoice-4 invoice-4 invoice-4 invoice-4]")
		in := b.only("error")
		equal(b, "id in the error queue", in.ID+" "+in.Headers.Get(core.HeaderMessageID), "invoice-4 invoice-4")
		for _, e := range recovered.all() {
			equal(b, "id of a recovery", e.MessageID, "invoice-4")
		}
	})
}

// An id that cannot be one, and a panic, are a failed attempt.
func TestMessageID_FailuresAreAttempts(t *testing.T) {
	for name, f := range map[string]func(*core.Incoming) string{
		"Config.MessageID: panic: no id": func(*core.Incoming) string { panic("no id") },
		"not UTF-8":                      func(*core.Incoming) string { return "\xff" },
	} {
		t.Run(name, func(t *testing.T) {
			inModes(t, everyMode, func(b *bed) {
				ran := 0
				b.orders(core.Config{MessageID: f, Recoverability: noRetries}, func(context.Context, *core.Message) error { ran++; return nil })
				m := order("m1")
				m.Headers.Del(core.HeaderMessageID)
				b.deliver(m)
				equal(b, "handled", ran, 0)
				if text := b.only("error").Headers.Get(core.HeaderExceptionMessage); !containsAll(text, name) {
					b.Errorf("the error queue says %q", text)
				}
			})
		})
	}
}

// The handlers after one that skips them do not run, in this attempt alone.
func TestSkipRemainingHandlers_InThisAttempt(t *testing.T) {
	inModes(t, everyMode, func(b *bed) {
		var ran record[string]
		ep := b.endpoint("orders", core.Config{Recoverability: immediate(b.retries())})
		step := func(name string, skip func(m *core.Message) bool, err func(m *core.Message) error) {
			b.handle(ep, "order", func(_ context.Context, m *core.Message) error {
				ran.add(name)
				if skip(m) {
					m.SkipRemainingHandlers()
				}
				b.must(m.Send("shipping", name, "x"))
				return err(m)
			})
		}
		never := func(*core.Message) bool { return false }
		fine := func(*core.Message) error { return nil }
		step("first", never, fine)
		step("second", func(m *core.Message) bool { return m.ID == "m1" }, fine)
		step("third", never, fine)
		b.run(ep)
		b.put("m1")
		equal(b, "ran", fmt.Sprint(ran.all()), "[first second]")
		equal(b, "sent", b.shipped(), "first second")
		b.put("m2")
		equal(b, "ran for another message", fmt.Sprint(ran.all()[2:]), "[first second third]")
		b.holds("error", 0)
		b.holds("orders", 0)
	})
}

// A handler that skips the others and fails is retried as any other: the next attempt
// begins with the first handler, and skips none.
func TestSkipRemainingHandlers_FailureIsRetried(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		var ran record[string]
		ep := b.endpoint("orders", core.Config{Recoverability: immediate(1), Middleware: []core.Middleware{tries(1)}})
		b.handle(ep, "order", func(_ context.Context, m *core.Message) error {
			ran.add("first")
			if m.Attempt == 1 {
				m.SkipRemainingHandlers()
				return errBoom
			}
			return nil
		})
		b.handle(ep, "order", func(context.Context, *core.Message) error { ran.add("second"); return nil })
		b.run(ep)
		b.put("m1")
		equal(b, "ran", fmt.Sprint(ran.all()), "[first first second]")
	})
}

func (b *bed) retries() int {
	if b.mode == core.TransactionNone {
		return 0
	}
	return 1
}

// What the application raises is logged, counted and given to OnCriticalError, whether
// the endpoint runs or not; OnCriticalError may end it.
func TestRaiseCritical_ReachesOnCriticalError(t *testing.T) {
	bubble(t, func(b *bed) {
		var told record[string]
		var ep *core.Endpoint
		ep = b.endpoint("orders", core.Config{OnCriticalError: func(ctx context.Context, err error) {
			told.add(err.Error())
			if err.Error() == "ends" {
				if err := ep.Shutdown(ctx); err != nil {
					b.Error(err)
				}
			}
			if err.Error() == "panics" {
				panic("in OnCriticalError")
			}
		}})
		b.handle(ep, "order", func(context.Context, *core.Message) error {
			ep.RaiseCritical(errors.New("ends"))
			return nil
		})
		ep.RaiseCritical(nil)
		ep.RaiseCritical(errors.New("panics"))
		equal(b, "told before Run", fmt.Sprint(told.all()), "[panics]")
		r := b.run(ep)
		ep.RaiseCritical(errors.New("running"))
		synctest.Wait()
		equal(b, "told while running", fmt.Sprint(told.all()), "[panics running]")
		equal(b, "ended", r.hasEnded(), false)
		b.put("m1")
		b.must(r.wait())
		equal(b, "told", fmt.Sprint(told.all()), "[panics running ends]")
		equal(b, "logged", len(b.logs.about("critical error")), 3)
		h := ep.Health()
		equal(b, "health", fmt.Sprint(h.CriticalErrors, " ", h.LastCritical.Err), "3 ends")
	})
}

// PurgeOnStart empties the input queue before the first message, and nothing else.
func TestPurgeOnStart_EmptiesTheInputQueue(t *testing.T) {
	inModes(t, everyMode, func(b *bed) {
		var handled record[string]
		h := func(_ context.Context, m *core.Message) error { handled.add(m.ID); return nil }
		elsewhere, late := order("m2"), order("m3")
		elsewhere.Queue = "shipping"
		late.Delay = time.Minute
		b.send(order("m1"), elsewhere, late)
		ep, running := b.orders(core.Config{PurgeOnStart: true, Instance: "one"}, h)
		b.put("m4")
		equal(b, "handled", fmt.Sprint(handled.all()), "[m4]")
		b.pass(time.Hour)
		equal(b, "handled when the delayed one was due", fmt.Sprint(handled.all()), "[m4 m3]")
		b.holds("shipping", 1)
		lines := b.logs.about("emptied")
		if len(lines) != 1 || fmt.Sprint(lines[0].attrs["messages"]) != "1" {
			b.Errorf("logged %v", lines)
		}
		equal(b, "Config", ep.Config().PurgeOnStart, true)
		b.must(running.stop())

		b.send(order("m5"))
		b.orders(core.Config{Instance: "two"}, h)
		synctest.Wait()
		equal(b, "handled without PurgeOnStart", fmt.Sprint(handled.all()), "[m4 m3 m5]")
	})
}

// unpurgeable is a transport that answers Purge with an error.
type unpurgeable struct {
	*faulty
	err error
}

func (u unpurgeable) Purge(context.Context, string) (int, error) { return 0, u.err }

// An endpoint that cannot empty its queue does not start.
func TestPurgeOnStart_FailureEndsRun(t *testing.T) {
	bubble(t, func(b *bed) {
		ep, err := core.New("orders", unpurgeable{b.broker, errBoom}, core.Config{PurgeOnStart: true})
		b.must(err)
		b.handle(ep, "order", func(context.Context, *core.Message) error { return nil })
		b.send(order("m1"))
		if err := ep.Run(b.Context()); !errors.Is(err, errBoom) || !containsAll(err.Error(), `purge queue "orders"`) {
			b.Errorf("Run returned %v", err)
		}
		b.holds("orders", 1)
	})
}
