package core_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
)

func TestVerdict_Fields(t *testing.T) {
	for _, test := range []struct {
		name string
		err  error
		want core.Verdict
	}{
		{"Discard", core.Discard("too late"), core.Verdict{Kind: core.VerdictDiscard, Reason: "too late"}},
		{"MoveTo", core.MoveTo(errBoom, "fraud"), core.Verdict{Kind: core.VerdictMoveTo, Queue: "fraud", Err: errBoom}},
		{"Reject", core.Reject(errBoom), core.Verdict{Kind: core.VerdictReject, Err: errBoom}},
		{"DiscardError", core.DiscardError(errBoom, "too late"), core.Verdict{Kind: core.VerdictDiscard, Reason: "too late", Err: errBoom}},
		{"Unrecoverable", core.Unrecoverable(errBoom), core.Verdict{Kind: core.VerdictUnrecoverable, Err: errBoom}},
		{"Defer", core.Defer(time.Minute), core.Verdict{Kind: core.VerdictDefer, Delay: time.Minute}},
		{"DeferError", core.DeferError(errBoom, time.Minute), core.Verdict{Kind: core.VerdictDefer, Delay: time.Minute, Err: errBoom}},
		{"Defer until a time that has passed", core.Defer(-time.Minute), core.Verdict{Kind: core.VerdictDefer}},
		{"DeferError until a time that has passed", core.DeferError(errBoom, -time.Minute), core.Verdict{Kind: core.VerdictDefer, Err: errBoom}},
		{"Refuse", core.Refuse(errBoom, time.Minute), core.Verdict{Kind: core.VerdictDefer, Delay: time.Minute, Err: errBoom, Refused: true}},
		{"Refuse until a time that has passed", core.Refuse(errBoom, -time.Minute), core.Verdict{Kind: core.VerdictDefer, Err: errBoom, Refused: true}},
		{"PutBack", core.PutBack(errBoom, time.Minute), core.Verdict{Kind: core.VerdictPutBack, Err: errBoom, Delay: time.Minute}},
		{"PutBack until a time that has passed", core.PutBack(errBoom, -1), core.Verdict{Kind: core.VerdictPutBack, Err: errBoom}},
		{"RetryAfter a time that has passed", core.RetryAfter(errBoom, -time.Hour), core.Verdict{Kind: core.VerdictRetryAfter, Err: errBoom}},
		{"RetryAfter", core.RetryAfter(errBoom, time.Hour), core.Verdict{Kind: core.VerdictRetryAfter, Delay: time.Hour, Err: errBoom}},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, err := range []error{test.err, fmt.Errorf("a: %w", fmt.Errorf("b: %w", test.err)), errors.Join(errors.New("x"), test.err)} {
				v := core.VerdictOf(err)
				if v == nil || *v != test.want {
					t.Errorf("%v holds %+v, want %+v", err, v, test.want)
				}
				if !core.IsVerdict(err) {
					t.Error("IsVerdict does not see it")
				}
			}
			if found, ok := errors.AsType[*core.Verdict](test.err); !ok || *found != test.want {
				t.Errorf("errors.AsType finds %+v", found)
			}
		})
	}
	for _, err := range []error{nil, errBoom, errors.Join(errBoom, errBoom)} {
		if v := core.VerdictOf(err); v != nil {
			t.Errorf("%v holds %+v", err, v)
		}
	}
}

func TestVerdictOf_ReturnsTheEffectiveOne(t *testing.T) {
	ranked := []error{ // in the order of their kinds, from 1
		core.Discard("old"), core.MoveTo(errBoom, "fraud"), core.Reject(errBoom), core.Invalid(errBoom), core.Unrecoverable(errBoom), core.PutBack(errBoom, 0), core.Defer(1), core.RetryAfter(errBoom, 1),
	}
	for i, strong := range ranked {
		for _, weak := range ranked[i+1:] {
			for _, err := range []error{
				errors.Join(strong, weak), errors.Join(weak, strong), fmt.Errorf("%w, %w", weak, strong),
				errors.Join(weak, errors.Join(errBoom, fmt.Errorf("x: %w", strong))),
			} {
				if v := core.VerdictOf(err); v == nil || v.Kind != core.VerdictKind(i+1) {
					t.Errorf("%#v holds in %v, want %#v", v, err, strong)
				}
			}
		}
	}
	t.Run("of one within another", func(t *testing.T) {
		if v := core.VerdictOf(core.RetryAfter(fmt.Errorf("x: %w", core.Discard("old")), time.Hour)); v == nil || v.Reason != "old" {
			t.Errorf("%#v", v)
		}
		if v := core.VerdictOf(core.MoveTo(core.Defer(1), "fraud")); v == nil || v.Queue != "fraud" {
			t.Errorf("%#v", v)
		}
	})
}

// Rule R53.
// A middleware sees what the handler decided, and may decide otherwise.
func TestMiddleware_ReadsVerdicts(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		patient := func(next core.HandlerFunc) core.HandlerFunc {
			return func(ctx context.Context, m *core.Message) error {
				err := next(ctx, m)
				if v := core.VerdictOf(err); v != nil && v.Kind == core.VerdictDefer && v.Delay > time.Minute {
					return core.DeferError(v, time.Minute)
				}
				return err
			}
		}
		var recovered recoveryRecorder
		fx.runOrders(core.Config{Middleware: []core.Middleware{core.MiddlewareFunc(patient)}, Observers: []core.Observer{recovered.observer()}}, func(context.Context, *core.Message) error {
			return core.Defer(time.Hour)
		})
		fx.enqueue("m1")
		all := recovered.all()
		if len(all) != 1 || all[0].Action != core.DelayedRetry(time.Minute) || !all[0].Deferred {
			fx.Errorf("%+v", all)
		}
	})
}
