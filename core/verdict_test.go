package core

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core/internal/plan"
)

func TestVerdict_Decides(t *testing.T) {
	r := rulesOf(t, Recoverability{
		ErrorQueue: "failed", Delayed: Delayed{NumberOfRetries: 2}, RequeueDelay: 3 * time.Second, RequeueLimit: 2, DeadLetter: DeadLettersRejected,
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
		{name: "Defer", err: Defer(time.Minute), want: DelayedRetry(time.Minute), as: asDeferral, limit: limitSuccess},
		{name: "Defer without a delay uses the endpoint's", err: Defer(0), want: DelayedRetry(3 * time.Second), as: asDeferral, limit: limitSuccess},
		{name: "Defer until a time that has passed", err: Defer(-time.Minute), want: DelayedRetry(3 * time.Second), as: asDeferral, limit: limitSuccess},
		{name: "Defer written by hand", err: &Verdict{Kind: VerdictDefer, Delay: -1}, want: DelayedRetry(3 * time.Second), as: asDeferral, limit: limitSuccess},
		{name: "Defer is not bound by the number of delayed retries", err: Defer(1), delayed: 9, want: DelayedRetry(1), as: asDeferral, limit: limitSuccess},
		{name: "Defer once more before the limit", err: Defer(1), deferrals: 1, want: DelayedRetry(1), as: asDeferral, limit: limitSuccess},
		{name: "Defer at the limit", err: Defer(1), deferrals: 2, want: MoveToError("failed"), target: plan.ErrorQueue, limit: limitSuccess},
		{name: "Defer above the limit", err: DeferError(errFailed, 1), deferrals: 20, want: MoveToError("failed"), target: plan.ErrorQueue, limit: limitFailure},
		{name: "DeferError", err: DeferError(errFailed, time.Minute), want: DelayedRetry(time.Minute), as: asDeferral, limit: limitFailure},
		{name: "DeferError of an unrecoverable error", err: DeferError(errListed, time.Minute), want: MoveToError("failed"), target: plan.ErrorQueue, limit: limitFailure},
		{name: "Refuse", err: Refuse(errFailed, time.Minute), want: DelayedRetry(time.Minute), as: asRefusal},
		{name: "Refuse without a delay uses the endpoint's", err: Refuse(errFailed, 0), want: DelayedRetry(3 * time.Second), as: asRefusal},
		{name: "Refuse is not bound by the limit of deferrals", err: Refuse(errFailed, 1), deferrals: 20, want: DelayedRetry(1), as: asRefusal},
		{name: "Refuse because of an error that is unrecoverable for another message", err: Refuse(errListed, 1), want: DelayedRetry(1), as: asRefusal},
		{name: "Reject", err: Reject(errFailed), want: MoveToError("failed"), target: plan.BrokerQueue, limit: limitSuccess},
		{name: "Unrecoverable", err: Unrecoverable(errFailed), want: MoveToError("failed"), target: plan.ErrorQueue, limit: limitFailure},
		{name: "Discard", err: Discard("too late"), want: DiscardMessage("too late"), limit: limitSuccess},
		{name: "DiscardError", err: DiscardError(errFailed, "too late"), want: DiscardMessage("too late"), limit: limitSuccess},
		{name: "MoveTo", err: MoveTo(errFailed, "poison"), want: MoveToError("poison"), target: plan.CustomQueue, limit: limitSuccess},
		{name: "MoveTo without a queue", err: MoveTo(errFailed, ""), want: MoveToError("failed"), target: plan.ErrorQueue, limit: limitSuccess},
		{name: "RetryAfter", err: RetryAfter(errFailed, time.Hour), want: DelayedRetry(time.Hour), limit: limitFailure},
		{name: "RetryAfter at once", err: RetryAfter(errFailed, 0), want: DelayedRetry(0), limit: limitFailure},
		{name: "RetryAfter a time that has passed", err: RetryAfter(errFailed, -time.Hour), want: DelayedRetry(0), limit: limitFailure},
		{name: "RetryAfter written by hand", err: &Verdict{Kind: VerdictRetryAfter, Err: errFailed, Delay: -1}, want: DelayedRetry(0), limit: limitFailure},
		{name: "RetryAfter for the last time", err: RetryAfter(errFailed, time.Hour), delayed: 1, want: DelayedRetry(time.Hour), limit: limitFailure},
		{name: "RetryAfter when retries are used up", err: RetryAfter(errFailed, time.Hour), delayed: 2, want: MoveToError("failed"), target: plan.ErrorQueue, limit: limitFailure},
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
				f.Deferrals = test.deferrals
				d := r.decide(t.Context(), f)
				if d.action != test.want || d.as != test.as || d.target != test.target || d.limit != test.limit || d.reason.text != "" {
					t.Errorf("%+v", d)
				}
				if !IsVerdict(f.Err) {
					t.Error("IsVerdict does not see it")
				}
			})
		}
	}
}

var errListed = errors.New("listed as unrecoverable")

func TestVerdict_DeferHasNoLimitByDefault(t *testing.T) {
	f := failureAfter(1, 0, Defer(0))
	f.Deferrals = 1 << 30
	if d := rulesOf(t, Recoverability{}).decide(t.Context(), f); d.action != DelayedRetry(time.Second) || d.as != asDeferral {
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
		{"within the limit", Defer(1), 1, "", ""},
		{"at the limit", Defer(0), 2, "deferred more often than RequeueLimit (2): message deferred", "*core.requeueLimitError"},
		{"above it, with an error", fmt.Errorf("busy: %w", DeferError(codeError{7}, 1)), 3, "deferred more often than RequeueLimit (2): busy: code 7", "core.codeError"},
		{"an unrecoverable error", DeferError(errListed, 1), 3, "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := failureAfter(1, 0, test.err)
			f.Deferrals = test.deferrals
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

func TestVerdict_RejectWithoutDeadLetter(t *testing.T) {
	f := failureAfter(1, 0, Reject(errFailed))
	if d := rulesOf(t, Recoverability{}).decide(t.Context(), f); d.action != MoveToError("error") || d.target != plan.ErrorQueue {
		t.Errorf("%+v", d)
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
		{"Discard", Discard("old"), DiscardMessage("old")},
		{"MoveTo", MoveTo(errFailed, "poison"), MoveToError("poison")},
		{"Reject", Reject(errFailed), MoveToError("error")},
		{"Unrecoverable", Unrecoverable(errFailed), MoveToError("error")},
		{"PutBack", PutBack(errFailed, 0), Action{Kind: ActionPutBack}},
		{"Defer", Defer(time.Minute), DelayedRetry(time.Minute)},
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
		if d := r.decide(t.Context(), failureAfter(1, 0, RetryAfter(fmt.Errorf("x: %w", Discard("old")), time.Hour))); d.action != DiscardMessage("old") {
			t.Errorf("%v", d.action)
		}
		if d := r.decide(t.Context(), failureAfter(1, 0, MoveTo(RetryAfter(errFailed, time.Hour), "poison"))); d.action != MoveToError("poison") {
			t.Errorf("%v", d.action)
		}
	})
	t.Run("R6 an unrecoverable error before Defer and RetryAfter beside it", func(t *testing.T) {
		for _, verdict := range []error{Defer(time.Minute), DeferError(errFailed, time.Minute), RetryAfter(errFailed, time.Hour)} {
			for _, cause := range []error{errListed, newDecodeError("", "", errFailed)} {
				if d := r.decide(t.Context(), failureAfter(1, 0, errors.Join(verdict, cause))); d.action != MoveToError("error") {
					t.Errorf("%v with %v: %v", verdict, cause, d.action)
				}
			}
		}
	})
}

func TestVerdict_OfNilErrors(t *testing.T) {
	for name, err := range map[string]error{
		"DeferError":    DeferError(nil, time.Second),
		"DiscardError":  DiscardError(nil, "old"),
		"MoveTo":        MoveTo(nil, "q"),
		"Reject":        Reject(nil),
		"Unrecoverable": Unrecoverable(nil),
		"RetryAfter":    RetryAfter(nil, time.Second),
	} {
		if err != nil {
			t.Errorf("%s of no error is %v; a handler that succeeded would fail", name, err)
		}
	}
	for name, err := range map[string]error{
		"Defer": Defer(0), "Discard": Discard(""),
	} {
		if err == nil {
			t.Errorf("%s is no error", name)
		} else if err.Error() == "" || errors.Unwrap(err) != nil {
			t.Errorf("%s: %q wraps %v", name, err, errors.Unwrap(err))
		}
	}
}

func TestVerdict_Text(t *testing.T) {
	for _, test := range []struct {
		err  error
		want string
	}{
		{Discard("too late"), "message discarded: too late"},
		{Defer(0), "message deferred"},
		{Defer(time.Minute), "message deferred for 1m0s"},
		{DeferError(errFailed, time.Minute), "handler failed"},
		{Unrecoverable(errFailed), "handler failed"},
		{Reject(errFailed), "handler failed"},
		{DiscardError(errFailed, "too late"), "message discarded: too late: handler failed"},
		{&Verdict{Kind: VerdictReject}, "handler rejected the message"},
		{&Verdict{Kind: VerdictMoveTo, Queue: "poison"}, `handler moved the message to "poison"`},
		{MoveTo(errFailed, "poison"), "handler failed"},
		{RetryAfter(errFailed, time.Minute), "handler failed"},
	} {
		if test.err.Error() != test.want {
			t.Errorf("%q, want %q", test.err, test.want)
		}
	}
}

func TestVerdict_KeepsItsError(t *testing.T) {
	for name, err := range map[string]error{
		"DeferError": DeferError(codeError{7}, 0), "DiscardError": DiscardError(codeError{7}, "old"), "Reject": Reject(codeError{7}), "Unrecoverable": Unrecoverable(codeError{7}),
		"MoveTo": MoveTo(codeError{7}, "q"), "RetryAfter": RetryAfter(codeError{7}, 0),
	} {
		if found, ok := errors.AsType[codeError](fmt.Errorf("x: %w", err)); !ok || found.code != 7 {
			t.Errorf("%s hides its error", name)
		}
	}
}

func TestIsVerdict(t *testing.T) {
	for _, err := range []error{nil, errFailed, errors.Join(errFailed, errListed), &PanicError{Value: "x"}, newDecodeError("", "", errFailed)} {
		if IsVerdict(err) {
			t.Errorf("%v is called a verdict", err)
		}
	}
	if !IsVerdict(&PanicError{Value: Discard("old")}) {
		t.Error("a verdict that was panicked with is not found")
	}
}
