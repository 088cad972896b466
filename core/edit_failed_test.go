package core_test

import (
	"bytes"
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
	"github.com/reprise-go/reprise/transport/inmemory"
)

type editor = func(ctx context.Context, failure core.ErrorContext, message *core.FailedCopy)

// editing is noRetries with EditFailed.
func editing(edit editor) core.Config {
	recover := noRetries
	recover.EditFailed = edit
	return core.Config{Recoverability: recover}
}

// redact is what the hook is for: nothing of the person in error text, headers and body.
func redact(_ context.Context, failure core.ErrorContext, message *core.FailedCopy) {
	message.Headers.Set(core.HeaderExceptionMessage, "[redacted]")
	message.Headers.Set("Team", "billing")
	message.Headers.Del(core.HeaderExceptionStackTrace, "Sender")
	copy(message.Body, "XXXX")
	message.Body = append(message.Body, " for "+failure.MessageType...)
}

// redacted checks what redact made of an order.
func (b *bed) redacted(in core.Incoming, id string) {
	b.Helper()
	equal(b, "id", in.ID, id)
	equal(b, "body", string(in.Body), "XXXX of "+id+" for order")
	for key, want := range map[string]string{
		core.HeaderExceptionMessage: "[redacted]", "Team": "billing",
		core.HeaderFailedQ: "orders", core.HeaderMessageID: id, core.HeaderMessageTypes: "order",
	} {
		equal(b, key, in.Headers.Get(key), want)
	}
	for _, key := range []string{core.HeaderExceptionStackTrace, "Sender", core.HeaderUndelivered} {
		if value, ok := in.Headers.Lookup(key); ok {
			b.Errorf("header %s is there: %q", key, value)
		}
	}
	if len(core.Rounds(in.Headers)) == 0 || in.Headers.Get(core.HeaderExceptionType) == "" || in.Headers.Get(core.HeaderTimeOfFailure) == "" {
		b.Errorf("headers that it did not touch are missing: %v", in.Headers.Map())
	}
}

func TestEditFailed_ChangesAddsDropsAndRedacts(t *testing.T) {
	inModes(t, everyMode, func(b *bed) {
		var told []core.ErrorContext
		var queue string
		config := editing(func(ctx context.Context, failure core.ErrorContext, message *core.FailedCopy) {
			told = append(told, failure)
			queue = message.Queue
			equal(b, "standard text", message.Headers.Get(core.HeaderExceptionMessage), "order 7 is wrong")
			if m, ok := core.MessageFromContext(ctx); !ok || m.ID != "m1" {
				b.Errorf("the context has the message %v", m)
			}
			redact(ctx, failure, message)
			message.Headers.Set(core.HeaderUndelivered, `{"queue": "shipping"}`)
			message.Queue = "shipping"
		})
		b.orders(config, func(context.Context, *core.Message) error { return &orderError{"7"} })
		b.put("m1")
		b.redacted(b.only("error"), "m1")
		b.holds("orders", 0)
		b.holds("shipping", 0)
		equal(b, "calls", len(told), 1)
		equal(b, "queue", queue, "error")
		f := told[0]
		equal(b, "handler", f.Handler, thisPackage+"(*bed).handle.func1")
		equal(b, "body told", string(f.Body), "body of m1")
		equal(b, "header told", f.Headers.Get("Sender"), "unit é")
		if !errors.As(f.Err, new(*orderError)) {
			b.Errorf("error told: %v", f.Err)
		}
		equal(b, "warnings", len(b.logs.about("EditFailed")), 0)
	})
}

// Only a move is edited: not what is retried, discarded, deferred or taken over.
func TestEditFailed_IsAskedBeforeAMoveAlone(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		calls := 0
		recover := core.Recoverability{Immediate: core.Immediate{Retries: 1}, Delayed: core.Delayed{Retries: 1, Increase: time.Second}}
		recover.EditFailed = func(ctx context.Context, f core.ErrorContext, m *core.FailedCopy) {
			calls++
			redact(ctx, f, m)
		}
		var bodies, traces record[string]
		ep := b.endpoint("orders", core.Config{Recoverability: recover})
		b.handle(ep, "order", func(_ context.Context, m *core.Message) error {
			switch m.ID {
			case "discarded":
				return core.Discard("x")
			case "moved":
				bodies.add(string(m.RawBody()))
				traces.add(m.Headers.Get(core.HeaderAttempts))
			}
			return errBoom
		})
		core.HandleFailed(ep, "order", func(_ context.Context, m *core.TypedMessage[[]byte], f *core.Failed) error {
			if m.ID == "taken" {
				f.TakeOver()
			}
			return nil
		})
		b.run(ep)
		b.put("discarded", "taken")
		b.pass(time.Minute)
		equal(b, "calls", calls, 0)
		b.put("moved")
		b.pass(time.Minute)
		equal(b, "calls", calls, 1)
		equal(b, "attempts", bodies.len(), 4)
		for i, body := range bodies.all() {
			equal(b, "body of an attempt", body, "body of moved")
			if trace := traces.all()[i]; strings.Contains(trace, "boom") {
				b.Errorf("a delayed retry has the text of the error: %s", trace)
			}
		}
		failed := b.only("error")
		b.redacted(failed, "moved")
		equal(b, "rounds", len(core.Rounds(failed.Headers)), 2)
	})
}

func TestEditFailed_CannotTakeTheWayBack(t *testing.T) {
	for name, edit := range map[string]editor{
		"drops": func(_ context.Context, _ core.ErrorContext, m *core.FailedCopy) {
			m.Headers.Del(core.HeaderFailedQ, core.HeaderMessageID)
		},
		"empties": func(_ context.Context, _ core.ErrorContext, m *core.FailedCopy) {
			m.Headers.Set(core.HeaderFailedQ, "")
			m.Headers.Set(core.HeaderMessageID, "")
		},
		"changes": func(_ context.Context, _ core.ErrorContext, m *core.FailedCopy) {
			m.Headers.Set(core.HeaderFailedQ, strings.Repeat("x", 1<<20))
			m.Headers.Set(core.HeaderMessageID, "another")
		},
		"drops all": func(_ context.Context, _ core.ErrorContext, m *core.FailedCopy) { *m = core.FailedCopy{} },
	} {
		t.Run(name, func(t *testing.T) {
			inModes(t, everyMode, func(b *bed) {
				b.orders(editing(edit), func(context.Context, *core.Message) error { return errBoom })
				b.put("m1")
				failed := b.only("error")
				equal(b, "id", failed.ID, "m1")
				equal(b, "FailedQ", failed.Headers.Get(core.HeaderFailedQ), "orders")
				equal(b, "MessageId", failed.Headers.Get(core.HeaderMessageID), "m1")
				if name == "drops all" {
					equal(b, "headers", failed.Headers.Len(), 2)
					equal(b, "body", len(failed.Body), 0)
				}
				lines := b.logs.about("EditFailed changed")
				if len(lines) != 1 || lines[0].level != slog.LevelWarn {
					b.Errorf("logged %+v", lines)
				}
				// The way back.
				back := core.Outgoing{ID: failed.ID, Queue: failed.Headers.Get(core.HeaderFailedQ), Headers: failed.Headers, Body: failed.Body}
				back.Headers.Set(core.HeaderMessageTypes, "order")
				b.send(back)
				equal(b, "failed again", len(b.queue("error")), 2)
			})
		})
	}
}

func TestEditFailed_ThatFailsChangesNothing(t *testing.T) {
	for name, end := range map[string]func(){
		"panics": func() { panic("no idea how") }, "ends its goroutine": runtime.Goexit,
	} {
		t.Run(name, func(t *testing.T) {
			inModes(t, everyMode, func(b *bed) {
				b.orders(editing(func(ctx context.Context, f core.ErrorContext, m *core.FailedCopy) {
					redact(ctx, f, m)
					end()
				}), func(context.Context, *core.Message) error { return &orderError{"7"} })
				b.put("m1", "m2")
				for _, failed := range b.queue("error") {
					equal(b, "body", string(failed.Body), "body of "+failed.ID)
					equal(b, "text", failed.Headers.Get(core.HeaderExceptionMessage), "order 7 is wrong")
					equal(b, "sender", failed.Headers.Get("Sender"), "unit é")
					equal(b, "team", failed.Headers.Get("Team"), "")
				}
				b.holds("error", 2)
				lines := b.logs.about("EditFailed failed")
				if len(lines) != 2 || lines[0].level != slog.LevelError || lines[0].attrs["edit_error"] == nil {
					b.Errorf("logged %+v", lines)
				}
			})
		})
	}
}

// R29: what the hook writes into the bodies that it got reaches nobody else.
func TestEditFailed_WritesToItsOwnCopies(t *testing.T) {
	inModesOn(t, able(func(c *core.Capabilities) { c.DelayedDelivery = false }), retrying, func(b *bed) {
		reachable := b.unreachable("error")
		var bodies record[string]
		calls := 0
		ep, run := b.orders(editing(func(_ context.Context, f core.ErrorContext, m *core.FailedCopy) {
			calls++
			bodies.add(string(f.Body) + "|" + string(m.Body) + "|" + f.Headers.Get("Sender"))
			clear(f.Body)
			clear(m.Body)
			f.Headers.Set("Sender", "changed")
		}), func(context.Context, *core.Message) error { return errBoom })
		b.put("m1")
		b.pass(10 * time.Minute)
		b.holds("error", 0)
		equal(b, "calls for one delivery that is kept", calls, 1)
		if err := run.stop(); err != nil {
			b.Error(err)
		}
		b.run(ep) // the message is delivered again, and moved without its handler
		b.pass(time.Minute)
		reachable()
		b.pass(10 * time.Minute)
		failed := b.only("error")
		equal(b, "body", string(failed.Body), strings.Repeat("\x00", len("body of m1")))
		equal(b, "sender", failed.Headers.Get("Sender"), "unit é")
		equal(b, "calls for two deliveries", calls, 2)
		for _, got := range bodies.all() {
			equal(b, "what it got", got, "body of m1|body of m1|unit é")
		}
	})
}

func TestEditFailed_IsAppliedOnceToAStoredMessage(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		reachable := b.unreachable("error")
		var calls record[string]
		config := editing(func(ctx context.Context, f core.ErrorContext, m *core.FailedCopy) {
			calls.add(f.MessageID + fmt.Sprint(f.Headers.Get(core.HeaderUndelivered), m.Headers.Get(core.HeaderUndelivered)))
			m.Headers.Set(core.HeaderUndelivered, "mine")
			redact(ctx, f, m)
		})
		_, run := b.orders(config, func(context.Context, *core.Message) error { return &orderError{"7"} })
		b.put("m1", "m2") // m2 is stored without a try of its own
		b.pass(10 * time.Minute)
		b.holds("orders", 2)
		if err := run.stop(); err != nil {
			b.Error(err)
		}
		reachable()
		b.orders(core.Config{Recoverability: noRetries}, func(context.Context, *core.Message) error { return errBoom }) // a process without the hook
		b.pass(10 * time.Minute)
		moved := b.queue("error")
		equal(b, "moved", len(moved), 2)
		for _, in := range moved {
			b.redacted(in, in.ID)
		}
		asked := calls.all()
		slices.Sort(asked)
		equal(b, "calls", strings.Join(asked, " "), "m1 m2")
		b.holds("orders", 0)
	})
}

// A queue that a policy named and that does not exist gives way to the default one: with
// the same edited copy.
func TestEditFailed_CustomQueueThatDoesNotExist(t *testing.T) {
	inModes(t, everyMode, func(b *bed) {
		calls := 0
		b.orders(editing(func(ctx context.Context, f core.ErrorContext, m *core.FailedCopy) {
			calls++
			equal(b, "queue", m.Queue, "nowhere")
			redact(ctx, f, m)
		}), func(context.Context, *core.Message) error { return core.MoveTo(errBoom, "nowhere") })
		b.put("m1")
		b.redacted(b.only("error"), "m1")
		equal(b, "calls", calls, 1)
	})
}

func TestR24_EditFailedCannotPreventTheMove(t *testing.T) {
	const limit = 64 << 10
	large := strings.Repeat("x", 1<<20)
	set := func(key string) editor {
		return func(_ context.Context, _ core.ErrorContext, m *core.FailedCopy) {
			m.Headers.Set(key, large)
			m.Headers.Set("Team", "billing")
			m.Headers.Del(core.HeaderExceptionSource)
		}
	}
	limits := map[string]inmemory.Config{
		"MaxHeaderBytes":  able(func(c *core.Capabilities) { c.MaxHeaderBytes = limit }),
		"MaxMessageBytes": able(func(c *core.Capabilities) { c.MaxMessageBytes = limit }),
	}
	for limitName, cfg := range limits {
		for name, edit := range map[string]editor{
			"a header of 1 MiB":          set("Large"),
			"a sender's header of 1 MiB": set("Sender"),
			"an error text of 1 MiB":     set(core.HeaderExceptionMessage),
			"an error type of 1 MiB":     set(core.HeaderExceptionType),
			"1,000 headers of 1 KiB": func(ctx context.Context, f core.ErrorContext, m *core.FailedCopy) {
				set("Large")(ctx, f, m)
				m.Headers.Del("Large")
				for i := range 1000 {
					m.Headers.Set(fmt.Sprint("Large ", i), large[:1<<10])
				}
			},
			"not UTF-8, and an empty key": func(ctx context.Context, f core.ErrorContext, m *core.FailedCopy) {
				set("Large")(ctx, f, m)
				m.Headers.Set("\xff", "\xff")
				m.Headers.Set("", "x")
			},
		} {
			t.Run(name+" and "+limitName, func(t *testing.T) {
				inModesOn(t, cfg, everyMode, func(b *bed) {
					b.orders(editing(edit), func(context.Context, *core.Message) error { return &orderError{"7"} })
					b.put("m1")
					failed := b.only("error")
					equal(b, "body", string(failed.Body), "body of m1")
					for key, want := range map[string]string{
						core.HeaderFailedQ: "orders", core.HeaderProcessingEndpoint: "orders", core.HeaderHandledMessageType: "order",
						"Team": "billing", core.HeaderExceptionSource: "", core.HeaderMessageTypes: "order",
					} {
						equal(b, key, failed.Headers.Get(key), want)
					}
					if len(core.Rounds(failed.Headers)) != 1 {
						b.Error("the trace gave way, although the headers that were added are what is too large")
					}
					if name != "a sender's header of 1 MiB" {
						equal(b, "sender", failed.Headers.Get("Sender"), "unit é")
					}
					b.holds("orders", 0)
				})
			})
		}
	}
}

func TestR24_TooLargeBodyOfEditFailed(t *testing.T) {
	const limit = 64 << 10
	grow := func(_ context.Context, _ core.ErrorContext, m *core.FailedCopy) {
		m.Body = bytes.Repeat([]byte("x"), limit)
		m.Headers.Set(core.HeaderExceptionMessage, "[redacted]")
		m.Headers.Del("Sender")
	}
	hidden := func(b *bed) { // a limit that the transport does not tell
		b.broker.provoke(faults{send: func(out []core.Outgoing) error {
			for _, o := range out {
				if size := len(o.Body) + o.Headers.Bytes(); size > limit {
					return &core.SendError{Results: []core.SendResult{{ID: o.ID, To: o.Queue, State: core.SendRefused, Err: &core.TooLargeError{Limit: "?", Max: limit, Size: size}}}}
				}
			}
			return nil
		}})
	}
	for name, test := range map[string]struct {
		cfg     inmemory.Config
		prepare func(b *bed)
	}{
		"MaxMessageBytes":              {able(func(c *core.Capabilities) { c.MaxMessageBytes = limit }), func(*bed) {}},
		"a limit that nobody knows of": {inmemory.Config{}, hidden},
	} {
		t.Run(name, func(t *testing.T) {
			inModesOn(t, test.cfg, everyMode, func(b *bed) {
				test.prepare(b)
				b.orders(editing(grow), func(context.Context, *core.Message) error { return errBoom })
				b.put("m1")
				failed := b.only("error")
				equal(b, "body", string(failed.Body), "body of m1")
				equal(b, "text", failed.Headers.Get(core.HeaderExceptionMessage), "[redacted]")
				equal(b, "sender", failed.Headers.Get("Sender"), "")
				equal(b, "FailedQ", failed.Headers.Get(core.HeaderFailedQ), "orders")
				lines := b.logs.about("too large for the transport")
				if len(lines) != 1 || lines[0].level != slog.LevelError {
					b.Errorf("logged %+v", lines)
				}
			})
		})
	}
}

// What was dropped or redacted stays so, however little of the message is sent.
func TestR24_FallbackKeepsEditsOfEditFailed(t *testing.T) {
	for most := range 14 {
		t.Run(fmt.Sprint(most, " headers at most"), func(t *testing.T) {
			inModes(t, everyMode, func(b *bed) {
				b.broker.provoke(faults{send: func(out []core.Outgoing) error {
					for _, o := range out {
						if o.Queue == "error" && o.Headers.Len() > max(most, 3) {
							return &core.SendError{Results: []core.SendResult{{ID: o.ID, To: o.Queue, State: core.SendRefused, Err: core.ErrTooLarge}}}
						}
					}
					return nil
				}})
				b.orders(editing(redact), func(context.Context, *core.Message) error { return errors.New("secret") })
				b.put("m1")
				failed := b.only("error")
				equal(b, "body", string(failed.Body), "XXXX of m1 for order")
				equal(b, "FailedQ", failed.Headers.Get(core.HeaderFailedQ), "orders")
				for key, value := range failed.Headers.All() {
					if key == "Sender" || strings.Contains(value, "secret") {
						b.Errorf("header %s is %q", key, value)
					}
				}
			})
		})
	}
}

func TestEditFailed_DescribesADeadLetter(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		config := editing(func(ctx context.Context, f core.ErrorContext, m *core.FailedCopy) {
			equal(b, "queue", m.Queue, "")
			redact(ctx, f, m)
		})
		config.Recoverability.DeadLetter = core.DeadLettersRejected
		b.orders(config, func(context.Context, *core.Message) error { return core.Reject(errors.New("secret")) })
		b.put("m1")
		letter := b.only(inmemory.DeadLetterQueue("orders"))
		equal(b, "body", string(letter.Body), "body of m1")
		equal(b, "sender, which the hook dropped", letter.Headers.Get("Sender"), "")
		equal(b, "FailedQ", letter.Headers.Get(core.HeaderFailedQ), "orders")
		all := fmt.Sprint(letter.Headers.Map())
		if !strings.Contains(all, "[redacted]") || strings.Contains(all, "secret") {
			b.Errorf("the dead letter says %s", all)
		}
	})
}

// A hook that panics because the shutdown cancelled its context has not answered: the message
// is not moved with what it would have redacted.
func TestR27_EditFailedRunsAgainAfterACutOff(t *testing.T) {
	inModes(t, everyMode, func(b *bed) {
		waits := true
		config := editing(func(ctx context.Context, f core.ErrorContext, m *core.FailedCopy) {
			if waits {
				<-ctx.Done()
				panic(ctx.Err())
			}
			redact(ctx, f, m)
		})
		config.DrainTimeout = time.Second
		ep, run := b.orders(config, func(context.Context, *core.Message) error { return errBoom })
		b.put("m1")
		if err := run.stop(); err != nil {
			b.Error(err)
		}
		if b.mode == core.TransactionNone { // it cannot be given back
			equal(b, "moved", string(b.only("error").Body), "body of m1")
			return
		}
		b.holds("error", 0)
		b.holds("orders", 1)
		equal(b, "lines", len(b.logs.about("before the failure of message 'm1' was decided")), 1)
		waits = false
		b.run(ep)
		b.redacted(b.only("error"), "m1")
		b.holds("orders", 0)
	})
}
