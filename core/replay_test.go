package core_test

import (
	"cmp"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// returned is an order with the header of an operator's tool.
func returned(id, options string) core.Outgoing {
	out := order(id)
	out.Headers.Set(headers.Replay, options)
	return out
}

// wantWithoutReplay checks that a message keeps its headers but for those of its return.
func wantWithoutReplay(fx *fixture, subject string, in *core.Incoming) {
	fx.Helper()
	if value, ok := in.Headers.Lookup(headers.Replay); ok && value != "" {
		fx.Errorf("%s has the header %s: %q", subject, headers.Replay, value)
	}
	equal(fx, subject+": a header of the sender", in.Headers.Get("Sender"), "unit \u00e9")
}

// Rule R66.
func TestReplayOnce_IsOneAttempt(t *testing.T) {
	policy := func(action core.Action) core.Policy {
		return func(context.Context, core.RecoverabilityConfig, core.ErrorContext) (core.Action, error) {
			return action, nil
		}
	}
	discarded := "discarded"
	for name, test := range map[string]struct {
		fail   error
		policy core.Policy
		queue  string // of the message
	}{
		"an error":             {fail: errBoom},
		"RetryAfter":           {fail: core.RetryAfter(errBoom, time.Second)},
		"an immediate retry":   {fail: errBoom, policy: policy(core.ImmediateRetry())},
		"a delayed retry":      {fail: errBoom, policy: policy(core.DelayedRetry(time.Second))},
		"a queue of a verdict": {fail: core.GiveUpTo(errBoom, "shipping"), queue: "shipping"},
		"a queue of a policy":  {fail: errBoom, policy: policy(core.MoveToError("shipping")), queue: "shipping"},
		"a policy discards":    {fail: errBoom, policy: policy(core.DiscardMessage()), queue: discarded},
	} {
		t.Run(name, func(t *testing.T) {
			inModes(t, allModes, func(fx *fixture) {
				runs := 0
				fx.runOrders(core.Config{Recoverability: core.Recoverability{Policy: test.policy}}, func(context.Context, *core.Message) error {
					runs++
					return test.fail
				})
				fx.send(returned("m1", "later, once ,"))
				fx.advance(0)
				equal(fx, "runs", runs, 1)
				fx.wantDepth("orders", 0)
				if test.queue == discarded {
					fx.wantDepth("error", 0)
					return
				}
				in := fx.onlyMessage(cmp.Or(test.queue, "error"))
				wantWithoutReplay(fx, "the failed message", &in)
			})
		})
	}
}

// Rule R66.
func TestReplayOnce_LeavesOtherMessages(t *testing.T) {
	for _, options := range []string{"", "report", "twice", "Once", "on,ce", "once" + strings.Repeat(" ", 100)} {
		inModes(t, retryModes, func(fx *fixture) {
			runs := 0
			fx.runOrders(core.Config{Recoverability: immediateRetries(2)}, func(context.Context, *core.Message) error {
				runs++
				return errBoom
			})
			fx.send(returned("m1", options))
			in := fx.onlyMessage("error")
			equal(fx, "runs with "+options, runs, 3)
			wantWithoutReplay(fx, "the failed message", &in)
		})
	}
}

// Rule R66.
func TestReplayOnce_KeepsPostponements(t *testing.T) {
	for name, postpone := range map[string]error{
		"Defer":   core.Defer(errBoom, time.Second),
		"Refuse":  core.Refuse(errBoom, time.Second),
		"PutBack": core.PutBack(errBoom, time.Second),
	} {
		t.Run(name, func(t *testing.T) {
			inModes(t, retryModes, func(fx *fixture) {
				runs := 0
				fx.runOrders(core.Config{}, func(context.Context, *core.Message) error {
					if runs++; runs == 1 {
						return postpone
					}
					return errBoom
				})
				fx.send(returned("m1", "once"))
				fx.advance(time.Minute)
				equal(fx, "runs", runs, 2) // also the second one is not retried
				in := fx.onlyMessage("error")
				wantWithoutReplay(fx, "the failed message", &in)
			})
		})
	}
}

// A message that no handler may have received gets its new copy.
func TestReplayOnce_KeepsTheNewCopy(t *testing.T) {
	inModesWith(t, countsReleasesConfig(), retryModes, func(fx *fixture) {
		runs := 0
		ep := fx.newEndpoint("orders", core.Config{})
		fx.handle(ep, "order", func(context.Context, *core.Message) error {
			runs++
			return errBoom
		})
		fx.send(returned("m1", "once"))
		fx.redeliverTimes("orders", 44)
		fx.run(ep)
		fx.advance(time.Minute)
		equal(fx, "runs", runs, 1)
		fx.wantDepth("error", 1)
	})
}

// Rule R66.
func TestReplay_IsRemovedFromCopies(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		fx.provision("audit", "forwarded")
		fx.runOrders(core.Config{AuditQueue: "audit"}, func(_ context.Context, m *core.Message) error { return m.Forward("forwarded") })
		fx.send(returned("m1", "report,once"))
		for _, queue := range []string{"audit", "forwarded"} {
			in := fx.onlyMessage(queue)
			wantWithoutReplay(fx, "the message in "+queue, &in)
		}
	})
}

// No form of a copy has it.
func TestReplay_IsRemovedFromEachForm(t *testing.T) {
	for _, deadLetter := range []bool{false, true} {
		for refusals := range 6 { // more of them leave only the last resort
			inModes(t, allModes, func(fx *fixture) {
				left := refusals
				refuse := func(out []core.Outgoing) error {
					if left == 0 || out[0].Reason != core.ReasonMoveToError && out[0].Reason != core.ReasonUndelivered {
						return nil
					}
					left--
					return &core.SendError{Results: []core.SendResult{{ID: out[0].ID, To: out[0].Queue, State: core.SendRefused, Err: core.ErrInvalidHeader}}}
				}
				fx.broker.setFaults(faults{send: refuse, settle: func(operation string, _ *core.Incoming) error {
					if operation == "DeadLetter" && left > 0 {
						left--
						return core.ErrInvalidHeader
					}
					return nil
				}})
				c := core.Config{Recoverability: noRetries}
				if deadLetter {
					c.Recoverability.DeadLetter = true
				}
				fx.runOrders(c, func(context.Context, *core.Message) error { return errBoom })
				fx.send(returned("m1", "once"))
				fx.advance(time.Hour)
				found := fx.messages("error")
				if len(found) == 0 {
					found = fx.messages(inmemory.DeadLetterQueue("orders"))
				}
				equal(fx, "moved", len(found), 1)
				for _, in := range found {
					if value := in.Headers.Get(headers.Replay); value != "" {
						fx.Errorf("after %d refusals, the message has the header %s: %q", refusals, headers.Replay, value)
					}
				}
			})
		}
	}
}
