package core_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/core/messagekit"
	"github.com/reprise-go/reprise/transport/inmemory"
)

var errBoom = errors.New("boom")

// Rule R20.
func TestHandlerSends_FailedHandlerSendsNothingButSendNow(t *testing.T) {
	failures := map[string]func() error{
		"error":         func() error { return errBoom },
		"panic":         func() error { panic("boom") },
		"unrecoverable": func() error { return core.GiveUp(errBoom) },
		"discard":       func() error { return core.Discard(errors.New("not wanted")) },
		"defer":         func() error { return core.Defer(errors.New("not yet"), 0) },
	}
	for name, fail := range failures {
		t.Run(name, func(t *testing.T) {
			inModes(t, allModes, func(fx *fixture) {
				fx.runOrders(core.Config{}, func(ctx context.Context, m *core.Message) error {
					doWork(ctx, "insert")
					if err := errors.Join(m.Send("shipping", collectedType.Of("x")), m.SendNow(ctx, "shipping", onceType.Of("x"))); err != nil {
						fx.Error(err)
					}
					return fail()
				})
				fx.enqueue("m1")
				for _, m := range fx.messages("shipping") {
					equal(fx, "type of the sent message", m.Headers.Get(headers.MessageTypes), "at once")
				}
				if len(fx.messages("shipping")) == 0 {
					fx.Error("SendNow did not leave")
				}
				equal(fx, "work committed", fx.broker.committed.len(), 0)
			})
		})
	}
}

// Rule R20.
func TestHandlerSends_SendsOfASuccessLeaveOnceWithTheReceive(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		fx.runOrders(core.Config{}, func(ctx context.Context, m *core.Message) error {
			doWork(ctx, "insert")
			fx.wantDepthNow("shipping", 0)
			return errors.Join(m.Send("shipping", firstType.Of("x")), m.Send("shipping", secondType.Of("x")))
		})
		fx.enqueue("m1")
		var types []string
		for _, m := range fx.messages("shipping") {
			types = append(types, m.Headers.Get(headers.MessageTypes))
		}
		if !slices.Equal(types, []string{"first", "second"}) {
			fx.Errorf("sent %v", types)
		}
		fx.wantDepth("orders", 0)
		operation, committed := "Complete m1", 0
		if fx.mode == core.TransactionSendsAtomicWithReceive {
			operation, committed = "CompleteWith m1", 1
		}
		if got := fx.broker.settled.all(); !slices.Equal(got, []string{operation}) {
			fx.Errorf("settled by %v, want %s", got, operation)
		}
		equal(fx, "work committed", fx.broker.committed.len(), committed)
	})
}

// Rule R20.
func TestHandlerSends_FailedDispatchIsAFailedAttempt(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		fail := true
		fx.broker.setFaults(faults{send: func(out []core.Outgoing) error {
			if fail && sendsTo(out, "shipping") {
				fail = false
				return errBoom
			}
			return nil
		}})
		var attempts recorder[int]
		fx.runOrders(core.Config{}, func(ctx context.Context, m *core.Message) error {
			attempts.add(m.Attempt)
			return m.Send("shipping", shipType.Of("x"))
		})
		fx.enqueue("m1")
		if got := attempts.all(); !slices.Equal(got, []int{1, 2}) {
			fx.Errorf("attempts %v, want 1 and 2", got)
		}
		equal(fx, "sent in the end", len(fx.messages("shipping")), 1)
		equal(fx, "abandoned", fx.broker.countSettled("Abandon", "m1"), 1)
		equal(fx, "lines of an immediate retry", len(fx.logs.find("retrying message immediately")), 1)
	})
}

// Rule R20.
func TestHandlerSends_FailingDispatchEndsInTheErrorQueue(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		fx.runOrders(core.Config{Recoverability: noRetries}, func(_ context.Context, m *core.Message) error {
			return m.Send("nowhere", shipType.Of("x"))
		})
		fx.enqueue("m1")
		failed := fx.onlyMessage("error")
		if text := failed.Headers.Get(headers.ExceptionMessage); !containsAll(text, "nowhere", core.ErrQueueNotFound.Error()) {
			fx.Errorf("the error queue tells %q", text)
		}
		fx.wantDepth("orders", 0)
	})
}

// Rule R20.
func TestHandlerSends_RetrySendsTheSameMessageIDs(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		fx.runOrders(core.Config{}, func(ctx context.Context, m *core.Message) error {
			if err := m.SendNow(ctx, "shipping", onceType.Of("x")); err != nil {
				return err
			}
			if err := m.Send("shipping", collectedType.Of("x")); err != nil {
				return err
			}
			if m.Attempt < 5 {
				return errBoom
			}
			return nil
		})
		fx.enqueue("m1", "m2")
		ids := map[string]map[string]bool{}
		for _, m := range fx.messages("shipping") {
			kind := m.Headers.Get(headers.MessageTypes) + " of " + m.Headers.Get(headers.RelatedTo)
			if ids[kind] == nil {
				ids[kind] = map[string]bool{}
			}
			ids[kind][m.ID] = true
		}
		equal(fx, "kinds of messages", len(ids), 4)
		seen := map[string]string{}
		for kind, list := range ids {
			equal(fx, "ids of "+kind, len(list), 1)
			for id := range list {
				if other, ok := seen[id]; ok {
					fx.Errorf("%s and %s share the id %s", kind, other, id)
				}
				seen[id] = kind
			}
		}
	})
}

// Rule R20.
// A handler that defers its message runs again because it asked for that, not because
// it failed: the messages that it sends then are new ones.
func TestHandlerSends_DeferralSendsOtherMessageIDs(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		fx.runOrders(core.Config{}, func(ctx context.Context, m *core.Message) error {
			if err := m.SendNow(ctx, "shipping", core.NewMessageType[string](fmt.Sprint("run ", m.Deferrals)).Of("x")); err != nil {
				return err
			}
			switch {
			case m.Attempt == 1:
				return errBoom
			case m.Deferrals < 3:
				return core.Defer(errors.New("not yet"), time.Second)
			}
			return nil
		})
		fx.enqueue("m1")
		time.Sleep(time.Minute)
		ids := map[string]map[string]int{}
		all := map[string]bool{}
		for _, m := range fx.messages("shipping") {
			run := m.Headers.Get(headers.MessageTypes)
			if ids[run] == nil {
				ids[run] = map[string]int{}
			}
			ids[run][m.ID]++
			all[m.ID] = true
		}
		equal(fx, "runs", len(ids), 4)
		equal(fx, "ids", len(all), 4)
		for run, list := range ids {
			for _, n := range list {
				equal(fx, "attempts with one id in "+run, n, 2)
			}
		}
		fx.wantDepth("orders", 0)
	})
}

// Rule R20.
func TestHandlerSends_IDsIgnoreChangesOfTheHandler(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		fx.runOrders(core.Config{}, func(_ context.Context, m *core.Message) error {
			if m.Headers.Get("overwrite") != "" {
				m.ID = "another"
			}
			return m.Send("shipping", shipType.Of("x"))
		})
		overwriting := order("m1")
		overwriting.Headers.Set("overwrite", "yes")
		fx.send(order("m1"), overwriting)
		sent := fx.messages("shipping")
		if len(sent) != 2 || sent[0].ID != sent[1].ID {
			fx.Fatalf("sent %v", sent)
		}
		for _, m := range sent {
			for _, key := range []string{headers.RelatedTo, headers.ConversationID, headers.CorrelationID} {
				equal(fx, key, m.Headers.Get(key), "m1")
			}
		}
	})
}

// Rule R24.
func TestFailedCopy_SendsLeaveRoomForFailureHeaders(t *testing.T) {
	const limit = 64 << 10
	bubbleWith(t, withCapabilities(func(c *core.Capabilities) { c.MaxMessageBytes = limit }), func(fx *fixture) {
		ep := fx.newEndpoint("orders", core.Config{})
		tooLarge := func(operation string, err error) {
			fx.Helper()
			var e *core.TooLargeError
			if !errors.As(err, &e) || !errors.Is(err, core.ErrTooLarge) {
				fx.Fatalf("%s: error %v, want a TooLargeError", operation, err)
			}
			equal(fx, operation+": limit", e.Max, limit-8<<10)
		}
		tooLarge("Endpoint.Send", ep.Send(fx.Context(), "shipping", shipByteType.Of(make([]byte, limit-8<<10))))
		if err := ep.Send(fx.Context(), "shipping", shipByteType.Of(make([]byte, limit-10<<10))); err != nil {
			fx.Errorf("10 KiB below the limit: %v", err)
		}
		fx.handle(ep, "order", func(ctx context.Context, m *core.Message) error {
			tooLarge("Message.Send", m.Send("shipping", shipByteType.Of(make([]byte, limit-8<<10))))
			tooLarge("Message.SendNow", m.SendNow(ctx, "shipping", shipByteType.Of(make([]byte, limit-8<<10))))
			return nil
		})
		fx.run(ep)
		fx.enqueue("m1")
		fx.wantDepth("orders", 0)
		fx.wantDepth("shipping", 1)
	})
}

func TestSends_RefusedAfterTheHandler(t *testing.T) {
	bubble(t, func(fx *fixture) {
		var kept *core.Message
		fx.runOrders(core.Config{}, func(_ context.Context, m *core.Message) error {
			kept = m
			return nil
		})
		fx.enqueue("m1")
		for name, err := range map[string]error{
			"Send":    kept.Send("shipping", shipType.Of("x")),
			"SendNow": kept.SendNow(fx.Context(), "shipping", shipType.Of("x")),
			"Publish": kept.Publish(shippedEvent.Of("x")),
		} {
			if !errors.Is(err, core.ErrHandlingEnded) {
				fx.Errorf("%s: %v, want ErrHandlingEnded", name, err)
			}
		}
		fx.wantDepth("shipping", 0)
	})
}

func TestSends_UnsupportedOnesAreRefusedBeforehand(t *testing.T) {
	bubbleWith(t, inmemory.Config{Capabilities: &core.Capabilities{Transactions: allModes}}, func(fx *fixture) {
		fx.runOrders(core.Config{Recoverability: noRetries}, func(_ context.Context, m *core.Message) error {
			for name, err := range map[string]error{
				"Publish": m.Publish(shippedEvent.Of("x")),
				"Delay":   m.Send("shipping", shipType.Of("x").With(core.SendOptions{Delay: 1})),
				"TTBR":    m.Send("shipping", shipType.Of("x").With(core.SendOptions{TimeToBeReceived: 1})),
			} {
				if !errors.Is(err, errors.ErrUnsupported) {
					fx.Errorf("%s: %v, want ErrUnsupported", name, err)
				}
			}
			equal(fx, "messages collected", len(messagekit.Collected(m)), 0)
			return nil
		})
		fx.enqueue("m1")
		fx.wantDepth("error", 0)
	})
}

// acceptOnly lets a broker accept the messages to one queue of a send, and not answer for
// the others.
func (fx *fixture) acceptOnly(queue string) faults {
	return faults{send: func(out []core.Outgoing) error {
		failed := &core.SendError{}
		for _, o := range out {
			result := core.SendResult{ID: o.ID, To: o.Queue, State: core.SendUnknown, Err: errBoom}
			if o.Queue == queue {
				fx.send(o)
				result.State, result.Err = core.SendAccepted, nil
			}
			failed.Results = append(failed.Results, result)
		}
		return failed
	}}
}

// The broker accepted one of two sends: the next attempt sends both, with the same ids, by
// which a receiver can recognise the one that it has.
func TestSends_AcceptedOnesAreRepeatedWithTheirIDs(t *testing.T) {
	inModes(t, allModes[1:2], func(fx *fixture) {
		fx.broker.setFaults(fx.acceptOnly("shipping"))
		runs := 0
		fx.runOrders(core.Config{}, func(_ context.Context, m *core.Message) error {
			if runs++; runs == 3 {
				fx.broker.setFaults(faults{})
			}
			return errors.Join(m.Send("shipping", shipType.Of("x")), m.Send("error", billType.Of("x")))
		})
		fx.enqueue("m1")
		equal(fx, "runs", runs, 3)
		ids := map[string]bool{}
		for _, in := range fx.messages("shipping") {
			ids[in.ID] = true
		}
		equal(fx, "ids of three sends", len(ids), 1)
		fx.wantDepth("shipping", 3)
		fx.wantDepth("error", 1)
		fx.wantDepth("orders", 0)
	})
}

// A queue that does not exist will not exist at the 24th attempt either, and each
// attempt repeats all else that the handler does.
func TestSends_RefusedForGoodIsUnrecoverable(t *testing.T) {
	for name, send := range map[string]func(m *core.Message) error{
		"no such queue": func(m *core.Message) error { return m.Send("nowhere", shipType.Of("x")) },
		"invalid header": func(m *core.Message) error {
			return m.Send("shipping", shipType.Of("x").With(core.SendOptions{Headers: map[string]string{"\xff": "x"}}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			inModes(t, retryModes, func(fx *fixture) {
				runs := 0
				fx.runOrders(core.Config{}, func(_ context.Context, m *core.Message) error {
					runs++
					if err := m.Send("error", billType.Of("x")); err != nil {
						return err
					}
					return send(m)
				})
				fx.enqueue("m1")
				fx.advance(time.Hour)
				equal(fx, "runs", runs, 1)
				fx.wantDepth("orders", 0)
				failed := fx.messages("error")
				if last := failed[len(failed)-1]; !strings.Contains(last.Headers.Get(headers.ExceptionMessage), "a message that the handler sent was refused") {
					fx.Errorf("the error queue tells %q", last.Headers.Get(headers.ExceptionMessage))
				}
			})
		})
	}
	t.Run("but a policy may decide otherwise", func(t *testing.T) {
		inModes(t, retryModes, func(fx *fixture) {
			runs := 0
			recover := core.Recoverability{Policy: func(ctx context.Context, c core.RecoverabilityConfig, f core.ErrorContext) (core.Action, error) {
				if errors.Is(f.Err, core.ErrSendRefused) && f.ImmediateProcessingFailures < 3 {
					return core.ImmediateRetry(), nil
				}
				return core.DefaultPolicy(ctx, c, f)
			}}
			fx.runOrders(core.Config{Recoverability: recover}, func(_ context.Context, m *core.Message) error {
				runs++
				return m.Send("nowhere", shipType.Of("x"))
			})
			fx.enqueue("m1")
			equal(fx, "runs", runs, 3)
			fx.onlyMessage("error")
		})
	})
}
