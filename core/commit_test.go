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
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/core/messagekit"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// storingMiddleware is middleware that stores the messages that the handler collects, as an inbox
// does: a message that it knows is not handled again, and its stored messages are sent
// again.
type storingMiddleware struct {
	stored map[string][]core.Outgoing
	sent   recorder[string]
}

func (k *storingMiddleware) wrap(next core.HandlerFunc) core.HandlerFunc {
	return func(ctx context.Context, m *core.Message) error {
		out, known := k.stored[m.ID]
		if known {
			if err := messagekit.Resend(m, out...); err != nil {
				return err
			}
		} else {
			if err := next(ctx, m); err != nil {
				return err
			}
			k.stored[m.ID] = messagekit.Collected(m)
		}
		return messagekit.Commit(m, messagekit.Collected(m), func() { k.sent.add(m.ID) })
	}
}

var errLostSend = errors.New("the send was lost")

// failFirstSends lets the first n sends to a queue fail.
func failFirstSends(n int, queue string) faults {
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
	inModes(t, retryModes, func(fx *fixture) {
		k := &storingMiddleware{stored: map[string][]core.Outgoing{}}
		fx.broker.setFaults(failFirstSends(1, "shipping"))
		runs := 0
		fx.runOrders(core.Config{
			Middleware: []core.Middleware{core.MiddlewareFunc(k.wrap)}, Recoverability: immediateRetries(2),
			SendMiddleware: []core.SendMiddleware{changeSends(func(_ context.Context, out *core.Outgoing) { out.Headers.Set("passed", out.Headers.Get("passed")+"x") })},
		}, func(_ context.Context, m *core.Message) error {
			runs++
			return m.Send("shipping", shipByteType.Of([]byte("body")).With(core.SendOptions{GroupKey: "g", Properties: map[string]string{"p": "1"}}))
		})
		fx.enqueue("m1")
		got := fx.onlyMessage("shipping")
		equal(fx, "runs", runs, 1)
		equal(fx, "id", got.ID, k.stored["m1"][0].ID)
		equal(fx, "content", fmt.Sprint(string(got.Body), got.GroupKey, got.Properties, got.Headers.Get("passed")), "bodygmap[p:1]x")
		equal(fx, "told", fmt.Sprint(k.sent.all()), "[m1]")
		fx.wantDepth("error", 0)
	})
}

func TestResend_RefusesInvalidMessages(t *testing.T) {
	bubbleWith(t, withCapabilities(func(c *core.Capabilities) { c.TimeToBeReceived = false }), func(fx *fixture) {
		good := core.Outgoing{ID: "s1", Queue: "shipping", Body: []byte("x")}
		for name, change := range map[string]func(*core.Outgoing){
			"no ID":                         func(o *core.Outgoing) { o.ID = "" },
			"no destination":                func(o *core.Outgoing) { o.Queue = "" },
			"both queue":                    func(o *core.Outgoing) { o.Topic = "t" },
			"audit copy":                    func(o *core.Outgoing) { o.Reason = core.ReasonAudit },
			"negative":                      func(o *core.Outgoing) { o.Delay = -1 },
			"limit the time to be received": func(o *core.Outgoing) { o.TimeToBeReceived = time.Minute },
		} {
			bad := good
			change(&bad)
			ep := fx.newEndpoint("orders", core.Config{})
			fx.handle(ep, "order", func(_ context.Context, m *core.Message) error {
				err := messagekit.Resend(m, good, bad)
				if err == nil || !strings.Contains(err.Error(), name) {
					fx.Errorf("%s: %v", name, err)
				}
				equal(fx, name, len(messagekit.Collected(m)), 0)
				return nil
			})
			fx.noError(ep.Invoke(fx.Context(), orderType.Of([]byte("x"))))
		}
	})
}

// committing is a handler's middleware that commits the messages of its handler, and does
// not run it again where they are known.
func (k *storingMiddleware) committing(next core.HandlerFunc) core.HandlerFunc {
	return func(ctx context.Context, m *core.Message) error {
		before := len(messagekit.Collected(m))
		out, known := k.stored[m.ID]
		if known {
			if err := messagekit.Resend(m, out...); err != nil {
				return err
			}
		} else {
			if err := next(ctx, m); err != nil {
				return err
			}
			out = messagekit.Collected(m)[before:]
			k.stored[m.ID] = out
		}
		return messagekit.Commit(m, out, func() { k.sent.add(m.ID) })
	}
}

// runCommitting runs an endpoint whose first handler commits a message to shipping, and
// whose second one ends with result.
func (fx *fixture) runCommitting(c core.Config, result error) (k *storingMiddleware, ep *core.Endpoint) {
	k = &storingMiddleware{stored: map[string][]core.Outgoing{}}
	ep = fx.newEndpoint("orders", c)
	core.Handle(ep, orderType, func(_ context.Context, m *core.Message, _ []byte) error {
		return m.Send("shipping", shipByteType.Of([]byte("body")))
	}, core.HandleOptions{Middleware: []core.Middleware{core.MiddlewareFunc(k.committing)}})
	core.Handle(ep, orderType, func(_ context.Context, m *core.Message, _ []byte) error {
		return errors.Join(m.Send("shipping", otherType.Of([]byte("dropped"))), result)
	})
	return k, ep
}

var errSecondHandler = errors.New("the second handler fails")

func TestCommit_SendsAfterAnyOutcomeOfTheAttempt(t *testing.T) {
	for name, c := range map[string]struct {
		result error
		failed int // messages in the error queue afterwards
	}{
		"Discard":       {core.Discard(errors.New("not wanted")), 0},
		"Unrecoverable": {core.GiveUp(errSecondHandler), 1},
		"delayed retry": {core.RetryAfter(errSecondHandler, time.Hour), 0},
	} {
		for _, loss := range []int{0, 3} {
			t.Run(fmt.Sprint(name, " after sends that failed: ", loss), func(t *testing.T) {
				inModes(t, retryModes, func(fx *fixture) {
					k, ep := fx.runCommitting(core.Config{Recoverability: core.Recoverability{Immediate: core.Immediate{NumberOfRetries: core.Off}, Delayed: core.Delayed{NumberOfRetries: 3}}}, c.result)
					fx.broker.setFaults(failFirstSends(loss, "shipping"))
					fx.run(ep)
					fx.enqueue("m1")
					fx.advance(time.Minute)
					fx.wantDepth("error", c.failed)
					if loss > 0 && name != "Discard" { // a message that stays stands for them
						fx.wantDepth("shipping", 0)
						equal(fx, "told", len(k.sent.all()), 0)
						return
					}
					equal(fx, "id", fx.onlyMessage("shipping").ID, k.stored["m1"][0].ID)
					equal(fx, "told", fmt.Sprint(k.sent.all()), "[m1]")
				})
			})
		}
	}
}

// Where a committed message is refused for good, its message is not discarded.
func TestCommit_RefusedMessageKeepsTheDiscardedOne(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		k, ep := fx.runCommitting(core.Config{Recoverability: noRetries}, core.Discard(errors.New("not wanted")))
		fx.broker.setFaults(faults{send: func(out []core.Outgoing) error {
			if out[0].Queue == "shipping" {
				return fmt.Errorf("no such queue: %w", core.ErrQueueNotFound)
			}
			return nil
		}})
		fx.run(ep)
		fx.enqueue("m1")
		fx.advance(time.Minute)
		if text := fx.onlyMessage("error").Headers.Get(headers.ExceptionMessage); !strings.Contains(text, "no such queue") {
			fx.Errorf("the failure is %q", text)
		}
		equal(fx, "told", len(k.sent.all()), 0)
	})
}

// A message that cannot be discarded is moved as any other is: HandleFailed runs for it, and
// the queue is that of the configuration.
func TestCommit_RefusedDiscardIsAnOrdinaryMove(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		_, ep := fx.runCommitting(core.Config{Recoverability: core.Recoverability{DeadLetter: true}}, core.Discard(errors.New("not wanted")))
		var told recorder[string]
		core.HandleFailed(ep, orderType, func(_ context.Context, _ *core.Message, _ []byte, f *core.Failed) error {
			told.add(f.Err.Error())
			return nil
		})
		fx.broker.setFaults(faults{send: func(out []core.Outgoing) error {
			if out[0].Queue == "shipping" {
				return fmt.Errorf("no such queue: %w", core.ErrQueueNotFound)
			}
			return nil
		}})
		fx.run(ep)
		fx.enqueue("m1")
		fx.advance(time.Minute)
		letter := fx.onlyMessage(inmemory.DeadLetterQueue("orders"))
		equal(fx, "reason", letter.Headers.Get(headers.FailureReason), string(headers.FailureCommitRefused))
		if texts := told.all(); len(texts) != 1 || !strings.Contains(texts[0], "no such queue") {
			fx.Errorf("HandleFailed is told %q; want the refusal, once", texts)
		}
	})
}

func TestCommit_TakenOver(t *testing.T) {
	for _, loss := range []int{0, 1} {
		inModes(t, retryModes, func(fx *fixture) {
			k, ep := fx.runCommitting(core.Config{Recoverability: noRetries}, errSecondHandler)
			core.HandleFailed(ep, orderType, func(_ context.Context, _ *core.Message, _ []byte, f *core.Failed) error {
				f.TakeOver()
				return nil
			})
			fx.broker.setFaults(failFirstSends(loss, "shipping"))
			fx.run(ep)
			fx.enqueue("m1")
			fx.advance(time.Minute)
			fx.onlyMessage("shipping") // at the second try, beside the move
			equal(fx, "told", fmt.Sprint(k.sent.all()), "[m1]")
			fx.wantDepth("error", loss)
		})
	}
}

// Runs that middleware repeats commit the same messages, which leave once.
func TestCommit_LeavesOnceAfterSeveralRuns(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		k := &storingMiddleware{stored: map[string][]core.Outgoing{}}
		runs := 0
		fx.runOrders(core.Config{Middleware: []core.Middleware{retryMiddleware(3), core.MiddlewareFunc(func(next core.HandlerFunc) core.HandlerFunc {
			inner := k.wrap(next)
			return func(ctx context.Context, m *core.Message) error {
				if err := inner(ctx, m); err != nil {
					return err
				}
				if runs++; runs < 3 {
					return errors.New("the run fails after the commit")
				}
				return nil
			}
		})}, Recoverability: noRetries}, func(_ context.Context, m *core.Message) error {
			return m.Send("shipping", shipByteType.Of([]byte("body")))
		})
		fx.enqueue("m1")
		equal(fx, "id", fx.onlyMessage("shipping").ID, k.stored["m1"][0].ID)
		equal(fx, "runs", runs, 3)
	})
}

func TestCommit_Refuses(t *testing.T) {
	bubble(t, func(fx *fixture) {
		var late *core.Message
		_, running := fx.runOrders(core.Config{Recoverability: noRetries}, func(_ context.Context, m *core.Message) error {
			late = m
			if err := messagekit.Commit(m, []core.Outgoing{{Queue: "shipping"}}, nil); err == nil || !strings.Contains(err.Error(), "no ID") {
				fx.Errorf("a message without an id: %v", err)
			}
			return messagekit.Commit(m, nil, func() { panic("in Commit") })
		})
		fx.enqueue("m1")
		fx.wantDepth("error", 0)
		if err := messagekit.Commit(late, nil, func() {}); !errors.Is(err, core.ErrHandlingEnded) {
			fx.Errorf("Commit after the end: %v", err)
		}
		if err := messagekit.Resend(late); !errors.Is(err, core.ErrHandlingEnded) {
			fx.Errorf("Resend after the end: %v", err)
		}
		fx.noError(running.stop())
	})
}

func TestCommit_Invoke(t *testing.T) {
	bubble(t, func(fx *fixture) {
		k, ep := fx.runCommitting(core.Config{}, errSecondHandler)
		fx.broker.setFaults(failFirstSends(1, "shipping"))
		if err := ep.Invoke(fx.Context(), orderType.Of([]byte("x"))); !errors.Is(err, errLostSend) || !errors.Is(err, errSecondHandler) || len(k.sent.all()) > 0 {
			fx.Errorf("a lost send: %v, told %v", err, k.sent.all())
		}
		if err := ep.Invoke(fx.Context(), orderType.Of([]byte("x"))); !errors.Is(err, errSecondHandler) || errors.Is(err, errLostSend) {
			fx.Error(err)
		}
		fx.onlyMessage("shipping")
		equal(fx, "told", len(k.sent.all()), 1)
	})
}

// handleEndRecorder keeps the attempts that observers were told of.
type handleEndRecorder struct{ recorder[string] }

func (e *handleEndRecorder) HandleEnd(_ context.Context, end core.Handling) {
	e.add(fmt.Sprint("end ", end.Duplicate))
}
func (e *handleEndRecorder) Succeeded(_ context.Context, s core.Handling) {
	e.add(fmt.Sprint("success ", s.Duplicate))
}

func (e *handleEndRecorder) observer() core.Observer {
	return core.Observer{HandleEnd: e.HandleEnd, Succeeded: e.Succeeded}
}

func TestMarkDuplicate_UnlessHandlersHaveRun(t *testing.T) {
	for runs, want := range map[bool]string{false: "[end true success true]", true: "[end false success false]"} {
		bubble(t, func(fx *fixture) {
			seen := &handleEndRecorder{}
			fx.runOrders(core.Config{Observers: []core.Observer{seen.observer()}, Middleware: []core.Middleware{core.MiddlewareFunc(func(next core.HandlerFunc) core.HandlerFunc {
				return func(ctx context.Context, m *core.Message) error {
					messagekit.MarkDuplicate(m)
					if runs {
						return next(ctx, m)
					}
					return nil
				}
			})}}, func(context.Context, *core.Message) error { return nil })
			fx.enqueue("m1")
			equal(fx, "told", fmt.Sprint(seen.all()), want)
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
			fx := newFixture(t, withCapabilities(func(*core.Capabilities) {}), core.TransactionReceiveOnly)
			var got recorder[string]
			attempts := 0
			_, running := fx.runOrders(core.Config{
				MessageID:      c.id,
				Recoverability: core.Recoverability{Immediate: core.Immediate{NumberOfRetries: core.Off}, Delayed: core.Delayed{NumberOfRetries: 1, Delays: []time.Duration{time.Second}}},
			}, func(_ context.Context, m *core.Message) error {
				_, sent := messagekit.SentID(m)
				got.add(fmt.Sprint(sent))
				if attempts++; attempts == 2 {
					fx.noError(m.Forward("shipping"))
					return nil
				}
				return errors.New("again")
			})
			out := order(c.sent)
			if c.sent == "" {
				out.ID = "generated"
				out.Headers.Del(headers.MessageID)
				out.Headers.Set(headers.GeneratedID, "True")
			}
			fx.send(out)
			fx.advance(5 * time.Second)
			equal(fx, name, fmt.Sprint(got.all()), fmt.Sprintf("[%v %v]", c.want, c.want))
			equal(fx, name+", forwarded", fx.onlyMessage("shipping").Headers.Get(headers.GeneratedID) == "", c.want)
			fx.noError(running.stop())
		}
	})
}
