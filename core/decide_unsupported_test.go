package core

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core/headers"
)

func policyOf(a Action) Policy {
	return func(context.Context, RecoverabilityConfig, ErrorContext) (Action, error) { return a, nil }
}

// Rule R8.
func TestUnsupportedAction_MovesToTheErrorQueue(t *testing.T) {
	const none, receive, atomic = TransactionNone, TransactionReceiveOnly, TransactionSendsAtomicWithReceive
	delays, noDelays := Capabilities{Abilities: Abilities{DelayedDelivery: true}}, Capabilities{}
	short := Capabilities{Abilities: Abilities{DelayedDelivery: true}, Limits: Limits{MaxDelay: time.Minute}}
	now, delayed := ImmediateRetry(), DelayedRetry(time.Minute)
	for _, row := range []struct {
		mode   TransactionMode
		caps   Capabilities
		action Action
		reason string // "" where the action is possible
	}{
		{none, delays, now, "transaction mode None cannot give a message back"},
		{receive, delays, now, ""},
		{atomic, delays, now, ""},
		{none, noDelays, now, "transaction mode None"},
		{receive, noDelays, now, ""},
		{atomic, noDelays, now, ""},
		{none, delays, delayed, "transaction mode None allows no retries"},
		{receive, delays, delayed, ""},
		{atomic, delays, delayed, ""},
		{none, noDelays, delayed, "transaction mode None"},
		{receive, noDelays, delayed, "the transport has no delayed delivery"},
		{atomic, noDelays, delayed, "the transport has no delayed delivery"},
		{receive, short, delayed, ""},
		{receive, short, DelayedRetry(time.Minute + 1), "the transport's longest delay is 1m0s"},
		{atomic, short, DelayedRetry(time.Hour), "the transport's longest delay is 1m0s"},
		{receive, delays, DelayedRetry(1<<63 - 1), ""},
		{receive, delays, DelayedRetry(0), ""},
		{receive, noDelays, DelayedRetry(0), "the transport has no delayed delivery"},
		{none, noDelays, MoveToError("elsewhere"), ""},
		{receive, noDelays, MoveToError("elsewhere"), ""},
		{atomic, noDelays, MoveToError(""), ""},
		{none, noDelays, DiscardMessage(), ""},
		{receive, noDelays, DiscardMessage(), ""},
		{atomic, noDelays, DiscardMessage(), ""},
	} {
		t.Run(fmt.Sprintf("%v in %v, delays %v up to %v", row.action, row.mode, row.caps.DelayedDelivery, row.caps.MaxDelay), func(t *testing.T) {
			r := rulesOf(t, Recoverability{ErrorQueue: "failed", Policy: policyOf(row.action)})
			r.mode, r.caps = row.mode, row.caps
			d := r.decide(t.Context(), failureAfter(1, 0, errFailed))
			if row.reason == "" {
				want := row.action
				if want.Kind == ActionMoveToError && want.Queue == "" {
					want.Queue = "failed"
				}
				if d.action != want || d.reason.text != "" {
					t.Errorf("%v, fallback %q", d.action, d.reason.text)
				}
				return
			}
			if d.action != MoveToError("failed") {
				t.Errorf("%v, want the default error queue", d.action)
			}
			if !strings.Contains(d.reason.text, row.action.String()+" was asked for") || !strings.Contains(d.reason.text, row.reason) {
				t.Errorf("fallback %q names neither the action that was asked for nor the reason", d.reason.text)
			}
		})
	}
}

// Rule R8.
func TestUnsupportedAction_AppliesToVerdictsAndToTheDefaultPolicy(t *testing.T) {
	for _, test := range []struct {
		name string
		err  error
		mode TransactionMode
		caps Capabilities
	}{
		{"Defer in mode None", Defer(errors.New("not yet"), time.Second), TransactionNone, Capabilities{Abilities: Abilities{DelayedDelivery: true}}},
		{"Defer without delayed delivery", Defer(errors.New("not yet"), time.Second), TransactionReceiveOnly, Capabilities{}},
		{"Defer for longer than can be", Defer(errors.New("not yet"), time.Hour), TransactionReceiveOnly, Capabilities{Abilities: Abilities{DelayedDelivery: true}, Limits: Limits{MaxDelay: time.Minute}}},
		{"Defer without a delay in mode None", Defer(errFailed, 0), TransactionNone, Capabilities{Abilities: Abilities{DelayedDelivery: true}}},
		{"RetryAfter in mode None", RetryAfter(errFailed, time.Second), TransactionNone, Capabilities{Abilities: Abilities{DelayedDelivery: true}}},
		{"RetryAfter without delayed delivery", RetryAfter(errFailed, time.Second), TransactionReceiveOnly, Capabilities{}},
		{"RetryAfter for longer than can be", RetryAfter(errFailed, time.Hour), TransactionReceiveOnly, Capabilities{Abilities: Abilities{DelayedDelivery: true}, Limits: Limits{MaxDelay: time.Minute}}},
		{"the default policy in mode None", errFailed, TransactionNone, Capabilities{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := rulesOf(t, Recoverability{}) // the capabilities that the policy gets allow retries; the transport below does not
			r.mode, r.caps = test.mode, test.caps
			d := r.decide(t.Context(), failureAfter(1, 0, test.err))
			if d.action != MoveToError("error") || d.reason.text == "" || (d.as == asDeferral) {
				t.Errorf("%+v", d)
			}
		})
	}
}

// Rule R8.
func TestUnsupportedAction_DowngradedRetryAfterSaysWhy(t *testing.T) {
	undelayed := fullCapabilities()
	undelayed.DelayedDelivery = false
	for _, test := range []struct {
		name   string
		config Config
		caps   Capabilities
		says   string
	}{
		{"in mode None", Config{Transactions: TransactionNone}, fullCapabilities(), "transaction mode None allows no retries"},
		{"without delayed delivery", Config{}, undelayed, "no delayed delivery"},
		{"for a type that inherits them", Config{Recoverability: Recoverability{MessageTypes: map[string]TypeRecoverability{"order": {Immediate: Immediate{NumberOfRetries: 1}}}}}, undelayed, "no delayed delivery"},
		{"where delayed retries are off", Config{Recoverability: Recoverability{Delayed: Delayed{NumberOfRetries: Off}}}, undelayed, "no delayed delivery"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, err := resolve(test.config, test.caps)
			if err != nil {
				t.Fatal(err)
			}
			d := r.rules.decide(t.Context(), failureAfter(1, 0, RetryAfter(errFailed, 5*time.Second)))
			if d.action != MoveToError("error") || !strings.Contains(d.reason.text, test.says) {
				t.Errorf("%+v", d)
			}
			if !strings.HasPrefix(d.reason.text, "DelayedRetry(5s) was asked for, but ") {
				t.Errorf("fallback %q", d.reason.text)
			}
		})
	}
	t.Run("used up is no downgrade", func(t *testing.T) {
		if d := rulesOf(t, Recoverability{}).decide(t.Context(), failureAfter(1, 3, RetryAfter(errFailed, 1))); d.action != MoveToError("error") || d.reason.text != "" {
			t.Errorf("%+v", d)
		}
	})
}

// Rule R34.
func TestMaxDeliveries_ImmediateRetriesOfAPolicyEnd(t *testing.T) {
	stubborn := policyOf(ImmediateRetry())
	for _, test := range []struct {
		name       string
		config     Recoverability
		deliveries int
		ends       bool
	}{
		{"below the default", Recoverability{Policy: stubborn}, 49, false},
		{"at the default", Recoverability{Policy: stubborn}, 50, true},
		{"beyond it", Recoverability{Policy: stubborn}, 1000, true},
		{"at a configured one", Recoverability{Policy: stubborn, MaxDeliveries: 7}, 7, true},
		{"never when off", Recoverability{Policy: stubborn, MaxDeliveries: Off}, 1 << 30, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := rulesOf(t, test.config).decide(t.Context(), failureAfter(test.deliveries, 0, errFailed))
			want := ImmediateRetry()
			if test.ends {
				want = MoveToError("error")
			}
			if d.action != want || (d.reason.text != "") != test.ends {
				t.Errorf("%+v, want %v", d, want)
			}
			if test.ends && !strings.Contains(d.reason.text, fmt.Sprintf("ImmediateRetry was asked for, but this was delivery %d and MaxDeliveries is", test.deliveries)) {
				t.Errorf("fallback %q", d.reason.text)
			}
		})
	}
}

// Rule R8.
func TestMoveToError_OwnQueueInAnySpelling(t *testing.T) {
	ep, err := New("Billing", capableTransport(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	for queue, says := range map[string]string{
		"Billing": "own queue", "billing": "own queue", "BILLING": "own queue", "b#": "that cannot be a queue's name: '#' is not allowed", "billing2": "",
	} {
		for _, cause := range []error{GiveUpTo(errFailed, queue), errFailed} {
			r := ep.rules
			r.policy = policyOf(MoveToError(queue))
			d := r.decide(t.Context(), failureAfter(1, 0, cause))
			want := MoveToError("error")
			if says == "" {
				want = MoveToError(queue)
			}
			if d.action != want || (d.reason.text != "") != (says != "") || !strings.Contains(d.reason.text, says) {
				t.Errorf("%q: %+v", queue, d)
			}
		}
	}
}

func TestPolicy_NegativeDelayIsNone(t *testing.T) {
	for _, action := range []Action{DelayedRetry(-time.Hour), {Kind: ActionDelayedRetry, Delay: -1}} {
		d := rulesOf(t, Recoverability{Policy: policyOf(action)}).decide(t.Context(), failureAfter(1, 0, errFailed))
		if d.action != DelayedRetry(0) || d.reason.text != "" {
			t.Errorf("%+v", d)
		}
	}
}

// Fields that a policy may have forgotten to set.
var (
	nothing  any
	noAction *Action
)

// Rule R12.
func TestPolicy_ThatDecidesNothing(t *testing.T) {
	cause := errors.New("nil map")
	for _, test := range []struct {
		name   string
		policy Policy
		says   string
	}{
		{"panics", func(context.Context, RecoverabilityConfig, ErrorContext) (Action, error) { panic("oh no") }, "oh no"},
		{"panics with an error", func(context.Context, RecoverabilityConfig, ErrorContext) (Action, error) { panic(cause) }, "nil map"},
		{"panics with nil", func(context.Context, RecoverabilityConfig, ErrorContext) (Action, error) { panic(nothing) }, "nil"},
		{"panics at a nil pointer", func(context.Context, RecoverabilityConfig, ErrorContext) (Action, error) { return *noAction, nil }, "nil pointer"},
		{"returns no action", policyOf(Action{}), "None"},
		{"returns fields without a kind", policyOf(Action{Delay: time.Second, Queue: "q"}), "None"},
		{"returns a kind that is none", policyOf(Action{Kind: 99}), "ActionKind(99)"},
		{"returns a negative kind", policyOf(Action{Kind: -1}), "ActionKind(-1)"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := rulesOf(t, Recoverability{ErrorQueue: "failed", Policy: test.policy})
			d := r.decide(t.Context(), failureAfter(1, 0, errFailed))
			if d.action != MoveToError("failed") {
				t.Errorf("%v, want the default error queue", d.action)
			}
			if d.reason.cause == nil || !strings.Contains(d.reason.cause.Error(), test.says) {
				t.Errorf("policyErr = %v, want it to tell %q", d.reason.cause, test.says)
			}
		})
	}
	t.Run("the panic keeps its cause and stack", func(t *testing.T) {
		r := rulesOf(t, Recoverability{Policy: func(context.Context, RecoverabilityConfig, ErrorContext) (Action, error) { panic(cause) }})
		d := r.decide(t.Context(), failureAfter(1, 0, errFailed))
		p, ok := errors.AsType[*PanicError](d.reason.cause)
		if !ok || !errors.Is(d.reason.cause, cause) || !bytes.Contains(p.Stack, []byte("decide_unsupported_test.go")) {
			t.Errorf("%v", d.reason.cause)
		}
	})
	t.Run("both errors are recorded", func(t *testing.T) {
		var text bytes.Buffer
		logs := newLoggers(slog.New(slog.NewTextHandler(&text, nil)), "billing", "one")
		f := failureAfter(1, 0, errFailed)
		d := rulesOf(t, Recoverability{Policy: policyOf(Action{})}).decide(t.Context(), f)
		logs.logReasons(t.Context(), &f, &d)
		if !strings.Contains(text.String(), errFailed.Error()) || !strings.Contains(text.String(), d.reason.cause.Error()) {
			t.Errorf("%s", text.String())
		}
	})
}

// Rule R12.
func TestDefaultPolicy_UserCodePanics(t *testing.T) {
	for _, test := range []struct {
		name string
		err  error
	}{
		{"an error's Is panics", panickingError{}},
		{"an error's Is panics about a RetryAfter", RetryAfter(panickingError{}, time.Second)},
		{"an error's Is panics about a Defer", Defer(panickingError{}, time.Second)},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := rulesOf(t, Recoverability{}).decide(t.Context(), failureAfter(1, 0, test.err))
			if d.action != MoveToError("error") || (d.as == asDeferral) || d.reason.cause == nil {
				t.Errorf("%+v", d)
			}
		})
	}
}

type panickingError struct{}

func (panickingError) Error() string   { return "unhelpful" }
func (panickingError) Is(error) bool   { panic("oh no") }
func (panickingError) Unwrap() []error { return nil }

// decideRecorded runs decide with a policy that keeps its argument.
func decideRecorded(t *testing.T, c Recoverability, caps Capabilities, mode TransactionMode, f failure) (RecoverabilityConfig, ErrorContext) {
	t.Helper()
	var config RecoverabilityConfig
	var seen ErrorContext
	c.Policy = func(_ context.Context, rc RecoverabilityConfig, ec ErrorContext) (Action, error) {
		config, seen = rc, ec
		return MoveToError(""), nil
	}
	r, err := resolve(Config{Recoverability: c, Transactions: mode}, caps)
	if err != nil {
		t.Fatal(err)
	}
	r.rules.decide(t.Context(), f)
	return config, seen
}

// Rule R9.
func TestPolicy_PolicySeesSettingsInForce(t *testing.T) {
	able := fullCapabilities()
	undelayed, short := able, able
	undelayed.DelayedDelivery = false
	short.MaxDelay = 29 * time.Second
	for _, test := range []struct {
		name               string
		config             Recoverability
		caps               Capabilities
		mode               TransactionMode
		immediate, delayed int
	}{
		{"the defaults", Recoverability{}, able, TransactionDefault, 5, 3},
		{"the configured retries", Recoverability{Immediate: Immediate{NumberOfRetries: 7}, Delayed: Delayed{NumberOfRetries: 9}}, able, TransactionDefault, 7, 9},
		{"retries that are off", Recoverability{Immediate: Immediate{NumberOfRetries: Off}, Delayed: Delayed{NumberOfRetries: Off}}, able, TransactionDefault, 0, 0},
		{"as many as there are delays", Recoverability{Delayed: Delayed{Delays: []time.Duration{1, 2}}}, able, TransactionDefault, 5, 2},
		{"nothing in mode None", Recoverability{}, able, TransactionNone, 0, 0},
		{"no delays without delayed delivery", Recoverability{}, undelayed, TransactionDefault, 5, 0},
		{"no delays where one would be too long", Recoverability{}, short, TransactionReceiveOnly, 5, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, _ := decideRecorded(t, test.config, test.caps, test.mode, failureAfter(1, 0, errFailed))
			if c.Immediate.MaxNumberOfRetries != test.immediate || c.Delayed.MaxNumberOfRetries != test.delayed {
				t.Errorf("immediate %d, delayed %d", c.Immediate.MaxNumberOfRetries, c.Delayed.MaxNumberOfRetries)
			}
		})
	}
	t.Run("the time increase, the error queue and the unrecoverable errors too", func(t *testing.T) {
		c, _ := decideRecorded(t, Recoverability{
			ErrorQueue: "failed", Unrecoverable: []error{errFailed}, Delayed: Delayed{TimeIncrease: time.Minute},
		}, able, TransactionDefault, failureAfter(1, 0, errFailed))
		if c.Failed.ErrorQueue != "failed" || c.Delayed.TimeIncrease != time.Minute || !slices.Equal(c.Failed.Unrecoverable, []error{errFailed}) {
			t.Errorf("%+v", c)
		}
	})
	t.Run("those of the message's type", func(t *testing.T) {
		c, _ := decideRecorded(t, Recoverability{MessageTypes: map[string]TypeRecoverability{"order": {Immediate: Immediate{NumberOfRetries: 1}}}},
			able, TransactionDefault, failureAfter(1, 0, errFailed))
		if c.Immediate.MaxNumberOfRetries != 1 || c.Delayed.MaxNumberOfRetries != 3 {
			t.Errorf("%+v", c)
		}
	})
}

// Rule R9.
func TestPolicy_ChangesHaveNoEffect(t *testing.T) {
	listed := errors.New("listed")
	calls := 0
	r := rulesOf(t, Recoverability{Unrecoverable: []error{listed}, Policy: func(ctx context.Context, c RecoverabilityConfig, f ErrorContext) (Action, error) {
		calls++
		if c.Immediate.MaxNumberOfRetries != 5 || c.Delayed.MaxNumberOfRetries != 3 || c.Delayed.TimeIncrease != 10*time.Second ||
			c.Failed.ErrorQueue != "error" || !slices.Equal(c.Failed.Unrecoverable, []error{listed}) {
			t.Errorf("call %d sees %+v", calls, c)
		}
		if string(f.Message.RawBody()) != "body" || f.Message.Headers.Get("k") != "v" || f.Message.ID != "m1" || f.Message.Type != "order" {
			t.Errorf("call %d sees %+v", calls, f)
		}
		c.Immediate.MaxNumberOfRetries, c.Delayed.MaxNumberOfRetries, c.Delayed.TimeIncrease = 100, 100, time.Hour
		c.Failed.ErrorQueue, c.Failed.Unrecoverable[0] = "hijacked", errFailed
		copy(f.Message.RawBody(), "XXXX")
		f.Message.Headers.Set("k", "changed")
		f.Message.Headers.Del("k")
		return MoveToError(""), nil
	}})
	in := &Incoming{ID: "m1", DeliveryCount: 1, Body: []byte("body"), Headers: HeadersFromMap(map[string]string{"k": "v"})}
	for range 2 {
		f := *r.describe(&attempt{delivery: unsettledDelivery{in: in}, message: Message{selected: selection{messageType: "order"}}}, errFailed)
		if d := r.decide(t.Context(), f); d.action != MoveToError("error") {
			t.Errorf("%v", d.action)
		}
	}
	if calls != 2 {
		t.Errorf("%d calls", calls)
	}
	t.Run("nor does changing the configuration after New", func(t *testing.T) {
		c := Recoverability{
			Unrecoverable: []error{listed},
			Delayed:       Delayed{Delays: []time.Duration{time.Second, time.Minute}},
			MessageTypes:  map[string]TypeRecoverability{"special": {Delayed: Delayed{Delays: []time.Duration{time.Hour}}}},
		}
		r := rulesOf(t, c)
		own := c.MessageTypes["special"]
		c.Unrecoverable[0], c.Delayed.Delays[0], own.Delayed.Delays[0] = errFailed, 0, 0
		delete(c.MessageTypes, "special")
		if d := r.decide(t.Context(), failureAfter(6, 0, errFailed)); d.action != DelayedRetry(time.Second) {
			t.Errorf("%v", d.action)
		}
		f := failureAfter(6, 0, errFailed)
		f.messageType = "special"
		if d := r.decide(t.Context(), f); d.action != DelayedRetry(time.Hour) {
			t.Errorf("%v", d.action)
		}
	})
}

// Rule R11.
func TestPolicy_GetsAllFields(t *testing.T) {
	trace := `[{"at":"` + headers.FormatTime(day.Add(-time.Hour)) + `","error":"x","attempts":6,"action":"DelayedRetry"}]`
	in := &Incoming{ID: "m1", NativeID: "n1", Body: []byte("body"), DeliveryCount: 4, Headers: HeadersFromMap(map[string]string{
		"k": "v", headers.Retries: "2", headers.RetriesTimestamp: headers.FormatTime(day.Add(-time.Minute)), headers.Attempts: trace,
	})}
	_, seen := decideRecorded(t, Recoverability{}, fullCapabilities(), TransactionDefault, failureOf(in, "order", errFailed, day))
	for _, each := range []struct {
		name      string
		got, want any
	}{
		{"Err", seen.Err, errFailed},
		{"MessageID", seen.Message.ID, "m1"},
		{"MessageType", seen.Message.Type, "order"},
		{"Headers", seen.Message.Headers.Get("k"), "v"},
		{"Body", string(seen.Message.RawBody()), "body"},
		{"ReceiveQueue", seen.ReceiveQueue, "input"},
		{"ImmediateProcessingFailures", seen.ImmediateProcessingFailures, 4},
		{"DelayedDeliveriesPerformed", seen.DelayedDeliveriesPerformed, 2},
		{"FailedAt", seen.FailedAt, day},
		{"LastDelayedRetry", seen.LastDelayedRetry, day.Add(-time.Minute)},
		{"FirstFailure", seen.FirstFailure, day.Add(-time.Hour)},
	} {
		if each.got != each.want {
			t.Errorf("%s = %v, want %v", each.name, each.got, each.want)
		}
	}
	t.Run("and gets the context of the decision", func(t *testing.T) {
		type key struct{}
		r := rulesOf(t, Recoverability{Policy: func(ctx context.Context, _ RecoverabilityConfig, _ ErrorContext) (Action, error) {
			return MoveToError(fmt.Sprint(ctx.Value(key{}))), nil
		}})
		if d := r.decide(context.WithValue(t.Context(), key{}, "tx"), failureAfter(1, 0, errFailed)); d.action != MoveToError("tx") {
			t.Errorf("%v", d.action)
		}
	})
	t.Run("and may change the failure that it hands to DefaultPolicy", func(t *testing.T) {
		r := rulesOf(t, Recoverability{Policy: func(ctx context.Context, c RecoverabilityConfig, f ErrorContext) (Action, error) {
			c.Immediate.MaxNumberOfRetries, c.Delayed.TimeIncrease = 0, time.Minute
			return DefaultPolicy(ctx, c, f)
		}})
		if d := r.decide(t.Context(), failureAfter(1, 1, errFailed)); d.action != DelayedRetry(2*time.Minute) {
			t.Errorf("%v", d.action)
		}
	})
	t.Run("and none is the default one", func(t *testing.T) {
		without, with := rulesOf(t, Recoverability{}), rulesOf(t, Recoverability{Policy: DefaultPolicy})
		for deliveries := range 8 {
			for delayed := range 5 {
				f := failureAfter(deliveries, delayed, errFailed)
				if a, b := without.decide(t.Context(), f).action, with.decide(t.Context(), f).action; a != b {
					t.Errorf("%d deliveries, %d delayed: %v and %v", deliveries, delayed, a, b)
				}
			}
		}
	})
}
