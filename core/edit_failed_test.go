package core_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/transport/inmemory"
)

type editor = func(ctx context.Context, failure core.ErrorContext, h *core.Headers)

// withEditFailed is noRetries with EditFailed.
func withEditFailed(edit editor) core.Config {
	recover := noRetries
	recover.EditFailed = edit
	return core.Config{Recoverability: recover}
}

// redact removes personal data from error text and headers, as hooks do.
func redact(_ context.Context, failure core.ErrorContext, h *core.Headers) {
	h.Set(headers.ExceptionMessage, "[redacted]")
	h.Set("Team", "billing")
	h.Del(headers.ExceptionStackTrace, "Sender")
	h.Set("For", failure.Message.Type)
}

// wantRedacted checks the order that redact has changed.
func (fx *fixture) wantRedacted(in core.Incoming, id string) {
	fx.Helper()
	equal(fx, "id", in.ID, id)
	equal(fx, "body", string(in.Body), "body of "+id)
	for key, want := range map[string]string{
		headers.ExceptionMessage: "[redacted]", "Team": "billing", "For": "order",
		headers.FailedQ: "orders", headers.MessageID: id, headers.MessageTypes: "order",
	} {
		equal(fx, key, in.Headers.Get(key), want)
	}
	for _, key := range []string{headers.ExceptionStackTrace, "Sender", headers.Undelivered} {
		if value, ok := in.Headers.Lookup(key); ok {
			fx.Errorf("header %s is there: %q", key, value)
		}
	}
	if len(headers.ParseAttempts(in.Headers.Get(headers.Attempts))) == 0 || in.Headers.Get(headers.ExceptionType) == "" || in.Headers.Get(headers.TimeOfFailure) == "" {
		fx.Errorf("headers that it did not touch are missing: %v", in.Headers.Map())
	}
}

func TestEditFailed_ChangesAddsDropsAndRedacts(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		var told []core.ErrorContext
		config := withEditFailed(func(ctx context.Context, failure core.ErrorContext, h *core.Headers) {
			told = append(told, failure)
			equal(fx, "standard text", h.Get(headers.ExceptionMessage), "order 7 is wrong")
			if m, ok := core.MessageFromContext(ctx); !ok || m.ID != "m1" {
				fx.Errorf("the context has the message %v", m)
			}
			redact(ctx, failure, h)
			h.Set(headers.Undelivered, `{"queue": "shipping"}`)
		})
		fx.runOrders(config, func(context.Context, *core.Message) error { return &orderError{"7"} })
		fx.enqueue("m1")
		fx.wantRedacted(fx.onlyMessage("error"), "m1")
		fx.wantDepth("orders", 0)
		fx.wantDepth("shipping", 0)
		equal(fx, "calls", len(told), 1)
		f := told[0]
		equal(fx, "handler", f.Handler, thisPackage+"(*fixture).handle.func1")
		equal(fx, "body told", string(f.Message.RawBody()), "body of m1")
		equal(fx, "header told", f.Message.Headers.Get("Sender"), "unit é")
		if !errors.As(f.Err, new(*orderError)) {
			fx.Errorf("error told: %v", f.Err)
		}
		equal(fx, "warnings", len(fx.logs.find("EditFailed")), 0)
	})
}

// Only a move is edited: not what is retried, discarded, deferred or taken over.
func TestEditFailed_IsAskedBeforeAMoveAlone(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		calls := 0
		recover := core.Recoverability{Immediate: core.Immediate{NumberOfRetries: 1}, Delayed: core.Delayed{NumberOfRetries: 1, TimeIncrease: time.Second}}
		recover.EditFailed = func(ctx context.Context, f core.ErrorContext, h *core.Headers) {
			calls++
			redact(ctx, f, h)
		}
		var bodies, traces recorder[string]
		ep := fx.newEndpoint("orders", core.Config{Recoverability: recover})
		fx.handle(ep, "order", func(_ context.Context, m *core.Message) error {
			switch m.ID {
			case "discarded":
				return core.Discard(errors.New("x"))
			case "moved":
				bodies.add(string(m.RawBody()))
				traces.add(m.Headers.Get(headers.Attempts))
			}
			return errBoom
		})
		core.HandleFailed(ep, orderType, func(_ context.Context, m *core.Message, _ []byte, f *core.Failed) error {
			if m.ID == "taken" {
				f.TakeOver()
			}
			return nil
		})
		fx.run(ep)
		fx.enqueue("discarded", "taken")
		fx.advance(time.Minute)
		equal(fx, "calls", calls, 0)
		fx.enqueue("moved")
		fx.advance(time.Minute)
		equal(fx, "calls", calls, 1)
		equal(fx, "attempts", bodies.len(), 4)
		for i, body := range bodies.all() {
			equal(fx, "body of an attempt", body, "body of moved")
			if trace := traces.all()[i]; strings.Contains(trace, "boom") {
				fx.Errorf("a delayed retry has the text of the error: %s", trace)
			}
		}
		failed := fx.onlyMessage("error")
		fx.wantRedacted(failed, "moved")
		equal(fx, "rounds", len(headers.ParseAttempts(failed.Headers.Get(headers.Attempts))), 2)
	})
}

func TestEditFailed_CannotTakeTheWayBack(t *testing.T) {
	for name, edit := range map[string]editor{
		"drops": func(_ context.Context, _ core.ErrorContext, h *core.Headers) {
			h.Del(headers.FailedQ, headers.MessageID)
		},
		"empties": func(_ context.Context, _ core.ErrorContext, h *core.Headers) {
			h.Set(headers.FailedQ, "")
			h.Set(headers.MessageID, "")
		},
		"changes": func(_ context.Context, _ core.ErrorContext, h *core.Headers) {
			h.Set(headers.FailedQ, strings.Repeat("x", 1<<20))
			h.Set(headers.MessageID, "another")
		},
		"drops all": func(_ context.Context, _ core.ErrorContext, h *core.Headers) { *h = core.Headers{} },
	} {
		t.Run(name, func(t *testing.T) {
			inModes(t, allModes, func(fx *fixture) {
				fx.runOrders(withEditFailed(edit), func(context.Context, *core.Message) error { return errBoom })
				fx.enqueue("m1")
				failed := fx.onlyMessage("error")
				equal(fx, "id", failed.ID, "m1")
				equal(fx, "FailedQ", failed.Headers.Get(headers.FailedQ), "orders")
				equal(fx, "MessageId", failed.Headers.Get(headers.MessageID), "m1")
				if name == "drops all" {
					equal(fx, "headers", failed.Headers.Len(), 2)
				}
				lines := fx.logs.find("EditFailed changed")
				if len(lines) != 1 || lines[0].level != slog.LevelWarn {
					fx.Errorf("logged %+v", lines)
				}
				// The way back.
				returned := core.Outgoing{ID: failed.ID, Queue: failed.Headers.Get(headers.FailedQ), Headers: failed.Headers, Body: failed.Body}
				returned.Headers.Set(headers.MessageTypes, "order")
				fx.send(returned)
				equal(fx, "failed again", len(fx.messages("error")), 2)
			})
		})
	}
}

func TestEditFailed_ThatFailsChangesNothing(t *testing.T) {
	for name, end := range map[string]func(){
		"panics": func() { panic("no idea how") }, "ends its goroutine": runtime.Goexit,
	} {
		t.Run(name, func(t *testing.T) {
			inModes(t, allModes, func(fx *fixture) {
				fx.runOrders(withEditFailed(func(ctx context.Context, f core.ErrorContext, h *core.Headers) {
					redact(ctx, f, h)
					end()
				}), func(context.Context, *core.Message) error { return &orderError{"7"} })
				fx.enqueue("m1", "m2")
				for _, failed := range fx.messages("error") {
					equal(fx, "body", string(failed.Body), "body of "+failed.ID)
					equal(fx, "text", failed.Headers.Get(headers.ExceptionMessage), "order 7 is wrong")
					equal(fx, "sender", failed.Headers.Get("Sender"), "unit é")
					equal(fx, "team", failed.Headers.Get("Team"), "")
				}
				fx.wantDepth("error", 2)
				lines := fx.logs.find("EditFailed failed")
				if len(lines) != 2 || lines[0].level != slog.LevelError || lines[0].attrs["edit_error"] == nil {
					fx.Errorf("logged %+v", lines)
				}
			})
		})
	}
}

// R29: a hook that writes to the given message changes only its own copy.
func TestEditFailed_WritesToItsOwnCopies(t *testing.T) {
	inModesWith(t, withCapabilities(func(c *core.Capabilities) { c.DelayedDelivery = false }), retryModes, func(fx *fixture) {
		reachable := fx.failSendsTo("error")
		var bodies recorder[string]
		calls := 0
		ep, run := fx.runOrders(withEditFailed(func(_ context.Context, f core.ErrorContext, h *core.Headers) {
			calls++
			bodies.add(string(f.Message.RawBody()) + "|" + f.Message.Headers.Get("Sender"))
			f.Message.SetBody([]byte("written"))
			f.Message.Headers.Set("Sender", "changed")
		}), func(context.Context, *core.Message) error { return errBoom })
		fx.enqueue("m1")
		fx.advance(10 * time.Minute)
		fx.wantDepth("error", 0)
		equal(fx, "calls for one delivery that is kept", calls, 1)
		if err := run.stop(); err != nil {
			fx.Error(err)
		}
		fx.run(ep) // the message is delivered again, and moved without its handler
		fx.advance(time.Minute)
		reachable()
		fx.advance(10 * time.Minute)
		failed := fx.onlyMessage("error")
		equal(fx, "body", string(failed.Body), "body of m1")
		equal(fx, "sender", failed.Headers.Get("Sender"), "unit é")
		equal(fx, "calls for two deliveries", calls, 2)
		for _, got := range bodies.all() {
			equal(fx, "given", got, "body of m1|unit é")
		}
	})
}

func TestEditFailed_IsAppliedOnceToAStoredMessage(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		reachable := fx.failSendsTo("error")
		var calls recorder[string]
		config := withEditFailed(func(ctx context.Context, f core.ErrorContext, h *core.Headers) {
			calls.add(f.Message.ID + fmt.Sprint(f.Message.Headers.Get(headers.Undelivered), h.Get(headers.Undelivered)))
			h.Set(headers.Undelivered, "mine")
			redact(ctx, f, h)
		})
		_, run := fx.runOrders(config, func(context.Context, *core.Message) error { return &orderError{"7"} })
		fx.enqueue("m1", "m2") // m2 is stored without a separate try
		fx.advance(10 * time.Minute)
		fx.wantDepth("orders", 2)
		if err := run.stop(); err != nil {
			fx.Error(err)
		}
		reachable()
		fx.runOrders(core.Config{Recoverability: noRetries}, func(context.Context, *core.Message) error { return errBoom }) // a process without the hook
		fx.advance(10 * time.Minute)
		moved := fx.messages("error")
		equal(fx, "moved", len(moved), 2)
		for _, in := range moved {
			fx.wantRedacted(in, in.ID)
		}
		asked := calls.all()
		slices.Sort(asked)
		equal(fx, "calls", strings.Join(asked, " "), "m1 m2")
		fx.wantDepth("orders", 0)
	})
}

// A queue that a policy named and that does not exist gives way to the default one: with
// the same edited copy.
func TestEditFailed_CustomQueueThatDoesNotExist(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		calls := 0
		fx.runOrders(withEditFailed(func(ctx context.Context, f core.ErrorContext, h *core.Headers) {
			calls++
			redact(ctx, f, h)
		}), func(context.Context, *core.Message) error { return core.GiveUpTo(errBoom, "nowhere") })
		fx.enqueue("m1")
		fx.wantRedacted(fx.onlyMessage("error"), "m1")
		equal(fx, "calls", calls, 1)
	})
}

// Rule R24.
func TestEditFailed_CannotPreventTheMove(t *testing.T) {
	const limit = 64 << 10
	large := strings.Repeat("x", 1<<20)
	set := func(key string) editor {
		return func(_ context.Context, _ core.ErrorContext, h *core.Headers) {
			h.Set(key, large)
			h.Set("Team", "billing")
			h.Del(headers.ExceptionSource)
		}
	}
	limits := map[string]inmemory.Config{
		"MaxHeaderBytes":  withCapabilities(func(c *core.Capabilities) { c.MaxHeaderBytes = limit }),
		"MaxMessageBytes": withCapabilities(func(c *core.Capabilities) { c.MaxMessageBytes = limit }),
	}
	for limitName, cfg := range limits {
		for name, edit := range map[string]editor{
			"a header of 1 MiB":          set("Large"),
			"a sender's header of 1 MiB": set("Sender"),
			"an error text of 1 MiB":     set(headers.ExceptionMessage),
			"an error type of 1 MiB":     set(headers.ExceptionType),
			"1,000 headers of 1 KiB": func(ctx context.Context, f core.ErrorContext, h *core.Headers) {
				set("Large")(ctx, f, h)
				h.Del("Large")
				for i := range 1000 {
					h.Set(fmt.Sprint("Large ", i), large[:1<<10])
				}
			},
			"not UTF-8, and an empty key": func(ctx context.Context, f core.ErrorContext, h *core.Headers) {
				set("Large")(ctx, f, h)
				h.Set("\xff", "\xff")
				h.Set("", "x")
			},
		} {
			t.Run(name+" and "+limitName, func(t *testing.T) {
				inModesWith(t, cfg, allModes, func(fx *fixture) {
					fx.runOrders(withEditFailed(edit), func(context.Context, *core.Message) error { return &orderError{"7"} })
					fx.enqueue("m1")
					failed := fx.onlyMessage("error")
					equal(fx, "body", string(failed.Body), "body of m1")
					for key, want := range map[string]string{
						headers.FailedQ: "orders", headers.ProcessingEndpoint: "orders", headers.HandledMessageType: "order",
						"Team": "billing", headers.ExceptionSource: "", headers.MessageTypes: "order",
					} {
						equal(fx, key, failed.Headers.Get(key), want)
					}
					if len(headers.ParseAttempts(failed.Headers.Get(headers.Attempts))) != 1 {
						fx.Error("the trace gave way, although the added headers are too large")
					}
					if name != "a sender's header of 1 MiB" {
						equal(fx, "sender", failed.Headers.Get("Sender"), "unit é")
					}
					fx.wantDepth("orders", 0)
				})
			})
		}
	}
}

// Rule R24.
// What was dropped or redacted stays so, however little of the message is sent.
func TestEditFailed_FallbackKeepsItsEdits(t *testing.T) {
	for limit := range 14 {
		t.Run(fmt.Sprint(limit, " headers at most"), func(t *testing.T) {
			inModes(t, allModes, func(fx *fixture) {
				fx.broker.setFaults(faults{send: func(out []core.Outgoing) error {
					for _, o := range out {
						if o.Queue == "error" && o.Headers.Len() > max(limit, 3) {
							return &core.SendError{Results: []core.SendResult{{ID: o.ID, To: o.Queue, State: core.SendRefused, Err: core.ErrTooLarge}}}
						}
					}
					return nil
				}})
				fx.runOrders(withEditFailed(redact), func(context.Context, *core.Message) error { return errors.New("secret") })
				fx.enqueue("m1")
				failed := fx.onlyMessage("error")
				equal(fx, "body", string(failed.Body), "body of m1")
				equal(fx, "FailedQ", failed.Headers.Get(headers.FailedQ), "orders")
				for key, value := range failed.Headers.All() {
					if key == "Sender" || strings.Contains(value, "secret") {
						fx.Errorf("header %s is %q", key, value)
					}
				}
			})
		})
	}
}

func TestEditFailed_DescribesADeadLetter(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		config := withEditFailed(func(ctx context.Context, f core.ErrorContext, h *core.Headers) {
			redact(ctx, f, h)
		})
		fx.runOrders(config, func(context.Context, *core.Message) error {
			return core.GiveUpTo(errors.New("secret"), core.DeadLetterQueue)
		})
		fx.enqueue("m1")
		letter := fx.onlyMessage(inmemory.DeadLetterQueue("orders"))
		equal(fx, "body", string(letter.Body), "body of m1")
		equal(fx, "sender, which the hook dropped", letter.Headers.Get("Sender"), "")
		equal(fx, "FailedQ", letter.Headers.Get(headers.FailedQ), "orders")
		all := fmt.Sprint(letter.Headers.Map())
		if !strings.Contains(all, "[redacted]") || strings.Contains(all, "secret") {
			fx.Errorf("the dead letter says %s", all)
		}
	})
}

// Rule R27.
// A hook that panics because the shutdown cancelled its context has not answered: the message
// is not moved with what it would have redacted.
func TestEditFailed_RunsAgainAfterACutOff(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		waits := true
		config := withEditFailed(func(ctx context.Context, f core.ErrorContext, h *core.Headers) {
			if waits {
				<-ctx.Done()
				panic(ctx.Err())
			}
			redact(ctx, f, h)
		})
		config.DrainTimeout = time.Second
		ep, run := fx.runOrders(config, func(context.Context, *core.Message) error { return errBoom })
		fx.enqueue("m1")
		if err := run.stop(); err != nil {
			fx.Error(err)
		}
		if fx.mode == core.TransactionNone { // it cannot be given back
			equal(fx, "moved", string(fx.onlyMessage("error").Body), "body of m1")
			return
		}
		fx.wantDepth("error", 0)
		fx.wantDepth("orders", 1)
		equal(fx, "lines", len(fx.logs.find("stopped before the failure was decided", "message_id", "m1")), 1)
		waits = false
		fx.run(ep)
		fx.wantRedacted(fx.onlyMessage("error"), "m1")
		fx.wantDepth("orders", 0)
	})
}
