package core

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core/internal/plan"
)

func TestVerdict_Decides(t *testing.T) {
	r := rulesOf(t, Recoverability{
		ErrorQueue: "failed", Delayed: Delayed{NumberOfRetries: 2}, RequeueDelay: 3 * time.Second, RequeueLimit: 2,
		Unrecoverable: []error{errListed},
	})
	for _, test := range []struct {
		name      string
		err       error
		delayed   int // delayed retries performed
		deferrals int
		want      Action
		as        copyAs
		target    plan.Place
		limit     limitEffect // on RateLimit (R44)
	}{
		{name: "Defer", err: Defer(errors.New("not yet"), time.Minute), want: Action{Kind: ActionDefer, Delay: time.Minute}, as: asDeferral, limit: limitSuccess},
		{name: "Defer without a delay uses the endpoint's", err: Defer(errors.New("not yet"), 0), want: Action{Kind: ActionDefer, Delay: 3 * time.Second}, as: asDeferral, limit: limitSuccess},
		{name: "Defer until a time that has passed", err: Defer(errors.New("not yet"), -time.Minute), want: Action{Kind: ActionDefer, Delay: 3 * time.Second}, as: asDeferral, limit: limitSuccess},
		{name: "Defer written by hand", err: &Verdict{Action{Kind: ActionDefer, Delay: -1}, errFailed}, want: Action{Kind: ActionDefer, Delay: 3 * time.Second}, as: asDeferral, limit: limitSuccess},
		{name: "Defer is not bound by the number of delayed retries", err: Defer(errors.New("not yet"), 1), delayed: 9, want: Action{Kind: ActionDefer, Delay: 1}, as: asDeferral, limit: limitSuccess},
		{name: "Defer once more before the limit", err: Defer(errors.New("not yet"), 1), deferrals: 1, want: Action{Kind: ActionDefer, Delay: 1}, as: asDeferral, limit: limitSuccess},
		{name: "Defer at the limit", err: Defer(errors.New("not yet"), 1), deferrals: 2, want: MoveToError("failed"), target: plan.ErrorQueue, limit: limitSuccess},
		{name: "Defer above the limit", err: Defer(errFailed, 1), deferrals: 20, want: MoveToError("failed"), target: plan.ErrorQueue, limit: limitSuccess},
		{name: "Defer because of an unrecoverable error", err: Defer(errListed, time.Minute), want: MoveToError("failed"), target: plan.ErrorQueue, limit: limitSuccess},
		{name: "Refuse", err: Refuse(errFailed, time.Minute), want: Action{Kind: ActionRefuse, Delay: time.Minute}, as: asRefusal},
		{name: "Refuse without a delay uses the endpoint's", err: Refuse(errFailed, 0), want: Action{Kind: ActionRefuse, Delay: 3 * time.Second}, as: asRefusal},
		{name: "Refuse is not bound by the limit of deferrals", err: Refuse(errFailed, 1), deferrals: 20, want: Action{Kind: ActionRefuse, Delay: 1}, as: asRefusal},
		{name: "Refuse because of an error that is unrecoverable for another message", err: Refuse(errListed, 1), want: Action{Kind: ActionRefuse, Delay: 1}, as: asRefusal},
		{name: "GiveUpTo the dead-letter queue", err: GiveUpTo(errFailed, DeadLetterQueue), want: MoveToError("failed"), target: plan.BrokerQueue, limit: limitSuccess},
		{name: "GiveUpTo the invalid queue", err: GiveUpTo(errFailed, InvalidQueue), want: MoveToError("failed"), target: plan.ErrorQueue, limit: limitSuccess},
		{name: "GiveUp", err: GiveUp(errFailed), want: MoveToError("failed"), target: plan.ErrorQueue, limit: limitFailure},
		{name: "Discard", err: Discard(errors.New("too late")), want: DiscardMessage(), limit: limitSuccess},
		{name: "GiveUpTo", err: GiveUpTo(errFailed, "poison"), want: MoveToError("poison"), target: plan.CustomQueue, limit: limitSuccess},
		{name: "GiveUpTo without a queue", err: GiveUpTo(errFailed, ""), want: MoveToError("failed"), target: plan.ErrorQueue, limit: limitFailure},
		{name: "RetryAfter", err: RetryAfter(errFailed, time.Hour), want: DelayedRetry(time.Hour), as: asRetryAfter, limit: limitFailure},
		{name: "RetryAfter at once", err: RetryAfter(errFailed, 0), want: DelayedRetry(0), as: asRetryAfter, limit: limitFailure},
		{name: "RetryAfter a time that has passed", err: RetryAfter(errFailed, -time.Hour), want: DelayedRetry(0), as: asRetryAfter, limit: limitFailure},
		{name: "RetryAfter written by hand", err: &Verdict{Action{Kind: ActionDelayedRetry, Delay: -1}, errFailed}, want: DelayedRetry(0), as: asRetryAfter, limit: limitFailure},
		{name: "RetryAfter without a first failure, and retries are left", err: RetryAfter(errFailed, time.Hour), delayed: 1, want: DelayedRetry(time.Hour), as: asRetryAfter, limit: limitFailure},
		{name: "RetryAfter without a first failure, and retries are used up", err: RetryAfter(errFailed, time.Hour), delayed: 2, want: MoveToError("failed"), target: plan.ErrorQueue, limit: limitFailure},
		{name: "RetryAfter of an unrecoverable error", err: RetryAfter(errListed, time.Hour), want: MoveToError("failed"), target: plan.ErrorQueue, limit: limitFailure},
	} {
		for wrapping, wrap := range map[string]func(error) error{
			"as it is": func(err error) error { return err },
			"wrapped":  func(err error) error { return fmt.Errorf("outer: %w", fmt.Errorf("inner: %w", err)) },
			"joined":   func(err error) error { return errors.Join(errors.New("another"), err) },
			"second of a pair": func(err error) error {
				return fmt.Errorf("%w and %w", errors.New("another"), err)
			},
		} {
			t.Run(test.name+", "+wrapping, func(t *testing.T) {
				f := failureAfter(1, test.delayed, wrap(test.err))
				f.deferrals = test.deferrals
				d := r.decide(t.Context(), f)
				if d.action != test.want || d.as != test.as || d.target != test.target || d.limit != test.limit || d.reason.text != "" {
					t.Errorf("%+v", d)
				}
				if VerdictOf(f.Err) == nil || !errors.Is(f.Err, errFailed) && !errors.Is(f.Err, errListed) && !strings.Contains(f.Err.Error(), "not yet") && !strings.Contains(f.Err.Error(), "too late") {
					t.Errorf("the verdict or its reason is not found in %v", f.Err)
				}
			})
		}
	}
}

var errListed = errors.New("listed as unrecoverable")

func TestVerdict_DeferHasNoLimitByDefault(t *testing.T) {
	f := failureAfter(1, 0, Defer(errors.New("not yet"), 0))
	f.deferrals = 1 << 30
	if d := rulesOf(t, Recoverability{}).decide(t.Context(), f); d.action != (Action{Kind: ActionDefer, Delay: time.Second}) || d.as != asDeferral {
		t.Errorf("%+v", d)
	}
}

func TestVerdict_DeferBeyondTheLimit(t *testing.T) {
	r := rulesOf(t, Recoverability{RequeueLimit: 2, Unrecoverable: []error{errListed}})
	for _, test := range []struct {
		name      string
		err       error
		deferrals int
		text      string // of the failure; "" where it is the handler's error alone
		errorType string // as the failure headers show it
	}{
		{"within the limit", Defer(errors.New("not yet"), 1), 1, "", ""},
		{"at the limit", Defer(errors.New("not yet"), 0), 2, "deferred more often than RequeueLimit (2): not yet", "*core.requeueLimitError"},
		{"above it, with an error", fmt.Errorf("busy: %w", Defer(codeError{7}, 1)), 3, "deferred more often than RequeueLimit (2): busy: code 7", "core.codeError"},
		{"an unrecoverable error", Defer(errListed, 1), 3, "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := failureAfter(1, 0, test.err)
			f.deferrals = test.deferrals
			d := r.decide(t.Context(), f)
			if test.text == "" {
				if !errors.Is(d.reason.err, f.Err) || errors.Is(d.reason.err, ErrRequeueLimitExceeded) {
					t.Errorf("failed with %v", d.reason.err)
				}
				return
			}
			if d.reason.err.Error() != test.text || !errors.Is(d.reason.err, ErrRequeueLimitExceeded) || !errors.Is(d.reason.err, test.err) {
				t.Fatalf("failed with %v, want %q", d.reason.err, test.text)
			}
			if shown := describe(d.reason.err); shown.exceptionType != test.errorType || shown.message != test.text {
				t.Errorf("the headers show %q, %q", shown.exceptionType, shown.message)
			}
		})
	}
}

func TestVerdict_GiveUpToWithoutTheQueue(t *testing.T) {
	r := rulesOf(t, Recoverability{})
	r.caps.DeadLetter = false
	for _, queue := range []string{DeadLetterQueue, InvalidQueue} {
		d := r.decide(t.Context(), failureAfter(1, 0, GiveUpTo(errFailed, queue)))
		if d.action != MoveToError("error") || d.target != plan.ErrorQueue {
			t.Errorf("%s: %+v", queue, d)
		}
	}
}

// A policy may name the queues too; its answer is before the reason of the failure.
func TestPolicy_NamesTheQueuesOfTheConfiguration(t *testing.T) {
	for queue, want := range map[string]string{DeadLetterQueue: "dead", InvalidQueue: "invalid", "": "invalid"} {
		r := rulesOf(t, Recoverability{
			DeadLetterQueue: "dead", InvalidQueue: "invalid",
			Policy: func(context.Context, RecoverabilityConfig, ErrorContext) (Action, error) {
				return MoveToError(queue), nil
			},
		})
		if d := r.decide(t.Context(), failureAfter(1, 0, newDecodeError("", "", errFailed, ""))); d.action != MoveToError(want) || d.target != plan.NamedQueue {
			t.Errorf("%q: %+v", queue, d)
		}
	}
}

func TestVerdict_Precedence(t *testing.T) {
	r := rulesOf(t, Recoverability{Unrecoverable: []error{errListed}})
	// From the strongest to the weakest.
	ranked := []struct {
		name string
		err  error
		want Action
	}{
		{"Discard", Discard(errors.New("old")), DiscardMessage()},
		{"GiveUpTo", GiveUpTo(errFailed, "poison"), MoveToError("poison")},
		{"GiveUp", GiveUp(errFailed), MoveToError("error")},
		{"PutBack", PutBack(errFailed, 0), Action{Kind: ActionPutBack}},
		{"Refuse", Refuse(errFailed, time.Minute), Action{Kind: ActionRefuse, Delay: time.Minute}},
		{"Defer", Defer(errFailed, time.Minute), Action{Kind: ActionDefer, Delay: time.Minute}},
		{"RetryAfter", RetryAfter(errFailed, time.Hour), DelayedRetry(time.Hour)},
		{"the policy", errFailed, ImmediateRetry()},
	}
	for i, strong := range ranked {
		for _, weak := range ranked[i+1:] {
			for form, err := range map[string]error{
				"joined":          errors.Join(strong.err, weak.err),
				"the other way":   errors.Join(weak.err, strong.err),
				"a pair":          fmt.Errorf("%w, %w", weak.err, strong.err),
				"nested in joins": errors.Join(errors.Join(weak.err), fmt.Errorf("x: %w", errors.Join(strong.err))),
			} {
				t.Run(strong.name+" before "+weak.name+", "+form, func(t *testing.T) {
					if d := r.decide(t.Context(), failureAfter(1, 0, err)); d.action != strong.want {
						t.Errorf("%v, want %v", d.action, strong.want)
					}
				})
			}
		}
	}
	t.Run("a verdict within a verdict", func(t *testing.T) {
		if d := r.decide(t.Context(), failureAfter(1, 0, RetryAfter(fmt.Errorf("x: %w", Discard(errors.New("old"))), time.Hour))); d.action != DiscardMessage() {
			t.Errorf("%v", d.action)
		}
		if d := r.decide(t.Context(), failureAfter(1, 0, GiveUpTo(RetryAfter(errFailed, time.Hour), "poison"))); d.action != MoveToError("poison") {
			t.Errorf("%v", d.action)
		}
	})
	t.Run("R6 an unrecoverable error before Defer and RetryAfter beside it", func(t *testing.T) {
		for _, verdict := range []error{Defer(errFailed, time.Minute), RetryAfter(errFailed, time.Hour)} {
			for _, cause := range []error{errListed, newDecodeError("", "", errFailed, "")} {
				if d := r.decide(t.Context(), failureAfter(1, 0, errors.Join(verdict, cause))); d.action != MoveToError("error") {
					t.Errorf("%v with %v: %v", verdict, cause, d.action)
				}
			}
		}
	})
}

// verdicts has each of the seven for an error.
func verdicts(err error) map[string]error {
	return map[string]error{
		"GiveUp": GiveUp(err), "GiveUpTo": GiveUpTo(err, "q"), "RetryAfter": RetryAfter(err, time.Minute), "Defer": Defer(err, time.Minute),
		"Refuse": Refuse(err, time.Minute), "Discard": Discard(err), "PutBack": PutBack(err, time.Minute),
	}
}

func TestVerdict_OfNoErrorIsNone(t *testing.T) {
	for name, err := range verdicts(nil) {
		if err != nil {
			t.Errorf("%s of no error is %v; a handler that succeeded would fail", name, err)
		}
	}
}

func TestVerdict_IsItsError(t *testing.T) {
	for name, err := range verdicts(codeError{7}) {
		if err.Error() != "code 7" || ErrorTypeOf(err) != "core.codeError" {
			t.Errorf("%s: %q of the type %s", name, err, ErrorTypeOf(err))
		}
		for _, err := range []error{err, fmt.Errorf("x: %w", err), errors.Join(errFailed, err)} {
			if found, ok := errors.AsType[codeError](err); !ok || found.code != 7 || !errors.Is(err, codeError{7}) {
				t.Errorf("%s hides its error in %v", name, err)
			}
			if v, ok := errors.AsType[*Verdict](err); !ok || v != VerdictOf(err) {
				t.Errorf("%s is not found in %v", name, err)
			}
		}
	}
	outer := GiveUp(fmt.Errorf("x: %w", Discard(errFailed)))
	if v, _ := errors.AsType[*Verdict](outer); v.Action.Kind != ActionMoveToError || VerdictOf(outer).Action.Kind != ActionDiscard {
		t.Errorf("errors.As finds %v, VerdictOf %v", v.Action, VerdictOf(outer).Action)
	}
}

// Nothing else makes a Verdict.
func TestVerdict_MadeByHand(t *testing.T) {
	r := rulesOf(t, Recoverability{})
	for _, v := range []*Verdict{{}, {Err: errFailed}, {Action: Action{Kind: 99}}, {Action: Action{Kind: -1}}} {
		if d := r.decide(t.Context(), failureAfter(1, 0, v)); d.action != MoveToError("error") || d.reason.cause == nil || v.Error() == "" {
			t.Errorf("%v: %+v", v, d)
		}
	}
}

func TestVerdictOf_FindsNone(t *testing.T) {
	for _, err := range []error{nil, errFailed, errors.Join(errFailed, errListed), &PanicError{Value: "x"}, newDecodeError("", "", errFailed, "")} {
		if VerdictOf(err) != nil {
			t.Errorf("%v is called a verdict", err)
		}
	}
	if VerdictOf(&PanicError{Value: Discard(errors.New("old"))}) == nil {
		t.Error("a verdict that was panicked with is not found")
	}
}
