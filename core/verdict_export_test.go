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
		want core.Action
	}{
		{"Discard", core.Discard(errBoom), core.DiscardMessage()},
		{"GiveUp", core.GiveUp(errBoom), core.MoveToError("")},
		{"GiveUpTo", core.GiveUpTo(errBoom, "fraud"), core.MoveToError("fraud")},
		{"Defer", core.Defer(errBoom, time.Minute), core.Action{Kind: core.ActionDefer, Delay: time.Minute}},
		{"Defer until a time that has passed", core.Defer(errBoom, -time.Minute), core.Action{Kind: core.ActionDefer}},
		{"Refuse", core.Refuse(errBoom, time.Minute), core.Action{Kind: core.ActionRefuse, Delay: time.Minute}},
		{"Refuse until a time that has passed", core.Refuse(errBoom, -time.Minute), core.Action{Kind: core.ActionRefuse}},
		{"PutBack", core.PutBack(errBoom, time.Minute), core.Action{Kind: core.ActionPutBack, Delay: time.Minute}},
		{"PutBack until a time that has passed", core.PutBack(errBoom, -1), core.Action{Kind: core.ActionPutBack}},
		{"RetryAfter a time that has passed", core.RetryAfter(errBoom, -time.Hour), core.DelayedRetry(0)},
		{"RetryAfter", core.RetryAfter(errBoom, time.Hour), core.DelayedRetry(time.Hour)},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, err := range []error{test.err, fmt.Errorf("a: %w", fmt.Errorf("b: %w", test.err)), errors.Join(errors.New("x"), test.err)} {
				v := core.VerdictOf(err)
				if v == nil || v.Action != test.want || !errors.Is(v.Err, errBoom) {
					t.Errorf("%v holds %+v, want %+v", err, v, test.want)
				}
			}
			if found, ok := errors.AsType[*core.Verdict](test.err); !ok || found.Action != test.want {
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
	ranked := []error{ // in the order of their kinds
		core.Discard(errBoom), core.GiveUpTo(errBoom, "fraud"), core.GiveUp(errBoom), core.PutBack(errBoom, 0), core.Refuse(errBoom, 1), core.Defer(errBoom, 1), core.RetryAfter(errBoom, 1),
	}
	for i, strong := range ranked {
		for _, weak := range ranked[i+1:] {
			for _, err := range []error{
				errors.Join(strong, weak), errors.Join(weak, strong), fmt.Errorf("%w, %w", weak, strong),
				errors.Join(weak, errors.Join(errBoom, fmt.Errorf("x: %w", strong))),
			} {
				if v := core.VerdictOf(err); error(v) != strong { //nolint:errorlint // it is the value itself
					t.Errorf("%#v holds in %v, want %#v", v, err, strong)
				}
			}
		}
	}
	t.Run("of one within another", func(t *testing.T) {
		if v := core.VerdictOf(core.RetryAfter(fmt.Errorf("x: %w", core.Discard(errors.New("old"))), time.Hour)); v == nil || v.Action.Kind != core.ActionDiscard {
			t.Errorf("%#v", v)
		}
		if v := core.VerdictOf(core.GiveUpTo(core.Defer(errors.New("not yet"), 1), "fraud")); v == nil || v.Action.Queue != "fraud" {
			t.Errorf("%#v", v)
		}
	})
}

// Rule R53.
// A middleware gets the decision of the handler, and may decide otherwise.
func TestMiddleware_ReadsVerdicts(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		patient := func(next core.HandlerFunc) core.HandlerFunc {
			return func(ctx context.Context, m *core.Message) error {
				err := next(ctx, m)
				if v := core.VerdictOf(err); v != nil && v.Action.Kind == core.ActionDefer && v.Action.Delay > time.Minute {
					return core.Defer(v, time.Minute)
				}
				return err
			}
		}
		var recovered recoveryRecorder
		fx.runOrders(core.Config{Middleware: []core.Middleware{core.MiddlewareFunc(patient)}, Observers: []core.Observer{recovered.observer()}}, func(context.Context, *core.Message) error {
			return core.Defer(errors.New("not yet"), time.Hour)
		})
		fx.enqueue("m1")
		all := recovered.all()
		if len(all) != 1 || all[0].Action != (core.Action{Kind: core.ActionDefer, Delay: time.Minute}) {
			fx.Errorf("%+v", all)
		}
	})
}
